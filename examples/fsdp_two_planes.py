#!/usr/bin/env python3
"""Trains a small GPT with FSDP2 between two hosts that two networks connect, and cuts one network in the middle of a step.

    sudo python examples/fsdp_two_planes.py            # needs root, iproute2, torch and the package strandway

The hosts are network namespaces of this machine, each network (plane) is a veth pair of its own. Three runs: `strandway` undisturbed,
`strandway` with plane 0 cut in the backward pass of step 8, and Gloo, which has one plane, with that one cut. The script fails unless the
loss of the second run is equal to that of the first one in every bit of every step, and prints what became of Gloo.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

STEPS, CUT_AT = 16, 8
HOSTS = ["swy-fsdp0", "swy-fsdp1"]
PLANES = [0, 1]


def address(host, plane):
    return f"fd77:{plane}::{host + 1}"


def ip(*words, host=None, check=True):
    where = ["ip", "-n", HOSTS[host]] if host is not None else ["ip"]
    return subprocess.run([*where, *words], check=check, capture_output=not check)


def make_network():
    for host in HOSTS:
        ip("netns", "add", host)
    for plane in PLANES:
        ip("link", "add", f"p{plane}", "netns", HOSTS[0], "type", "veth", "peer", "name", f"p{plane}", "netns", HOSTS[1])
        for host in range(2):
            ip("addr", "add", f"{address(host, plane)}/64", "dev", f"p{plane}", "nodad", host=host)
            ip("addr", "add", f"10.77.{plane}.{host + 1}/24", "dev", f"p{plane}", host=host)
            ip("link", "set", f"p{plane}", "up", host=host)
    for host in range(2):
        ip("link", "set", "lo", "up", host=host)


def remove_network():
    for host in HOSTS:
        ip("netns", "del", host, check=False)


def train(rank, backend, folder):
    """One rank: prints the loss of every step, in hexadecimal."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    import torch.nn.functional as functional
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group(
        backend, init_method=f"file://{folder}/torch", rank=rank, world_size=2, timeout=timedelta(seconds=15)
    )
    words, width, context = 64, 128, 32

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            heads = self.qkv(self.one(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            return x + self.mlp(self.two(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(4))
            self.head = nn.Linear(width, words)

        def forward(self, x):
            x = self.words(x) + self.places.weight[: x.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    model = Gpt()
    mesh = init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(0, words, (64,), generator=torch.Generator().manual_seed(1)).repeat(40)
    picks = torch.Generator().manual_seed(100 + rank)
    for step in range(STEPS):
        at = torch.randint(0, len(text) - context - 1, (8,), generator=picks)
        batch = torch.stack([text[i : i + context + 1] for i in at])
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        if rank == 0 and step == CUT_AT:
            # The parent cuts the plane as soon as it sees this, while the backward pass runs.
            pathlib.Path(folder, "cut").touch()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        print(step, float(whole / 2).hex(), f"{float(whole / 2):.4f}", flush=True)
    dist.destroy_process_group()


def run(backend, cut):
    """Both ranks; the lines of rank 0, seconds, and the last line of what went wrong."""
    make_network()
    folder = tempfile.mkdtemp(prefix="fsdp-two-planes-")
    ranks = []
    try:
        for rank in range(2):
            environment = dict(
                os.environ,
                STRANDWAY_PLANES=",".join(address(rank, plane) for plane in PLANES),
                GLOO_SOCKET_IFNAME="p0",
                OMP_NUM_THREADS="1",
            )
            command = ["ip", "netns", "exec", HOSTS[rank], sys.executable, __file__, "--rank", str(rank)]
            command += ["--backend", backend, "--folder", folder]
            ranks.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
        began = time.monotonic()
        while not pathlib.Path(folder, "cut").exists() and all(rank.poll() is None for rank in ranks):
            time.sleep(0.001)
        if cut:
            ip("link", "set", "p0", "down", host=1)
            print(f"  {backend}: plane 0 is cut in step {CUT_AT}", flush=True)
        outputs = [rank.communicate(timeout=120) for rank in ranks]
        errors = [line for line in outputs[0][1].splitlines() if "Error" in line]
        codes = [rank.returncode for rank in ranks]
        return outputs[0][0].splitlines(), time.monotonic() - began, codes, errors[-1] if errors else ""
    finally:
        for rank in ranks:
            rank.kill()
        remove_network()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rank", type=int)
    parser.add_argument("--backend", default="strandway")
    parser.add_argument("--folder")
    parser.add_argument("--no-gloo", action="store_true")
    options = parser.parse_args()
    if options.rank is not None:
        return train(options.rank, options.backend, options.folder)
    remove_network()
    whole, seconds, codes, error = run("strandway", cut=False)
    print(f"strandway, undisturbed: {len(whole)} of {STEPS} steps, {seconds:.1f} s, {error}")
    if codes != [0, 0]:
        return 1
    cut, seconds, codes, error = run("strandway", cut=True)
    print(f"strandway, a plane cut: {len(cut)} of {STEPS} steps, {seconds:.1f} s, {error}")
    for one, other in zip(whole, cut):
        print(f"  {one}{'' if one == other else '   DIFFERS: ' + other}")
    if codes != [0, 0] or whole != cut or len(cut) != STEPS:
        return 1
    print("  the two runs are equal in every bit")
    if not options.no_gloo:
        lines, seconds, codes, error = run("gloo", cut=True)
        print(f"gloo, its plane cut: {len(lines)} of {STEPS} steps, {seconds:.1f} s, exit {codes}, {error[:160]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

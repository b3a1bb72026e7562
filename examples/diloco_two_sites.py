#!/usr/bin/env python3
"""Trains a small GPT with DiLoCo at two sites, 20 ms there and back apart, over a link that loses one packet in a hundred.

    sudo python examples/diloco_two_sites.py     # needs root, the program strandway, torch and the package strandway

Each site is a host in a network namespace; a delay line of 200 Mb/s joins them. A site takes inner steps of AdamW by itself. After every
eight of them the sites average what their weights have moved, and an outer optimizer (SGD with Nesterov momentum) steps by that, as in
DiLoCo (arXiv 2311.08105, algorithm 1). The averages go over `backend="strandway"` with `STRANDWAY_PROFILE=sdr_auto`, which repairs losses by
parity or retransmission, whichever is faster for a message. Beside it, plain TCP with CUBIC, on which Gloo runs, carries the same bytes
there and back once.

The script fails unless both sites have equal weights after every outer step, and the loss has fallen.
"""

import argparse
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

NAME, PORT = "diloco", 8731
OUTER, INNER = 5, 8
SCENARIO = """
[fabric]
kind = "sites"
sites = 2
hosts_per_site = 1
rate = "1 Gbps"
long_latency = "10 ms"
long_rate = "200 Mbps"
long_queue = "20 ms"
loss = 0.01
queue = "512 KiB"
trimming = false
ecn = false

[profile]
name = "sdr_auto"

[workload]
kind = "flows"
flows = [{ from = 0, to = 1, size = "2 MB" }]
"""
ADDRESS = ["fcbb:bb00:1:8001::", "fcbb:bb00:2:8001::"]


def make_network(strandway, folder):
    scenario = pathlib.Path(folder, "sites.toml")
    scenario.write_text(SCENARIO)
    subprocess.run([strandway, "fabric", "up", scenario, "--name", NAME, "--quiet"], check=True)
    # Plain routes, for programs that know nothing of the fabric's paths.
    h0, h1 = (f"{address}/64" for address in ADDRESS)
    for host, to, via, device in [
        ("h0", h1, "fe80::1", "p0"),
        ("t0-p0-0", h1, "fe80::4001", "u0"),
        ("t0-p0-1", h0, "fe80::4001", "u0"),
        ("h1", h0, "fe80::2", "p0"),
    ]:
        command = ["ip", "-n", f"{NAME}-{host}", "-6", "route", "add", to, "via", via, "dev", device, "mtu", "1500"]
        subprocess.run([*command, "congctl", "cubic"], check=True)


def remove_network(strandway):
    subprocess.run([strandway, "fabric", "down", "--name", NAME], check=False, capture_output=True)


def train(rank, backend, folder, steps):
    """One site: prints a line per outer step."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    import torch.nn.functional as functional
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(7)
    store = f"file://{folder}/store"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    words, width, context = 64, 192, 32
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    model = nn.ModuleDict({"words": nn.Embedding(words, width), "places": nn.Embedding(context, width), "body": body})
    head = nn.Linear(width, words)
    parameters = [*model.parameters(), *head.parameters()]
    mask = nn.Transformer.generate_square_subsequent_mask(context)
    inner = torch.optim.AdamW(parameters, lr=1e-3)
    whole = torch.cat([parameter.detach().flatten() for parameter in parameters])
    outer_weights = nn.Parameter(whole.clone())
    outer = torch.optim.SGD([outer_weights], lr=0.7, momentum=0.9, nesterov=True)

    def take_weights():
        at = 0
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(outer_weights[at : at + parameter.numel()].view_as(parameter))
                at += parameter.numel()

    text = torch.randint(0, words, (64,), generator=torch.Generator().manual_seed(1)).repeat(40)
    picks = torch.Generator().manual_seed(100 + rank)
    for step in range(steps):
        for _ in range(INNER):
            at = torch.randint(0, len(text) - context - 1, (4,), generator=picks)
            batch = torch.stack([text[i : i + context + 1] for i in at])
            seen = model["words"](batch[:, :-1]) + model["places"].weight
            loss = functional.cross_entropy(head(model["body"](seen, mask=mask, is_causal=True)).flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            inner.step()
            inner.zero_grad()
        now = torch.cat([parameter.detach().flatten() for parameter in parameters])
        outer_weights.grad = outer_weights.detach() - now
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(outer_weights.grad)
        seconds = time.perf_counter() - began
        outer_weights.grad /= 2
        outer.step()
        take_weights()
        print(step, float(loss.detach()).hex(), f"{seconds:.3f}", float(outer_weights.detach().double().sum()).hex(), flush=True)
    if rank == 0:
        print("bytes", 4 * outer_weights.numel(), flush=True)
    dist.destroy_process_group()


def tcp(rank, length):
    """Sends and receives `length` bytes at the same time over TCP: prints the seconds."""
    if rank == 0:
        with socket.create_server((ADDRESS[0], PORT), family=socket.AF_INET6) as server:
            line = server.accept()[0]
    else:
        while True:
            try:
                line = socket.create_connection((ADDRESS[0], PORT), timeout=300)
                break
            except OSError:
                time.sleep(0.1)
    line.settimeout(300)
    sending = threading.Thread(target=line.sendall, args=(bytes(length),))
    began = time.perf_counter()
    sending.start()
    left = length
    while left > 0:
        part = line.recv(1 << 20)
        if not part:
            return 1
        left -= len(part)
    sending.join()
    print(f"{time.perf_counter() - began:.2f}", flush=True)
    return 0


def run(backend, folder, steps):
    """The lines of both sites. `steps`: with `tcp`, bytes."""
    sites = []
    try:
        for rank in range(2):
            environment = dict(
                os.environ,
                STRANDWAY_PLANES=ADDRESS[rank],
                STRANDWAY_PROFILE="sdr_auto",
                STRANDWAY_RATE="0.18",
                STRANDWAY_RTT="20",
                STRANDWAY_PAYLOAD="1344",
                OMP_NUM_THREADS="1",
            )
            command = ["ip", "netns", "exec", f"{NAME}-h{rank}", sys.executable, __file__, "--rank", str(rank)]
            command += ["--backend", backend, "--folder", folder, "--steps", str(steps)]
            sites.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [site.communicate(timeout=300) for site in sites]
        if any(site.returncode for site in sites):
            raise RuntimeError(outputs[0][1] + outputs[1][1])
        return [[line.split() for line in output[0].splitlines()] for output in outputs]
    finally:
        for site in sites:
            site.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rank", type=int)
    parser.add_argument("--backend", default="strandway")
    parser.add_argument("--folder")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--program", default=os.environ.get("STRANDWAY") or shutil.which("strandway"), help="the program strandway")
    parser.add_argument("--no-tcp", action="store_true")
    options = parser.parse_args()
    if options.backend == "tcp":
        return tcp(options.rank, options.steps)
    if options.rank is not None:
        return train(options.rank, options.backend, options.folder, options.steps)
    if not options.program:
        parser.error("no program strandway: build it and name it with --program or STRANDWAY")
    remove_network(options.program)
    with tempfile.TemporaryDirectory(prefix="diloco-") as folder:
        try:
            make_network(options.program, folder)
            began = time.monotonic()
            first, second = run("strandway", folder, OUTER)
            length = int(first.pop()[1])
            times = sorted(float(line[2]) for line in first)
            print(f"strandway: {len(first)} outer steps of {length / 1e6:.1f} MB, {time.monotonic() - began:.1f} s in all")
            print(f"  all_reduce: median {times[len(times) // 2]:.2f} s, from {times[0]:.2f} to {times[-1]:.2f} s")
            for one, other in zip(first, second, strict=True):
                print(f"  step {one[0]}: loss {float.fromhex(one[1]):.3f} and {float.fromhex(other[1]):.3f}")
                if one[3] != other[3]:
                    print("  the sites' weights differ")
                    return 1
            if len(first) != OUTER or float.fromhex(first[-1][1]) > 0.8 * float.fromhex(first[0][1]):
                print("  the loss has not fallen")
                return 1
            if not options.no_tcp:
                seconds = max(float(lines[0][0]) for lines in run("tcp", folder, length))
                print(f"TCP, CUBIC: the same bytes there and back in {seconds:.2f} s")
        finally:
            remove_network(options.program)
    return 0


if __name__ == "__main__":
    sys.exit(main())

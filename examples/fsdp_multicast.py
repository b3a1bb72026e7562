#!/usr/bin/env python3
"""Trains a small GPT with FSDP2 on eight hosts whose switch copies multicast and adds gradients.

    sudo python examples/fsdp_multicast.py            # needs root, iproute2, torch and the package strandway

The hosts are network namespaces of this machine. Each has a port of 200 Mb/s to one switch: a Linux bridge that forwards multicast only
to its members (MLD snooping), with `strandway switch` beside it. Four runs, by STRANDWAY_ALGORITHM: direct messages, rings, all-gathers by
multicast, and reduce-scatters by the switch as well. Every run trains, and then times an all-gather alone and an all-gather beside a
reduce-scatter, and counts the bytes of the hosts' ports. The script fails unless the losses with multicast are equal to those of direct
messages in every bit of every step.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SWITCH = "swy-cast-switch"
RUNS = {
    "direct": "direct",
    "ring": "ring",
    "multicast": "all_gather=multicast",
    "multicast, switch adds": "all_gather=multicast,reduce_scatter=in-network",
}


def host(rank):
    return f"swy-cast{rank}"


def address(rank):
    return f"fd78::{rank + 1:x}"


def run(*words, check=True):
    return subprocess.run(words, check=check, capture_output=not check)


def ip(*words, where=None, check=True):
    return run("ip", *(["-n", where] if where else []), *words, check=check)


def make_network(hosts, rate):
    """A bridge in a namespace of its own, and hosts around it whose ports have this rate in both directions."""
    ip("netns", "add", SWITCH)
    ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "1", "mcast_querier", "1", where=SWITCH)
    ip("link", "set", "br0", "mtu", "9000", "up", where=SWITCH)
    ip("addr", "add", "fd78::ff/64", "dev", "br0", "nodad", where=SWITCH)
    for rank in range(hosts):
        name, port = host(rank), f"h{rank}"
        ip("netns", "add", name)
        ip("link", "set", "lo", "up", where=name)
        ip("link", "add", "p0", "mtu", "9000", "type", "veth", "peer", "name", port, "mtu", "9000", "netns", SWITCH, where=name)
        ip("addr", "add", f"{address(rank)}/64", "dev", "p0", "nodad", where=name)
        ip("link", "set", port, "master", "br0", "up", where=SWITCH)
        ip("link", "set", "p0", "up", where=name)
        for namespace, device in [(name, "p0"), (SWITCH, port)]:
            shape = ["root", "tbf", "rate", f"{rate}mbit", "burst", "20000", "limit", "1048576"]
            run("tc", "-n", namespace, "qdisc", "add", "dev", device, *shape)


def remove_network(hosts):
    for name in [SWITCH, *map(host, range(hosts))]:
        ip("netns", "del", name, check=False)


def port_bytes():
    """The bytes that this host's port has sent and received."""
    line = next(line for line in pathlib.Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("p0:"))
    numbers = line.split(":")[1].split()
    return int(numbers[8]), int(numbers[0])


def train(rank, ranks, steps, megabytes, folder):
    """One rank: prints the loss of every step, then its measurements as JSON."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    import torch.nn.functional as functional
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    torch.manual_seed(7)
    store = f"file://{folder}/torch"
    dist.init_process_group("strandway", init_method=store, rank=rank, world_size=ranks, timeout=timedelta(minutes=5))
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
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(0, words, (64,), generator=torch.Generator().manual_seed(1)).repeat(40)
    picks = torch.Generator().manual_seed(100 + rank)
    dist.barrier()
    before, began = port_bytes(), time.monotonic()
    for step in range(steps):
        at = torch.randint(0, len(text) - context - 1, (8,), generator=picks)
        batch = torch.stack([text[i : i + context + 1] for i in at])
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # The losses of all ranks, added in the same order in every run.
        losses = torch.zeros(ranks)
        losses[rank] = loss.detach()
        dist.all_reduce(losses)
        print(step, float(losses.sum() / ranks).hex(), f"{float(losses.sum() / ranks):.4f}", flush=True)
    measured = {"step_seconds": (time.monotonic() - began) / steps, "step": [b - a for a, b in zip(before, port_bytes(), strict=True)]}

    # The bytes of one operation: of all ranks' blocks together.
    count = megabytes * 1_000_000 // 4 // ranks
    own, gathered = torch.full((count,), float(rank)), torch.empty(count * ranks)
    summed, gradients = torch.empty(count), torch.full((count * ranks,), 1.0)

    def timed(operation, right):
        operation()
        times, bytes_of, rounds = [], [], 3
        for _ in range(rounds):
            dist.barrier()
            before, began = port_bytes(), time.monotonic()
            operation()
            dist.barrier()
            times.append(time.monotonic() - began)
            bytes_of.append([b - a for a, b in zip(before, port_bytes(), strict=True)])
            assert right(), "a wrong result"
        at = sorted(range(rounds), key=times.__getitem__)[rounds // 2]
        return {"bytes": 4 * count * ranks, "seconds": times[at], "sent": bytes_of[at][0], "received": bytes_of[at][1]}

    def both():
        works = [
            dist.all_gather_into_tensor(gathered, own, async_op=True),
            dist.reduce_scatter_tensor(summed, gradients, async_op=True),
        ]
        for work in works:
            work.wait()

    def is_gathered():
        return all(bool((gathered[r * count : (r + 1) * count] == r).all()) for r in range(ranks))

    measured["gather"] = timed(lambda: dist.all_gather_into_tensor(gathered, own), is_gathered)
    measured["both"] = timed(both, lambda: is_gathered() and bool((summed == ranks).all()))
    print(json.dumps(measured), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(rules, options, folder):
    """All ranks with these rules; the losses of rank 0, and the measurements of all ranks."""
    ranks, lines = [], []
    for rank in range(options.hosts):
        environment = dict(
            os.environ,
            STRANDWAY_PLANES=address(rank),
            STRANDWAY_RATE=str(options.rate / 1000),
            STRANDWAY_RTT="1",
            STRANDWAY_ALGORITHM=rules,
            STRANDWAY_SWITCH="fd78::ff",
            STRANDWAY_SWITCH_KEY=f"{folder}/key",
            STRANDWAY_SWITCH_LANES="1024",
            OMP_NUM_THREADS="1",
        )
        command = ["ip", "netns", "exec", host(rank), sys.executable, __file__, "--rank", str(rank), "--folder", folder]
        command += ["--hosts", str(options.hosts), "--steps", str(options.steps), "--megabytes", str(options.megabytes)]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    try:
        for rank in ranks:
            lines.append(rank.communicate(timeout=900)[0].splitlines())
        codes = [rank.returncode for rank in ranks]
        if any(codes):
            raise SystemExit(f"ranks ended with {codes}")
    finally:
        for rank in ranks:
            rank.kill()
    return lines[0][:-1], [json.loads(one[-1]) for one in lines]


def report(name, measured, hosts, rate):
    """One row: times, and the bytes of the port with the most, as shares of the operation's bytes."""
    gather, both = measured[0]["gather"], measured[0]["both"]
    size = gather["bytes"]
    share = {key: max(one["gather"][key] for one in measured) / size for key in ("sent", "received")}
    formula = [1 / hosts if "multicast" in name else (hosts - 1) / hosts, (hosts - 1) / hosts]
    times = [max(one[key]["seconds"] for one in measured) for key in ("gather", "both")]
    line = size * 8 / rate / 1e6
    print(
        f"| {name} | {measured[0]['step_seconds']:.2f} s | {times[0]:.2f} s | {share['sent']:.3f} of {formula[0]:.3f} | "
        f"{share['received']:.3f} of {formula[1]:.3f} | {times[1]:.2f} s | {both['bytes'] / 1e6:.0f} MB, {line:.2f} s |",
        flush=True,
    )
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rate", type=float, default=200, help="of each port, in Mb/s")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--megabytes", type=int, default=24, help="of the operations that are timed")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        return train(options.rank, options.hosts, options.steps, options.megabytes, options.folder)
    remove_network(options.hosts)
    folder = tempfile.mkdtemp(prefix="fsdp-multicast-")
    switch, losses, times = None, {}, {}
    try:
        make_network(options.hosts, options.rate)
        pathlib.Path(folder, "key").write_bytes(os.urandom(32))
        command = ["ip", "netns", "exec", SWITCH, sys.executable, "-m", "strandway", "switch", "--listen", "fd78::ff"]
        # A fragment may wait behind a rank's window in its port: 10 ms.
        command += ["--lanes", "1024", "--rtt", "20ms", "--job", f"1={folder}/key", "--socket", f"{folder}/socket"]
        switch = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        print("| algorithms | a step | all-gather | sent by a port | received | with a reduce-scatter beside it | bytes, at line rate |")
        print("|---|---|---|---|---|---|---|")
        for name, rules in RUNS.items():
            losses[name], measured = run_ranks(rules, options, folder)
            pathlib.Path(folder, "torch").unlink(missing_ok=True)
            times[name] = report(name, measured, options.hosts, options.rate)
    finally:
        if switch:
            switch.terminate()
            switch.wait()
        remove_network(options.hosts)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"all-gather by multicast: {times['ring'][0] / times['multicast'][0]:.2f} of the ring's speed")
    together = times["ring"][1] / times["multicast, switch adds"][1]
    most = 2 - 2 / options.hosts
    print(f"all-gather by multicast beside sums in the switch: {together:.2f} times as fast as two rings (at most {most:.2f})")
    for one, other in zip(losses["direct"], losses["multicast"], strict=True):
        print(f"  {one}{'' if one == other else '   DIFFERS: ' + other}")
    if losses["direct"] != losses["multicast"]:
        return 1
    print("  the losses with multicast are equal to those without in every bit")
    values = [[float.fromhex(line.split()[1]) for line in losses[name]] for name in ("direct", "multicast, switch adds")]
    print(f"  with sums in the switch they differ by {max(abs(a - b) / a for a, b in zip(*values, strict=True)):.1e} at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())

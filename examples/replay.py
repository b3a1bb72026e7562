#!/usr/bin/env python3
"""Records FSDP2 on four hosts, and replays the run in the simulator: predicted beside recorded times, with two planes and with one.

    sudo python examples/replay.py            # needs root, iproute2, torch, and strandway with its command

Hosts are network namespaces of this machine. Each plane is a bridge; every port of it passes 500 Mb/s in each direction (--mbps). The
recording says what each rank called and when (STRANDWAY_RECORD, docs/replay.md). The simulator runs the same plans of collectives on
a fabric of the same rates, with the recorded computation between them. Then plane 1 is taken away, in both worlds: the prediction
comes from the recording with two planes.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HOSTS, PLANES, STEPS = 4, 2, 6
SWITCHES = "swy-replay-s"
STRANDWAY = os.environ.get("STRANDWAY", "strandway")


def name(host):
    return f"swy-replay{host}"


def ip(*words, inside=None):
    subprocess.run(["ip", *(["-n", inside] if inside else []), *words], check=True)


def shape(device, inside, mbps):
    """Limits what leaves a port. The queue holds 10 ms."""
    tbf = ["tbf", "rate", f"{mbps}mbit", "burst", "32kb", "latency", "10ms"]
    subprocess.run(["tc", "-n", inside, "qdisc", "add", "dev", device, "root", *tbf], check=True)


def make_network(mbps):
    for inside in [SWITCHES, *map(name, range(HOSTS))]:
        ip("netns", "add", inside)
        ip("link", "set", "lo", "up", inside=inside)
    for plane in range(PLANES):
        ip("link", "add", f"b{plane}", "type", "bridge", "mcast_snooping", "0", inside=SWITCHES)
        ip("link", "set", f"b{plane}", "up", inside=SWITCHES)
        for host in range(HOSTS):
            port = f"p{plane}h{host}"
            ip("link", "add", f"p{plane}", "netns", name(host), "type", "veth", "peer", "name", port, "netns", SWITCHES)
            ip("link", "set", port, "master", f"b{plane}", inside=SWITCHES)
            ip("link", "set", port, "up", inside=SWITCHES)
            ip("addr", "add", f"10.78.{plane}.{host + 1}/24", "dev", f"p{plane}", inside=name(host))
            ip("link", "set", f"p{plane}", "up", inside=name(host))
            shape(port, SWITCHES, mbps)
            shape(f"p{plane}", name(host), mbps)


def remove_network():
    for inside in [SWITCHES, *map(name, range(HOSTS))]:
        subprocess.run(["ip", "netns", "del", inside], capture_output=True)


def train(rank, folder):
    """One rank: a small GPT whose blocks have 3 MB of parameters each."""
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
        "strandway", init_method=f"file://{folder}/torch", rank=rank, world_size=HOSTS, timeout=timedelta(seconds=60)
    )
    words, width, context = 64, 256, 16

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

    model = nn.Sequential(nn.Embedding(words, width), *(Block() for _ in range(6)), nn.Linear(width, words))
    mesh = init_device_mesh("cpu", (HOSTS,))
    for block in list(model)[1:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    picks = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        batch = torch.randint(0, words, (2, context + 1), generator=picks)
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def record(folder, planes, mbps):
    """Trains on these planes; the recording is in `folder`."""
    rates = {"STRANDWAY_RATE": str(0.9 * mbps * len(planes) / 1e3), "STRANDWAY_RECORD": folder, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="strandway-replay-") as store:
        ranks = []
        for rank in range(HOSTS):
            addresses = ",".join(f"10.78.{plane}.{rank + 1}" for plane in planes)
            command = ["ip", "netns", "exec", name(rank), sys.executable, __file__, "--rank", str(rank), "--folder", store]
            ranks.append(subprocess.Popen(command, env={**os.environ, **rates, "STRANDWAY_PLANES": addresses}))
        if any(rank.wait(timeout=300) for rank in ranks):
            sys.exit("a rank has failed")


def predict(folder, planes, mbps):
    """The report of the simulator: the recorded job on this number of planes."""
    scenario = f"""
[fabric]
hosts = {HOSTS}
hosts_per_leaf = {HOSTS}
planes = {planes}
rate = "{0.9 * mbps * planes} Mb/s"         # a process sends 0.9 of what its planes carry: see STRANDWAY_RATE above
latency = "50 us"                             # a round trip of 0.2 ms, as busy processes answer
queue = "{1250 * mbps} B"                    # 10 ms, as the ports have; a bridge neither marks nor trims
ecn = false
trimming = false
[profile]
name = "uec"
[profile.transport]
mtu = 1344
[job]
file = "{folder}"
algorithm = "direct"
"""
    with tempfile.TemporaryDirectory(prefix="strandway-replay-") as place:
        file, out = pathlib.Path(place, "replay.toml"), pathlib.Path(place, "replay.json")
        file.write_text(scenario)
        subprocess.run([STRANDWAY, "run", file, "--quiet", "--json", out], check=True)
        return json.loads(out.read_text())["jobs"][0]


def rows(job):
    """Recorded and predicted times: of the whole run, and of each kind of collective."""
    yield "whole run", 1, job["recorded_us"], job["time_us"]
    for operation in job["operations"]:
        if operation["recorded_us"] is not None:
            yield operation["name"], operation["count"], operation["recorded_us"], operation["time_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="FOLDER", help="keep the recordings there")
    parser.add_argument("--mbps", type=int, default=500, help="rate of a port in each direction (default 500)")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return train(arguments.rank, arguments.folder)
    folder = arguments.keep or tempfile.mkdtemp(prefix="strandway-replay-")
    both, one = (os.path.join(folder, planes) for planes in ("two-planes", "one-plane"))
    remove_network()
    make_network(arguments.mbps)
    try:
        record(both, [0, 1], arguments.mbps)
        record(one, [0], arguments.mbps)
    finally:
        remove_network()
    print("| run | operation | times | recorded, ms | predicted, ms | predicted / recorded |")
    print("|---|---|--:|--:|--:|--:|")
    two = list(rows(predict(both, 2, arguments.mbps)))
    # Recorded on one plane; predicted from the recording on two.
    lost = {name: predicted for name, _, _, predicted in rows(predict(both, 1, arguments.mbps))}
    single = [(name, times, recorded, lost.get(name)) for name, times, recorded, _ in rows(predict(one, 1, arguments.mbps))]
    for run, table in (("two planes", two), ("plane 1 gone", single)):
        for name, times, recorded, predicted in table:
            ms = f"{recorded / 1e3:.2f} | {predicted / 1e3:.2f} | {predicted / recorded:.2f}"
            print(f"| {run} | {name} | {times} | {ms} |")
    if not arguments.keep:
        subprocess.run(["rm", "-r", folder], check=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Multicast between network namespaces, two planes: all-gathers beside rings, casts beside `strandway copy`. One CSV row a cell.

    sudo bench/multicast/run.py gather    all-gather by multicast and by ring: time, and bytes on all cables by the kernel's counters
    sudo bench/multicast/run.py cast      one file to 1, 3, 8 and 15 receivers: time, and bytes that leave the sender

Fabrics are built by `strandway fabric`: 16 hosts below 4 T0s, 2 T1s in each of two planes, packets with 4,096 B of payload. Ports are shaped
so that the cores are not the limit: their load is in each row. STRANDWAY is the program to run, by default target/release/strandway.
RUNS is how often each cell is measured; its median is shown. MB is the size of the file that is cast, by default 128.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from fabric import STRANDWAY, Fabric  # noqa: E402

RUNS = int(os.environ.get("RUNS", "3"))
MB = int(os.environ.get("MB", "128"))
HOSTS = 16

SCENARIO = """
name = "multicast bench"
[fabric]
kind = "leaf-spine"
hosts = {hosts}
hosts_per_leaf = 4
spines = 2
planes = 2
rate = "{rate} Mbps"
queue = "1 MiB"
trimming = false
ecn = false
[profile]
name = "mrc"
[profile.transport]
mtu = 4096
[workload]
kind = "permutation"
size = "1 MiB"
"""


def row(*cells):
    print(",".join(str(cell) for cell in cells), flush=True)


def busy():
    """Seconds that both cores together have worked so far, and seconds that have passed for them."""
    words = open("/proc/stat").readline().split()[1:]
    ticks = [int(word) for word in words]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")


class Hosts(Fabric):
    """Hosts below T0s of four. `rate` is a host's, both planes together, in Mb/s; `loss` that of every port, in per cent."""

    def __init__(self, rate, loss=0, hosts=HOSTS):
        super().__init__("mb", SCENARIO.format(hosts=hosts, rate=rate))
        self.loss = loss

    def __enter__(self):
        super().__enter__()
        if self.loss:
            subprocess.run([STRANDWAY, "fabric", "fail", f"loss:all:{self.loss}%", "--name", self.name], check=True, stdout=subprocess.DEVNULL)
        return self


def formula(ranks, leaf, share, ways):
    """Payload bytes on all cables of an all-gather (Khalilov et al.; section 8.3 of our sheet): hosts contiguous, two tiers."""
    leaves = -(-ranks // leaf)
    if ways == "multicast":
        return ranks * (ranks + (leaves if ranks > leaf else 0)) * share
    hops = sum(2 if a // leaf == (a + 1) % ranks // leaf else 4 for a in range(ranks))
    return (ranks - 1) * hops * share


def gather():
    row("hosts", "mbps_per_plane", "algorithm", "gathered_mib", "runs", "p50_ms", "min_ms", "max_ms", "payload_formula_mb", "cables_mb", "over_formula", "cores_busy")
    for hosts, rate, sizes in ((8, 400, (16, 64)), (16, 100, (16, 64))):
        with Hosts(rate, hosts=hosts) as fabric:
            ranks = os.path.join(fabric.folder, "ranks")
            with open(ranks, "w") as file:
                file.write("".join(f"h{host}\n" for host in range(hosts)))
            for size in sizes:
                for algorithm in ("multicast", "ring"):
                    before, (worked, passed) = fabric.sent(), busy()
                    out = os.path.join(fabric.folder, "out.json")
                    options = ["--algorithm", algorithm, "-b", f"{size}M", "-e", f"{size}M", "-n", str(RUNS), "-w", "0", "--no-check"]
                    command = lambda host: [STRANDWAY, "perf", "collective", "all-gather", "--node", fabric.node(host), "--ranks", ranks, "--rank", str(host), *options]
                    others = [fabric.on(host, *command(host), stdout=subprocess.DEVNULL) for host in range(1, hosts)]
                    first = fabric.on(0, *command(0), "--json", out, stdout=subprocess.DEVNULL)
                    if any(process.wait() for process in [first, *others]):
                        sys.exit("a rank failed")
                    worked, passed = busy()[0] - worked, busy()[1] - passed
                    cables = (fabric.sent() - before) / RUNS / 1e6
                    expected = formula(hosts, 4, (size << 20) / hosts, algorithm) / 1e6
                    with open(out) as file:
                        took = json.load(file)["sizes"][0]["time_us"]
                    row(hosts, rate / 2, algorithm, size, RUNS, *(round(took[k] / 1e3, 1) for k in ("p50", "min", "max")), round(expected, 1), round(cables, 1), round(cables / expected, 4), round(worked / passed, 2))


def one_cast(fabric, receivers, source):
    folders = [tempfile.mkdtemp(dir=fabric.folder) for _ in range(receivers)]
    serving = [fabric.on(host, STRANDWAY, "cast", "--receive", folder, "--once", "--quiet", "--node", fabric.node(host)) for host, folder in enumerate(folders, 1)]
    time.sleep(0.5)
    out = os.path.join(fabric.folder, "cast.json")
    before = fabric.sent("h0")
    to = [word for host in range(1, receivers + 1) for word in ("--to", f"h{host}")]
    began = time.time()
    done = fabric.on(0, STRANDWAY, "cast", source, *to, "--node", fabric.node(0), "--quiet", "--json", out).wait()
    took, sent = time.time() - began, fabric.sent("h0") - before
    for process in serving:
        process.wait()
    name = os.path.basename(source)
    same = all(subprocess.run(["cmp", "-s", source, os.path.join(folder, name)]).returncode == 0 for folder in folders)
    if done or not same:
        sys.exit(f"a cast to {receivers} failed")
    for folder in folders:
        shutil.rmtree(folder)
    return took, sent


def one_copy(fabric, receivers, source):
    """`strandway copy` to one receiver after the other."""
    before, began = fabric.sent("h0"), time.time()
    for host in range(1, receivers + 1):
        folder = tempfile.mkdtemp(dir=fabric.folder)
        serving = fabric.on(host, STRANDWAY, "copy", "--serve", folder, "--once", "--quiet", "--node", fabric.node(host))
        time.sleep(0.3)
        if fabric.on(0, STRANDWAY, "copy", source, f"h{host}:", "--quiet", "--node", fabric.node(0)).wait():
            sys.exit("a copy failed")
        serving.wait()
        shutil.rmtree(folder)
    return time.time() - began - 0.3 * receivers, fabric.sent("h0") - before


def cast():
    row("loss_percent", "program", "receivers", "mb", "runs", "p50_s", "sent_over_file", "cores_busy")
    for loss in (0, 1):
        with Hosts(200, loss=loss) as fabric:
            source = os.path.join(fabric.folder, "file")
            with open(source, "wb") as file:
                file.write(os.urandom(MB * 1_000_000))
            programs = [("cast", lambda n: one_cast(fabric, n, source))]
            programs.append(("copy, one by one", lambda n: one_copy(fabric, n, source)))
            for name, program in programs:
                for receivers in (1, 3) if name.startswith("copy") else (1, 3, 8, 15):
                    worked, passed = busy()
                    runs = [program(receivers) for _ in range(RUNS)]
                    worked, passed = busy()[0] - worked, busy()[1] - passed
                    runs = [run for run in runs if run[0] is not None]
                    if not runs:
                        row(loss, name, receivers, MB, 0, "failed", "", "")
                        continue
                    row(loss, name, receivers, MB, len(runs), round(statistics.median(r[0] for r in runs), 2), round(statistics.median(r[1] for r in runs) / MB / 1e6, 4), round(worked / passed, 2))


if __name__ == "__main__":
    jobs = {"gather": gather, "cast": cast}
    if len(sys.argv) != 2 or sys.argv[1] not in jobs:
        sys.exit(__doc__)
    if os.geteuid() != 0:
        sys.exit("this makes network namespaces: run it as root")
    jobs[sys.argv[1]]()

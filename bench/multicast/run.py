#!/usr/bin/env python3
"""Multicast between network namespaces: all-gathers beside rings, Gloo and MPI, casts beside `uftp` and `strandway copy`. One CSV row a cell.

    sudo bench/multicast/run.py gather    all-gather: time, and bytes on all cables by the kernel's counters
    sudo bench/multicast/run.py cast      one file to 1, 3, 8 and 15 receivers: time, and bytes that leave the sender

Fabrics are built by `strandway fabric`: 16 hosts below 4 T0s, 2 T1s in each of two planes, packets with 4,096 B of payload. Ports are shaped
so that the cores are not the limit: their load is in each row. Gloo, MPI and uftp use one address, so they get one plane at the rate of both.
Gloo is measured if this Python has torch, MPI if it has mpi4py and an mpiexec (`pip install mpich mpi4py`), uftp if it is installed.

STRANDWAY is the program to run, by default target/release/strandway. RUNS is how often each cell is measured; its median is shown.
MIB=16,64 are the sizes that `gather` gathers, ONLY=ring,gloo leaves other rows out. MB is the size of the file that `cast` casts, by default
128, MBPS the rate of a host in it, all ports together, by default 200, LOSS=0,1 the losses of every port in per cent, TEAMS=1,3,8,15 the numbers
of receivers, BLOCK=16M the length of a parcel.
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
import rivals  # noqa: E402
from fabric import STRANDWAY, Fabric  # noqa: E402

RUNS = int(os.environ.get("RUNS", "3"))
MB = int(os.environ.get("MB", "128"))
MBPS = int(os.environ.get("MBPS", "200"))
LOSSES = [float(word) for word in os.environ.get("LOSS", "0,1").split(",")]
TEAMS = tuple(int(word) for word in os.environ.get("TEAMS", "1,3,8,15").split(","))
BLOCK = os.environ.get("BLOCK", "")
SIZES = [int(word) for word in os.environ.get("MIB", "16,64").split(",")]
ONLY = [word for word in os.environ.get("ONLY", "").split(",") if word]
HOSTS, HOSTS_PER_LEAF, SPINES = 16, 4, 2
# The group of all hosts of a fabric on plane 0 and tree 0.
GROUP = "ff1e::8000:0"

SCENARIO = """
name = "multicast bench"
[fabric]
kind = "leaf-spine"
hosts = {hosts}
hosts_per_leaf = 4
spines = 2
planes = {planes}
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
    """Hosts below T0s of four. `rate` is a host's, all planes together, in Mb/s; `loss` that of every port, in per cent."""

    def __init__(self, rate, loss=0, hosts=HOSTS, planes=2):
        super().__init__("mb", SCENARIO.format(hosts=hosts, rate=rate, planes=planes))
        self.loss, self.hosts, self.planes = loss, hosts, planes

    def __enter__(self):
        super().__enter__()
        try:
            self.prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def prepare(self):
        if self.planes == 1:
            self.route_plain(self.hosts, HOSTS_PER_LEAF, SPINES)
        if self.loss:
            subprocess.run([STRANDWAY, "fabric", "fail", f"loss:all:{self.loss}%", "--name", self.name], check=True, stdout=subprocess.DEVNULL)


def formula(ranks, leaf, share, ways):
    """Payload bytes on all cables of an all-gather (Khalilov et al.; section 8.3 of our sheet): hosts contiguous, two tiers."""
    leaves = -(-ranks // leaf)
    if ways == "multicast":
        return ranks * (ranks + (leaves if ranks > leaf else 0)) * share
    hops = sum(2 if a // leaf == (a + 1) % ranks // leaf else 4 for a in range(ranks))
    return (ranks - 1) * hops * share


def ours(fabric, hosts, size, algorithm):
    """Milliseconds of our all-gathers: median, fastest and slowest."""
    ranks, out = os.path.join(fabric.folder, "ranks"), os.path.join(fabric.folder, "out.json")
    with open(ranks, "w") as file:
        file.write("".join(f"h{host}\n" for host in range(hosts)))
    options = ["--algorithm", algorithm, "-b", f"{size}M", "-e", f"{size}M", "-n", str(RUNS), "-w", "0", "--no-check"]
    command = lambda host: [STRANDWAY, "perf", "collective", "all-gather", "--node", fabric.node(host), "--ranks", ranks, "--rank", str(host), *options]
    others = [fabric.on(host, *command(host), stdout=subprocess.DEVNULL) for host in range(1, hosts)]
    first = fabric.on(0, *command(0), "--json", out, stdout=subprocess.DEVNULL)
    if any(process.wait() for process in [first, *others]):
        sys.exit("a rank failed")
    with open(out) as file:
        took = json.load(file)["sizes"][0]["time_us"]
    return {key: took[key] / 1e3 for key in ("p50", "min", "max")}


def gather():
    row("hosts", "mbps_per_host", "planes", "algorithm", "gathered_mib", "runs", "p50_ms", "min_ms", "max_ms", "payload_formula_mb", "cables_mb", "over_formula", "cores_busy")
    for hosts, rate in ((8, 400), (16, 100)):
        for planes, algorithms in ((2, ("multicast", "ring")), (1, rivals.LIBRARIES)):
            wanted = [algorithm for algorithm in algorithms if not ONLY or algorithm in ONLY]
            if not wanted:
                continue
            with Hosts(rate, hosts=hosts, planes=planes) as fabric:
                for size in SIZES:
                    for algorithm in wanted:
                        reason = rivals.missing(algorithm) if planes == 1 else None
                        if reason:
                            row(hosts, rate, planes, algorithm, size, 0, reason)
                            continue
                        before, (worked, passed), runs = fabric.sent(), busy(), RUNS
                        if planes == 2:
                            took = ours(fabric, hosts, size, algorithm)
                        else:
                            took = rivals.spread(rivals.measure(fabric, algorithm, "all_gather", hosts, size << 20, RUNS))
                            runs += 1
                        worked, passed = busy()[0] - worked, busy()[1] - passed
                        cables = (fabric.sent() - before) / runs / 1e6
                        expected = formula(hosts, HOSTS_PER_LEAF, (size << 20) / hosts, algorithm) / 1e6
                        row(hosts, rate, planes, algorithm, size, RUNS, *(round(took[k], 1) for k in ("p50", "min", "max")), round(expected, 1), round(cables, 1), round(cables / expected, 4), round(worked / passed, 2))


def one_cast(fabric, receivers, source):
    folders = [tempfile.mkdtemp(dir=fabric.folder) for _ in range(receivers)]
    serving = [fabric.on(host, STRANDWAY, "cast", "--receive", folder, "--once", "--quiet", "--node", fabric.node(host)) for host, folder in enumerate(folders, 1)]
    time.sleep(0.5)
    out = os.path.join(fabric.folder, "cast.json")
    before = fabric.sent("h0")
    to = [word for host in range(1, receivers + 1) for word in ("--to", f"h{host}")]
    began = time.time()
    done = fabric.on(0, STRANDWAY, "cast", source, *to, *(["--block", BLOCK] if BLOCK else []), "--node", fabric.node(0), "--quiet", "--json", out).wait()
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


def one_uftp(fabric, receivers, source):
    """uftp, unencrypted, at 97 % of the rate: it has no congestion control that finds the rate without losses."""
    folders = [tempfile.mkdtemp(dir=fabric.folder) for _ in range(receivers)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # Each gets its own number: by default they take the last 32 bits of their address, which are 0.
    listen = lambda host: ["uftpd", "-d", "-I", fabric.plain(host), "-U", f"0x{host + 1:08x}", "-M", GROUP, "-B", "4000000"]
    serving = [fabric.on(host, *listen(host), "-D", folder, **quiet) for host, folder in enumerate(folders, 1)]
    time.sleep(0.5)
    before, began = fabric.sent("h0"), time.time()
    send = ["uftp", "-I", fabric.plain(0), "-U", "0x00000001", "-M", GROUP, "-P", GROUP, "-R", str(int(MBPS * 970)), "-b", "4096", "-t", "4", "-H", ",".join(f"0x{host + 1:08x}" for host in range(1, receivers + 1)), source]
    done = fabric.on(0, *send, **quiet).wait()
    took, sent = time.time() - began, fabric.sent("h0") - before
    for process in serving:
        process.terminate()
        process.wait()
    name = os.path.basename(source)
    same = [os.path.exists(os.path.join(folder, name)) and subprocess.run(["cmp", "-s", source, os.path.join(folder, name)]).returncode == 0 for folder in folders]
    for folder in folders:
        shutil.rmtree(folder)
    return (took, sent) if done == 0 and all(same) else (None, f"failed: exit {done}, {sum(same)} of {receivers} files whole")


def cast():
    row("loss_percent", "mbps_per_host", "planes", "program", "receivers", "mb", "runs", "p50_s", "sent_over_file", "cores_busy")
    programs = {"cast": (2, one_cast, TEAMS), "copy": (2, one_copy, (1, 3)), "uftp": (1, one_uftp, TEAMS)}
    for loss in LOSSES:
        for name, (planes, program, teams) in programs.items():
            if ONLY and name not in ONLY:
                continue
            if name == "uftp" and not shutil.which("uftp"):
                row(loss, MBPS, planes, name, "", MB, 0, "not measured: uftp is not installed")
                continue
            with Hosts(MBPS, loss=loss, planes=planes) as fabric:
                source = os.path.join(fabric.folder, "file")
                with open(source, "wb") as file:
                    file.write(os.urandom(MB * 1_000_000))
                for receivers in teams:
                    worked, passed = busy()
                    runs = [program(fabric, receivers, source) for _ in range(RUNS)]
                    worked, passed = busy()[0] - worked, busy()[1] - passed
                    whole = [run for run in runs if run[0] is not None]
                    if not whole:
                        row(loss, MBPS, planes, name, receivers, MB, 0, runs[0][1])
                        continue
                    row(loss, MBPS, planes, name, receivers, MB, len(whole), round(statistics.median(r[0] for r in whole), 2), round(statistics.median(r[1] for r in whole) / MB / 1e6, 4), round(worked / passed, 2))


if __name__ == "__main__":
    jobs = {"gather": gather, "cast": cast}
    if len(sys.argv) != 2 or sys.argv[1] not in jobs:
        sys.exit(__doc__)
    if os.geteuid() != 0:
        sys.exit("this makes network namespaces: run it as root")
    jobs[sys.argv[1]]()

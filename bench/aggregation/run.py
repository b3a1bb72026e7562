#!/usr/bin/env python3
"""All-reduces by a switch that adds, beside rings, Gloo and MPI. One CSV row a cell.

    sudo bench/aggregation/run.py reduce     64 MiB by 4 workers at 200 Mb/s and by 8 at 100 Mb/s: time, and lane bytes of each host
    sudo bench/aggregation/run.py slots      two jobs of four workers with stragglers over 256 to 4,096 slots, under all three systems, beside the simulator
    bench/aggregation/run.py ingress         on loopback: lane bytes that the switch takes in per second of its processor, and what bare UDP takes

Fabrics are built by `strandway fabric`: all hosts below one leaf, whose namespace the switch runs in. Ports are shaped so that the cores are
not the limit: their load is in each row. STRANDWAY is the program to run, by default target/release/strandway. RUNS is how often
each cell is measured; its median is shown. MB is the size of buffers in MiB. ONLY=esa,ring leaves the others out of `reduce`. Gloo is
measured if this Python has torch, MPI if it has mpi4py and an mpiexec (`pip install mpich mpi4py`).
"""

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import rivals  # noqa: E402
from fabric import STRANDWAY, Fabric  # noqa: E402

RUNS = int(os.environ.get("RUNS", "5"))
ONLY = [word for word in os.environ.get("ONLY", "").split(",") if word]
MB = int(os.environ.get("MB", "64"))
SYSTEMS = ("esa", "atp", "switchml")
LANES = 256
# IPv6 and UDP, header and tag of a sealed datagram, header of a fragment; the shaper does not count Ethernet headers.
HEADERS = 48 + 24 + 16 + 32
LEAF = "fcbb:bb00:7ff::1"

# Ports mark alike in namespaces and in the simulator.
MARKS = """
ecn = true
ecn_low = "80 KB"
ecn_high = "80 KB"
ecn_last_hop = true
trimming = false
"""

SCENARIO = """
name = "aggregation bench"
[fabric]
kind = "leaf-spine"
hosts = {hosts}
hosts_per_leaf = {hosts}
spines = 1
rate = "{rate} Mbps"
queue = "1 MiB"
routing = "source"
{marks}[profile]
name = "mrc"
[workload]
kind = "permutation"
size = "1 MiB"
"""

# Two jobs of four workers at one leaf, each with a server at a host of its own. A worker's timer is the wire's, and so is the round trip that
# servers assume: 2 ms.
SIMULATED = """
name = "two jobs"
[fabric]
kind = "leaf-spine"
hosts = 10
hosts_per_leaf = 10
spines = 1
rate = "{rate} Mbps"
queue = "1 MiB"
latency = "500 us"
{marks}[switch]
system = "{system}"
slots = {slots}
lanes = 256
header = "120 B"
control = "120 B"
timeout = "{timeout} us"
{more}
[profile]
name = "uec"
[workload]
kind = "training"
ranks = 8
group = 4
size = "{size} B"
layers = 1
compute = "{compute} ms"
stragglers = {straggle}
noise = 0
iterations = {runs}
"""
# Milliseconds that a worker of `slots` computes before each all-reduce, and the largest share by which it computes longer.
COMPUTE = int(os.environ.get("COMPUTE", "160"))
# Mb/s of a port in `slots`. At a lower rate the scheduler's delays weigh less.
RATE = int(os.environ.get("RATE", "25"))
STRAGGLE = float(os.environ.get("STRAGGLE", "1"))


def row(*cells):
    print(",".join(str(cell) for cell in cells), flush=True)


def busy():
    """Seconds that all cores together have worked so far, and seconds that have passed."""
    ticks = [int(word) for word in open("/proc/stat").readline().split()[1:]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), time.time()


def cpu(pid):
    """Seconds of processor time of a process."""
    words = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Leaf(Fabric):
    """Hosts below one leaf, whose namespace a switch can run in. `rate` is a host's in Mb/s."""

    def __init__(self, rate, hosts):
        super().__init__("ag", SCENARIO.format(hosts=hosts, rate=rate, marks=MARKS))

    def __enter__(self):
        super().__enter__()
        subprocess.run(["ip", "-n", f"{self.name}-t0-p0-0", "addr", "add", f"{LEAF}/128", "dev", "lo", "nodad"], check=True)
        return self

    def inside(self, node, *command):
        return ["ip", "netns", "exec", f"{self.name}-{node}", *command]

    def path(self, name):
        return os.path.join(self.folder, name)


@contextlib.contextmanager
def switch(folder, prefix, address, system, slots, jobs, more=()):
    """A running switch: yields its process, and a function that returns its status."""
    path = os.path.join(folder, "socket")
    keys = []
    for job in jobs:
        with open(os.path.join(folder, f"key{job}"), "wb") as file:
            file.write(os.urandom(32))
        keys += ["--job", f"{job}={os.path.join(folder, f'key{job}')}"]
    command = [*prefix, STRANDWAY, "switch", "--listen", address, "--system", system, "--slots", str(slots), "--socket", path, *keys, *more]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    ask = lambda: json.loads(subprocess.run([STRANDWAY, "switch", "status", "--json", "--socket", path], capture_output=True, text=True, check=True).stdout)
    try:
        for _ in range(100):
            if os.path.exists(path):
                break
            time.sleep(0.05)
        yield process, ask
    finally:
        process.terminate()
        process.wait()


def start(fabric, hosts, job, size, algorithm, more=()):
    """The ranks of a team at these hosts: their processes, and the files of their output."""
    ranks = fabric.path(f"ranks{job}")
    with open(ranks, "w") as file:
        file.write("".join(f"h{host}\n" for host in hosts))
    how = ["--algorithm", "ring"]
    if algorithm != "ring":
        how = ["--algorithm", "in-network", "--switch", LEAF, "--job", str(job), "--job-key", fabric.path(f"key{job}"), *more]
    processes, outs = [], []
    for rank, host in enumerate(hosts):
        outs.append(fabric.path(f"out{job}.{rank}"))
        options = ["--ranks", ranks, "--rank", str(rank), "-b", str(size), "-e", str(size), "-n", str(RUNS), "-w", "1", "--no-multicast", "--json", outs[-1]]
        command = [STRANDWAY, "perf", "collective", "all-reduce", *how, "--node", fabric.node(host), *options]
        processes.append(subprocess.Popen(fabric.inside(f"h{host}", *command), stdout=subprocess.DEVNULL))
    return processes, outs


def end(processes, outs):
    if any(process.wait() for process in processes):
        sys.exit("a rank failed")
    found = [json.load(open(out)) for out in outs]
    if not all(rank["sizes"][0]["right"] for rank in found):
        sys.exit("a wrong sum: this is a defect of ours")
    return found


def reduce():
    row("workers", "mbps", "algorithm", "mib", "runs", "p50_ms", "min_ms", "max_ms", "buffer_at_payload_rate_ms", "over_it", "lane_bytes_out_over_buffer", "lane_bytes_in_over_buffer", "runs_by_ring", "cores_busy")
    size = MB << 20
    for hosts, rate in ((4, 200), (8, 100)):
        with Leaf(rate, hosts) as fabric:
            routed = False
            for algorithm in ONLY or (*SYSTEMS, "ring", *rivals.LIBRARIES):
                ideal = size * 8 / rate / 1e3 * (LANES * 4 + HEADERS) / (LANES * 4)
                worked, began = busy()
                cells = ["", "", ""]
                if algorithm in rivals.LIBRARIES:
                    reason = rivals.missing(algorithm)
                    if reason:
                        row(hosts, rate, algorithm, MB, 0, reason)
                        continue
                    if not routed:
                        fabric.route_plain(hosts, hosts, 1)
                        routed = True
                    took = rivals.spread([1e3 * run for run in rivals.measure(fabric, algorithm, "all_reduce", hosts, size, RUNS)])
                else:
                    inside = switch(fabric.folder, fabric.inside("t0-p0-0"), LEAF, algorithm, 4_096, (1,)) if algorithm != "ring" else contextlib.nullcontext()
                    with inside:
                        ranks = end(*start(fabric, range(hosts), 1, size, algorithm))
                    took = ranks[0]["sizes"][0]["time_us"]
                    if algorithm != "ring":
                        # A datagram with lanes is LANES * 4 bytes longer than one without.
                        lanes = lambda rank, way: (rank["fragments"][f"{way}_bytes"] - rank["fragments"][f"datagrams_{way}"] * (HEADERS - 48)) / (RUNS + 1) / size
                        cells = [round(max(lanes(rank, "sent") for rank in ranks), 4), round(max(lanes(rank, "received") for rank in ranks), 4), ranks[0]["sizes"][0]["by_ring"]]
                worked, passed = busy()[0] - worked, busy()[1] - began
                p50, low, high = (round(took[k] / 1e3, 1) for k in ("p50", "min", "max"))
                row(hosts, rate, algorithm, MB, RUNS, p50, low, high, round(ideal, 1), round(p50 / ideal, 3), *cells, round(worked / passed, 2))


@contextlib.contextmanager
def servers(fabric, system):
    """The parameter servers of both jobs, each at a host of its own, if the system has servers."""
    processes = []
    for job in (1, 2) if system != "switchml" else ():
        command = [STRANDWAY, "switch", "server", "--switch", LEAF, "--job", str(job), "--job-key", fabric.path(f"key{job}")]
        processes.append(subprocess.Popen(fabric.inside(f"h{7 + job}", *command), stdout=subprocess.DEVNULL))
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def simulated(system, count, window, size):
    """The mean time of an iteration in the simulator, in ms, means of three seeds; "unfinished" if a run reaches its time limit."""
    timeout = max(10_000, int(4 * window * (4 * LANES + HEADERS) * 8 / RATE))
    more = "" if system == "switchml" else f"window = {window}\nwindow_start = {min(window, 200)}\n"
    more += 'priority = "constant"\n' if system == "esa" else ""
    text = SIMULATED.format(rate=RATE, marks=MARKS, system=system, slots=count, timeout=timeout, more=more, size=size, compute=COMPUTE, straggle=STRAGGLE, runs=RUNS)
    means = []
    for seed in (1, 2, 3):
        ran = subprocess.run([STRANDWAY, "run", "-", "--seed", str(seed), "-q", "--json", "-"], input=text, capture_output=True, text=True)
        if ran.returncode:
            if "time limit" in ran.stderr:
                return "unfinished"
            sys.exit(f"the simulator says: {ran.stderr}")
        means.append(json.loads(ran.stdout)["switch"]["jct_mean_us"] / 1e3 / RUNS)
    return round(statistics.mean(means), 1)


def slots():
    row("slots", "window", "system", "mib", "runs", "iteration_ms", "simulated_ms", "by_switch", "by_switch_of_job_2", "evicted", "refused", "sent_again", "by_ring", "cores_busy")
    size = MB << 20
    with Leaf(RATE, 10) as fabric:
        for count in (256, 1_024, 4_096):
            for system in ONLY or SYSTEMS:
                # The sum of both windows is twice the slots; SwitchML divides its slots by two jobs and two versions.
                window = count // 4 if system == "switchml" else count
                with switch(fabric.folder, fabric.inside("t0-p0-0"), LEAF, system, count, (1, 2), ("--server-apart",) if system != "switchml" else ()) as (_, ask), servers(fabric, system):
                    worked, began = busy()
                    more = ("--window", str(window), "--compute", f"{COMPUTE}ms", "--straggle", str(STRAGGLE), "--join-patience", "10s", "--patience", "20s")
                    teams = [start(fabric, range(job - 1, 8, 2), job, size, system, more) for job in (1, 2)]
                    teams = [end(*team) for team in teams]
                    worked, passed = busy()[0] - worked, busy()[1] - began
                    jobs = {job["job"]: job for job in ask()["jobs"]}
                ranks = [rank for team in teams for rank in team]
                mean = statistics.mean(rank["sizes"][0]["time_us"]["mean"] for rank in ranks) / 1e3
                again = sum(rank["fragments"]["resent"] for rank in ranks)
                shares = [round(jobs[job]["merged"] / sum(rank["fragments"]["sent"] for rank in team), 3) for job, team in zip((1, 2), teams)]
                totals = [sum(jobs[job][key] for job in (1, 2)) for key in ("evicted", "refused")]
                row(count, window, system, MB, RUNS, round(mean, 1), simulated(system, count, window, size), *shares, *totals, again, ranks[0]["sizes"][0]["by_ring"], round(worked / passed, 2))


def bare(datagram, seconds=3.0):
    """Bytes per second of processor time that bare UDP receives, and sends, in datagrams of this length with GRO and GSO."""
    inbox = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    inbox.bind(("::1", 0))
    inbox.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    inbox.setsockopt(17, 104, 1)  # UDP_GRO
    inbox.settimeout(0.5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        out = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        out.setsockopt(17, 103, datagram)  # UDP_SEGMENT
        out.connect(inbox.getsockname())
        batch, sent, until = bytes(datagram * min(64, 64_000 // datagram)), 0, time.time() + seconds
        before = time.process_time()
        while time.time() < until:
            sent += out.send(batch)
        os.write(writing, f"{sent / (time.process_time() - before)}".encode())
        os._exit(0)
    got, buffer = 0, bytearray(65_536)
    before = time.process_time()
    with contextlib.suppress(TimeoutError):
        while True:
            got += inbox.recv_into(buffer)
    receives = got / (time.process_time() - before)
    os.waitpid(child, 0)
    return receives, float(os.read(reading, 64))


def ingress():
    row("system", "workers", "lanes", "runs", "switch_lane_mb_per_cpu_s", "bare_receives_mb_per_cpu_s", "bare_sends_mb_per_cpu_s", "over_bare_receiving", "over_bare_receiving_and_sending")
    share = 4 * LANES / (4 * LANES + HEADERS - 48)
    receives, sends = (share * rate for rate in bare(4 * LANES + HEADERS - 48))
    both = 1 / (1 / receives + 1 / sends)
    for system in SYSTEMS:
        figures = []
        with tempfile.TemporaryDirectory() as folder:
            ranks = os.path.join(folder, "ranks")
            with open(ranks, "w") as file:
                file.write("".join(f"[::1]:{48_900 + rank}\n" for rank in range(4)))
            for _ in range(RUNS):
                with switch(folder, [], "::1", system, 4_096, (1,)) as (process, ask):
                    how = ["--algorithm", "in-network", "--switch", "::1", "--job-key", os.path.join(folder, "key1"), "-b", "16M", "-e", "16M", "-n", "8", "-w", "0", "--no-check"]
                    command = lambda rank: [STRANDWAY, "perf", "collective", "all-reduce", *how, "--ranks", ranks, "--rank", str(rank)]
                    teams = [subprocess.Popen(command(rank), stdout=subprocess.DEVNULL) for rank in range(4)]
                    if any(team.wait() for team in teams):
                        sys.exit("a rank failed")
                    figures.append(sum(port["lane_bytes"] for port in ask()["ports"]) / cpu(process.pid))
        figure = statistics.median(figures)
        row(system, 4, LANES, RUNS, *(round(x / 1e6) for x in (figure, receives, sends)), round(figure / receives, 3), round(figure / both, 3))


if __name__ == "__main__":
    jobs = {"reduce": reduce, "slots": slots, "ingress": ingress}
    if len(sys.argv) != 2 or sys.argv[1] not in jobs:
        sys.exit(__doc__)
    if os.geteuid() != 0 and sys.argv[1] != "ingress":
        sys.exit("this makes network namespaces: run it as root")
    # A signal ends the program like an error, so that its fabric is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    jobs[sys.argv[1]]()

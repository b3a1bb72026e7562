#!/usr/bin/env python3
"""One large file between two namespaces over one veth pair: `strandway copy` beside `cp` on one host and a plain TCP connection (sendfile), in turns.

Needs root, iproute2 and a release build: `bench/copies.py [--size BYTES] [--rounds N] [--mtu N] [--shape 10gbit] [--to FOLDER] [--rate 25Gbps]`.
It prints rates and the processor time of each thread. `cp` and TCP also wait until the bytes are on the disk. TCP has neither cipher nor hash.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HOSTS = (f"swc{os.getpid()}-a", f"swc{os.getpid()}-b")
ADDRESSES = ("10.0.0.1", "10.0.0.2")
TICKS = os.sysconf("SC_CLK_TCK")

# The receiver of a file over TCP, and its sender.
TAKE = """
import os, socket, sys
listener = socket.create_server((sys.argv[1], 4000))
print("listening", flush=True)
peer, _ = listener.accept()
buffer = memoryview(bytearray(1 << 20))
with open(sys.argv[2], "wb", buffering=0) as file:
    while count := peer.recv_into(buffer):
        file.write(buffer[:count])
    os.fsync(file.fileno())
peer.sendall(b"!")
"""
GIVE = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 4000))
with open(sys.argv[2], "rb") as file:
    peer.sendfile(file)
peer.shutdown(socket.SHUT_WR)
peer.recv(1)
"""


def run(*words):
    subprocess.run(words, check=True)


def build(options):
    for host in HOSTS:
        run("ip", "netns", "add", host)
        run("ip", "-n", host, "link", "set", "lo", "up")
    run("ip", "-n", HOSTS[0], "link", "add", "p0", "type", "veth", "peer", "p0", "netns", HOSTS[1])
    for address, host in zip(ADDRESSES, HOSTS):
        run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "p0")
        run("ip", "-n", host, "link", "set", "p0", "up", "mtu", str(options.mtu))
        if options.shape:
            shape = ["rate", options.shape, "burst", "256k", "limit", "4m"]
            run("ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", "p0", "root", "tbf", *shape)


def remove():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL, check=False)


def on(host, *words, **options):
    return subprocess.Popen(["ip", "netns", "exec", HOSTS[host], *words], text=True, **options)


def seconds(stat):
    """Name of a thread, and its processor time in user mode and in the kernel."""
    name, fields = stat.split("(", 1)[1].rsplit(")", 1)
    fields = fields.split()
    return name, int(fields[11]) / TICKS, int(fields[12]) / TICKS


class Threads:
    """Processor time of the threads of processes, as far as it was seen before they ended."""

    def __init__(self, **processes):
        self.processes = processes
        self.seen = {}
        self.whole = {}

    def sample(self):
        for side, process in self.processes.items():
            folder = f"/proc/{process.pid}/task"
            try:
                with open(f"/proc/{process.pid}/stat") as file:
                    _, *self.whole[side] = seconds(file.read())
                for thread in os.listdir(folder):
                    with open(f"{folder}/{thread}/stat") as file:
                        name, user, kernel = seconds(file.read())
                    if name == "hash":
                        continue
                    role = name if name == "copy" else "network"
                    self.seen[side, role, thread] = (user, kernel)
            except (FileNotFoundError, ProcessLookupError):
                pass

    def until(self, process):
        while process.poll() is None:
            self.sample()
            time.sleep(0.05)
        return process.returncode

    def sums(self):
        found = {}
        for (side, role, _), (user, kernel) in self.seen.items():
            old = found.get((side, role), (0, 0))
            found[side, role] = (old[0] + user, old[1] + kernel)
        # Threads that hash a block end before they are seen.
        for side, whole in self.whole.items():
            seen = [times for (of, _), times in found.items() if of == side]
            found[side, "hash"] = tuple(max(0, all - sum(part)) for all, part in zip(whole, zip(*seen)))
        return found


def by_cp(options, source, folder):
    began = time.time()
    run("cp", source, f"{folder}/file")
    run("sync", f"{folder}/file")
    return time.time() - began, {}


def by_tcp(options, source, folder):
    server = on(1, sys.executable, "-c", TAKE, ADDRESSES[1], f"{folder}/file", stdout=subprocess.PIPE)
    server.stdout.readline()
    began = time.time()
    client = on(0, sys.executable, "-c", GIVE, ADDRESSES[1], source)
    threads = Threads(client=client, server=server)
    code = threads.until(client)
    took = time.time() - began
    if code or server.wait():
        sys.exit("the copy over TCP failed")
    return took, threads.sums()


def by_strandway(options, source, folder, program=None, direct=()):
    program = program or options.strandway
    common = ["--key", options.key, "--rate", options.rate, "--rtt", options.rtt, *options.more]
    server = on(1, program, "copy", "--serve", folder, "--once", "--plane", ADDRESSES[1], *direct, *common, stdout=subprocess.PIPE)
    server.stdout.readline()
    began = time.time()
    words = [program, "copy", source, f"{ADDRESSES[1]}:", "--plane", ADDRESSES[0], "--json", "-", *common]
    client = on(0, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    threads = Threads(client=client, server=server)
    code = threads.until(client)
    took = time.time() - began
    told = client.stdout.read()
    if code:
        sys.exit(client.stderr.read())
    server.wait()
    if options.verbose:
        print(told, file=sys.stderr)
    return took, threads.sums()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strandway", default=os.path.join(os.path.dirname(__file__), "../target/release/strandway"))
    parser.add_argument("--size", type=int, default=4 << 30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mtu", type=int, default=9_000)
    parser.add_argument("--shape", help="such as 10gbit; none by default")
    parser.add_argument("--source", default="/dev/shm", help="folder of the file that is copied")
    parser.add_argument("--to", default="/dev/shm", help="folder of the copies")
    parser.add_argument("--rate", default="40Gbps")
    parser.add_argument("--rtt", default="200us")
    parser.add_argument("--only", default="cp,tcp,strandway")
    parser.add_argument("--before", help="another build, for the way `before`")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("more", nargs="*", help="further options of strandway copy, after --")
    options = parser.parse_args()
    options.strandway = os.path.abspath(options.strandway)
    ways = {
        "cp": by_cp,
        "tcp": by_tcp,
        "before": lambda *all: by_strandway(*all, program=os.path.abspath(options.before)),
        "strandway": by_strandway,
        "strandway --direct": lambda *all: by_strandway(*all, direct=["--direct"]),
    }
    ways = {name: ways[name] for name in options.only.split(",")}
    taken, spent = {name: [] for name in ways}, {}
    from_, to = (tempfile.mkdtemp(dir=folder) for folder in (options.source, options.to))
    try:
        build(options)
        source, options.key = f"{from_}/file", f"{from_}/key"
        with open(options.key, "wb") as file:
            file.write(os.urandom(32))
        with open(source, "wb") as file:
            piece = os.urandom(1 << 24)
            for at in range(0, options.size, len(piece)):
                file.write(piece[: options.size - at])
            os.fsync(file.fileno())
        for _ in range(options.rounds):
            for name, way in ways.items():
                took, threads = way(options, source, to)
                taken[name].append(took)
                for thread, times in threads.items():
                    spent.setdefault((name, *thread), []).append(times)
                if os.stat(f"{to}/file").st_size != options.size:
                    sys.exit(f"{name}: the copy has another size")
                os.remove(f"{to}/file")
    finally:
        remove()
        shutil.rmtree(from_)
        shutil.rmtree(to)
    gigabytes = options.size / 1e9
    print(f"{options.rounds} rounds of {gigabytes:.2f} GB, MTU {options.mtu}, shape {options.shape}, to {options.to}, load {os.getloadavg()[0]:.1f}\n")
    print("| | Gb/s: median (worst, best) | s |\n|---|---|---|")
    for name, times in taken.items():
        rates = [gigabytes * 8 / each for each in times]
        print(f"| {name} | {statistics.median(rates):.2f} ({min(rates):.2f}, {max(rates):.2f}) | {statistics.median(times):.2f} |")
    print("\n| thread | user, s per GB | kernel, s per GB |\n|---|---|---|")
    for thread, times in sorted(spent.items()):
        user, kernel = (statistics.median(part) / gigabytes for part in zip(*times))
        print(f"| {', '.join(thread)} | {user:.3f} | {kernel:.3f} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Run run.py for Gloo, MPI over TCP and strandway in turns, and print one Markdown table: for an idle machine.

    bench/collectives/table.py                                    # 2 ranks over loopback, 1 KiB to 256 MiB
    bench/collectives/table.py --ranks 4,8 --sizes 1K,64K,1M,16M,64M
    sudo bench/collectives/table.py --planes 500                  # 2 hosts in namespaces, planes of 500 Mb/s
    sudo bench/collectives/table.py --planes 500 --ranks 8        # the same with four ranks on each host
    bench/collectives/table.py --local --ranks 2,4,8              # ranks of one host that share memory

Each round runs every column once, so that a slow minute of the machine falls on all of them; a cell has the median of the rounds'
medians. Columns over loopback: gloo, mpi (over TCP; left out if mpi4py is not there), strandway (encrypted), strandway with
STRANDWAY_PROTECTION=none, and both of strandway again from Rust, without Python and torch (left out if
`cargo build --release -p strandway-group --example collectives` was not run). With --planes: gloo over one plane, strandway over one and over
two planes, encrypted; if hosts have several ranks, over two planes by the direct algorithms and by the hierarchical one, with ranks of a host in shared
memory. With --local: gloo, mpi and strandway, the last two through shared memory; in all other columns strandway uses sockets.

The last columns compare encrypted strandway (with --planes: over two planes) with Gloo and MPI: above 1, strandway is faster. The last line
holds the whole against the goals of docs/measurements/process-groups.md.

--json FILE keeps every run as it ends. The same command with the same file goes on where it was interrupted.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import run

HERE = pathlib.Path(__file__).parent
UNITS = {"K": 1 << 10, "M": 1 << 20}
MPI = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
OURS, PLAIN, RUST = "strandway, encrypted", "strandway, protection none", "Rust, encrypted"
LOCAL = "strandway, shared memory"


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def named(size):
    return next((f"{size >> shift} {unit}" for unit, shift in (("MiB", 20), ("KiB", 10)) if size >> shift), f"{size} B")


def time_of(us):
    return f"{us / 1e3:.1f} ms" if us >= 1_000 else f"{us:.0f} us" if us >= 100 else f"{us:.1f} us"


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=not check)


def remove_hosts():
    for host in range(2):
        ip("netns", "del", f"swb{host}", check=False)


def make_hosts(mbps):
    """Two namespaces and two planes: veth pairs with a token bucket at each end."""
    for host in range(2):
        ip("netns", "add", f"swb{host}")
        ip("-n", f"swb{host}", "link", "set", "lo", "up")
    for plane in range(2):
        ip("link", "add", f"p{plane}", "netns", "swb0", "type", "veth", "peer", "name", f"p{plane}", "netns", "swb1")
        for host in range(2):
            where = ["-n", f"swb{host}"]
            ip(*where, "addr", "add", f"fd77:{plane}::a{host}/64", "dev", f"p{plane}", "nodad")
            ip(*where, "addr", "add", f"10.77.{plane}.{host + 1}/24", "dev", f"p{plane}")
            ip(*where, "link", "set", f"p{plane}", "up")
            shape = ["root", "tbf", "rate", f"{mbps}mbit", "burst", "128kb", "latency", "10ms"]
            subprocess.run(["tc", "-n", f"swb{host}", "qdisc", "add", "dev", f"p{plane}", *shape], check=True)


def columns(options):
    """Name, backend, environment and further arguments of each."""
    if options.planes:
        inside = ["--master", "10.77.0.1", "--prefix"]
        shared = ["--per-host", str(int(options.ranks) // 2)]

        def on(addresses, rate):
            # A tenth below the line's rate leaves room for headers.
            settings = f"STRANDWAY_PLANES={addresses} STRANDWAY_RATE={0.9 * rate / 1e3:g} STRANDWAY_RTT=1"
            return [*inside, f"ip netns exec swb{{host}} env {settings}", *shared]

        one, two = "fd77:0::a{host}", "fd77:0::a{host},fd77:1::a{host}"
        gloo = ("gloo, one plane", "gloo", {"GLOO_SOCKET_IFNAME": "p0"}, [*inside, "ip netns exec swb{host}", *shared])
        if options.ranks != "2":
            backend = "rust" if run.RUST.exists() else "strandway"
            return [gloo] + [
                (f"{name}, two planes", backend, {"STRANDWAY_ALGORITHM": name}, on(two, 2 * options.planes))
                for name in ("direct", "hierarchical")
            ]
        return [
            gloo,
            ("strandway, one plane", "strandway", {}, on(one, options.planes)),
            ("strandway, two planes", "strandway", {}, on(two, 2 * options.planes)),
        ]
    secure = {"STRANDWAY_SHARED_MEMORY": "0"}
    plain = {**secure, "STRANDWAY_PROTECTION": "none"}
    table = [("gloo", "gloo", {}, [])]
    if subprocess.run([sys.executable, "-c", "import mpi4py.MPI"], capture_output=True).returncode == 0:
        table.append(("mpi, shared memory", "mpi", {}, []) if options.local else ("mpi, TCP", "mpi", MPI, []))
    else:
        print("mpi4py is not here: no column for MPI (pip install mpich mpi4py)", file=sys.stderr)
    if options.local:
        table.append((LOCAL, "strandway", {}, []))
    else:
        table += [(OURS, "strandway", secure, []), (PLAIN, "strandway", plain, [])]
    if run.RUST.exists():
        rust = [(RUST, "rust", secure, []), ("Rust, protection none", "rust", plain, [])]
        table += [("Rust, shared memory", "rust", {}, [])] if options.local else rust
    else:
        print("no columns for Rust: cargo build --release -p strandway-group --example collectives", file=sys.stderr)
    return [column for column in table if not options.columns or any(part in column[0] for part in options.columns.split(";"))]


class Kept:
    """The runs that have ended, in a file if there is one."""

    def __init__(self, path, settings):
        self.path, self.settings, self.runs = path, settings, []
        if path and os.path.exists(path):
            with open(path) as file:
                kept = json.load(file)
            if kept["settings"] != settings:
                sys.exit(f"{path} is of other settings, {kept['settings']}: name another file, or give the same arguments")
            self.runs = kept["runs"]

    def has(self, turn, ranks, column):
        return any((one["turn"], one["ranks"], one["column"]) == (turn, ranks, column) for one in self.runs)

    def add(self, one):
        self.runs.append(one)
        if self.path:
            # Never half a file, whenever it is interrupted.
            with open(f"{self.path}.new", "w") as file:
                json.dump({"settings": self.settings, "runs": self.runs}, file, indent=1)
            os.replace(f"{self.path}.new", self.path)


def measure(options, sizes, table, kept):
    """Runs what is not in `kept` yet."""
    for turn in range(options.rounds):
        for ranks in options.ranks.split(","):
            for name, backend, environment, more in table:
                if kept.has(turn, ranks, name):
                    continue
                began = time.monotonic()
                with tempfile.NamedTemporaryFile() as file:
                    command = [sys.executable, HERE / "run.py", "--backend", backend, "--ranks", ranks, *more]
                    command += ["--operations", options.operations, "--sizes", ",".join(map(str, sizes))]
                    command += ["--seconds", str(options.seconds), "--json", file.name]
                    subprocess.run(command, env=dict(os.environ, **environment), stdout=subprocess.DEVNULL, check=True)
                    with open(file.name) as rows:
                        report = json.load(rows)
                kept.add({"turn": turn, "ranks": ranks, "column": name, "load": report["load_before"], "rows": report["rows"]})
                took = time.monotonic() - began
                print(f"round {turn + 1} of {options.rounds}, {ranks} ranks, {name}: {took:.0f} s", file=sys.stderr, flush=True)


def goals(cells):
    """The goals of docs/measurements/process-groups.md that rows of two ranks can meet: (goal, met of how many, rows that miss it)."""
    found = {}
    for (operation, ranks, size), row in cells.items():
        best = min(row[name] for name in row if name in ("gloo", "mpi, TCP")) if "gloo" in row else None
        if best is None or ranks != 2 or OURS not in row:
            continue
        asked = []
        if size == 1024:
            asked.append(("1 KiB: a quarter of Gloo's time", row[OURS] <= row["gloo"] / 4))
            if RUST in row and "mpi, TCP" in row:
                asked.append(("1 KiB from Rust: 2.5 times MPI's", row[RUST] <= 2.5 * row["mpi, TCP"]))
        if size == 64 << 20 and operation in ("all_gather", "reduce_scatter"):
            asked.append(("64 MiB: 2.5 times as fast as Gloo", row["gloo"] >= 2.5 * row[OURS]))
            asked.append(("64 MiB: ahead of MPI", row[OURS] < row.get("mpi, TCP", float("inf"))))
        if size == 64 << 20 and operation in ("all_reduce", "broadcast"):
            asked.append(("64 MiB: no slower than the better of both", row[OURS] <= best))
        for goal, met in asked:
            found.setdefault(goal, []).append((met, operation))
    return [(goal, sum(met for met, _ in all_), len(all_), [name for met, name in all_ if not met]) for goal, all_ in found.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--sizes", default="1K,64K,1M,16M,64M,256M")
    parser.add_argument("--operations", default="all_reduce,all_gather,reduce_scatter,broadcast,all_to_all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time per row and round")
    parser.add_argument("--planes", type=int, metavar="MBPS", help="two hosts in namespaces, planes of this rate")
    parser.add_argument("--local", action="store_true", help="shared memory, where there is a choice")
    parser.add_argument("--columns", help="only columns whose name has one of these parts, with semicolons between them")
    parser.add_argument("--json", help="file that keeps all runs; the same command goes on with it")
    options = parser.parse_args()
    sizes = [bytes_of(size) for size in options.sizes.split(",")]
    if options.planes and not (options.ranks.isdigit() and int(options.ranks) % 2 == 0):
        parser.error("--planes has two hosts with as many ranks each: give an even number of ranks")
    table = columns(options)
    settings = {"sizes": sizes, "operations": options.operations, "seconds": options.seconds, "planes": options.planes}
    if options.local:
        settings["local"] = True
    kept = Kept(options.json, settings)
    # `kill` ends it as Ctrl-C does: namespaces are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.planes:
        remove_hosts()
        make_hosts(options.planes)
    try:
        measure(options, sizes, table, kept)
    except KeyboardInterrupt:
        sys.exit(f"interrupted after {len(kept.runs)} runs" + (f"; the same command goes on with {options.json}" if options.json else ""))
    finally:
        if options.planes:
            remove_hosts()
    every = [dict(row, column=one["column"]) for one in kept.runs for row in one["rows"]]
    names = [name for name, *_ in table if any(row["column"] == name for row in every)]
    cells = {}
    for row in every:
        cells.setdefault((row["operation"], row["ranks"], row["bytes"]), {}).setdefault(row["column"], []).append(row["median_us"])
    cells = {key: {name: statistics.median(times) for name, times in row.items()} for key, row in cells.items()}
    loads = [one["load"] for one in kept.runs]
    print(f"{os.cpu_count()} cores, load {min(loads):.2f} to {max(loads):.2f}, {options.rounds} rounds of {options.seconds} s\n")
    rivals = [name for name in names if name.startswith(("gloo", "mpi"))]
    ours = names[-1] if options.planes else LOCAL if options.local else OURS
    against = "".join(f" {name} / {'ours' if ours == OURS else ours} |" for name in rivals)
    print(f"| operation | ranks | size | {' | '.join(names)} |{against}")
    print("|---" * (len(names) + len(rivals) + 3) + "|")
    for (operation, ranks, size), row in cells.items():
        times = " | ".join(time_of(row[name]) if name in row else "" for name in names)
        ratios = "".join(f" {row[name] / row[ours]:.2f} |" if name in row and ours in row else " |" for name in rivals)
        print(f"| {operation} | {ranks} | {named(size)} | {times} |{ratios}")
    for goal, met, of, missed in goals(cells):
        print(f"\n{goal}: met by {met} of {of}" + (f"; missed by {', '.join(missed)}" if missed else ""))


if __name__ == "__main__":
    main()

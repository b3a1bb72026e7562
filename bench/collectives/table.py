#!/usr/bin/env python3
"""Run run.py for Gloo, MPI over TCP and strandway in turns, and print one Markdown table: for an idle machine.

    bench/collectives/table.py                                    # 2 ranks over loopback, 1 KiB to 256 MiB
    bench/collectives/table.py --ranks 4,8 --sizes 1K,64K,1M,16M,64M
    sudo bench/collectives/table.py --planes 500                  # 2 hosts in namespaces, planes of 500 Mb/s

Each round runs every column once, so that a slow minute of the machine falls on all of them; a cell has the median of the rounds'
medians. Columns over loopback: gloo, mpi (over TCP; left out if mpi4py is not there), strandway (encrypted), and strandway with
STRANDWAY_PROTECTION=none. With --planes: gloo over one plane, strandway over one and over two planes, encrypted.

The last columns compare encrypted strandway (with --planes: over two planes) with Gloo and MPI: above 1, strandway is faster.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
UNITS = {"K": 1 << 10, "M": 1 << 20}
MPI = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def named(size):
    return next((f"{size >> shift} {unit}" for unit, shift in (("MiB", 20), ("KiB", 10)) if size >> shift), f"{size} B")


def time_of(us):
    return f"{us / 1e3:.1f} ms" if us >= 1_000 else f"{us:.0f} us"


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

        def on(addresses, rate):
            # A tenth below the line's rate leaves room for headers.
            settings = f"STRANDWAY_PLANES={addresses} STRANDWAY_RATE={0.9 * rate / 1e3:g} STRANDWAY_RTT=1"
            return [*inside, f"ip netns exec swb{{rank}} env {settings}"]

        one, two = "fd77:0::a{rank}", "fd77:0::a{rank},fd77:1::a{rank}"
        return [
            ("gloo, one plane", "gloo", {"GLOO_SOCKET_IFNAME": "p0"}, [*inside, "ip netns exec swb{rank}"]),
            ("strandway, one plane", "strandway", {}, on(one, options.planes)),
            ("strandway, two planes", "strandway", {}, on(two, 2 * options.planes)),
        ]
    all_of_them = [("gloo", "gloo", {}, [])]
    if subprocess.run([sys.executable, "-c", "import mpi4py.MPI"], capture_output=True).returncode == 0:
        all_of_them.append(("mpi, TCP", "mpi", MPI, []))
    else:
        print("mpi4py is not here: no column for MPI (pip install mpich mpi4py)", file=sys.stderr)
    return [
        *all_of_them,
        ("strandway, encrypted", "strandway", {}, []),
        ("strandway, protection none", "strandway", {"STRANDWAY_PROTECTION": "none"}, []),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--sizes", default="1K,64K,1M,16M,64M,256M")
    parser.add_argument("--operations", default="all_reduce,all_gather,reduce_scatter,broadcast,all_to_all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time per row and round")
    parser.add_argument("--planes", type=int, metavar="MBPS", help="two hosts in namespaces, planes of this rate")
    parser.add_argument("--json", help="file for all rows of all rounds")
    options = parser.parse_args()
    sizes = [bytes_of(size) for size in options.sizes.split(",")]
    if options.planes and options.ranks != "2":
        parser.error("--planes has two hosts with a rank each")
    every, load = [], os.getloadavg()[0]
    table = columns(options)
    if options.planes:
        remove_hosts()
        make_hosts(options.planes)
    try:
        for turn in range(options.rounds):
            for name, backend, environment, more in table:
                with tempfile.NamedTemporaryFile() as file:
                    command = [sys.executable, HERE / "run.py", "--backend", backend, "--ranks", options.ranks, *more]
                    command += ["--operations", options.operations, "--sizes", ",".join(map(str, sizes))]
                    command += ["--seconds", str(options.seconds), "--json", file.name]
                    subprocess.run(command, env=dict(os.environ, **environment), stdout=subprocess.DEVNULL, check=True)
                    every += [dict(row, column=name, turn=turn) for row in json.load(open(file.name))["rows"]]
    finally:
        if options.planes:
            remove_hosts()
    names = [name for name, *_ in table]
    print(f"{os.cpu_count()} cores, load {load:.2f} before, {options.rounds} rounds of {options.seconds} s\n")
    rivals = [name for name in names if not name.startswith("strandway")]
    against = " | ".join(f"{name} / strandway" for name in rivals)
    print(f"| operation | ranks | size | {' | '.join(names)} | {against} |")
    print("|---" * (len(names) + len(rivals) + 3) + "|")
    for key in dict.fromkeys((row["operation"], row["ranks"], row["bytes"]) for row in every):
        cells = {}
        for name in names:
            rows = [row for row in every if (row["operation"], row["ranks"], row["bytes"], row["column"]) == (*key, name)]
            cells[name] = statistics.median(row["median_us"] for row in rows)
        ours = cells[names[-1] if options.planes else "strandway, encrypted"]
        times = " | ".join(time_of(cells[name]) for name in names)
        ratios = " | ".join(f"{cells[name] / ours:.2f}" for name in rivals)
        print(f"| {key[0]} | {key[1]} | {named(key[2])} | {times} | {ratios} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(every, file, indent=1)


if __name__ == "__main__":
    main()

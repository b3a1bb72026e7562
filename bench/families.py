#!/usr/bin/env python3
"""IPv4 beside IPv6: bandwidth, round trips and messages per second over one veth pair, in turns.

Needs root, iproute2 and a release build: `bench/families.py [--rounds N] [--seconds S] [--realtime]`. Each side has a core of its own. With
`--realtime` both sides go before all other programs of the machine, so that a busy machine measures as a quiet one; keep it short.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

HOSTS = (f"swf{os.getpid()}-a", f"swf{os.getpid()}-b")
# Addresses of the client and of the server.
FAMILIES = {"IPv6": ("fd00::1", "fd00::2"), "IPv4": ("10.0.0.1", "10.0.0.2")}
MEASURES = {
    "bandwidth, Gb/s": (["--size", "1048576"], lambda row: row["goodput_gbps"], max),
    "round trip of 64 B, us": (["--size", "64", "--latency"], lambda row: row["rtt_us"]["p50"], min),
    "messages of 64 B per second": (["--size", "64", "--depth", "128"], lambda row: row["messages"] / (row["to_s"] - row["from_s"]), max),
}


def run(*words):
    subprocess.run(words, check=True)


def build():
    for host in HOSTS:
        run("ip", "netns", "add", host)
        run("ip", "-n", host, "link", "set", "lo", "up")
    run("ip", "-n", HOSTS[0], "link", "add", "p0", "type", "veth", "peer", "p0", "netns", HOSTS[1])
    for number, host in enumerate(HOSTS):
        run("ip", "-n", host, "addr", "add", f"{FAMILIES['IPv6'][number]}/64", "dev", "p0", "nodad")
        run("ip", "-n", host, "addr", "add", f"{FAMILIES['IPv4'][number]}/24", "dev", "p0")
        run("ip", "-n", host, "link", "set", "p0", "up")
    time.sleep(1)


def remove():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL, check=False)


def measure(options, key):
    def command(side, *words):
        urgent = ["chrt", "-f", "5"] if options.realtime else []
        place = ["ip", "netns", "exec", HOSTS[side], *urgent, "taskset", "-c", str(1 - side)]
        return [*place, options.strandway, "perf", *words, "--key", key, "--profile", options.profile, "--protection", options.protection]

    found = {(measure, family): [] for measure in MEASURES for family in FAMILIES}
    listening = [command(1, "server", "--plane", there) for _, there in FAMILIES.values()]
    servers = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for words in listening]
    try:
        time.sleep(1)
        for number in range(options.rounds):
            for name, (words, of, _) in MEASURES.items():
                for family in sorted(FAMILIES, reverse=number % 2 == 0):
                    here, there = FAMILIES[family]
                    client = command(0, "client", there, "--plane", here, *words, "--seconds", str(options.seconds), "--json", "-")
                    told = subprocess.run(client, capture_output=True, text=True, timeout=120, check=True)
                    found[name, family].append(of(json.loads(told.stdout)))
    finally:
        for server in servers:
            server.kill()
            server.wait()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strandway", default=os.path.join(os.path.dirname(__file__), "../target/release/strandway"))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--profile", default="uec")
    parser.add_argument("--protection", default="encrypted")
    parser.add_argument("--realtime", action="store_true")
    options = parser.parse_args()
    options.strandway = os.path.abspath(options.strandway)
    try:
        build()
        with tempfile.NamedTemporaryFile() as key:
            key.write(os.urandom(32))
            key.flush()
            found = measure(options, key.name)
    finally:
        remove()
    print(f"{options.rounds} rounds of {options.seconds} s, {options.profile}, {options.protection}, load {os.getloadavg()[0]:.1f}\n")
    print("| | IPv6: median (best) | IPv4: median (best) | IPv4 over IPv6 |\n|---|---|---|---|")
    for name, (_, _, best) in MEASURES.items():
        six, four = (found[name, family] for family in ("IPv6", "IPv4"))
        cells = [f"{statistics.median(values):.4g} ({best(values):.4g})" for values in (six, four)]
        print(f"| {name} | {' | '.join(cells)} | {statistics.median(four) / statistics.median(six):.3f} |")


if __name__ == "__main__":
    main()

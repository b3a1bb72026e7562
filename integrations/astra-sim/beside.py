#!/usr/bin/env python3
"""ASTRA-sim's network backends beside this one: the same traces, simulated time and processor time.

    cd ASTRA_SIM && python3 /path/to/strandway/integrations/astra-sim/beside.py TRACES [RANKS...]

TRACES has `all_reduce/8npus_1MB/all_reduce.0.et` and so on, as `examples/workload/microbenchmarks/generator_scripts` makes them.
Every backend that is built in the checkout runs: ours in build/astra_strandway, the two analytical ones, htsim's in
build/astra_htsim/build/bin, ns-3's in extern/network_backend/ns-3/build/scratch. The network is that of docs/others.md: 400 Gb/s and
500 ns per link, 32 hosts per leaf.
"""

import glob
import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "collective-optimization": "baseline",
    "local-mem-bw": 1600,
    "boost-mode": 0,
}
LEAF = 32
SECONDS = 600


def scenario(ranks: int) -> str:
    """Our file."""
    fabric = f"[fabric]\nhosts = {ranks}\nhosts_per_leaf = {min(ranks, LEAF)}\nspines = {LEAF}\n"
    return fabric + 'rate = "400 Gbps"\nlatency = "500 ns"\n[profile]\nname = "uec"\n'


def switch(ranks: int) -> str:
    """The analytical backends' file."""
    return f"topology: [ Switch ]\nnpus_count: [ {ranks} ]\nbandwidth: [ 46.566 ]\nlatency: [ 500.0 ]\n"


def fat_tree(ranks: int) -> str:
    """htsim's file: leaves of 32 hosts and as many spines; a tree of one leaf has links upwards that nothing uses."""
    leaf = min(ranks, LEAF)
    speed = "Downlink_speed_Gbps 400\nDownlink_Latency_ns 500\n"
    tiers = f"Tier 0\n{speed}Radix_Down {leaf}\nRadix_Up {leaf}\n\nTier 1\n{speed}Radix_Down {ranks // leaf}\n"
    return f"Nodes {ranks}\nTiers 2\nPodsize {ranks}\n\n{tiers}"


def graph(ranks: int) -> str:
    """ns-3's file: nodes, switches, links; a line for each link."""
    leaf, leaves = min(ranks, LEAF), max(1, ranks // LEAF)
    spines = LEAF if leaves > 1 else 0
    switches = range(ranks, ranks + leaves + spines)
    links = [(host, ranks + host // leaf) for host in range(ranks)]
    links += [(ranks + one, ranks + leaves + other) for one in range(leaves) for other in range(spines)]
    lines = [f"{one} {other} 400Gbps 0.0005ms 0" for one, other in links]
    return f"{ranks + len(switches)} {len(switches)} {len(links)}\n{' '.join(map(str, switches))}\n" + "\n".join(lines) + "\n"


def ns3_settings(work: Path) -> str:
    """The checkout's own settings for ns-3, with files of ours."""
    ns3 = Path("extern/network_backend/ns-3/scratch")
    text = (ns3 / "config" / "config.txt").read_text()
    for key in ("FLOW", "TRACE", "TRACE_OUTPUT", "FCT_OUTPUT", "PFC_OUTPUT", "QLEN_MON"):
        text = re.sub(rf"(?m)^{key}_FILE .*$", f"{key}_FILE {work / key}", text)
    text = re.sub(r"(?m)^TOPOLOGY_FILE .*$", f"TOPOLOGY_FILE {work / 'graph'}", text)
    (work / "FLOW").write_text("0\n")
    (work / "TRACE").write_text("0\n")
    return re.sub(r"(?m)^ENABLE_TRACE .*$", "ENABLE_TRACE 0", text)


def run(program: str, options: list[str]) -> str:
    """Simulated microseconds and processor seconds of a run, or how it ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run([program, *options], capture_output=True, text=True, timeout=SECONDS)
        said, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        return f"not within {SECONDS} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    exact = re.search(r"last at (\d+) ps", said)
    cycles = [int(found) for found in re.findall(r"finished, (\d+) cycles", said)]
    if not cycles:
        return f"status {status}: {(said.strip().splitlines() or ['nothing'])[-1][:100]}"
    micros = int(exact[1]) / 1e6 if exact else max(cycles) / 1e3
    return f"{micros:,.1f} ({processor:.2f} s)" + (f", status {status}" if status else "")


def main(traces: str, ranks: list[int]) -> None:
    """A line for each collective and number of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "system.json").write_text(json.dumps(SYSTEM))
        memory = "examples/remote_memory/analytical/no_memory_expansion.json"
        for collective in ("all_reduce", "all_to_all"):
            for count in ranks:
                for name, text in (("strandway.toml", scenario), ("switch.yml", switch), ("tree.topo", fat_tree), ("graph", graph)):
                    (work / name).write_text(text(count))
                (work / "ns3.txt").write_text(ns3_settings(work) if Path("extern/network_backend/ns-3/scratch/config").exists() else "")
                (work / "dims.json").write_text(json.dumps({"logical-dims": [str(count)]}))
                common = [
                    f"--workload-configuration={traces}/{collective}/{count}npus_1MB/{collective}",
                    f"--system-configuration={work}/system.json",
                    f"--remote-memory-configuration={memory}",
                ]
                network = f"--network-configuration={work}"
                analytical = "build/astra_analytical/build/bin/AstraSim_Analytical_Congestion"
                tree = ["--htsim_opts", "-topo", f"{work}/tree.topo"]
                backends = {
                    "strandway": ("build/astra_strandway*/AstraSim_Strandway", [f"{network}/strandway.toml"]),
                    "unaware": (f"{analytical}_Unaware", [f"{network}/switch.yml"]),
                    "aware": (f"{analytical}_Aware", [f"{network}/switch.yml"]),
                    "htsim": ("build/astra_htsim/build/bin/AstraSim_HTSim", [f"{network}/switch.yml", *tree]),
                    "ns-3": (
                        "extern/network_backend/ns-3/build/scratch/ns3*-AstraSimNetwork*",
                        [f"{network}/ns3.txt", f"--logical-topology-configuration={work}/dims.json"],
                    ),
                }
                row = [collective, str(count)]
                for name, (pattern, options) in backends.items():
                    for program in sorted(glob.glob(pattern))[:1]:
                        row.append(f"{name} {run(program, common + options)}")
                print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [int(one) for one in sys.argv[2:]] or [8, 16, 32])

#!/usr/bin/env python3
"""Jobs of 64 to 512 GPUs, simulated as a whole and approximately: how far the times differ, the worst first.

    cargo build --release -p strandway-cli
    python3 bench/approximate/run.py [NAME...] > table.md
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRANDWAY = ROOT / "target/release/strandway"
DIVISORS = [4, 6, 8]

RAILS = {"fabric": {"kind": "leaf-spine", "hosts_per_leaf": 8, "spines": 8, "rate": "400 Gbps"},
         "servers": {"gpus": 8, "wiring": "rail-optimised"}}
BY_SERVER = {"fabric": {"kind": "leaf-spine", "hosts_per_leaf": 16, "spines": 16, "rate": "400 Gbps"},
             "servers": {"gpus": 8}}
FAT_TREE = {"fabric": {"kind": "fat-tree", "k": 8, "rate": "400 Gbps"}, "servers": {"gpus": 8}}
PLANES = {"fabric": {"kind": "multi-plane", "planes": 4, "hosts_per_leaf": 8, "spines": 8, "rate": "400 Gbps"},
          "servers": {"gpus": 8, "wiring": "rail-optimised"}}
SINGLE = {"fabric": {"kind": "leaf-spine", "hosts_per_leaf": 8, "spines": 8, "rate": "400 Gbps"}}


def job(model, **degrees):
    return {"name": "job", "model": model, "gpu": "h100", "efficiency": 0.4} | degrees


SPINE = {"switch": "spine0", "kind": "down"}

# Name, GPUs, fabric, profile, jobs, faults.
JOBS = [
    ("dense, TP 8, PP 2, DP 8", 128, RAILS, "uec", [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4)], []),
    ("dense, TP 8, DP 8", 64, RAILS, "uec", [job("llama-7b", tp=8, dp=8, micro_batches=2)], []),
    ("dense, TP 8, PP 4, DP 8", 256, RAILS, "uec", [job("llama-13b", tp=8, pp=4, dp=8, micro_batches=8)], []),
    ("interleaved pipeline", 128, RAILS, "uec",
     [job("llama-13b", tp=8, pp=4, dp=4, micro_batches=8, schedule="interleaved", chunks=2)], []),
    ("zero-bubble pipeline", 128, RAILS, "uec",
     [job("llama-13b", tp=8, pp=4, dp=4, micro_batches=8, schedule="zero-bubble")], []),
    ("context parallel 2", 128, RAILS, "uec", [job("llama3-8b", tp=8, cp=2, dp=8, micro_batches=2)], []),
    ("MRC on four planes", 128, PLANES, "mrc", [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4)], []),
    ("STrack", 128, RAILS, "strack", [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4)], []),
    ("RoCEv2, PFC, rails", 128, RAILS, "rocev2", [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4)], []),
    ("NICs of a server at one leaf", 128, BY_SERVER, "uec", [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4)], []),
    ("RoCEv2, PFC, one leaf per two servers", 128, BY_SERVER, "rocev2",
     [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4)], []),
    ("fat tree of three tiers", 128, FAT_TREE, "uec", [job("llama-13b", tp=4, pp=2, dp=16, micro_batches=4)], []),
    ("TP 4: two replicas in a server", 64, RAILS, "uec", [job("llama-7b", tp=4, dp=16, micro_batches=2)], []),
    ("ZeRO-3", 64, SINGLE, "uec", [job("llama-7b", dp=64, zero=3)], []),
    ("experts, EP 8", 64, RAILS, "uec", [job("mixtral-8x7b", tp=8, ep=8, dp=8, micro_batches=1)], []),
    ("experts, EP 16, loads differ", 128, RAILS, "uec",
     [job("qwen3-30b-a3b", tp=8, ep=16, dp=16, micro_batches=1, imbalance=1.5)], []),
    ("two jobs side by side", 128, RAILS, "uec",
     [job("llama-7b", tp=8, dp=8, micro_batches=2) | {"name": name} for name in ("one", "two")], []),
    ("computation with noise of 2 %", 128, RAILS, "uec",
     [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4, noise=0.02)], []),
    ("stragglers of up to 20 %", 128, RAILS, "uec",
     [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4, stragglers=0.2)], []),
    ("a spine dies, silently", 128, RAILS, "uec", [job("llama-13b", tp=8, pp=2, dp=8, micro_batches=4)],
     [SPINE | {"at": "100 ms", "silent": True}]),
    # Expected to go wrong: messages of few packets, and ports that hash long flows.
    ("bad: tiny messages", 64, RAILS, "uec",
     [{"name": "job", "layers": 24, "hidden": 1024, "tp": 8, "dp": 8, "micro_batches": 4, "gpu": "h100"}], []),
    ("bad: ECMP collisions of long flows", 64, SINGLE, "rocev2", [job("llama-7b", dp=64)], []),
]


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def scenario(gpus, fabric, profile, jobs, faults):
    tables = {name: dict(table) for name, table in fabric.items()}
    if tables["fabric"]["kind"] != "fat-tree":
        tables["fabric"]["hosts"] = gpus
    tables["profile"] = {"name": profile}
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]"] + [f"{key} = {toml(value)}" for key, value in table.items()]
    for name, list_ in (("job", jobs), ("faults", faults)):
        for table in list_:
            lines += [f"[[{name}]]"] + [f"{key} = {toml(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def run(path, *arguments):
    made = subprocess.run([STRANDWAY, "run", path, "-q", "--json", "-", *arguments], capture_output=True, text=True)
    if made.returncode not in (0, 3):
        raise SystemExit(f"{path}: {made.stderr}")
    return json.loads(made.stdout)


def main():
    wanted = sys.argv[1:]
    rows = []
    for name, gpus, *rest in JOBS:
        if wanted and not any(word in name for word in wanted):
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(scenario(gpus, *rest))
            file.flush()
            whole = run(file.name)
            part = run(file.name, "--set", f"run.approximate={DIVISORS}")
        facts = part["approximate"]
        for ours, theirs in zip(part["jobs"], whole["jobs"]):
            if ours["iteration_us"] is None or theirs["iteration_us"] is None:
                rows.append((float("inf"), name, ours["name"], gpus, None, None, None, None, None))
                continue
            off = ours["iteration_us"] / theirs["iteration_us"] - 1
            shares = {one["name"]: one["share"] or 0 for one in theirs["parts"]}
            worst = max(((one["share"] or 0) - shares.get(one["name"], 0) for one in ours["parts"]), key=abs)
            said = next(one for one in facts["figures"] if one["job"] == ours["name"] and one["name"] == "iteration")
            rows.append((abs(off), name, ours["name"], gpus, theirs["iteration_us"] / 1e3, off,
                         said["error_us"] / theirs["iteration_us"], said["chance_us"] / theirs["iteration_us"], worst))
    print("| job | GPUs | whole | approximate | its own error | another seed | worst part |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for _, name, which, gpus, whole, off, said, chance, worst in sorted(rows, key=lambda row: -row[0]):
        label = name if which == "job" else f"{name}: {which}"
        if whole is None:
            print(f"| {label} | {gpus} | did not end | | | | |")
            continue
        print(f"| {label} | {gpus} | {whole:,.2f} ms | {off:+.2%} | {said:.2%} | {chance:.2%} "
              f"| {worst * 100:+.2f} points |")


main()

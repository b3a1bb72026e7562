#!/usr/bin/env python3
"""The table and the bars of run.sh: reads what workers and switches have written into a folder."""

import json
import os
import sys

SYSTEMS = ("esa", "atp", "switchml")
BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60


def load(path):
    with open(path) as file:
        return json.load(file)


def bars(values, most):
    """One character for each of up to WIDTH spans of time."""
    spans = [values[i * len(values) // WIDTH:max((i + 1) * len(values) // WIDTH, i * len(values) // WIDTH + 1)] for i in range(min(WIDTH, len(values)))]
    return "".join(BARS[min(round(sum(span) / len(span) / most * 8), 8)] for span in spans if span)


def main(folder, slots, size):
    print(f"\nall-reduce of {size} by two jobs of four workers, {slots} slots for both; sums are exact in every row")
    print(f"{'system':>9} {'job':>4} {'ms':>8} {'Gb/s':>6} {'by switch':>10} {'evicted':>8} {'refused':>8} {'sent again':>11} {'by ring':>8}")
    for system in SYSTEMS:
        end = {job["job"]: job for job in load(os.path.join(folder, f"{system}.end"))["jobs"]}
        for job in (1, 2):
            ranks = [load(os.path.join(folder, f"{system}.{job}.{rank}")) for rank in range(4)]
            if not all(rank["sizes"][0]["right"] for rank in ranks):
                sys.exit(f"{system}, job {job}: a wrong sum, which is a defect of ours")
            row, at = ranks[0]["sizes"][0], end[job]
            ms = row["time_us"]["p50"] / 1e3
            sums = max(rank["fragments"]["sent"] for rank in ranks)
            again = sum(rank["fragments"]["resent"] for rank in ranks)
            share = min(at["completed"] / sums, 1) if system != "atp" else at["merged"] / sum(rank["fragments"]["sent"] for rank in ranks)
            print(f"{system:>9} {job:>4} {ms:>8.1f} {row['size'] * 8 / ms / 1e6:>6.3f} {share:>9.1%} {at['evicted']:>8} {at['refused']:>8} {again:>11} {row['by_ring']:>8}")
    print("\nslots in use, from the first look to the last one; a full bar is all of them")
    for system in SYSTEMS:
        with open(os.path.join(folder, f"{system}.status")) as file:
            looks = [json.loads(line) for line in file if line.strip()]
        for job in (1, 2):
            held = [next(j["slots"] for j in look["jobs"] if j["job"] == job) for look in looks]
            print(f"{system:>9} {job:>4} |{bars(held, int(slots)):<{WIDTH}}| mean {sum(held) / max(len(held), 1):.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:4])

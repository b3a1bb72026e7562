"""The cost of oversubscription for a training step, for each transport: one sweep on this machine, in an array of jobs, or on Ray.

    python sweep.py                 here
    sbatch slurm.sh                 as an array of Slurm jobs, which share the folder `results`
    python sweep.py --on ray        on a Ray cluster

Results are kept in `results`, and no run is repeated: call it once more to see all rows.
"""

import argparse
import os
from pathlib import Path

import strandway

arguments = argparse.ArgumentParser()
arguments.add_argument("--scenario", default=Path(__file__).parents[2] / "scenarios/guide/layers.toml", type=Path)
arguments.add_argument("--on", choices=["ray"])
arguments.add_argument("--keep", default="results")
given = arguments.parse_args()

# Slurm gives each job of an array its number and the number of jobs.
part, parts = (os.environ.get(f"SLURM_ARRAY_TASK_{name}") for name in ("ID", "COUNT"))
shard = (int(part), int(parts)) if part is not None and parts is not None else None
over = {"fabric.oversubscription": [1, 2, 4], "profile.name": ["uec", "rocev2"]}
rows = strandway.sweep(strandway.Scenario(given.scenario), over, on=given.on, keep=given.keep, shard=shard)
table = rows.table("jobs.step.iteration_us", "jobs.step.bubble")
for row in range(table.rows):
    print(*(table[name][row] for name in table), sep="\t")

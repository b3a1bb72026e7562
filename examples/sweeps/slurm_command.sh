#!/bin/bash
#SBATCH --array=0-15
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --output=sweep-%a.log
# One part of a sweep per job of the array, without Python, submitted from this folder:
#
#   sbatch slurm_command.sh SCENARIO.toml
#
# A job that was killed goes on where it was stopped when it is submitted again. Afterwards this prints all rows, and makes
# those that are missing:
#
#   strandway sweep SCENARIO.toml --results results
exec strandway sweep "$1" --results results --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"

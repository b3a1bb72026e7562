#!/bin/bash
#SBATCH --array=0-5
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --output=sweep-%a.log
# One run per job of the array, submitted from this folder. Afterwards `python sweep.py` prints all rows without running them
# again.
exec python sweep.py --keep results

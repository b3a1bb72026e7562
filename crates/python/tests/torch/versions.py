#!/usr/bin/env python3
"""Run smoke.py on other versions of torch, and print a row of the table in docs/pytorch.md for each.

    python versions.py [--cache FOLDER] [--ranks 2,4] [--detail] [--tests] VERSION...

It runs under a Python that has strandway and torch's small packages (torch_cpu_stubs.py names them). Each version of torch is fetched from
PyPI once, without CUDA's packages (some 2 GB of disk each), and kept in the folder: --cache, or STRANDWAY_CI_CACHE, or
~/.cache/strandway-ci. A version that cannot be fetched is named and left out. The status is 1 if the smoke test of another one fails.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
# Half a minute elsewhere; a busy machine takes longer.
LIMIT = 600


def folder_of(version, cache):
    """The folder with this version of torch, fetched if it is not there; None if it cannot be had."""
    ready = cache / f"torch-{version}-cp{sys.version_info.major}{sys.version_info.minor}"
    if ready.is_dir():
        return ready
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as place:
        target = pathlib.Path(place) / "torch"
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--no-deps", "--target", target, f"torch=={version}"]
        if subprocess.run(command).returncode:
            return None
        for part in ("bin", "torch/include", "torch/test"):
            shutil.rmtree(target / part, ignore_errors=True)
        stubs = [sys.executable, HERE / "torch_cpu_stubs.py", target / "torch" / "lib"]
        subprocess.run(stubs, check=True, stdout=subprocess.DEVNULL)
        target.rename(ready)
    return ready


def run(folder, arguments, debug=""):
    """Runs Python with this version of torch. Gives the seconds, or None after a failure; and what it printed."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path, "TORCH_DISTRIBUTED_DEBUG": debug or "OFF"}
    began = time.monotonic()
    try:
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(map(str, arguments))} is not over after {LIMIT} s", file=sys.stderr)
        return None, ""
    if done.returncode or "passed" not in done.stdout:
        print(done.stdout + done.stderr, file=sys.stderr)
        return None, done.stdout
    return time.monotonic() - began, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cache", type=pathlib.Path, default=None)
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--detail", action="store_true", help="once more with TORCH_DISTRIBUTED_DEBUG=DETAIL")
    parser.add_argument("--tests", action="store_true", help="test_versions.py and test_staging.py, too")
    parser.add_argument("versions", nargs="+")
    options = parser.parse_args()
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    cache = options.cache or pathlib.Path(os.environ.get("STRANDWAY_CI_CACHE") or home / "strandway-ci")
    smoke = HERE / "smoke.py"
    runs = {f"{ranks} ranks": ([smoke, ranks], "") for ranks in options.ranks.split(",")}
    if options.detail:
        runs["2 ranks, DETAIL"] = ([smoke, "2"], "DETAIL")
    if options.tests:
        for name in ("test_versions.py", "test_staging.py"):
            runs[name] = (["-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / name], "")
    print(f"| torch | group is | {' | '.join(runs)} | not in this torch on CPU |\n|{'---|' * (len(runs) + 3)}", flush=True)
    failed = False
    for version in options.versions:
        folder = folder_of(version, cache)
        if folder is None:
            print(f"  torch {version} skipped: it cannot be fetched here", flush=True)
            continue
        cells, face, lacking = [], "?", set()
        for arguments, debug in runs.values():
            seconds, text = run(folder, arguments, debug)
            failed = failed or seconds is None
            cells.append("**fails**" if seconds is None else f"passed, {seconds:.0f} s")
            face = (re.findall(r", As(\w+), \d+ ranks", text) or [face])[0]
            lacking.update(what for line in re.findall(r"on CPU: (.*)", text) for what in line.split(", "))
        print(f"| {version} | {face.lower()} | {' | '.join(cells)} | {', '.join(sorted(lacking))} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

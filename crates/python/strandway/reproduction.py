"""Published results next to ours, and files of other projects."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from . import _lab
from .progress import Line, reporter
from .results import frame
from .tables import Table


class Reproduction:
    """Rows with their verdicts: each compares one of our numbers with a number that was published or measured elsewhere."""

    def __init__(self, inner: _lab.Reproduction) -> None:
        """`reproduce` makes it."""
        self._inner = inner

    @cached_property
    def report(self) -> dict[str, Any]:
        """All rows with their runs and seeds, as `strandway reproduce --json` writes them."""
        return dict(json.loads(self._inner.json()))

    @cached_property
    def rows(self) -> Table:
        """One row per number: id, both numbers, their ratio, the bound, and the verdict ("met", "missed", "undecided", "unknown").

        `least` and `most` are the extremes of the seeds, `low` and `high` the mean's confidence interval of 95 %.
        """

        def line(row: dict[str, Any]) -> dict[str, Any]:
            seeds = [seed for seed in row["seeds"] if seed is not None]
            plain = {key: value for key, value in row.items() if key not in ("seeds", "cells", "interval")}
            low, high = row["interval"] or (None, None)
            return {**plain, "least": min(seeds, default=None), "most": max(seeds, default=None), "low": low, "high": high}

        return Table.of_rows([line(row) for row in self.report["rows"]])

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows by verdict; rows without one are "comparison", "study" and "unjudged"."""
        rows = self.report["rows"]
        return dict(Counter(row["kind"] if row["verdict"] == "unknown" else row["verdict"] for row in rows))

    @property
    def missed(self) -> list[str]:
        """The ids of the rows whose number, with its confidence interval, is outside the bound."""
        return [row["id"] for row in self.report["rows"] if row["verdict"] == "missed"]

    def html(self) -> str:
        """One self-contained page, with charts."""
        return self._inner.html()

    def save(self, path: str | Path) -> None:
        """Writes the rows to a file: `.html`, `.md` or `.json`, by its ending."""
        path = Path(path)
        made = {".html": self.html, ".md": self._inner.markdown, ".json": self._inner.json}.get(path.suffix)
        if made is None:
            raise ValueError(f"{path}: no report has this ending; write .html, .md or .json")
        path.write_text(made(), encoding="utf-8")

    def __str__(self) -> str:
        """The tables that the command line prints."""
        return self._inner.text()

    def __repr__(self) -> str:
        """The number of rows by verdict."""
        return f"Reproduction({', '.join(f'{count} {verdict}' for verdict, count in self.counts.items())})"

    def _repr_html_(self) -> str:
        return frame(self.html())


def reproduction_sets() -> dict[str, str]:
    """The sets of published results by name, each with its subject and the time that it takes.

    >>> "strack" in reproduction_sets()
    True
    """
    return {name: f"{about} ({takes})" for name, about, takes in _lab.reproduction_sets()}


def reproduce(
    *sets: str,
    only: str | None = None,
    full: bool = False,
    jobs: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> Reproduction:
    """Runs the experiments of papers and judges our numbers by theirs, as `strandway reproduce` does.

    `sets`: names of `reproduction_sets`; by default all of them, which takes twenty minutes on two processors. `only`: a
    pattern for ids, in which `*` stands for any text, such as `"healthy/512/*"`. `full`: slow rows, too. `jobs`: runs at a
    time; by default one per processor. `progress`: True draws a line on standard error, or a bar in a notebook; a function
    is called with the runs that have ended and all runs; by default terminals and notebooks show it.
    Other Python threads continue meanwhile; Ctrl-C ends the
    runs.

    Raises `ScenarioError` if a name is unknown or no row matches.

    >>> reproduce("sdr_rdma", only="fig3b").missed
    []
    """

    line = Line()
    report = reporter(progress, line, lambda ended, runs: line.show(f"{ended} of {runs} runs", ended / max(runs, 1)))
    try:
        return Reproduction(_lab.reproduce(list(sets), only, full, jobs if jobs is not None else os.cpu_count() or 1, report))
    finally:
        line.clear()


def import_(path: str | PathLike[str]) -> str:
    """Says what is in a file of another project, and what is assumed of it.

    Known are traffic matrices of htsim, Chakra traces (a file, a folder, or the prefix of their names), GOAL schedules,
    workloads and topologies of SimAI and AICB, algorithms of MSCCL, and topologies, graphs and tuner files of NCCL.
    `Scenario(path)` runs a matrix; `docs/training.md` names the keys of a scenario that take the others.

    Raises `ScenarioError` with file, line and remedy if it cannot be read.
    """
    return _lab.describe_file(fspath(path))

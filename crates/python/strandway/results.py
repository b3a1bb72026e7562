"""The results of a run."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from . import _lab
from .tables import Table


class Result:
    """The result of one run: its report, and tables made from it.

    A result that was kept in a file (see `sweep`) has its report and values, but neither flows nor pages.
    """

    def __init__(self, outcome: _lab.Outcome | None, kept: dict[str, Any] | None = None) -> None:
        """Takes a run, or the contents of a file that kept one."""
        self._outcome = outcome
        self._kept = kept

    def _ran(self) -> _lab.Outcome:
        if self._outcome is None:
            raise RuntimeError("this result was read from a file, which keeps the report only; run the scenario again")
        return self._outcome

    @cached_property
    def report(self) -> dict[str, Any]:
        """The JSON report as a dict; its fields are in `docs/scenario.md`."""
        if self._kept is not None:
            return dict(self._kept["report"])
        return dict(json.loads(self._ran().json()))

    @cached_property
    def values(self) -> dict[str, float | None]:
        """Every number of the report by its dotted name, such as `fct_us.p99` or `collectives.gather.time_us`."""
        if self._kept is not None:
            return dict(self._kept["values"])
        return self._ran().values()

    @property
    def digest(self) -> str:
        """The fingerprint of all events: equal runs have equal digests, on any number of threads."""
        return str(self.report["digest"])

    @property
    def met(self) -> bool:
        """Were all bounds of `[expect]` met?"""
        return all(bool(expected["met"]) for expected in self.report["expect"])

    @cached_property
    def flows(self) -> Table:
        """One row per flow. Collectives of more than a million messages have rows with `run(rows=True)` only."""
        return Table(self._ran().flows())

    @cached_property
    def links(self) -> Table:
        """One row per tier, direction and plane."""
        return Table.of_rows(self.report["links"])

    @cached_property
    def collectives(self) -> Table:
        """One row per collective."""
        return Table.of_rows(self.report["collectives"])

    @cached_property
    def jobs(self) -> Table:
        """One row per training job of kind `fsdp`; `report["jobs"]` also has what it waited for."""
        scalars = [{key: value for key, value in job.items() if not isinstance(value, list)} for job in self.report["jobs"]]
        return Table.of_rows(scalars)

    @cached_property
    def series(self) -> Table:
        """Values over time, if the run was asked for them (`run(series=True)`): time, goodput, and per group of links its use."""
        series = self.report.get("series")
        if series is None:
            raise RuntimeError("this run kept no values over time; run the scenario with series=True")
        goodput = series["goodput_gbps"]
        columns: dict[str, Any] = {
            "time_us": [series["every_us"] * step for step in range(len(goodput))],
            "goodput_gbps": goodput,
        }
        for group in series["groups"]:
            use = list(group["utilisation"])
            columns[f"{group['name']}.utilisation"] = use + [0.0] * (len(goodput) - len(use))
        return Table(columns)

    def html(self) -> str:
        """The report as one self-contained page, with plots."""
        return self._ran().html()

    def save(self, path: str | Path) -> None:
        """Writes the report to a file: `.html`, `.md` or `.json`, by its ending."""
        path = Path(path)
        if path.suffix == ".html":
            text = self.html()
        elif path.suffix == ".md":
            text = self._ran().markdown()
        elif path.suffix == ".json":
            text = json.dumps(self.report, indent=2) + "\n"
        else:
            raise ValueError(f"{path}: no report has this ending; write .html, .md or .json")
        path.write_text(text, encoding="utf-8")

    def keep(self) -> dict[str, Any]:
        """The part that a file keeps."""
        return {"report": self.report, "values": self.values}

    def __str__(self) -> str:
        """The report as the command line prints it."""
        return self._ran().text(None) if self._outcome is not None else repr(self)

    def __repr__(self) -> str:
        """Name, flows, end and digest."""
        flows = self.report["flows"]
        return (
            f"Result({self.report['scenario']!r}: {flows['finished']:,} of {flows['total']:,} flows finished, "
            f"{self.report['end']}, digest {self.digest})"
        )

    def _repr_html_(self) -> str:
        return frame(self.html()) if self._outcome is not None else f"<pre>{self!r}</pre>"


def frame(page: str) -> str:
    """A page inside a notebook: it keeps its own styles and scripts."""
    from html import escape

    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:80vh;border:0"></iframe>'

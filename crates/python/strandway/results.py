"""The results of a run."""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

from . import _lab
from .tables import Table


class Result:
    """The result of one run: its report, and tables and pages made from it.

    It can be pickled and copied. A result that a sweep took from a folder, an executor or Ray has no flows and no values over time; the
    rest is there.
    """

    def __init__(self, outcome: _lab.Outcome | None, kept: dict[str, Any] | None = None, *, series: bool = False) -> None:
        """Takes a run, or what `keep` returned for one. `series`: it was asked for values over time."""
        self._outcome = outcome
        self._kept = kept
        self._series = series

    @cached_property
    def _pages(self) -> _lab.Outcome:
        """The run; or one that is made of the report, for pages and texts."""
        return self._outcome if self._outcome is not None else _lab.Outcome.of_report(json.dumps(self.report))

    @cached_property
    def report(self) -> dict[str, Any]:
        """The JSON report as a dict; its fields are in `docs/scenario.md`."""
        if self._kept is not None:
            return dict(self._kept["report"])
        return dict(json.loads(self._pages.json()))

    @cached_property
    def values(self) -> dict[str, float | None]:
        """Every number of the report by its dotted name, such as `fct_us.p99` or `collectives.gather.time_us`."""
        if self._kept is not None:
            return dict(self._kept["values"])
        return self._pages.values()

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
        columns = self._columns()
        if columns is None:
            raise RuntimeError("this result has its report only: folders, executors and Ray keep no flows; run the row's scenario for them")
        return Table(columns)

    def _columns(self) -> Any:
        return (self._kept or {}).get("flows") if self._outcome is None else self._outcome.flows()

    @cached_property
    def links(self) -> Table:
        """One row per tier, direction and plane of links."""
        return Table.of_rows(self.report.get("links", []))

    @cached_property
    def collectives(self) -> Table:
        """One row per collective; no row if there is none."""
        return Table.of_rows(self.report.get("collectives", []))

    @cached_property
    def jobs(self) -> Table:
        """One row per training job; `report["jobs"]` also has what it waited for. No row if there is no job."""
        jobs = self.report.get("jobs", [])
        scalars = [{key: value for key, value in job.items() if not isinstance(value, list | dict)} for job in jobs]
        return Table.of_rows(scalars)

    @cached_property
    def services(self) -> Table:
        """One row per inference service; no row if there is none.

        Columns of distributions are `ttft_us.p99`, `tbt_us.p50` and so on, those of a network that is a formula `formula.ttft_us.p99`.
        `report["services"]` also has what the slowest requests waited for, and the load of replicas over time.
        """
        return Table.of_rows([_flat(service) for service in self.report.get("services", [])])

    @cached_property
    def requests(self) -> Table:
        """One row per request of all services, with the service's name; no row unless the scenario says `run.rows = true`."""
        services = self.report.get("services", [])
        return Table.of_rows([{"service": one["name"], **row} for one in services for row in one.get("rows", [])])

    @cached_property
    def series(self) -> Table:
        """Values over time: one row per interval.

        The columns are the interval's begin, the goodput (and that of each plane), per group of links its use and its queues, and
        for the connection that the scenario watches (`watched.`) its goodput, window, bytes in flight and states of paths. No row if
        nothing was received.
        """
        series = self.report.get("series")
        if series is None:
            if self._series:
                return Table()
            raise RuntimeError("this run kept no values over time: it ran with series=False, as folders, executors and Ray do")
        return Table(_of_equal_length(series))

    def html(self) -> str:
        """The report as one self-contained page, with plots."""
        return self._pages.html()

    def save(self, path: str | Path) -> None:
        """Writes the report to a file: `.html`, `.md` or `.json`, by its ending."""
        path = Path(path)
        if path.suffix == ".html":
            text = self.html()
        elif path.suffix == ".md":
            text = self._pages.markdown()
        elif path.suffix == ".json":
            text = json.dumps(self.report, indent=2) + "\n"
        else:
            raise ValueError(f"{path}: no report has this ending; write .html, .md or .json")
        path.write_text(text, encoding="utf-8")

    def keep(self) -> dict[str, Any]:
        """The part that a folder keeps."""
        return {"report": self.report, "values": self.values}

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets results go to other processes, with their flows."""
        return (_of_kept, ({**self.keep(), "flows": self._columns()}, self._series))

    def __str__(self) -> str:
        """The report as the command line prints it."""
        return self._pages.text(None)

    def __repr__(self) -> str:
        """Name, flows, end and digest."""
        flows = self.report["flows"]
        return (
            f"Result({self.report['scenario']!r}: {flows['finished']:,} of {flows['total']:,} flows finished, "
            f"{self.report['end']}, digest {self.digest})"
        )

    def _repr_html_(self) -> str:
        return frame(self.html())


def _of_kept(kept: dict[str, Any], series: bool) -> Result:
    return Result(None, kept, series=series)


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The numbers and texts of a structure by their dotted paths, without lists."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            flat[prefix + name] = value
    return flat


def _of_equal_length(series: dict[str, Any]) -> dict[str, list[Any]]:
    """The columns of the report's values over time. Where one ends early, its rates and queues are 0 and the rest is NaN."""
    columns: dict[str, tuple[list[Any], float]] = {"goodput_gbps": (series["goodput_gbps"], 0.0)}

    def planes(before: str, of: dict[str, Any]) -> None:
        for plane, values in enumerate(of["planes_gbps"]):
            columns[f"{before}plane {plane}.goodput_gbps"] = (values, 0.0)

    planes("", series)
    for group in series["groups"]:
        columns[f"{group['name']}.utilisation"] = (group["utilisation"], 0.0)
        for queue in ("queued_bytes", "queued_max_bytes"):
            columns[f"{group['name']}.{queue}"] = (group[queue], 0)
    watched = series.get("watched")
    if watched is not None:
        columns["watched.goodput_gbps"] = (watched["goodput_gbps"], 0.0)
        planes("watched.", watched)
        for name in ("window_bytes", "in_flight_bytes"):
            columns[f"watched.{name}"] = (watched[name], math.nan)
        for states in watched["paths"]:
            for state, counts in states.items():
                if isinstance(counts, list):
                    columns[f"watched.plane {states['plane']}.paths_{state}"] = (counts, math.nan)
    rows = max(len(values) for values, _ in columns.values())
    padded = {name: [*values, *[rest] * (rows - len(values))] for name, (values, rest) in columns.items()}
    return {"time_us": [series["every_us"] * step for step in range(rows)], **padded}


def frame(page: str) -> str:
    """A page inside a notebook: it keeps its own styles and scripts."""
    from html import escape

    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:80vh;border:0"></iframe>'

"""Many runs: on this machine, on your own executor, on Ray, or in parts on a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any, Literal

from . import _lab
from .congestion import Controls
from .errors import ScenarioError
from .progress import Line, wanted
from .results import Result, frame
from .scenario import Scenario, plain
from .tables import Table


class Row:
    """One run of several: the keys that it sets, and its result or error.

    `set` has the values of the keys: numbers and truth values as such, everything else as text.
    """

    def __init__(self, label: str, changed: dict[str, str], scenario: Scenario, congestion: Controls | None = None) -> None:
        """Takes its label in tables, the dotted keys that it sets as texts, its scenario, and its control if that is in Python."""
        self.label = label
        self._texts = changed
        self.set = {key: _typed(scenario, key, text) for key, text in changed.items()}
        self.scenario = scenario
        self.congestion = congestion
        self.result: Result | None = None
        self.error: str | None = None

    def __repr__(self) -> str:
        """Label and digest, or error."""
        return f"Row({self.label!r}: {self.error or (self.result.digest if self.result else 'not run')})"


class Rows(Sequence[Row]):
    """The runs of a comparison or sweep, in order."""

    def __init__(self, title: str, rows: list[Row], text: str) -> None:
        """Takes a title, the rows and the text of the scenario that they vary."""
        self.title = title
        self._rows = rows
        self._text = text

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        """One run, or a slice of them."""
        return self._rows[place]

    def __iter__(self) -> Iterator[Row]:
        """All runs."""
        return iter(self._rows)

    @property
    def failed(self) -> list[Row]:
        """The runs that ended with an error."""
        return [row for row in self._rows if row.error is not None]

    def table(self, *values: str) -> Table:
        """One row per run: its label, the keys that it sets, these values (see `Result.values`), its digest and its error.

        Without `values`: finished flows, and the median, the 99th percentile and the maximum of completion times.
        """
        wanted = values or ("flows.finished", "fct_us.p50", "fct_us.p99", "fct_us.max")

        def line(row: Row) -> dict[str, Any]:
            numbers = row.result.values if row.result is not None else {}
            return {
                "label": row.label,
                **row.set,
                **{name: numbers.get(name) for name in wanted},
                "digest": row.result.digest if row.result is not None else "",
                "error": row.error or "",
            }

        return Table.of_rows([line(row) for row in self._rows])

    def _given(self) -> list[tuple[str, dict[str, str], _lab.Outcome]]:
        ran = [(row, row.result) for row in self._rows if row.result is not None]
        return [(row.label, row._texts, result._pages) for row, result in ran]

    def html(self) -> str:
        """One self-contained page for all runs."""
        return _lab.page_of_rows(self.title, self._given(), self._text)

    def __str__(self) -> str:
        """The table that the command line prints."""
        return _lab.table_of_rows(self._given(), None)

    def __repr__(self) -> str:
        """Title and number of runs."""
        return f"Rows({self.title!r}: {len(self)} runs, {len(self.failed)} failed)"

    def _repr_html_(self) -> str:
        return frame(self.html()) if self._given() else self.table()._repr_html_()


On = Executor | Literal["ray"] | None
"""The place of the runs: threads of this process, an executor, or Ray."""


def compare(
    scenario: Scenario,
    profiles: str | Iterable[str],
    *,
    on: On = None,
    jobs: int | None = None,
    keep: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | None = None,
    progress: bool | None = None,
    congestion: Controls | Sequence[Controls | None] | None = None,
) -> Rows:
    """Runs the scenario under each of these profiles: a list of names, or one text with commas as on the command line.

    The keywords are those of `sweep`.
    """
    names = profiles.split(",") if isinstance(profiles, str) else list(profiles)
    if not any(name.strip() for name in names):
        raise ValueError(f'profiles = {profiles!r}: there is nothing to compare; name profiles, such as ["rocev2", "uec"]')
    rows = _rows(scenario._inner.compare(names), congestion)
    return _all(scenario, rows, on, jobs, keep, shard, progress)


def sweep(
    scenario: Scenario,
    over: Mapping[str, Iterable[Any]] | None = None,
    *,
    on: On = None,
    jobs: int | None = None,
    keep: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | None = None,
    progress: bool | None = None,
    congestion: Controls | Sequence[Controls | None] | None = None,
) -> Rows:
    """Runs every combination of `over`, or of the scenario's own `[sweep]`. Keys are in alphabetical order; the last one varies fastest.

    Keywords:

    - `on`: `None` for threads of this process, an executor of `concurrent.futures`, or `"ray"` (`pip install strandway[ray]`).
    - `jobs`: runs at a time in this process; by default one per processor.
    - `keep`: a folder, the same that `strandway sweep --results` takes. Each result is appended to a file there, under a key made
      from the scenario and the files it names, and is not run again. Results that were read have neither flows nor values over time.
    - `shard`: `(i, n)`: every n-th run only, from the i-th on, counted from 0; for arrays of jobs on a cluster that share a
      folder `keep`. The same call without `shard` then gathers all of them.
    - `progress`: draw a line on standard error, or a bar in a notebook; by default in terminals and notebooks.
    - `congestion`: a congestion control in Python, as `Scenario.run` takes it: each combination runs with the profile's own control and
      with this one. A list says which ones, where None is the profile's own: `[Halving, Gentle]`. Such runs are never kept in a folder.

    A run that fails is a row with an error, and the next call runs it again. Ctrl-C ends all runs; with an executor, those
    that have not begun. Raises `ScenarioError` if a combination makes no sense, and the first exception of a control.
    """
    base = scenario
    if over is not None:
        for name, values in over.items():
            if isinstance(values, str):
                raise ValueError(f"{name} = {values!r}: is one text; give a list of values, such as [{values!r}]")
        base = scenario.copy().set("sweep", {name: plain(name, values) for name, values in over.items()})
    rows = _rows(base._inner.sweep(), congestion)
    return _all(scenario, rows, on, jobs, keep, shard, progress)


def _rows(
    variants: list[tuple[str, dict[str, str], _lab.Scenario]],
    congestion: Controls | Sequence[Controls | None] | None,
) -> list[Row]:
    """A row per variant; with controls in Python a row per variant and control."""
    if congestion is None:
        return [Row(label, changed, Scenario._of(inner)) for label, changed, inner in variants]
    controls = list(congestion) if isinstance(congestion, Sequence) else [None, congestion]
    rows: dict[tuple[tuple[str, str], ...], Row] = {}
    for label, changed, inner in variants:
        for control in controls:
            name = inner.congestion() if control is None else _name(control)
            also = label if control is None else f"{label}, congestion={name}"
            texts = {**changed, "profile.congestion": name}
            # A sweep over built-in controls has one row per control of Python.
            rows.setdefault(tuple(texts.items()), Row(also, texts, Scenario._of(inner), control))
    return list(rows.values())


def _name(control: Controls) -> str:
    """The name of a control in tables."""
    if isinstance(control, Mapping):
        return ", ".join(f"{profile}: {_name(own)}" for profile, own in control.items())
    return str(getattr(control, "__name__", type(control).__name__))


def _typed(scenario: Scenario, key: str, text: str) -> Any:
    """The value of a key that a variant sets, if it is a number or truth value; else its text."""
    found = scenario._inner.value(key)
    value = text if found is None else json.loads(found)
    return value if isinstance(value, int | float) else text


def _all(
    scenario: Scenario,
    rows: list[Row],
    on: On,
    jobs: int | None,
    keep: str | os.PathLike[str] | None,
    shard: tuple[int, int] | None,
    progress: bool | None,
) -> Rows:
    draws = wanted(progress)
    if shard is not None:
        first, parts = shard
        if not 0 <= first < parts:
            raise ValueError(f"shard = {shard}: the part is counted from 0; write, say, (0, {max(parts, 1)})")
        rows = rows[first::parts]
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs = {jobs}: at least one run goes on at a time")
    kept = None if keep is None else _lab.Results(str(keep), shard)
    # A key does not tell two versions of a class apart.
    keys = {} if kept is None else {id(row): row.scenario._inner.key() for row in rows if row.congestion is None}
    left = []
    for row in rows:
        found = kept.get(keys[id(row)]) if kept is not None and id(row) in keys else None
        report = None if found is None else found[0]
        if found is None or report is None:
            left.append(row)
        else:
            row.result = Result(None, {"report": json.loads(report), "values": found[1]})
    line = Line(scenario.name)
    done = len(rows) - len(left)

    def over(row: Row) -> None:
        nonlocal done
        done += 1
        if kept is not None and id(row) in keys:
            report = None if row.result is None else json.dumps(row.result.report)
            kept.add(keys[id(row)], row.label, row._texts, report, row.error)
        if draws:
            line.show(f"{done} of {len(rows)} runs", done / len(rows))

    try:
        _run(left, on, jobs, over)
    finally:
        line.clear()
    return Rows(scenario.name, rows, scenario.text())


def _run(rows: list[Row], on: object, jobs: int | None, over: Callable[[Row], None]) -> None:
    if on == "ray":
        _on_ray(rows, over)
    elif isinstance(on, Executor):
        # Another process may have made it: it returns the part that a folder keeps.
        _gather({on.submit(_elsewhere, row.scenario, row.congestion): row for row in rows}, over, lambda kept: Result(None, kept))
    elif on is None:
        stop = _lab.Stop()
        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            try:
                _gather({pool.submit(_here, row, stop): row for row in rows}, over, lambda result: result)
            except BaseException:
                # Signals reach the main thread only.
                stop.stop()
                raise
    else:
        raise ValueError(f'on = {on!r}: write None, "ray", or give an executor of concurrent.futures')


def _here(row: Row, stop: _lab.Stop) -> Result:
    outcome = row.scenario._inner.run(series=True, congestion=row.congestion, stop=stop)
    return Result(outcome, series=True)


def _elsewhere(scenario: Scenario, congestion: Controls | None) -> dict[str, Any]:
    return scenario.run(progress=False, series=False, congestion=congestion).keep()


def _gather(futures: dict[Future[Any], Row], over: Callable[[Row], None], made: Callable[[Any], Result]) -> None:
    try:
        for future in as_completed(futures):
            row = futures[future]
            try:
                row.result = made(future.result())
            except (ScenarioError, MemoryError, RuntimeError, OSError) as error:
                row.error = f"{type(error).__name__}: {error}"
            over(row)
    finally:
        for future in futures:
            future.cancel()


def _on_ray(rows: list[Row], over: Callable[[Row], None]) -> None:
    try:
        import ray
    except ImportError as error:
        raise ImportError('on="ray" needs Ray: pip install "strandway[ray]"') from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    remote = ray.remote(_elsewhere)
    pending = {remote.remote(row.scenario, row.congestion): row for row in rows}
    try:
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1)
            row = pending.pop(ready[0])
            try:
                row.result = Result(None, ray.get(ready[0]))
            except Exception as error:  # Ray wraps what went wrong in errors of its own.
                row.error = f"{type(error).__name__}: {error}".splitlines()[-1]
            over(row)
    finally:
        for task in pending:
            ray.cancel(task, force=True)


def key(scenario: Scenario) -> str:
    """The key under which a result is kept: a digest of the version, the scenario's keys, and the files that it names."""
    scenario.check()
    return str(scenario._inner.key())

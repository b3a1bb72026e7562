"""Many runs: on this machine, on your own executor, on Ray, or in parts on a cluster."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any

from . import _lab
from .errors import ScenarioError
from .results import Result, frame
from .scenario import Scenario
from .tables import Table


class Row:
    """One run of several: the keys that it sets, and its result or error."""

    def __init__(self, label: str, changed: dict[str, str], scenario: Scenario) -> None:
        """Takes its label in tables, the dotted keys that it sets, and its scenario."""
        self.label = label
        self.set = changed
        self.scenario = scenario
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
        return [(row.label, row.set, result._ran()) for row, result in ran]

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
        if all(row.result is None or row.result._outcome is not None for row in self._rows):
            return frame(self.html())
        return self.table()._repr_html_()


def compare(scenario: Scenario, profiles: Iterable[str], **how: Any) -> Rows:
    """Runs the scenario under each of these profiles. Keywords are those of `sweep`, except `over`."""
    variants = scenario._inner.compare(list(profiles))
    return _all(scenario, _rows(variants), **how)


def sweep(scenario: Scenario, over: Mapping[str, Sequence[Any]] | None = None, **how: Any) -> Rows:
    """Runs every combination of `over`, or of the scenario's own `[sweep]`. Keys are in alphabetical order; the last one varies fastest.

    Keywords:

    - `on`: `None` for threads of this process, an executor of `concurrent.futures`, or `"ray"` (`pip install strandway[ray]`).
    - `jobs`: runs at a time in this process; by default one per processor.
    - `keep`: a folder, the same that `strandway sweep --results` takes. Each result is appended to a file there, under a key made
      from the scenario and the files it names, and is not run again. Results that were read have their report only.
    - `shard`: `(i, n)`: every n-th run only, from the i-th on, counted from 0; for arrays of jobs on a cluster that share a
      folder `keep`. The same call without `shard` then gathers all of them.
    - `progress`: draw a line on standard error; by default in a terminal.

    A run that fails is a row with an error, and the next call runs it again. Raises `ScenarioError` if a combination makes no sense.
    """
    base = scenario
    if over is not None:
        base = scenario.copy().set("sweep", {key: list(values) for key, values in over.items()})
    return _all(scenario, _rows(base._inner.sweep()), **how)


def _rows(variants: list[tuple[str, dict[str, str], _lab.Scenario]]) -> list[Row]:
    return [Row(label, changed, Scenario._of(inner)) for label, changed, inner in variants]


def _all(
    scenario: Scenario,
    rows: list[Row],
    *,
    on: Executor | str | None = None,
    jobs: int | None = None,
    keep: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | None = None,
    progress: bool | None = None,
) -> Rows:
    if shard is not None:
        first, parts = shard
        if not 0 <= first < parts:
            raise ValueError(f"shard = {shard}: the part is counted from 0; write, say, (0, {max(parts, 1)})")
        rows = rows[first::parts]
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs = {jobs}: at least one run goes on at a time")
    kept = None if keep is None else _lab.Results(str(keep), shard)
    keys = {} if kept is None else {id(row): row.scenario._inner.key() for row in rows}
    left = []
    for row in rows:
        found = None if kept is None else kept.get(keys[id(row)])
        report = None if found is None else found[0]
        if found is None or report is None:
            left.append(row)
        else:
            row.result = Result(None, {"report": json.loads(report), "values": found[1]})
    draws = sys.stderr.isatty() if progress is None else progress
    done = len(rows) - len(left)

    def over(row: Row) -> None:
        nonlocal done
        done += 1
        if kept is not None:
            report = None if row.result is None else json.dumps(row.result.report)
            kept.add(keys[id(row)], row.label, row.set, report, row.error)
        if draws:
            sys.stderr.write(f"\r\033[K{scenario.name}: {done} of {len(rows)} runs")
            sys.stderr.flush()

    try:
        _run(left, on, jobs, over)
    finally:
        if draws:
            sys.stderr.write("\r\033[K")
    return Rows(scenario.name, rows, scenario.text())


def _run(rows: list[Row], on: Executor | str | None, jobs: int | None, over: Callable[[Row], None]) -> None:
    if on == "ray":
        _on_ray(rows, over)
    elif isinstance(on, Executor):
        # Another process may have made it: it returns the part that a file keeps.
        _gather({on.submit(_elsewhere, row.scenario): row for row in rows}, over, lambda kept: Result(None, kept))
    elif on is None:
        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            quiet: dict[Future[Any], Row] = {pool.submit(_here, row.scenario): row for row in rows}
            try:
                _gather(quiet, over, lambda result: result)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    else:
        raise ValueError(f'on = {on!r}: write None, "ray", or give an executor of concurrent.futures')


def _here(scenario: Scenario) -> Result:
    return scenario.run(progress=False)


def _elsewhere(scenario: Scenario) -> dict[str, Any]:
    return scenario.run(progress=False, series=False).keep()


def _gather(futures: dict[Future[Any], Row], over: Callable[[Row], None], made: Callable[[Any], Result]) -> None:
    for future in as_completed(futures):
        row = futures[future]
        try:
            row.result = made(future.result())
        except (ScenarioError, MemoryError, RuntimeError, OSError) as error:
            row.error = f"{type(error).__name__}: {error}"
        over(row)


def _on_ray(rows: list[Row], over: Callable[[Row], None]) -> None:
    try:
        import ray
    except ImportError as error:
        raise ImportError('on="ray" needs Ray: pip install "strandway[ray]"') from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    remote = ray.remote(_elsewhere)
    pending = {remote.remote(row.scenario): row for row in rows}
    while pending:
        ready, _ = ray.wait(list(pending), num_returns=1)
        row = pending.pop(ready[0])
        try:
            row.result = Result(None, ray.get(ready[0]))
        except Exception as error:  # Ray wraps what went wrong in errors of its own.
            row.error = f"{type(error).__name__}: {error}".splitlines()[-1]
        over(row)


def key(scenario: Scenario) -> str:
    """The key under which a result is kept: a digest of the version, the scenario's keys, and the files that it names."""
    scenario.check()
    return str(scenario._inner.key())

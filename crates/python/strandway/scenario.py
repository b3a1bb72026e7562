"""Scenarios, which describe simulations."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from . import _lab
from .congestion import Controls
from .errors import ScenarioError
from .progress import Line, reporter
from .results import Result

Progress = Callable[[int, int, int, int, float], object]


class Scenario:
    """A scenario as written: fabric, transport, workload, faults.

    It is made of a path to a TOML file or traffic matrix, of TOML text, or of a dict with the same sections.

    >>> scenario = Scenario("[fabric]\\nhosts = 4\\n[workload]\\nsize = '1 MB'")
    >>> scenario.set("fabric.hosts", 8).text()
    '[fabric]\\nhosts = 8\\n\\n[workload]\\nsize = "1 MB"\\n'
    >>> Scenario({"fabric": {"hots": 4}}).check()
    Traceback (most recent call last):
        ...
    strandway.errors.ScenarioError: scenario: fabric.hots = 4: unknown key; did you mean `hosts`?
    """

    def __init__(self, source: str | PathLike[str] | Mapping[str, Any], *, name: str = "scenario") -> None:
        """Takes a path, TOML text (it has a line break or a bracket), or a dict. In messages the latter two are called `name`.

        Raises `ScenarioError` if a file cannot be read or is not TOML.
        """
        if isinstance(source, Mapping):
            self._inner = _lab.Scenario.from_json(name, json.dumps(plain("", source)))
        elif isinstance(source, str) and ("\n" in source or source.lstrip().startswith("[")):
            self._inner = _lab.Scenario.from_text(name, str(source))
        else:
            path = fspath(source)
            self._inner = _lab.Scenario.load(path)

    @classmethod
    def _of(cls, inner: _lab.Scenario) -> Scenario:
        made = cls.__new__(cls)
        made._inner = inner
        return made

    @property
    def name(self) -> str:
        """Its `name`, or its file's."""
        return self._inner.name()

    @property
    def inputs(self) -> list[Path]:
        """Every file that was read for it so far: its own, and those that it names."""
        return [Path(path) for path in self._inner.inputs()]

    def text(self) -> str:
        """The TOML text with all changes."""
        return self._inner.text()

    def set(self, key: str, value: Any) -> Scenario:
        """Changes one dotted key, such as `workload.size`, and returns the scenario. Names of workloads count as keys.

        Values are numbers, texts, lists and dicts; scalars and arrays of numpy count as those. `ScenarioError` for NaN and infinity.
        """
        self._inner.set(key, json.dumps(plain(key, value)))
        return self

    def copy(self) -> Scenario:
        """A copy that can be changed on its own."""
        return Scenario._of(self._inner.copy())

    def check(self) -> str:
        """Finds all problems at once. Returns an estimate of time and memory as a sentence.

        Raises `ScenarioError`; its `problems` has one entry per problem.
        """
        return self._inner.check()[1]

    def run(
        self,
        *,
        progress: bool | Progress | None = None,
        threads: int | None = None,
        rows: bool = False,
        series: bool = True,
        force: bool = False,
        congestion: Controls | None = None,
    ) -> Result:
        """Simulates it. Other Python threads continue meanwhile; Ctrl-C ends the run.

        `progress`: True draws a line on standard error, or a bar in a notebook; a function is called some times a second with packet
        hops done and expected, flows finished and in all, and simulated microseconds; by default long runs in terminals
        and notebooks show it.
        `threads`: threads that share the run; results do not depend on it. `rows`: keep a row for every flow of collectives
        of more than a million messages. `series`: keep values over time. `force`: run even if memory may not do.
        `congestion`: a congestion control in Python instead of the profile's, for experiments: a subclass of `CongestionControl`, or a dict
        of them by names of profiles. Such a run has one thread and is many times slower; an exception in the control ends it.

        Raises `ScenarioError` if the scenario is wrong, `MemoryError` if it does not fit, and the first exception of a control.
        """
        if congestion is not None and threads not in (None, 1):
            raise ValueError(f"threads={threads}: a run with a congestion control in Python has one thread")
        line = Line(self.name)

        def draw(hops: int, expected: int, finished: int, flows: int, us: float) -> None:
            share = min(hops / max(expected, 1), 1.0)
            line.show(f"{share:4.0%}, {finished:,} of {flows:,} flows, {us:,.0f} us simulated", share)

        report = reporter(progress, line, draw)
        try:
            outcome = self._inner.run(report, threads, rows, series, force, congestion)
        finally:
            line.clear()
        return Result(outcome, series=series)

    def __eq__(self, other: object) -> bool:
        """Do both have the same keys with the same values? Files that they name are compared by name."""
        if not isinstance(other, Scenario):
            return NotImplemented
        return bool(json.loads(self._inner.json()) == json.loads(other._inner.json()))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Scenarios are sent to other processes as text; the files that they name are read at their old places."""
        where = str(Path(self._inner.file()).resolve()) if self.inputs else self._inner.file()
        return (_parse_in, (where, self.text()))

    def __repr__(self) -> str:
        """Name and file."""
        return f"Scenario({self.name!r} from {self._inner.file()})"


def _parse_in(file: str, text: str) -> Scenario:
    return Scenario._of(_lab.Scenario.parse_in(file, text))


def plain(key: str, value: Any) -> Any:
    """A value of a scenario as JSON has it. Scalars and arrays of numpy, and tuples, sets and ranges, become numbers and lists.

    `ScenarioError` names the key of a number that is not finite, and of an object that is no value.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(key, float(value), "is no finite number", "give a number, or a text with a unit")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, PathLike):
        return fspath(cast("PathLike[str]", value))
    if isinstance(value, Mapping):
        return {str(name): plain(f"{key}.{name}" if key else str(name), inner) for name, inner in value.items()}
    if hasattr(value, "tolist"):
        return plain(key, value.tolist())
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(f"{key}.{place}", inner) for place, inner in enumerate(value)]
    raise _refused(key, value, f"is a {type(value).__name__}", "give a number, a text, a list or a dict")


def _refused(key: str, value: object, what: str, remedy: str) -> ScenarioError:
    problem: dict[str, object] = {"file": "", "line": None, "key": key, "value": repr(value), "what": what, "remedy": remedy}
    return ScenarioError(f"{key} = {value!r}: {what}; {remedy}", [problem])

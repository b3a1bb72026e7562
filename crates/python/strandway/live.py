"""Messages that a program posts while the simulated clock runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from . import _lab
from .results import Result
from .scenario import Scenario


class Event(NamedTuple):
    """An event at a host."""

    kind: Literal["sent", "received", "timer", "failed"]
    """`sent`: a message of this host is acknowledged; `received`: one has arrived; `timer`; `failed`: a connection was given up."""
    at: int
    """When, in picoseconds."""
    host: int
    """Where."""
    number: int
    """Of the message, as `Lab.post` returned it, or of the timer."""
    peer: int | None = None
    """The host at the other end."""
    tag: int | None = None
    """Of the message."""
    bytes: int | None = None
    """Of the message."""


class Lab:
    """A fabric on which a program posts messages and sets timers: before the run, and in answer to events.

    The scenario needs no workload. An answer to an event starts at the same host at the same instant; at another host it starts one
    link latency later. Times of events of one host never go back.

    >>> lab = Lab("[fabric]\\nhosts = 8")
    >>> lab.post(0, 5, 4096)
    0
    >>> for event in lab:
    ...     if event.kind == "received" and event.host == 5:
    ...         lab.post(5, 0, 100)
    1
    >>> lab.result().report["flows"]["finished"]
    2
    """

    def __init__(self, scenario: Scenario | str) -> None:
        """Opens the fabric of a scenario, or of a path or TOML text as for `Scenario`. `ScenarioError` lists its problems."""
        made = scenario if isinstance(scenario, Scenario) else Scenario(scenario)
        self._inner = _lab.Lab.open(made._inner)
        self._result: Result | None = None

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return self._inner.hosts()

    @property
    def rate(self) -> int:
        """Bits per second of a host's NIC, all planes together."""
        return self._inner.rate()

    @property
    def now(self) -> int:
        """The time of the present event, in picoseconds."""
        return self._inner.now()

    def connect(self, source: int, destination: int) -> None:
        """Opens a connection before the run; without it, the first message opens it."""
        self._inner.connect(source, destination)

    def post(self, source: int, destination: int, bytes: int, tag: int = 0) -> int:
        """Posts a message and returns its number. `ValueError` if no event is being answered, or the hosts do not exist."""
        return self._inner.post(source, destination, bytes, tag)

    def schedule(self, host: int, after: int, number: int = 0) -> None:
        """Sets a timer, `after` picoseconds from now. One without delay expires right after the present event."""
        self._inner.schedule(host, after, number)

    def next_event(self) -> Event | None:
        """Runs to the next event; None after the last one."""
        told = self._inner.next_event()
        return None if told is None else Event(*told)

    def __iter__(self) -> Iterator[Event]:
        """All events, one after the other."""
        while (event := self.next_event()) is not None:
            yield event

    def stop(self) -> None:
        """Asks the run to end soon with what it has measured."""
        self._inner.stop()

    def result(self) -> Result:
        """The result of the run. Events that are left have no answers."""
        if self._result is None:
            self._result = Result(self._inner.result())
        return self._result

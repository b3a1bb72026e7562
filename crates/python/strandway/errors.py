"""Errors in an input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One problem: its place, the value that was found, the reason why it is wrong, and a remedy."""

    file: str
    line: int | None
    key: str
    value: str
    what: str
    remedy: str


class ScenarioError(ValueError):
    """A scenario is wrong. The message is that of the command line; `problems` has one entry per problem."""

    def __init__(self, message: str, problems: list[dict[str, object]] | None = None) -> None:
        """Takes the message and the fields of each problem."""
        super().__init__(message)
        self.problems = [Problem(**fields) for fields in problems or []]  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[object, ...]:
        """Lets errors come from other processes, too."""
        return (ScenarioError, (str(self), [vars(problem) for problem in self.problems]))


class WireError(RuntimeError):
    """A collective has no result, ranks did not meet, a connection or a transfer has ended; the message names rank, host and plane.

    `kind` is `gone` (a process has ended), `told` (another rank has given up), `timeout`, `aborted`, `mismatch` (ranks or buffers do not
    fit), `meeting` (ranks did not meet), `closed` (a connection has ended), `copy`, `cast` or `node`; `rank` is the rank that it concerns,
    where there is one.
    """

    def __init__(self, message: str, kind: str = "node", rank: int | None = None) -> None:
        """Takes the message, the kind and the rank."""
        super().__init__(message)
        self.kind = kind
        self.rank = rank


class WireTimeout(WireError, TimeoutError):
    """The time of a collective is over; the ranks that were waited for live, as far as is known."""

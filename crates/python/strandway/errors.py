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

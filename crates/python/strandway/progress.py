"""Progress of long calls: one line of a terminal, or one output of a notebook's cell that is replaced."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any

QUIET_S = 0.5
"""Calls shorter than this show nothing."""
NOTEBOOK_S = 0.2
"""Seconds between two changes of a notebook's output."""


def wanted(progress: object) -> bool:
    """Is progress to be shown? By default in a terminal and in a notebook. `TypeError` unless it is True, False or None."""
    if progress is None:
        return in_notebook() or sys.stderr.isatty()
    if not isinstance(progress, bool):
        raise TypeError(f"progress = {progress!r}: write True or False")
    return progress


def reporter(progress: object, line: Line, draw: Callable[..., object]) -> Callable[..., object] | None:
    """The function that gets the progress of a run: the caller's own, `draw` which draws on `line`, or none."""
    if callable(progress):
        return progress
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"progress = {progress!r}: write True or False, or give a function")
    return draw if wanted(progress) else None


def in_notebook() -> bool:
    """Is this a cell of a notebook? Then IPython's kernel shows outputs."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Line:
    """A line that is replaced, and goes when the call is over."""

    def __init__(self, name: str = "") -> None:
        """Takes the name that stands before each text."""
        self._name = f"{name}: " if name else ""
        self._began = time.monotonic()
        self._shown: float | None = None
        self._notebook: Any = None

    def show(self, text: str, share: float | None = None) -> None:
        """Shows a text, and the share that is done: in a notebook as a bar."""
        now = time.monotonic()
        if now - self._began < QUIET_S:
            return
        text = f"{self._name}{text}"
        if not in_notebook():
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
        elif self._shown is None or now - self._shown >= NOTEBOOK_S:
            bar = "" if share is None else f'<progress value="{share:.3f}" max="1"></progress> '
            self._display({"text/plain": text, "text/html": f"{bar}{escape(text)}"})
        else:
            return
        self._shown = now

    def clear(self) -> None:
        """Removes it."""
        if self._shown is not None and self._notebook is None:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        elif self._notebook is not None:
            self._display({"text/plain": "", "text/html": ""})

    def _display(self, data: dict[str, str]) -> None:
        if self._notebook is None:
            from IPython.display import display

            self._notebook = display(data, raw=True, display_id=True)
        else:
            self._notebook.update(data, raw=True)

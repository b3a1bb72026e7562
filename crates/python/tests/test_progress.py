"""Progress in terminals and notebooks, without either."""

import sys
import types
from typing import Any

import pytest
import strandway
from strandway import progress


class Shown:
    """IPython's `display` and its handle."""

    def __init__(self) -> None:
        self.outputs: list[list[str]] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> "Shown":
        assert raw and display_id
        self.outputs.append([data["text/plain"]])
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw and set(data) == {"text/plain", "text/html"}
        self.outputs[-1].append(data["text/plain"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Shown:
    shown = Shown()
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = shown.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    monkeypatch.setattr(progress, "NOTEBOOK_S", 0.0)
    return shown


SMALL: dict[str, Any] = {"fabric": {"hosts": 4}, "workload": {"kind": "incast", "senders": 2, "size": "100 kB"}}


@pytest.mark.parametrize("asked", [None, True])
def test_a_notebook_has_one_output_that_is_empty_in_the_end(
    notebook: Shown, capsys: pytest.CaptureFixture[str], asked: bool | None
) -> None:
    strandway.sweep(strandway.Scenario(SMALL), {"run.seed": [1, 2, 3]}, progress=asked, jobs=1)
    assert [text.partition(": ")[2] for text in notebook.outputs[0]] == ["1 of 3 runs", "2 of 3 runs", "3 of 3 runs", ""]
    strandway.Scenario(SMALL).run(progress=asked)
    assert len(notebook.outputs) == 2 and "flows" in notebook.outputs[1][0] and notebook.outputs[1][-1] == ""
    assert capsys.readouterr().err == ""


def test_a_notebook_may_be_silent(notebook: Shown) -> None:
    strandway.Scenario(SMALL).run(progress=False)
    strandway.sweep(strandway.Scenario(SMALL), {"run.seed": [1, 2]}, progress=False)
    assert notebook.outputs == []


def test_short_calls_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    strandway.Scenario(SMALL).run(progress=True)
    assert capsys.readouterr().err == ""


def test_other_streams_have_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    strandway.Scenario(SMALL).run(progress=True)
    shown = capsys.readouterr().err
    assert shown.startswith("\r") and "\n" not in shown and shown.endswith("\r\033[K")

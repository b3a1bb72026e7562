import json
import signal
import threading
from pathlib import Path

import pytest
import strandway
from strandway import ScenarioError

MATRIX = "Nodes 16\nConnections 2\n0->13 id 1 start 0 size 2000000\n13->5 id 2 start 1000000 size 500000\n"


def test_rows_have_the_verdicts_of_the_command_line(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    done = strandway.reproduce("test", jobs=2, progress=lambda *counts: told.append(counts))
    assert done.counts == {"met": 2, "missed": 1, "study": 1} and done.missed == ["test/missed"]
    rows = done.rows
    assert rows.rows == 4 and rows["id"][0] == "test/met"
    assert rows["least"][0] <= rows["ours"][0] <= rows["most"][0]
    assert told[-1] == (2, 2), "each of two seeds is one run"
    assert "test/missed" in str(done) and "missed" in repr(done)
    assert done._repr_html_().startswith("<iframe")
    for name in ("rows.html", "rows.md", "rows.json"):
        done.save(tmp_path / name)
    assert json.loads((tmp_path / "rows.json").read_text())["format"] == 1
    assert "test/met" in (tmp_path / "rows.md").read_text()
    with pytest.raises(ValueError, match=r"write \.html"):
        done.save(tmp_path / "rows.txt")


def test_one_row_and_wrong_names() -> None:
    assert strandway.reproduce("test", only="met").rows.rows == 1
    with pytest.raises(ScenarioError, match="did you mean `prime`"):
        strandway.reproduce("prim")
    with pytest.raises(ScenarioError, match="no row matches"):
        strandway.reproduce("prime", only="nothing/*")
    with pytest.raises(ValueError, match="jobs = 0"):
        strandway.reproduce("test", jobs=0)
    assert set(strandway.reproduction_sets()) >= {"strack", "prime", "mrc", "esa"}


def test_ctrl_c_ends_the_runs_and_an_exception_of_the_caller_does_so_too() -> None:
    timer = threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        strandway.reproduce("strack")
    timer.join()

    def refuse(ended: int, runs: int) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        strandway.reproduce("strack", progress=refuse)


def test_a_file_of_another_project_is_described(tmp_path: Path) -> None:
    path = tmp_path / "mine.cm"
    path.write_text(MATRIX)
    assert "2 " in strandway.import_(path)
    path.write_text("Nodes 16\nConnections x\n")
    with pytest.raises(ScenarioError, match=r"mine\.cm"):
        strandway.import_(path)
    with pytest.raises(ScenarioError):
        strandway.import_(tmp_path / "absent")

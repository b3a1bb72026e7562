"""The cells of the notebook in `examples/` run, one after the other."""

import json
import pathlib

import pytest

NOTEBOOK = pathlib.Path(__file__).parents[3] / "examples" / "architect.ipynb"


def test_every_cell_of_the_notebook_runs(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    names: dict[str, object] = {}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 8
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, code cell {number + 1}", "exec"), names)
    ratio = {name: names["bad_times"][name] / names["good_times"][name] for name in names["good_times"]}
    assert all(0.9 < value < 3 for value in ratio.values()), ratio
    # The prose says so.
    full, half, quarter = names["experts"].values()
    assert 1.5 < half / full < 1.9 and 2.9 < quarter / full < 3.3, names["experts"]
    assert names["slowest"]["rocev2"] > 8 * names["slowest"]["uec"], names["slowest"]
    one, two, four = names["planes"].values()
    assert 1.11 < two / one < 1.18 and 1.07 < four / one < 1.13, names["planes"]
    one, two, four = names["first_token"].values()
    assert one > 2 * two > 2 * four > 0 and all(formula > 0 for formula in names["by_formula"]), names["first_token"]
    # The notebook ends with a page, and keeps it.
    assert "<iframe" in names["result"]._repr_html_()
    last = json.loads(NOTEBOOK.read_text())["cells"][-1]
    assert last["source"] == ["result"] and "<iframe" in "".join(last["outputs"][0]["data"]["text/html"])

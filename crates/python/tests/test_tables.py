"""Tables, and what other packages make of them; results as pickles and copies."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import strandway
from strandway import Result, Scenario, Table

ROOT = Path(__file__).parents[3]
INCAST: dict[str, Any] = {
    "fabric": {"hosts": 16},
    "profile": {"name": "uec"},
    "workload": {"kind": "incast", "senders": 8, "size": "1 MB"},
}


@pytest.mark.parametrize(
    "name", ["smoke/permutation", "smoke/incast", "smoke/ring_allreduce", "smoke/multi_plane", "golden/esa", "golden/job_link_down"]
)
def test_every_table_of_a_scenario_is_a_frame(name: str) -> None:
    pytest.importorskip("pandas")
    result = Scenario(ROOT / "scenarios" / f"{name}.toml").run()
    for table in (result.flows, result.links, result.collectives, result.jobs, result.series):
        lengths = {len(column) for column in table.values()}
        assert len(lengths) <= 1 and len(table) == table.rows == max(lengths, default=0)
        assert table.to_pandas().shape == (len(table), len(table.columns))


def test_series_have_queues_and_the_watched_flow() -> None:
    path = ROOT / "scenarios" / "smoke" / "permutation.toml"
    result = Scenario(path).run()
    series, groups = result.series, result.report["series"]["groups"]
    assert len(series) >= max(len(group["utilisation"]) for group in groups) > 10
    for group in groups:
        for value in ("utilisation", "queued_bytes", "queued_max_bytes"):
            column = list(series[f"{group['name']}.{value}"])
            assert column[: len(group[value])] == group[value] and not any(column[len(group[value]) :])
    watched = result.report["series"]["watched"]
    assert watched is not None and list(series["watched.window_bytes"])[: len(watched["window_bytes"])] == watched["window_bytes"]
    assert len(series["watched.in_flight_bytes"]) == len(series)
    with pytest.raises(RuntimeError, match="series=False"):
        _ = Scenario(path).run(series=False).series


def test_tables_of_absent_things_are_empty() -> None:
    result = Scenario(INCAST).run()
    assert len(result.jobs) == len(result.collectives) == 0 and not result.jobs and list(result.jobs) == []


def test_a_table_counts_rows_and_iterates_over_names() -> None:
    flows = Scenario(INCAST).run().flows
    assert len(flows) == 8 and list(flows)[:2] == flows.columns[:2] == ["id", "source"]
    assert len(flows.keys()) == len(flows.columns) == 11 and "bytes" in flows and flows.get("more") is None


def test_other_packages_take_tables() -> None:
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    flows = Scenario(INCAST).run().flows
    for frame in (pandas.DataFrame(flows), polars.DataFrame(flows), pyarrow.table(flows).to_pandas(), flows.to_arrow().to_pandas()):
        assert frame.shape == (8, 11) and list(frame.columns) == flows.columns
        assert list(frame["bytes"]) == [1_000_000] * 8 and set(frame["class"]) == {"incast"}
    assert pyarrow.RecordBatchReader.from_stream(flows).read_all().num_rows == 8
    assert pandas.DataFrame(Table()).empty


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_results_are_copied_and_pickled(again: Any) -> None:
    result = Scenario(INCAST).run()
    other: Result = again(result)
    assert other.report == result.report and other.values == result.values and other.digest == result.digest
    assert list(other.flows["fct_us"]) == list(result.flows["fct_us"]) and other.flows["class"] == ["incast"] * 8
    assert other.html() == result.html() and str(other) == str(result) and len(other.series) == len(result.series)
    rows = again(strandway.sweep(Scenario(INCAST), {"run.seed": [1, 2]}))
    assert len(rows) == 2 and "seed" in str(rows) and "<svg" in rows.html()


def test_a_process_returns_a_result() -> None:
    with ProcessPoolExecutor(1) as pool:
        result = pool.submit(Scenario(INCAST).run).result()
    assert len(result.flows) == 8 and "<svg" in result.html()


def test_swept_values_keep_their_type() -> None:
    rows = strandway.sweep(Scenario(INCAST), {"workload.senders": [15, 4], "fabric.oversubscription": [1.0, 2.0]})
    assert rows[0].set == {"workload.senders": 15, "fabric.oversubscription": 1.0} and isinstance(
        rows[0].set["fabric.oversubscription"], float
    )
    table = rows.table("fct_us.max")
    assert list(table["workload.senders"]) == [15, 4, 15, 4] and list(table["fabric.oversubscription"]) == [1.0, 1.0, 2.0, 2.0]
    faults = [{"name": "optic", "tier": "leaf->host", "count": 1, "kind": "loss", "probability": 0.01}]
    rows = strandway.sweep(Scenario({**INCAST, "faults": faults}), {"faults.0.enabled": [True, False]})
    assert [list(row.set.values()) for row in rows] == [[True], [False]]
    # A text stays one, also if it looks like a number.
    texts = strandway.sweep(Scenario(INCAST), {"workload.name": ["4", "5"]})
    assert [row.set["workload.name"] for row in texts] == ["4", "5"]


def test_values_of_numpy_are_numbers_and_lists() -> None:
    numpy = pytest.importorskip("numpy")
    assert Scenario(INCAST).set("fabric.hosts", numpy.int64(32)).text() == Scenario(INCAST).set("fabric.hosts", 32).text()
    dicts = Scenario({**INCAST, "run": {"seed": numpy.uint8(3), "rows": numpy.bool_(True)}})
    assert "seed = 3" in dicts.text() and "rows = true" in dicts.text()
    rows = strandway.sweep(Scenario(INCAST), {"run.seed": numpy.arange(1, 3), "workload.senders": range(4, 6)})
    assert [row.set["run.seed"] for row in rows] == [1, 1, 2, 2]
    with pytest.raises(strandway.ScenarioError, match=r"fabric\.hosts = nan") as caught:
        Scenario(INCAST).set("fabric.hosts", numpy.float64("nan"))
    assert caught.value.problems[0].key == "fabric.hosts"


def test_scenarios_are_equal_if_their_keys_are() -> None:
    assert Scenario(INCAST) == Scenario(Scenario(INCAST).text()) == Scenario(INCAST).copy()
    assert Scenario(INCAST) != Scenario(INCAST).set("fabric.hosts", 32) and Scenario(INCAST) != "text"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Scenario(INCAST))


def test_profiles_may_be_one_text() -> None:
    rows = strandway.compare(Scenario(INCAST), "uec, rocev2")
    assert [row.label for row in rows] == ["uec", "rocev2"]
    assert [row.label for row in strandway.compare(Scenario(INCAST), "uec")] == ["uec"]

import json
import math
import os
import pickle
import signal
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import strandway
from strandway import Scenario, ScenarioError

INCAST = {
    "fabric": {"hosts": 16},
    "profile": {"name": "uec"},
    "workload": {"kind": "incast", "senders": 8, "size": "1 MB"},
}


def test_a_dict_a_text_and_a_file_are_the_same_scenario(tmp_path: Path) -> None:
    text = "[fabric]\nhosts = 16\n[profile]\nname = 'uec'\n[workload]\nkind = 'incast'\nsenders = 8\nsize = '1 MB'\n"
    path = tmp_path / "incast.toml"
    path.write_text(text)
    digests = {Scenario(source).run().digest for source in (INCAST, text, path, str(path))}
    assert len(digests) == 1


def test_results_do_not_depend_on_threads_or_on_being_watched() -> None:
    seen: list[tuple[int, int, int, int, float]] = []
    alone = Scenario(INCAST).run()
    watched = Scenario(INCAST).run(threads=2, series=False, progress=lambda *told: seen.append(told))
    assert alone.digest == watched.digest
    hops, expected, finished, flows, us = seen[-1]
    assert finished == flows == 8 and hops > 0 and expected > 0 and us > 0


def test_flows_are_columns_that_agree_with_the_report() -> None:
    result = Scenario(INCAST).run()
    flows = result.flows
    assert flows.rows == 8
    assert max(flows["fct_us"]) == pytest.approx(result.values["fct_us.max"])
    assert set(flows["destination"]) == {0}
    assert flows["class"] == ["incast"] * 8
    assert sum(flows["bytes"]) == 8_000_000
    frame = flows.to_pandas()
    assert list(frame.columns) == flows.columns and len(frame) == 8
    assert frame["profile"].unique().tolist() == ["uec"]
    # The time of an event that did not happen is NaN; a whole number is -1.
    late = Scenario(INCAST).set("run.time_limit", "20 us").run()
    assert late.report["end"] == "time limit"
    assert all(math.isnan(us) for us in late.flows["fct_us"]) and set(late.flows["id"]) == {-1}


def test_columns_are_read_where_they_are() -> None:
    numpy = pytest.importorskip("numpy")
    column = Scenario(INCAST).run().flows["fct_us"]
    assert isinstance(column, numpy.ndarray) and not column.flags.owndata


def test_other_tables_and_pages(tmp_path: Path) -> None:
    scenario = Scenario(INCAST).set("workload.kind", "all-reduce").set("workload.senders", 1)
    with pytest.raises(ScenarioError, match="senders"):
        scenario.check()
    ring = {**INCAST, "workload": {"kind": "all-reduce", "size": "4 MB"}}
    result = Scenario(ring).run()
    assert result.collectives.rows == 1 and result.collectives["busbw_GBps"][0] > 1
    assert result.series.rows > 10 and result.links.rows >= 4
    assert len(result.series["time_us"]) == len(result.series["goodput_gbps"])
    assert "<svg" in result.html() and "<iframe" in result._repr_html_()
    for ending in ("html", "md", "json"):
        result.save(tmp_path / f"report.{ending}")
    assert json.loads((tmp_path / "report.json").read_text())["digest"] == result.digest
    with pytest.raises(ValueError, match=r"\.html"):
        result.save(tmp_path / "report.pdf")
    assert "digest" in repr(result) and "flows finished" in str(result)


def test_services_have_tables() -> None:
    text = """
    [fabric]
    hosts = 16
    hosts_per_leaf = 16
    spines = 1
    [servers]
    gpus = 4
    [run]
    rows = true
    [[service]]
    rate = 20
    requests = 5
    input = 500
    output = 3
    """
    result = strandway.Scenario(text).run()
    assert result.services["name"] == ["service"] and result.services["ended"][0] == 5
    assert 0 < result.services["ttft_us.p50"][0] <= result.services["ttft_us.p99"][0]
    assert abs(result.services["ttft_us.mean"][0] / result.services["formula.ttft_us.mean"][0] - 1) < 0.01
    requests = result.requests
    assert list(requests["service"]) == ["service"] * 5 and list(requests["request"]) == list(range(5))
    assert all(computed < first for computed, first in zip(requests["computed_us"], requests["first_us"], strict=True))
    assert result.values["services.service.ttft_us.p50"] == result.services["ttft_us.p50"][0]


def test_jobs_have_a_table() -> None:
    job = {"kind": "fsdp", "name": "step", "size": "4 MiB", "layers": 2, "compute": "200 us"}
    result = Scenario({**INCAST, "workload": job}).run()
    assert result.jobs["name"] == ["step"] and 0 < result.jobs["bubble"][0] < 1


def test_every_problem_is_told_at_once_with_key_value_and_remedy() -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario({"fabric": {"hots": 4}, "workload": {"size": "2 Mb"}}).check()
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"fabric.hots", "workload.size"}
    assert "did you mean `hosts`?" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.problems == caught.value.problems and str(again) == str(caught.value)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: Scenario("nowhere.toml"), ScenarioError, "nowhere.toml"),
        (lambda: Scenario("[fabric\nhosts = 4"), ScenarioError, "not valid TOML"),
        (lambda: Scenario({"fabric": {"hosts": None}}), ValueError, "not a scenario"),
        (lambda: Scenario(INCAST).set("fabric.hosts.more", 1), ScenarioError, "fabric.hosts"),
        (lambda: strandway.sweep(Scenario(INCAST)), ScenarioError, "nothing to sweep"),
        (lambda: strandway.sweep(Scenario(INCAST), {"run.seed": [1]}, on="slurm"), ValueError, "ray"),
        (lambda: strandway.sweep(Scenario(INCAST), {"run.seed": [1]}, shard=(2, 2)), ValueError, "counted from 0"),
        (lambda: strandway.compare(Scenario(INCAST), ["uek"]), ScenarioError, "uec"),
        (lambda: strandway.compare(Scenario(INCAST), []), ValueError, r"profiles = \[\]: there is nothing to compare"),
        (lambda: strandway.compare(Scenario(INCAST), " "), ValueError, "nothing to compare"),
        (lambda: strandway.compare(Scenario(INCAST), ["uec"], kep="x"), TypeError, r"compare\(\) got an unexpected keyword argument 'kep'"),
        (lambda: strandway.sweep(Scenario(INCAST), {"workload.size": "1 MB"}), ValueError, "workload.size = '1 MB': is one text"),
        (lambda: strandway.sweep(Scenario(INCAST), {"run.seed": [1]}, progress=5), TypeError, "progress = 5"),
        (lambda: Scenario(INCAST).run(progress=5), TypeError, "progress = 5: write True or False, or give a function"),
        (lambda: strandway.reproduce("sdr_rdma", progress="yes"), TypeError, "progress = 'yes'"),
        (lambda: Scenario(INCAST).set("fabric.hosts", math.nan), ScenarioError, "fabric.hosts = nan: is no finite number"),
        (lambda: Scenario({"fabric": {"hosts": math.inf}}), ScenarioError, "fabric.hosts = inf"),
        (lambda: strandway.sweep(Scenario(INCAST), {"run.seed": [1, math.nan]}), ScenarioError, "run.seed.1 = nan"),
        (lambda: Scenario(INCAST).set("fabric.hosts", object()), ScenarioError, "is a object"),
    ],
)
def test_mistakes_are_explained(call: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()  # type: ignore[operator]


def test_interrupts_end_a_run() -> None:
    long = Scenario({**INCAST, "fabric": {"hosts": 128}, "workload": {"kind": "permutation", "size": "2 GB"}})
    # A shell that starts tests in the background tells them to ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        long.run(force=True)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("many", ["sweep", "compare"])
def test_interrupts_end_many_runs(many: str) -> None:
    long = Scenario({**INCAST, "fabric": {"hosts": 128}, "workload": {"kind": "permutation", "size": "500 MB"}})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        if many == "sweep":
            strandway.sweep(long, {"run.seed": [1, 2, 3]}, jobs=2)
        else:
            strandway.compare(long, ["uec", "rocev2", "mrc"], jobs=2)
    # A second on an idle machine; this one may be busy. The runs take longer.
    assert time.monotonic() - began < 20


def test_other_threads_go_on_during_a_run() -> None:
    steps = 0
    over = threading.Event()

    def count() -> None:
        nonlocal steps
        while not over.is_set():
            steps += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    Scenario({**INCAST, "fabric": {"hosts": 64}, "workload": {"kind": "permutation", "size": "16 MB"}}).run()
    over.set()
    thread.join()
    assert steps > 10


def test_a_callback_that_fails_ends_the_run() -> None:
    def fail(*told: object) -> None:
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        Scenario(INCAST).run(progress=fail)


def test_sweeps_and_comparisons() -> None:
    rows = strandway.sweep(Scenario(INCAST), {"workload.size": ["1 MB", "2 MB"], "run.seed": [1, 2]})
    assert len(rows) == 4 and not rows.failed
    table = rows.table("fct_us.max")
    assert list(table["workload.size"]) == ["1 MB", "2 MB"] * 2 and list(table["run.seed"]) == [1, 1, 2, 2]
    assert table["fct_us.max"][3] > 1.8 * table["fct_us.max"][0]
    assert "<svg" in rows.html() and "2 MB" in str(rows)
    both = strandway.compare(Scenario(INCAST), ["uec", "rocev2"])
    assert [row.label for row in both] == ["uec", "rocev2"]
    assert both[0].result is not None and both[0].result.digest == Scenario(INCAST).run().digest


def test_what_was_run_is_kept_and_not_run_again(tmp_path: Path) -> None:
    over = {"workload.size": ["1 MB", "2 MB", "3 MB"]}
    for part in range(2):
        strandway.sweep(Scenario(INCAST), over, keep=tmp_path, shard=(part, 2))
    kept = {path: path.read_text() for path in sorted(tmp_path.glob("*.jsonl"))}
    assert [text.count("\n") for text in kept.values()] == [2, 1]
    rows = strandway.sweep(Scenario(INCAST), over, keep=tmp_path)
    assert {path: path.read_text() for path in tmp_path.glob("*.jsonl")} == kept
    again = strandway.sweep(Scenario(INCAST), over)
    assert [row.result.digest for row in rows] == [row.result.digest for row in again]
    with pytest.raises(RuntimeError, match="report only"):
        _ = rows[0].result.flows
    assert str(rows) == str(again) and "<svg" in rows.html() and "<iframe" in rows._repr_html_()
    rows[0].result.save(tmp_path / "kept.html")
    assert "flows finished" in str(rows[0].result)
    assert rows.table().rows == 3 and "<table" in rows.table()._repr_html_()
    # Half a line counts as none.
    path, text = next(iter(kept.items()))
    path.write_text(text[:-100])
    assert not strandway.sweep(Scenario(INCAST), over, keep=tmp_path).failed
    path.write_text("{}\n")
    with pytest.raises(OSError, match="is no row of results"):
        strandway.sweep(Scenario(INCAST), over, keep=tmp_path)


def test_the_command_and_the_package_keep_the_same_rows(tmp_path: Path) -> None:
    """A line as `strandway sweep --results` writes it; it needs no more than these keys."""
    scenario = Scenario(INCAST)
    row = next(iter(strandway.sweep(scenario, {"run.seed": [7]})))
    report = dict(row.result.report, digest="from the command")
    from strandway.sweeps import key

    line = {"key": key(row.scenario), "label": row.label, "set": {"run.seed": "7"}, "report": report}
    (tmp_path / "rows.jsonl").write_text(json.dumps(line) + "\n")
    found = strandway.sweep(scenario, {"run.seed": [7]}, keep=tmp_path)[0].result
    assert found.digest == "from the command" and found.values == row.result.values


def test_a_result_is_kept_under_what_it_was_made_of(tmp_path: Path) -> None:
    from strandway.sweeps import key

    (tmp_path / "order.txt").write_text("\n".join(str(host) for host in range(8)))
    text = "[fabric]\nhosts = 16\n[workload]\nkind = 'all-reduce'\nsize = '1 MB'\nplacement = 'order.txt'\n"
    path = tmp_path / "a.toml"
    path.write_text(text)
    first = key(Scenario(path))
    assert key(Scenario(path)) == first != key(Scenario(path).set("workload.size", "2 MB"))
    (tmp_path / "order.txt").write_text("\n".join(str(host) for host in range(8, 16)))
    assert key(Scenario(path)) != first


def test_scenarios_travel_to_other_processes(tmp_path: Path) -> None:
    (tmp_path / "order.txt").write_text("\n".join(str(host) for host in range(8)))
    path = tmp_path / "a.toml"
    path.write_text("[fabric]\nhosts = 16\n[workload]\nkind = 'all-reduce'\nsize = '1 MB'\nplacement = 'order.txt'\n")
    scenario = Scenario(path)
    with ProcessPoolExecutor(1) as pool:
        rows = strandway.sweep(scenario, {"workload.size": ["1 MB", "2 MB"]}, on=pool)
    direct = scenario.run()
    assert rows[0].result is not None and rows[0].result.values["fct_us.max"] == direct.values["fct_us.max"]
    assert "2 MB" in str(rows) and "<svg" in rows.html()


class Broken(Executor):
    """Loses every second run."""

    lost = False

    def submit(self, run: Any, /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.lost:
            future.set_exception(MemoryError("a machine is gone"))
        else:
            future.set_result(run(*given))
        self.lost = not self.lost
        return future


def test_a_run_that_fails_is_a_row_and_is_run_again(tmp_path: Path) -> None:
    over = {"run.seed": [1, 2, 3]}
    rows = strandway.sweep(Scenario(INCAST), over, on=Broken(), keep=tmp_path)
    assert [row.error for row in rows] == [None, "MemoryError: a machine is gone", None]
    assert rows.table()["error"][1] and math.isnan(rows.table()["fct_us.max"][1])
    assert not strandway.sweep(Scenario(INCAST), over, keep=tmp_path).failed


def test_ray_runs_a_sweep(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
    try:
        rows = strandway.sweep(Scenario(INCAST), {"run.seed": [1, 2, 3]}, on="ray", keep=tmp_path)
    finally:
        ray.shutdown()
    assert not rows.failed and (tmp_path / "rows.jsonl").read_text().count("\n") == 3


def test_smaller_runs_stand_for_a_job_and_can_be_stopped() -> None:
    job = Scenario(
        {
            "fabric": {"hosts": 32, "hosts_per_leaf": 4, "spines": 4},
            "servers": {"gpus": 8, "wiring": "rail-optimised"},
            "job": {"layers": 2, "hidden": 1024, "sequence": 256, "tp": 8, "dp": 4},
        }
    )
    whole = job.run().report["jobs"][0]["iteration_us"]
    smaller = job.copy().set("run.approximate", [2, 3, 4])
    report = smaller.run(threads=2).report
    assert report["approximate"]["divisors"] == [2, 3, 4] and report["approximate"]["rails"] == 8
    error = next(one["error_us"] for one in report["approximate"]["figures"] if one["name"] == "iteration")
    assert abs(report["jobs"][0]["iteration_us"] - whole) <= error + 0.01 * whole
    with pytest.raises(ValueError, match=r"run\.approximate"):
        smaller.run(rows=True)

"""Congestion controls in Python: those that copy a built-in one give its digest, and mistakes end a run."""

from __future__ import annotations

import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import strandway
from strandway import CongestionControl, Scenario
from strandway.congestion import AckSample, Environment, LossSample

INCAST: dict[str, Any] = {
    "fabric": {"hosts": 16},
    "profile": {"name": "uec"},
    "workload": {"kind": "incast", "senders": 8, "size": "500 kB"},
}


class Fixed(CongestionControl):
    """A copy of `fixed`: one and a half times the bandwidth-delay product."""

    def on_ack(self, sample: AckSample) -> None:
        pass

    def on_loss(self, loss: LossSample) -> None:
        pass

    def window(self) -> int:
        return max(int(self.environment.bdp * 1.5), self.environment.packet)


class Dctcp(CongestionControl):
    """A copy of `dctcp`, by the same arithmetic."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.packet, bdp = float(environment.packet), float(environment.bdp)
        self.largest = max(1.5 * bdp, self.packet)
        self.size = min(max(bdp, self.packet), self.largest)
        self.threshold, self.alpha = self.largest, 0.0
        self.observe()

    def observe(self) -> None:
        self.acked = self.marked = 0
        self.observed, self.reduced = int(self.size), False

    def end_if_over(self) -> None:
        if self.acked >= self.observed:
            if self.acked > 0:
                self.alpha = (1.0 - 0.0625) * self.alpha + 0.0625 * (self.marked / self.acked)
            self.observe()

    def reduce(self, factor: float) -> None:
        if not self.reduced:
            self.size = self.threshold = max(self.size * factor, self.packet)
            self.reduced = True

    def on_ack(self, sample: AckSample) -> None:
        self.acked += sample.bytes
        if sample.marked:
            self.marked += sample.bytes
            self.reduce(1.0 - self.alpha / 2.0)
        elif not self.reduced:
            growth = float(sample.bytes)
            self.size += growth if self.size < self.threshold else self.packet * growth / self.size
            self.size = min(self.size, self.largest)
        self.end_if_over()

    def on_loss(self, loss: LossSample) -> None:
        if loss.kind != "timed out":
            self.acked += loss.bytes
            self.marked += loss.bytes
            self.reduce(0.5)
            self.end_if_over()
        elif self.size > self.packet:
            self.reduce(0.5)
            self.size = self.packet
            self.observe()

    def window(self) -> int:
        return int(self.size)


@pytest.mark.parametrize(("name", "copy"), [("fixed", Fixed), ("dctcp", Dctcp)])
@pytest.mark.parametrize("losses", [False, True])
def test_a_copy_of_a_built_in_control_gives_its_digest(name: str, copy: type[CongestionControl], losses: bool) -> None:
    scenario = Scenario(INCAST).set("profile.congestion", name)
    if losses:
        scenario.set("faults", [{"tier": "leaf->host", "count": 16, "kind": "loss", "probability": 0.01}])
    built_in = scenario.run()
    assert built_in.digest != Scenario(INCAST).run().digest
    assert scenario.run(congestion=copy).digest == built_in.digest
    # The control that the scenario names does not matter, and a second run is the same.
    assert scenario.set("profile.congestion", "swift").run(congestion=copy).digest == built_in.digest


def test_a_rate_paces_and_every_packet_is_told() -> None:
    sent: list[tuple[int, int, int]] = []
    acked = 0

    class Half(Fixed):
        def rate(self, now_ps: int) -> int | None:
            return self.environment.rate // 2

        def on_sent(self, now_ps: int, bytes: int, in_flight: int) -> None:
            sent.append((now_ps, bytes, in_flight))

        def on_ack(self, sample: AckSample) -> None:
            nonlocal acked
            acked += sample.bytes
            assert sample.rtt_ps is None or sample.rtt_ps > self.environment.base_rtt_ps // 3
            assert sample.now_ps > 0 and sample.lost is None and "AckSample(now_ps=" in repr(sample)

    class Beyond(Fixed):
        def rate(self, now_ps: int) -> int | None:
            return self.environment.rate * 10

    one = Scenario({**INCAST, "workload": {"kind": "incast", "senders": 1, "size": "4 MB"}})
    full, half, beyond = (one.run(congestion=control).values["fct_us.max"] for control in (Fixed, Half, Beyond))
    assert full is not None and half is not None and beyond is not None
    # The round trip at the end is not paced.
    assert 1.8 < half / full < 2.0 and beyond == full
    assert sum(bytes for _, bytes, _ in sent) == acked > 4_000_000
    assert [now for now, _, _ in sent] == sorted(now for now, _, _ in sent)


def test_losses_say_how_they_became_known_and_why_is_told_of_cuts() -> None:
    seen: set[tuple[str, bool]] = set()

    class Halving(Fixed):
        def __init__(self, environment: Environment) -> None:
            super().__init__(environment)
            self.size, self.cuts = environment.bdp, 0

        def on_loss(self, loss: LossSample) -> None:
            seen.add((loss.kind, loss.last_hop))
            assert loss.bytes <= self.environment.packet and "LossSample(now_ps=" in repr(loss)
            self.size, self.cuts = max(self.size // 2, self.environment.packet), self.cuts + 1

        def window(self) -> int:
            return self.size

        def last_cut(self) -> Any:
            return "loss" if self.cuts else None

    result = Scenario(INCAST).set("workload.size", "4 MB").run(congestion=Halving)
    assert result.values["flows.finished"] == 8 and {("trimmed", True), ("timed out", False)} <= seen
    assert "custom: losses cut its window" in str(result)


def test_profiles_are_replaced_by_name() -> None:
    made: list[Environment] = []

    def make(environment: Environment) -> CongestionControl:
        made.append(environment)
        return Fixed(environment)

    both = [
        {"kind": "incast", "name": "a", "senders": 4, "size": "200 kB"},
        {"kind": "incast", "name": "b", "senders": 4, "size": "200 kB", "profile": "rocev2"},
    ]
    scenario = Scenario({**INCAST, "workload": both})
    profiles = sorted(set(scenario.run().flows["profile"]))
    assert profiles == ["rocev2", "uec"]
    assert scenario.run(congestion={"rocev2": make}).values["flows.finished"] == 8
    named = len(made)
    scenario.run(congestion=make)
    assert 0 < named < len(made) and made[0].ports == 1 and "Environment(rate=" in repr(made[0])
    with pytest.raises(ValueError, match='no profile "ueck"; it has rocev2, uec'):
        scenario.run(congestion={"ueck": make})


def test_a_run_says_whose_control_it_has() -> None:
    report = Scenario(INCAST).run(congestion=Fixed)
    assert report.report["profile"] == "uec/Fixed"
    assert report.report["origin"]["set"] == {"profile.congestion": "Fixed (Python)"}
    assert "congestion control: Fixed (Python), instead of nscc" in report.report["notes"]
    assert not [one for one in report.report["parameters"] if one["group"] == "nscc"]
    for text in (report.html(), str(report)):
        assert "congestion control: Fixed (Python)" in text and "never cut" not in text
    assert set(report.flows["profile"]) == {"uec/Fixed"}
    both = [
        {"kind": "incast", "name": "a", "senders": 4, "size": "200 kB"},
        {"kind": "incast", "name": "b", "senders": 4, "size": "200 kB", "profile": "rocev2"},
    ]
    mixed = Scenario({**INCAST, "workload": both}).run(congestion={"rocev2": Fixed}).report
    assert mixed["profile"] == "uec" and mixed["other_profiles"] == ["rocev2/Fixed"]
    assert "rocev2: congestion control: Fixed (Python), instead of dcqcn" in mixed["notes"]


def test_the_reason_of_cuts_is_unknown_without_last_cut() -> None:
    class Halves(Fixed):
        cuts = 0

        def on_ack(self, sample: AckSample) -> None:
            if sample.marked:
                self.cuts += 1

        def window(self) -> int:
            return max(self.environment.bdp >> min(self.cuts, 5), self.environment.packet)

    result = Scenario(INCAST).set("workload.size", "4 MB").run(congestion=Halves)
    assert "waiting for its window (custom)" in str(result) and "never cut" not in str(result) + result.html()


def test_own_controls_are_swept_and_compared_beside_the_built_in_ones(tmp_path: Path) -> None:
    rows = strandway.compare(Scenario(INCAST), ["uec", "rocev2"], congestion=Fixed)
    assert [row.label for row in rows] == ["uec", "uec, congestion=Fixed", "rocev2", "rocev2, congestion=Fixed"]
    assert [row.set["profile.congestion"] for row in rows] == ["nscc", "Fixed", "dcqcn", "Fixed"]
    assert rows[1].result.digest == Scenario(INCAST).set("profile.congestion", "fixed").run().digest != rows[0].result.digest
    assert "congestion=Fixed" in str(rows) and "congestion=Fixed" in rows.html()
    seeds = strandway.sweep(Scenario(INCAST), {"run.seed": [1, 2]}, congestion=[Fixed, Dctcp], keep=tmp_path)
    assert [(row.set["run.seed"], row.set["profile.congestion"]) for row in seeds] == [
        (1, "Fixed"),
        (1, "Dctcp"),
        (2, "Fixed"),
        (2, "Dctcp"),
    ]
    # A class may change under its name, so its runs are not kept.
    assert not [text for path in tmp_path.glob("*.jsonl") if (text := path.read_text())]
    once = strandway.sweep(Scenario(INCAST), {"profile.congestion": ["nscc", "dctcp"]}, congestion=Fixed, on=ThreadPoolExecutor(1))
    assert [row.set["profile.congestion"] for row in once] == ["nscc", "Fixed", "dctcp"]
    with pytest.raises(TypeError, match="7 cannot be called"):
        strandway.sweep(Scenario(INCAST), {"run.seed": [1]}, congestion=7)  # type: ignore[arg-type]


class Broken(Fixed):
    """Raises in one of its methods."""

    where = ""

    def _fail(self, where: str) -> None:
        if self.where == where:
            raise LookupError(f"no {where}")

    def on_ack(self, sample: AckSample) -> None:
        self._fail("on_ack")

    def on_sent(self, now_ps: int, bytes: int, in_flight: int) -> None:
        self._fail("on_sent")

    def window(self) -> int:
        self._fail("window")
        return super().window()

    def rate(self, now_ps: int) -> int | None:
        self._fail("rate")
        return None


@pytest.mark.parametrize("where", ["on_ack", "on_sent", "window", "rate"])
def test_an_exception_of_a_control_ends_the_run(where: str) -> None:
    long = Scenario({**INCAST, "workload": {"kind": "permutation", "size": "2 GB"}})
    began = time.monotonic()
    with pytest.raises(LookupError, match=f"no {where}") as caught:
        long.run(congestion=type("Broken", (Broken,), {"where": where}), force=True)
    assert time.monotonic() - began < 20
    assert any(entry.name == "_fail" for entry in caught.traceback), "the traceback leads into the control"


@pytest.mark.parametrize(
    ("control", "error", "text"),
    [
        (lambda environment: 7, TypeError, "7 is no strandway.CongestionControl"),
        (7, TypeError, "7 cannot be called"),
        (CongestionControl, TypeError, "abstract"),
        (type("A", (Fixed,), {"window": lambda self: -1}), OverflowError, None),
        (type("B", (Fixed,), {"window": lambda self: "much"}), TypeError, None),
        (type("C", (Fixed,), {"rate": lambda self, now: 0}), ValueError, "at least 1"),
        (type("D", (Fixed,), {"last_cut": lambda self: "luck"}), ValueError, "luck"),
    ],
)
def test_controls_that_do_not_fit_are_explained(control: Any, error: type[Exception], text: str | None) -> None:
    with pytest.raises(error, match=text):
        Scenario(INCAST).set("workload.size", "4 MB").run(congestion=control)


def test_a_control_in_python_has_one_thread() -> None:
    with pytest.raises(ValueError, match="one thread"):
        Scenario(INCAST).run(congestion=Fixed, threads=2)
    assert Scenario(INCAST).set("run.threads", 2).run(congestion=Fixed).digest == Scenario(INCAST).run(congestion=Fixed, threads=1).digest


def test_the_example_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "python.md").read_text()
    section = page.split("## A congestion control in Python")[1].split("\n## ")[0]
    code = textwrap.dedent("\n".join(line for line in section.split("\n") if line.startswith("    ") or not line))
    monkeypatch.chdir(root)
    names: dict[str, Any] = {}
    exec("import strandway\n" + code, names)
    assert issubclass(names["Halving"], CongestionControl)
    flows = names["result"].report["flows"]
    assert flows["finished"] == flows["total"] > 0

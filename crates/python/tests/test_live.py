"""Messages that a program posts while the clock runs."""

import pytest
import strandway
from strandway import Lab

FABRIC = "[fabric]\nhosts = 16\nhosts_per_leaf = 8\nspines = 4\n[run]\nseed = 1\n"


def ring(ranks: int, size: int, early: bool = True) -> strandway.Result:
    lab = Lab(FABRIC)
    assert lab.hosts == 16 and lab.now == 0 and lab.rate > 10**11
    received = [0] * ranks
    for rank in range(ranks):
        if early:
            lab.connect(rank, (rank + 1) % ranks)
        lab.post(rank, (rank + 1) % ranks, size // ranks)
    last = [0] * ranks
    for event in lab:
        assert event.at >= last[event.host]
        last[event.host] = event.at
        if event.kind == "received":
            received[event.host] += 1
            if received[event.host] < 2 * (ranks - 1):
                lab.post(event.host, (event.host + 1) % ranks, size // ranks)
    return lab.result()


def test_a_ring_takes_the_time_of_an_all_reduce() -> None:
    result = ring(16, 1 << 20)
    workload = '[workload]\nkind = "all-reduce"\nalgorithm = "ring"\nsize = "1 MiB"\n'
    native = strandway.Scenario(FABRIC + workload).run()
    assert result.report["run"]["simulated_us"] == native.report["run"]["simulated_us"]
    assert result.report["flows"]["finished"] == 16 * 30
    assert ring(16, 1 << 20).report["digest"] == result.report["digest"]


def test_timers_tags_and_wrong_calls() -> None:
    lab = Lab(FABRIC)
    lab.schedule(3, 5_000_000, 77)
    event = lab.next_event()
    assert event is not None and (event.kind, event.at, event.host, event.number) == ("timer", 5_000_000, 3, 77)
    lab.post(3, 9, 1000, tag=8)
    arrived = [event for event in lab if event.kind == "received"]
    assert [(event.host, event.peer, event.tag, event.bytes) for event in arrived] == [(9, 3, 8, 1000)]
    with pytest.raises(ValueError, match="before it or in answer"):
        lab.post(0, 1, 1)
    with pytest.raises(ValueError, match="16"):
        Lab(FABRIC).post(0, 16, 1)
    with pytest.raises(strandway.ScenarioError):
        Lab("[fabric]\nhosts = -1\n")
    lab.stop()
    assert lab.result() is lab.result()

"""Collectives that a team of the group performs: by multicast, or by a switch that adds; on loopback by what takes their place."""

import json
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support import outcome, ranks


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    monkeypatch.setenv("STRANDWAY_ALGORITHM", "multicast,all_reduce=in-network,reduce_scatter=in-network")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_blocks_are_gathered_and_broadcast_as_fsdp_does(kind):
    def body(rank, count):
        for length in (9_000, 100_001):
            own = (torch.arange(length) % 100 + rank).to(kind)
            right = torch.cat([(torch.arange(length) % 100 + r).to(kind) for r in range(count)])
            gathered = torch.empty(count * length, dtype=kind)
            dist.all_gather_into_tensor(gathered, own)
            assert torch.equal(gathered, right)
            # In place, as FSDP gathers.
            gathered.zero_()
            gathered[rank * length : (rank + 1) * length] = own
            dist.all_gather_into_tensor(gathered, gathered[rank * length : (rank + 1) * length])
            assert torch.equal(gathered, right)
            parts = [torch.empty(length, dtype=kind) for _ in range(count)]
            work = dist.all_gather(parts, own, async_op=True)
            work.wait()
            assert torch.equal(torch.cat(parts), right)
            dist.broadcast(gathered, count - 1)
            assert torch.equal(gathered, right)

    ranks(3, body)


def test_sums_without_a_switch_are_those_of_messages():
    def body(rank, count):
        gradients, own = torch.full((30_000,), 0.1 + rank), torch.empty(10_000)
        dist.reduce_scatter_tensor(own, gradients, op=dist.ReduceOp.AVG)
        numbers = torch.arange(20_000, dtype=torch.int32) + rank
        dist.all_reduce(numbers)
        assert torch.equal(numbers, 3 * torch.arange(20_000, dtype=torch.int32) + 3)
        return own.tolist()

    taught = ranks(3, body)
    assert all(abs(number - 1.1) < 1e-6 for own in taught for number in own)


def test_a_gather_that_times_out_names_the_late_rank_and_the_group_goes_on():
    def body(rank, count):
        own, gathered = torch.full((20_000,), float(rank)), torch.empty(40_000)
        dist.all_gather_into_tensor(gathered, own)
        group = dist.new_group(timeout=timedelta(seconds=1))
        if rank == 0:
            error = outcome(lambda: dist.all_gather_into_tensor(gathered, own, group=group))
            assert "timed out after 1.0 s" in str(error) and "rank 1 at " in str(error), error
        dist.barrier()
        dist.all_gather_into_tensor(gathered, own)
        assert gathered.sum().item() == 20_000

    ranks(2, body)


def test_a_recording_names_the_algorithm(monkeypatch, tmp_path):
    monkeypatch.setenv("STRANDWAY_RECORD", str(tmp_path))

    def body(rank, count):
        dist.all_gather_into_tensor(torch.empty(40_000), torch.empty(20_000))

    ranks(2, body)
    lines = [json.loads(line) for line in (tmp_path / "rank-0.jsonl").read_text().splitlines()]
    assert any(line.get("algorithm") == "multicast" and line["bytes"] == 160_000 for line in lines)

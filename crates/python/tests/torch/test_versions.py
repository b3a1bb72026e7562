"""Differences between versions of torch: who calls a group and how, works that C++ waits for, a torch that lacks something."""

import gc
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from strandway_torch import compat, faces
from strandway_torch.backend import StrandwayBackend
from support import ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def calls_of_python(rank, count):
    """As distributed_c10d and other code of Python calls a group: with options, without them, and with what they hold."""
    group, total = dist.group.WORLD, sum(range(count))
    number = torch.tensor([float(rank)])
    for call in (
        lambda: group.allreduce([number.fill_(rank)]),
        lambda: group.allreduce([number.fill_(rank)], dist.AllreduceOptions()),
        lambda: group.allreduce([number.fill_(rank)], opts=dist.AllreduceOptions()),
        lambda: group.allreduce(number.fill_(rank)),
        lambda: group.allreduce(number.fill_(rank), dist.ReduceOp.SUM),
        lambda: group.allreduce([number.fill_(rank)], op=dist.ReduceOp.SUM),
        lambda: group.allreduce_coalesced([number.fill_(rank)]),
    ):
        call().wait()
        assert number.item() == total
    group.broadcast(number.fill_(rank), root=1).wait()
    assert number.item() == 1
    number.fill_(rank)
    lists = [torch.empty(1) for _ in range(count)]
    group.allgather([lists], [number]).wait()
    assert [tensor.item() for tensor in lists] == list(range(count))
    group.allgather(lists, number).wait()
    group.reduce_scatter(number, [torch.full((1,), float(r)) for r in range(count)]).wait()
    assert number.item() == count * rank
    group.gather([lists] if rank == 0 else [], [number], dist.GatherOptions()).wait()
    group.scatter(number, lists if rank == 0 else [], root=0).wait()
    assert number.item() == count * rank
    group.barrier().wait()
    assert group.name() in ("strandway", "custom") and (group.rank(), group.size()) == (rank, count)
    assert group._get_backend(torch.device("cpu")).getBackendName() == "strandway"
    with pytest.raises(RuntimeError, match="meta"):
        group._get_backend(torch.device("meta"))


def calls_of_cpp(rank, count):
    """What C++ starts and waits for later, with nobody in Python who holds the work."""
    numbers = [functional.all_reduce(torch.full((4,), rank + i), "sum", dist.group.WORLD) for i in range(200)]
    dist.barrier()
    gc.collect()
    assert [number[0].item() for number in numbers] == [sum(range(count)) + count * i for i in range(200)]
    ours = DistributedDataParallel(nn.Linear(3, 2), bucket_cap_mb=1e-5)
    for step in range(3):
        ours(torch.full((1, 3), float(rank + step))).sum().backward()
    assert ours.module.weight.grad[0].tolist() == [sum(step + (count - 1) / 2 for step in range(3))] * 3


def test_a_group_takes_calls_of_python_and_of_cpp():
    def body(rank, count):
        assert type(dist.group.WORLD._get_backend(torch.device("cpu"))) is StrandwayBackend
        calls_of_python(rank, count)
        calls_of_cpp(rank, count)
        half = dist.new_group([0, 1])
        if rank < 2:
            assert dist.get_rank(half) == rank and len(dist.get_process_group_ranks(half)) == 2
            dist.barrier(half)

    ranks(3, body)


def test_a_group_leaves_when_torch_destroys_it():
    def body(rank, count):
        from strandway_torch.group import ALIVE

        held, other = dist.new_group(), dist.new_group()
        assert len(ALIVE) == 3
        dist.barrier(held)
        dist.destroy_process_group(held)
        assert len(ALIVE) == 2
        with pytest.raises(RuntimeError, match="aborted"):
            held._get_backend(torch.device("cpu")).barrier(dist.BarrierOptions()).wait()
        dist.barrier(other)
        dist.destroy_process_group()
        assert not ALIVE

    ranks(2, body, leave=False)


@pytest.mark.skipif(compat.MAKES_BACKENDS, reason="this torch keeps works")
def test_works_that_nobody_waits_for_are_not_kept_for_ever(monkeypatch):
    from strandway_torch import work

    monkeypatch.setattr(work, "HELD_MAX", 10)
    monkeypatch.setattr(faces, "keeps_works", lambda: False)

    def body(rank, count):
        for _ in range(50):
            dist.all_reduce(torch.ones(2), async_op=True)
        dist.barrier()
        # The newest ones had not ended when the last call came.
        for _ in range(10):
            dist.all_reduce(torch.ones(2), async_op=True)
            dist.barrier()
        assert len(work._held) <= 11, len(work._held)
        for _ in range(50):
            dist.all_reduce(torch.ones(2))
            dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()
        assert len(work._held) <= 11, len(work._held)

    ranks(2, body)


LACKS = """
import warnings
warnings.simplefilter("error")
import torch, torch.distributed as dist
del torch._C._distributed_c10d.{name}
import strandway_torch
try:
    dist.init_process_group("strandway", store=dist.HashStore(), rank=0, world_size=1)
except ImportError as error:
    print(error)
"""


def test_a_torch_that_lacks_something_gets_one_sentence_with_the_versions_that_work():
    code = LACKS.format(name="ReduceOp")
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, capture_output=True, text=True
    )
    sentence = f"strandway works with torch 2.4 to 2.15, and not with this torch {torch.__version__}: cannot import name 'ReduceOp'"
    assert done.stdout.startswith(sentence) and len(done.stdout.splitlines()) == 1, done.stdout + done.stderr

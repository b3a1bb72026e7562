"""Processes: what they say about others, and what they leave behind."""

import os
import pathlib
import subprocess
import sys
import tempfile
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from strandway_torch.compat import MAKES_BACKENDS
from support import outcome, ranks

EXAMPLES = pathlib.Path(__file__).parents[4] / "examples"


@pytest.mark.parametrize("all_ranks", [False, True])
def test_a_monitored_barrier_names_the_ranks_that_have_not_come(all_ranks):
    def body(rank, count):
        if rank in (0, 2):
            error = outcome(lambda: dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=all_ranks))
            assert isinstance(error, RuntimeError)
            if rank == 0:
                assert ("Ranks 1, 3 failed to pass" if all_ranks else "Rank 1 failed to pass") in str(error), error
            else:
                assert "Rank 2 successfully reached monitoredBarrier, but received errors" in str(error), error
        # The group goes on.
        total = torch.tensor([rank])
        dist.all_reduce(total)
        assert total.item() == 6

    ranks(4, body)


def test_with_debug_detail_ranks_that_call_differently_and_those_that_do_not_come_are_named(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    dist.set_debug_level_from_env()

    def body(rank, count):
        total = torch.tensor([1.0 + rank])
        dist.all_reduce(total)
        assert total.item() == 6
        if rank == 0:
            assert dist.recv(total) == 1
        elif rank == 1:
            dist.send(total, 0)
        error = outcome((lambda: dist.broadcast(total, 0)) if rank == 1 else (lambda: dist.all_reduce(total)))
        if not MAKES_BACKENDS:
            # torch does not look at what goes to a group of Python; the package itself does.
            assert "calls all_reduce" in str(error) and "calls broadcast" in str(error), error
            return
        assert "Detected mismatch between collectives on ranks" in str(error) and "BROADCAST" in str(error), error
        if rank != 2:
            error = outcome(lambda: dist.monitored_barrier(timeout=timedelta(seconds=1)))
            assert rank or "Rank 2 failed to pass monitoredBarrier" in str(error), error

    try:
        ranks(3, body, leave=False)
    finally:
        monkeypatch.undo()
        dist.set_debug_level_from_env()


def test_a_rank_that_waits_names_whom_it_waits_for():
    def body(rank, count):
        import strandway

        group = dist.new_group([0, 1])
        if rank == 0:
            work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
            ((what, seconds, waited),) = strandway.waiting()
            assert what == "all_reduce" and 0 <= seconds < 60 and len(waited) == 1 and waited[0].startswith("rank 1 at "), waited
            dist.barrier()
            work.wait()
        else:
            dist.barrier()
            dist.all_reduce(torch.ones(3), group=group)
        dist.barrier()
        assert strandway.waiting() == []

    ranks(2, body)


def test_a_group_may_be_made_again_at_the_same_store():
    with tempfile.TemporaryDirectory() as folder:

        def body(rank, count):
            held = []
            for life in range(4):
                held.append(dist.new_group([0, 1]))
                total = torch.tensor([rank + life])
                dist.all_reduce(total)
                dist.all_reduce(total, group=held[-1])
                assert total.item() == 2 * (2 * life + 1)
                dist.barrier()
                dist.destroy_process_group()
                dist.init_process_group("strandway", init_method=f"file://{folder}/store", rank=rank, world_size=count)

        ranks(2, body)


def test_a_forked_child_gets_an_error_and_its_parents_go_on():
    def body(rank, count):
        total = torch.ones(2)
        dist.all_reduce(total)
        child = os.fork()
        if child == 0:
            errors = [outcome(lambda: dist.all_reduce(total)), outcome(lambda: dist.send(total, 1 - rank))]
            errors.append(outcome(lambda: dist.all_reduce(total, async_op=True).wait()))
            os._exit(0 if all("forked" in str(error) for error in errors) else 1)
        assert os.waitpid(child, 0)[1] == 0
        dist.all_reduce(total)
        assert total.tolist() == [4, 4]

    ranks(2, body)


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not here")
def test_a_job_whose_rank_dies_goes_on_from_its_checkpoint():
    environment = {name: value for name, value in os.environ.items() if name != "TORCHELASTIC_RESTART_COUNT"}
    environment["MASTER_PORT"] = str(20_000 + os.getpid() % 10_000)
    command = [sys.executable, EXAMPLES / "elastic_restart.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "life 1: steps 5 to 9" in done.stdout, done.stdout + done.stderr

"""How calls on accelerators are staged: order, streams, pieces, failures. Threads simulate the accelerator, so that order matters."""

import gc
import os
import time
import weakref
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from fake_device import Event, FakeDevice
from strandway.errors import WireError, WireTimeout
from strandway_torch import staging
from support import outcome, ranks

SUM = dist.ReduceOp.SUM


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def small_pieces():
    staging.PIECE_BYTES, staging.PART_MIN, staging.STAGED_MAX = 1 << 12, 1 << 8, 1 << 14


def test_neither_the_call_nor_wait_blocks_until_streams_come_and_results_are_those_of_the_streams():
    def body(rank, count):
        before, back = Event(), Event()
        device = FakeDevice(back=back).install()
        total = device.tensor([0.0, 0.0])
        device.wait(before)
        device.run(total.fill_, rank + 1.0)
        # A call that waited for its stream would never return.
        work = dist.all_reduce(total, async_op=True)
        assert not work.is_completed() and torch.equal(total, torch.zeros(2))
        before.come.set()
        # The same holds for a wait for the copy back. The caller's stream waits for it.
        work.wait()
        assert "back" not in device.log and torch.equal(total, torch.full((2,), rank + 1.0))
        doubled = device.tensor([0.0, 0.0])
        device.run(lambda: doubled.copy_(2 * total))
        back.come.set()
        assert device.read(doubled).tolist() == [6, 6]
        assert device.log == ["out", "back"]
        # The memory that the side stream writes is lent to it.
        assert device.lent == [total.untyped_storage().data_ptr()]

    ranks(2, body)


def test_pieces_are_copied_while_earlier_ones_are_on_the_wire_and_pinned_memory_is_bounded():
    def body(rank, count):
        device = FakeDevice(out=0.002).install()
        length = 40 * (1 << 10) + 3
        values = torch.arange(length, dtype=torch.float32)
        total = device.tensor(values * (rank + 1))
        dist.all_reduce(total)
        assert torch.equal(device.read(total), values * 3)
        assert device.log.count("out") == device.log.count("back") == 41
        # Some piece is back before the last one is out.
        assert device.log.index("back") < 40 and max(device.pinned_bytes) <= 1 << 12
        parts = device.tensor(torch.zeros(2 * length))
        dist.all_gather_into_tensor(parts, device.tensor(values + rank))
        assert torch.equal(device.read(parts), torch.cat([values, values + 1]))
        mine = device.tensor(torch.zeros(length))
        dist.reduce_scatter_tensor(mine, parts)
        assert torch.equal(device.read(mine), (values + rank) * 2)
        root = device.tensor(values if rank else torch.zeros(length))
        dist.broadcast(root, 1)
        assert torch.equal(device.read(root), values)
        # In place.
        parts[rank * length : (rank + 1) * length] += 1
        dist.all_gather_into_tensor(parts, parts[rank * length : (rank + 1) * length])
        assert torch.equal(device.read(parts), torch.cat([values + 1, values + 2]))
        # Without numbers, and of one number.
        dist.all_reduce(device.tensor(torch.zeros(0)))
        one = device.tensor(torch.tensor(1 + rank))
        dist.all_reduce(one)
        assert device.read(one).item() == 3

    ranks(2, body, before=small_pieces)


def test_calls_on_the_cpu_and_on_the_device_begin_in_the_order_of_the_program():
    def body(rank, count):
        device = FakeDevice().install()
        works, expected = [], []
        for step in range(30):
            if (step + rank) % 3 == 0:
                device.run(time.sleep, 0.01)
            tensor = torch.full((700,), step * (rank + 1))
            works.append((device.tensor(tensor), True) if step % 2 else (tensor, False))
            expected.append(step * 6)
        begun = [dist.all_reduce(tensor, async_op=True) for tensor, _ in works]
        for work in begun:
            work.wait()
        for (tensor, mine), value in zip(works, expected, strict=True):
            assert ((device.read(tensor) if mine else tensor) == value).all()

    ranks(3, body, before=small_pieces)


def test_sends_are_not_held_up_by_collectives_before_them():
    def body(rank, count):
        device = FakeDevice().install()
        total, word = device.tensor(torch.ones(5000)), device.tensor([float(rank)])
        if rank == 0:
            work = dist.all_reduce(total, async_op=True)
            dist.send(word, 1)
        else:
            dist.recv(word, 0)
            assert device.read(word).item() == 0
            work = dist.all_reduce(total, async_op=True)
        work.wait()
        assert (device.read(total) == 2).all()
        # Both begin with the receive, of more than is staged for collectives.
        mine, other = device.tensor(torch.full((9000,), float(rank))), device.tensor(torch.zeros(9000))
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, other, 1 - rank), dist.P2POp(dist.isend, mine, 1 - rank)]):
            work.wait()
        assert (device.read(other) == 1 - rank).all()

    ranks(2, body, before=small_pieces)


def test_a_call_of_many_pieces_that_one_rank_refuses_fails_at_all_and_later_sums_are_right():
    def body(rank, count):
        device = FakeDevice().install()
        for step in range(3):
            before = device.tensor(torch.ones(3000))
            work = dist.all_reduce(before, async_op=True)
            large = device.tensor(torch.ones(5000))
            if rank == 0:
                with pytest.raises(ValueError, match="it is expanded"):
                    dist.all_reduce(device.tensor([1.0]).expand(5000))
            else:
                with pytest.raises(WireError, match=r"rank 0 has given up: the call was refused there: .*it is expanded"):
                    dist.all_reduce(large)
            work.wait()
            assert (device.read(before) == count).all()
            total = device.tensor(torch.full((5000,), float(step)))
            dist.all_reduce(total)
            assert (device.read(total) == count * step).all()

    ranks(3, body, before=small_pieces)


def test_a_stream_that_stands_still_is_a_timeout_and_abort_ends_all_calls_at_once(monkeypatch):
    monkeypatch.setattr(staging, "GRACE", 0.5)

    def body(rank, count):
        device = FakeDevice().install()
        total = device.tensor(torch.ones(5000))
        held = Event()
        if rank == 0:
            device.wait(held)
        work = dist.all_reduce(total, async_op=True)
        error = outcome(work.wait)
        assert isinstance(error, WireTimeout), error
        assert ("the stream of its tensors" if rank == 0 else "waited for rank 0") in str(error)
        with pytest.raises(WireTimeout, match=r"wait timed out after 0\.1 s"):
            dist.all_reduce(total, async_op=True).wait(timedelta(seconds=0.1))
        works = [dist.all_reduce(total, async_op=True) for _ in range(20)]
        began = time.monotonic()
        backend().abort()
        for work in works:
            with pytest.raises(WireError, match="aborted"):
                work.wait()
        with pytest.raises(WireError, match="aborted"):
            dist.all_reduce(total)
        assert time.monotonic() - began < 1

    ranks(2, body, before=small_pieces, timeout=2.0, leave=False)


def test_the_death_of_a_process_reaches_wait():
    def body(rank, count):
        device = FakeDevice().install()
        total = device.tensor(torch.ones(100_000))
        dist.all_reduce(total)
        if rank == 1:
            os.kill(os.getpid(), 9)
        error = outcome(lambda: dist.all_reduce(total))
        assert isinstance(error, WireError) and "rank 1" in str(error), error
        os._exit(0)

    with pytest.raises(AssertionError) as failures:
        ranks(2, body, before=small_pieces, leave=False)
    assert str(failures.value).count("has ended without a result") == 2, failures.value


def test_tensors_are_given_back_when_their_calls_are_over():
    def body(rank, count):
        device = FakeDevice().install()
        total = device.tensor(torch.ones(5000))
        gone = weakref.ref(total.untyped_storage())
        work = dist.all_reduce(total, async_op=True)
        work.wait()
        device.default.synchronize()
        del work, total
        until = time.monotonic() + 10
        while gone() is not None and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        assert gone() is None

    ranks(2, body, before=small_pieces)


def test_the_last_message_of_a_program_arrives():
    def body(rank, count):
        device = FakeDevice().install()
        word = device.tensor(torch.zeros(1))
        if rank == 0:
            device.run(time.sleep, 0.5)
            device.run(word.fill_, 7.0)
            dist.isend(word, 1)
        else:
            dist.recv(word, 0)
            assert device.read(word).item() == 7

    ranks(2, body, leave=False)

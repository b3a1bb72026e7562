"""Futures: their callbacks may do anything, and the communication hooks of DDP give the losses that they give over Gloo."""

import functools
import math
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support import outcome, ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel


def sum_of(*numbers):
    return dist.all_reduce(torch.tensor(numbers), async_op=True).get_future()


def test_callbacks_start_collectives_and_wait_for_them_ever_deeper():
    def body(rank, count):
        def deeper(depth):
            def callback(future):
                number = future.value()[0]
                if depth == 0:
                    return [number]
                return sum_of(number.item()).then(deeper(depth - 1)).wait()

            return callback

        for turn in range(20):
            # On one rank the first futures are complete when they get their callbacks, on the other one they are not.
            if turn % count == rank:
                time.sleep(0.002)
            # More callbacks wait at the same time than the package keeps threads.
            futures = [sum_of(1.0 + i).then(deeper(6)) for i in range(4)]
            total = torch.tensor([5.0])
            dist.all_reduce(total)
            assert total.item() == 5 * count
            assert [future.wait()[0].item() for future in futures] == [2.0**7 * (1 + i) for i in range(4)]

    ranks(2, body)


def test_a_slow_callback_holds_no_other_future():
    def body(rank, count):
        release = threading.Event()
        callbacks = [lambda _: release.wait(100)] * 4 if rank == 0 else []
        if rank == 1:
            # The futures of rank 0 are not complete when they get their callbacks, which would be run at once then.
            time.sleep(0.5)
        futures = [sum_of(1.0) for _ in range(4)]
        slow = [future.then(callback) for future, callback in zip(futures, callbacks, strict=False)]
        for _ in range(50):
            assert sum_of(2.0).wait()[0].item() == 2 * count
        assert not any(future.done() for future in slow)
        release.set()
        assert all(future.wait() for future in slow)

    ranks(2, body)


def test_a_callback_that_raises_ends_its_own_future_only():
    def body(rank, count):
        def wrong(_):
            raise ArithmeticError("of this callback")

        bad = sum_of(1.0).then(wrong)
        with pytest.raises(RuntimeError, match="of this callback"):
            bad.wait()
        future = sum_of(1.0)
        future.add_done_callback(wrong)
        assert future.wait()[0].item() == count
        assert sum_of(3.0).then(lambda done: done.value()[0].item()).wait() == 3 * count

    ranks(2, body)


def test_the_future_of_a_collective_that_failed_fails():
    def body(rank, count):
        group = dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
        if rank == 0:

            def begin():
                return dist.all_reduce(torch.ones(2), group=group, async_op=True).get_future()

            told = []
            alone, chained, seen, late = begin(), begin().then(lambda future: future.value()[0]), begin(), begin()
            seen.add_done_callback(lambda future: told.append(str(outcome(future.value))))
            for future in (alone, chained, seen):
                with pytest.raises(RuntimeError, match=r"all_reduce timed out after 0\.5 s.* waited for rank 1 at"):
                    future.wait()
            with pytest.raises(RuntimeError, match="timed out"):
                torch.futures.wait_all([late])
            while not told:
                time.sleep(0.01)
            assert "timed out" in told[0], told
        dist.barrier()

    ranks(2, body)


def test_a_hook_whose_collective_fails_ends_the_backward_pass_with_the_reason():
    def body(rank, count):
        ours = DistributedDataParallel(model())
        ours.register_comm_hook(None, default_hooks.allreduce_hook)
        loss = ours(batch(rank, 0)).square().mean()
        if rank == 1:
            dist.destroy_process_group()
            return
        with pytest.raises(RuntimeError, match="rank 1"):
            loss.backward()

    ranks(2, body, timeout=20, leave=False)


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 40), nn.ReLU(), nn.Linear(40, 8))


def batch(rank, step):
    return torch.randn(16, 32, generator=torch.Generator().manual_seed(10 * step + rank))


def power(state, hook):
    """From the third step on gradients are compressed."""

    def register(ours):
        ours.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, **state), hook)

    return register


def plain(hook, state=lambda: None):
    return lambda ours: ours.register_comm_hook(state(), hook)


def pair():
    return dist.new_subgroups(group_size=2)[0]


def world():
    return dist.group.WORLD


# Without torch's batched PowerSGD, which fails in its own check of shapes with any backend (torch 2.15).
HOOKS = {
    "allreduce": plain(default_hooks.allreduce_hook),
    "fp16": plain(default_hooks.fp16_compress_hook),
    "bf16": plain(default_hooks.bf16_compress_hook),
    "fp16 of allreduce": plain(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
    "bf16 of allreduce": plain(default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)),
    "powerSGD": power({}, powerSGD_hook.powerSGD_hook),
    "powerSGD, cold": power({"warm_start": False, "use_error_feedback": False}, powerSGD_hook.powerSGD_hook),
    "fp16 of powerSGD": power({}, default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
    "quantized by tensor": plain(quantization_hooks.quantization_pertensor_hook, world),
    "quantized by channel": plain(quantization_hooks.quantization_perchannel_hook, world),
    "none": plain(debugging_hooks.noop_hook),
    "local SGD": plain(post_localSGD_hook.post_localSGD_hook, lambda: post_localSGD_hook.PostLocalSGDState(None, pair(), 2)),
}
NESTED = {"powerSGD", "fp16 of powerSGD", "quantized by tensor", "quantized by channel"}
# Torch's hook forgets the matrices of all buckets when it is done with one of them.
ONE_BUCKET = {"powerSGD, cold"}


@functools.cache
def offered():
    """Those that torch has for the CPU: its quantizing ones read other futures than those of Gloo before torch 2.15."""
    quantizing = [name for name in HOOKS if "quantized" in name]
    lacking = [name for name in quantizing if outcome(lambda name=name: ranks(1, losses, [name], False, backend="gloo"))]
    assert not lacking or lacking == quantizing
    return [name for name in HOOKS if name not in lacking]


def losses(rank, count, names, buckets):
    found = {}
    for name in names:
        # Powers begin with random numbers.
        torch.manual_seed(7)
        ours = DistributedDataParallel(model(), bucket_cap_mb=0.005 if buckets and name not in ONE_BUCKET else 25)
        HOOKS[name](ours)
        steps = torch.optim.SGD(ours.parameters(), 0.05)
        if name == "local SGD":
            steps = PostLocalSGDOptimizer(steps, PeriodicModelAverager(period=2, warmup_steps=2))
        found[name] = []
        for step in range(6):
            loss = ours(batch(rank, step)).square().mean()
            steps.zero_grad()
            loss.backward()
            steps.step()
            found[name].append(loss.item())
    return found


@pytest.mark.parametrize("buckets", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_all_communication_hooks_give_the_losses_that_they_give_over_gloo(count, buckets):
    # Callbacks of several buckets start collectives at once: over Gloo ranks do so in different orders, fail or wait for ever.
    names = [name for name in offered() if not (buckets and name in NESTED)]
    ours, right = ranks(count, losses, names, buckets), ranks(count, losses, names, buckets, backend="gloo")
    for mine, theirs in zip(ours, right, strict=True):
        for name in names:
            # Ranks add in another order; bf16 and fp16 have few bits.
            torch.testing.assert_close(mine[name], theirs[name], rtol=2e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("count", [2, 4])
def test_hooks_whose_callbacks_start_collectives_for_many_buckets_give_the_same_losses_in_every_run(count):
    first, second = (ranks(count, losses, sorted(NESTED & set(offered())), True) for _ in range(2))
    assert first == second
    assert all(math.isfinite(loss) for rank in first for found in rank.values() for loss in found)

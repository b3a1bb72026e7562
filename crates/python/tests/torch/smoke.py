#!/usr/bin/env python3
"""Layers above `torch.distributed`, over the backend `strandway`: DDP, FSDP2, DTensor, checkpoints, groups, errors.

python smoke.py [RANKS [--all]]

Ranks are forked from this process. Gradients and weights are held against a model on one rank. What fails here and over Gloo as well is
not in this version of torch for the CPU, and is named; with --all that is a failure.
"""

import os
import sys
import tempfile
import time
from datetime import timedelta

import strandway_torch  # noqa: F401  torch finds it by itself since 2.5
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from strandway_torch.backend import StrandwayBackend
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
except ImportError:
    # Names before torch 2.6.
    from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed._tensor import Replicate, Shard, distribute_tensor


# A rank that waits longer fails, and says for whom it waits.
LIMIT = timedelta(minutes=2)
FACE = StrandwayBackend.__mro__[0].__name__
missing = []


def lacks(what, why):
    if what not in missing:
        missing.append(what)
    print(f"not in torch {torch.__version__} on CPU: {what}: {why}", file=sys.stderr)


def offered(what, call, *arguments, **options):
    """Runs `call(*arguments, group)`; if that fails over Gloo, too, torch itself cannot do it here."""
    try:
        return call(*arguments, dist.group.WORLD, **options)
    except Exception as error:
        try:
            call(*arguments, dist.new_group(backend="gloo"), **options)
        except Exception as other:
            lacks(what, other)
            return None
        raise error


def mesh_of(group, ranks):
    if group is dist.group.WORLD:
        return init_device_mesh("cpu", (ranks,))
    return DeviceMesh.from_group(group, "cpu")


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def batch(rank):
    return torch.randn(16, 32, generator=torch.Generator().manual_seed(rank))


def reference(ranks):
    one = model()
    torch.stack([one(batch(rank)).square().mean() for rank in range(ranks)]).mean().backward()
    return one


def ddp(rank, ranks):
    ours = DistributedDataParallel(model(), bucket_cap_mb=1)
    ours(batch(rank)).square().mean().backward()
    for mine, right in zip(ours.parameters(), reference(ranks).parameters(), strict=True):
        torch.testing.assert_close(mine.grad, right.grad)


def fsdp1(rank, ranks, group):
    """The first generation. Its gradients are sharded: a step of SGD shows them in the weights."""
    ours, right = FullyShardedDataParallel(model(), process_group=group, device_id=torch.device("cpu")), reference(ranks)
    steps, others = torch.optim.SGD(ours.parameters(), 0.1), torch.optim.SGD(right.parameters(), 0.1)
    ours(batch(rank)).square().mean().backward()
    steps.step()
    others.step()
    with FullyShardedDataParallel.summon_full_params(ours):
        for mine, whole in zip(ours.parameters(), right.parameters(), strict=True):
            torch.testing.assert_close(mine, whole)


def fsdp(rank, ranks, group, dtype=None, own_memory=False):
    mesh = mesh_of(group, ranks)
    policy = MixedPrecisionPolicy(param_dtype=dtype) if dtype else MixedPrecisionPolicy()
    ours = model()
    for layer in [module for module in ours if isinstance(module, nn.Linear)]:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
        if own_memory:
            layer.set_allocate_memory_from_process_group_for_comm(True)
    fully_shard(ours, mesh=mesh, mp_policy=policy)
    ours(batch(rank)).float().square().mean().backward()
    for mine, right in zip(ours.parameters(), reference(ranks).parameters(), strict=True):
        exact = {"rtol": 0.05, "atol": 2e-3} if dtype else {}
        torch.testing.assert_close(mine.grad.full_tensor(), right.grad, **exact)
    norm = nn.utils.clip_grad_norm_(ours.parameters(), 1e9)
    assert torch.isfinite(norm.full_tensor())
    return ours


def hybrid(rank, ranks, group):
    names, width = ("replicate", "shard"), ranks // 2
    if group is dist.group.WORLD:
        mesh = init_device_mesh("cpu", (2, width), mesh_dim_names=names)
    else:
        whole = torch.arange(ranks).reshape(2, width)
        rows = [dist.new_group(row, backend="gloo") for row in whole.tolist()]
        columns = [dist.new_group(column, backend="gloo") for column in whole.t().tolist()]
        mesh = DeviceMesh.from_group([columns[rank % width], rows[rank // width]], "cpu", mesh=whole, mesh_dim_names=names)
    ours = model()
    fully_shard(ours, mesh=mesh)
    ours(batch(rank)).square().mean().backward()
    for mine, right in zip(ours.parameters(), reference(ranks).parameters(), strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), right.grad)


def dtensor(rank, ranks, group):
    mesh = mesh_of(group, ranks)
    whole = torch.arange(ranks * 4 * ranks * 2.0).reshape(ranks * 4, ranks * 2)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    product = sharded.t() @ sharded
    torch.testing.assert_close(product.full_tensor(), whole.t() @ whole)


def checkpoint(rank, ranks, folder, ours):
    """Of a model in shards, or else of one tensor in shards."""
    if ours is None:
        whole = torch.arange(ranks * 4.0)
        state = {"weight": distribute_tensor(whole, init_device_mesh("cpu", (ranks,)), [Shard(0)]), "step": torch.tensor(5)}
        dcp.save(state, checkpoint_id=folder)
        state["weight"].to_local().zero_()
        state["step"].zero_()
        dcp.load(state, checkpoint_id=folder)
        assert torch.equal(state["weight"].full_tensor(), whole) and state["step"] == 5
        return
    state = {"model": ours.state_dict(), "step": torch.tensor(5)}
    dcp.save(state, checkpoint_id=folder)
    before = [parameter.full_tensor().clone() for parameter in ours.parameters()]
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.zero_()
    dcp.load(state, checkpoint_id=folder)
    ours.load_state_dict(state["model"])
    for mine, right in zip(ours.parameters(), before, strict=True):
        assert torch.equal(mine.full_tensor(), right)


def all_to_all(rank, ranks):
    mine = [torch.tensor([100.0 * rank + other]) for other in range(ranks)]
    theirs = [torch.empty(1) for _ in range(ranks)]
    dist.all_to_all(theirs, mine)
    assert [tensor.item() for tensor in theirs] == [100.0 * other + rank for other in range(ranks)]
    whole = torch.empty(ranks)
    dist.all_to_all_single(whole, torch.cat(mine), async_op=True).wait()
    assert whole.tolist() == [100.0 * other + rank for other in range(ranks)]


def functional(rank, ranks, group):
    """Collectives that torch calls from C++ and waits for there."""
    import torch.distributed._functional_collectives as functional

    total = sum(range(ranks))
    numbers = [functional.all_reduce(torch.full((4,), rank + i), "sum", group) for i in range(50)]
    assert [number[0].item() for number in numbers] == [total + ranks * i for i in range(50)]
    everything = functional.all_gather_tensor(torch.full((2,), rank), 0, group)
    assert everything.tolist() == [other for other in range(ranks) for _ in range(2)]
    mine = functional.reduce_scatter_tensor(torch.arange(ranks), "sum", 0, group)
    assert mine.tolist() == [ranks * rank]
    mine = functional.all_to_all_single(torch.full((ranks,), rank), None, None, group)
    assert mine.tolist() == list(range(ranks))


def point_to_point(rank, ranks):
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    numbers = torch.empty(3)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((3,), float(rank)), right), dist.P2POp(dist.irecv, numbers, left)])
    for work in works:
        work.wait()
    assert numbers.tolist() == [left] * 3
    work = dist.barrier(async_op=True)
    work.wait()


def monitored_barrier(group):
    dist.monitored_barrier(group)


def split(ranks, group):
    half = dist.split_group(split_ranks=[list(range(ranks // 2)), list(range(ranks // 2, ranks))])
    number = torch.ones(1)
    dist.all_reduce(number, group=half)
    assert number.item() == ranks // 2


def objects_and_groups(rank, ranks):
    things = [None] * ranks
    dist.all_gather_object(things, {"rank": rank})
    assert [thing["rank"] for thing in things] == list(range(ranks))
    for _ in range(20):
        pair = dist.new_group([0, 1])
        if rank < 2:
            number = torch.tensor([rank + 1])
            dist.all_reduce(number, group=pair)
            assert number.item() == 3
            dist.destroy_process_group(pair)
    numbers = [torch.full((n,), float(rank)) for n in (1, 5000, 100_000)]
    works = [dist.all_reduce(number, async_op=True) for number in numbers]
    futures = [work.get_future().then(lambda f: f.value()[0].sum()) for work in works]
    total = float(sum(range(ranks)))
    assert [future.wait().item() for future in futures] == [n * total for n in (1, 5000, 100_000)]
    scaled = torch.full((4,), 1.0)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(float(rank)))
    assert (scaled == total).all()


def failures(rank, ranks):
    group = dist.new_group(list(range(ranks)), timeout=timedelta(seconds=1))
    backend = group._get_backend(torch.device("cpu"))
    if rank == 0:
        try:
            dist.all_reduce(torch.ones(4), group=group)
        except RuntimeError as error:
            assert "timed out after 1.0 s" in str(error) and "rank 1 at " in str(error), error
        else:
            raise AssertionError("nobody else has called it")
        assert str(backend.get_error()).endswith("TIMEOUT")
    dist.barrier()
    other = dist.new_group(list(range(ranks)))
    waiting = dist.irecv(torch.ones(100_000), src=(rank + 1) % ranks, group=other)
    began = time.monotonic()
    other._get_backend(torch.device("cpu")).abort()
    try:
        waiting.wait()
    except RuntimeError as error:
        assert "aborted" in str(error), error
    else:
        raise AssertionError("the group was aborted")
    # At once on an idle machine; without the abort, the limit of the operation is two minutes.
    assert time.monotonic() - began < 20


def sums_are_right(rank, ranks):
    for i in range(5):
        number = torch.tensor([100.0 * i + rank])
        dist.all_reduce(number)
        assert number.item() == 100 * i * ranks + sum(range(ranks)), (i, number)


def refused(kinds, call):
    try:
        call()
    except kinds:
        return
    raise AssertionError("the call is wrong")


def refused_calls(rank, ranks):
    """A call that one rank alone has made wrong fails at all of them, and later sums are those of the same call everywhere."""
    outputs = [torch.empty(3) for _ in range(ranks if rank else ranks + 1)]
    refused((ValueError, RuntimeError), lambda: dist.all_gather(outputs, torch.ones(3)))
    sums_are_right(rank, ranks)
    refused(ValueError, lambda: dist.all_to_all_single(torch.empty(2 * ranks + 1), torch.ones(2 * ranks + 1)))
    sums_are_right(rank, ranks)
    splits = [-1] * ranks
    refused((ValueError, RuntimeError), lambda: dist.all_to_all_single(torch.empty(ranks), torch.ones(ranks), splits, splits))
    sums_are_right(rank, ranks)
    for dtype in (torch.float64, torch.int32):
        # Another type, in as many bytes where that is possible.
        length = 2 * ranks * 4 // torch.empty(0, dtype=dtype).element_size()
        output = torch.empty(length, dtype=dtype)
        refused((TypeError, ValueError), lambda output=output: dist.all_gather_into_tensor(output, torch.ones(2)))
        sums_are_right(rank, ranks)
    refused((TypeError, RuntimeError), lambda: dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn)))
    sums_are_right(rank, ranks)
    group, other = dist.new_group(list(range(ranks))), [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank % 2]
    refused(RuntimeError, lambda: dist.all_reduce(torch.ones(3), op=other, group=group))
    # Which calls belong together is not known any more in that group.
    refused(RuntimeError, lambda: dist.all_reduce(torch.ones(3), group=group))
    sums_are_right(rank, ranks)


def numbers_of_all_kinds(rank, ranks):
    total = sum(range(ranks))
    for dtype in (torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64):
        one = torch.ones(4).to(dtype)
        for call in (dist.all_reduce, lambda number: dist.reduce(number, 0)):
            number = (one.to(torch.complex128).real * (rank + 1)).to(dtype)
            call(number)
            if rank == 0 or call is dist.all_reduce:
                assert number.to(torch.complex128).real.tolist() == [total + ranks] * 4, (dtype, number)
    whole, mine = torch.full((2 * ranks,), complex(rank, 1)), torch.empty(2, dtype=torch.complex64)
    dist.reduce_scatter_tensor(mine, whole, op=dist.ReduceOp.AVG)
    assert mine.tolist() == [complex(total / ranks, 1)] * 2, mine


def receives_from_any_rank(rank, ranks):
    if rank == 0:
        numbers = torch.empty(2)
        sources = {dist.recv(numbers) for _ in range(1, ranks)}
        assert sources == set(range(1, ranks)), sources
    else:
        dist.send(torch.full((2,), float(rank)), 0)
    refused((ValueError, RuntimeError, TypeError), lambda: dist.send(torch.ones(1), (rank + 1) % ranks, tag=-1))


def futures_that_wait(rank, ranks):
    """Callbacks start collectives and wait for them; one raises."""

    def again(future):
        number = future.value()[0] * 10
        return dist.all_reduce(number, async_op=True).get_future().wait()[0]

    # One after the other: calls that callbacks of several futures make at once have no order that all ranks share.
    for i in range(3):
        future = dist.all_reduce(torch.tensor([1.0 + i]), async_op=True).get_future().then(again)
        assert future.wait().item() == 10 * ranks * ranks * (1 + i)

    def wrong(future):
        raise ArithmeticError("of the callback")

    bad = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(wrong)
    refused((ArithmeticError, RuntimeError), bad.wait)
    sums_are_right(rank, ranks)


def communication_hooks(rank, ranks):
    """Every hook of torch gives the losses that it gives over Gloo."""
    from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, register_ddp_comm_hook
    from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization

    def losses(group, register):
        ours = DistributedDataParallel(model(), process_group=group)
        register(ours, group)
        steps = torch.optim.SGD(ours.parameters(), 0.05)
        found = []
        for step in range(4):
            loss = ours(batch(rank + 10 * step)).square().mean()
            steps.zero_grad()
            loss.backward()
            steps.step()
            found.append(loss.item())
        return found

    def known(kind):
        return lambda ours, group: register_ddp_comm_hook(kind, ours, group)

    hooks = {kind.name: known(kind) for kind in DDPCommHookType if "POST_LOCAL" not in kind.name}
    hooks["per tensor"] = lambda ours, group: ours.register_comm_hook(group, quantization.quantization_pertensor_hook)
    hooks["per channel"] = lambda ours, group: ours.register_comm_hook(group, quantization.quantization_perchannel_hook)
    gloo, ours = dist.new_group(backend="gloo"), dist.new_group()
    for name, register in hooks.items():
        try:
            torch.manual_seed(7)
            right = losses(gloo, register)
        except Exception as error:
            lacks("quantizing hooks" if "PER" in name.upper() else f"the hook {name}", error)
            continue
        torch.manual_seed(7)
        mine = losses(ours, register)
        torch.testing.assert_close(mine, right, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def work(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("strandway", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, timeout=LIMIT)
    assert dist.get_backend() == "strandway"
    ddp(rank, ranks)
    offered("FSDP1", fsdp1, rank, ranks)
    sharded = offered("FSDP2", fsdp, rank, ranks)
    if sharded is not None:
        fsdp(rank, ranks, dist.group.WORLD, torch.bfloat16)
        if hasattr(sharded, "set_allocate_memory_from_process_group_for_comm"):
            fsdp(rank, ranks, dist.group.WORLD, own_memory=True)
        else:
            lacks("FSDP2 with memory of the group", "no such method")
        if ranks >= 4:
            offered("hybrid FSDP2", hybrid, rank, ranks)
    offered("DTensor", dtensor, rank, ranks)
    checkpoint(rank, ranks, f"{folder}/checkpoint", sharded)
    all_to_all(rank, ranks)
    offered("functional collectives", functional, rank, ranks)
    point_to_point(rank, ranks)
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG") != "DETAIL":
        objects_and_groups(rank, ranks)
        failures(rank, ranks)
        refused_calls(rank, ranks)
        numbers_of_all_kinds(rank, ranks)
        receives_from_any_rank(rank, ranks)
        futures_that_wait(rank, ranks)
        communication_hooks(rank, ranks)
        offered("monitored_barrier", monitored_barrier)
        offered("split_group", split, ranks)
    dist.barrier()
    dist.destroy_process_group()
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG") != "DETAIL":
        # And once more, at the same store. With DETAIL torch adds a Gloo group, and Gloo reads what the group before has left there:
        # it hangs, unless the last rank has removed the file before the first one opens it again.
        dist.init_process_group("strandway", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, timeout=LIMIT)
        sums_are_right(rank, ranks)
        dist.destroy_process_group()
    assert not (missing and "--all" in sys.argv), missing
    if rank == 0 and missing:
        print(f"not in torch {torch.__version__} on CPU: {', '.join(missing)}", flush=True)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory(prefix="strandway-smoke-") as place:
        mp.start_processes(work, (count, place), nprocs=count, start_method="fork")
    print(f"torch {torch.__version__}, {FACE}, {count} ranks: all passed")

#!/usr/bin/env python3
"""Layers above `torch.distributed`, over the backend `strandway`: DDP, FSDP2, DTensor, checkpoints, groups, errors.

python smoke.py [RANKS]

Ranks are forked from this process. Gradients and weights are held against a model on one rank.
"""

import os
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


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


def fsdp(rank, ranks, dtype=None, own_memory=False):
    mesh = init_device_mesh("cpu", (ranks,))
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


def hybrid(rank, ranks):
    if ranks < 4:
        return
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard"))
    ours = model()
    fully_shard(ours, mesh=mesh)
    ours(batch(rank)).square().mean().backward()
    for mine, right in zip(ours.parameters(), reference(ranks).parameters(), strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), right.grad)


def dtensor(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    whole = torch.arange(ranks * 4 * ranks * 2.0).reshape(ranks * 4, ranks * 2)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    product = sharded.t() @ sharded
    torch.testing.assert_close(product.full_tensor(), whole.t() @ whole)


def checkpoint(rank, ranks, folder):
    ours = fsdp(rank, ranks)
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
    assert time.monotonic() - began < 1


def work(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("strandway", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    assert dist.get_backend() == "strandway"
    ddp(rank, ranks)
    fsdp(rank, ranks)
    fsdp(rank, ranks, torch.bfloat16)
    fsdp(rank, ranks, own_memory=True)
    hybrid(rank, ranks)
    dtensor(rank, ranks)
    checkpoint(rank, ranks, f"{folder}/checkpoint")
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG") != "DETAIL":
        objects_and_groups(rank, ranks)
        failures(rank, ranks)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory(prefix="strandway-smoke-") as place:
        mp.start_processes(work, (count, place), nprocs=count, start_method="fork")
    print(f"{count} ranks: all passed")

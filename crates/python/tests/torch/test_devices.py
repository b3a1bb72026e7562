"""Two ranks that share one accelerator: a real one, or torch's simulated one, whose memory the host cannot read (torch_openreg)."""

import contextlib
import copy
import functools
import importlib.util
import os
import random
import tempfile

import pytest
import strandway_torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from strandway_torch import staging
from strandway_torch.compat import MAKES_BACKENDS, accelerator_type, distributed_c10d
from support import ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# The processes of the tests are forked: nothing of CUDA may be started before.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def real():
    """The kind of accelerator that is at hand."""
    return accelerator_type() if torch.cuda.is_available() or torch.xpu.is_available() else None


def skipping(why, unless):
    return pytest.mark.skipif(not unless, reason=why)


SIMULATED = skipping("torch_openreg is not there: it is built from torch's source", importlib.util.find_spec("torch_openreg"))
REAL = skipping("no accelerator is at hand", real())
pytestmark = pytest.mark.parametrize(
    "kind", [pytest.param("openreg", marks=SIMULATED, id="simulated"), pytest.param(real(), marks=REAL, id="real")]
)


class Stay:
    """Stands for a stream that is the current one."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self.before = torch.accelerator.current_stream(self.stream.device)
        torch.accelerator.set_stream(self.stream)

    def __exit__(self, *_):
        torch.accelerator.set_stream(self.before)


def begin(kind):
    """Makes the accelerator known, with what FSDP asks of its module."""
    if kind == "openreg":
        import torch_openreg  # noqa: F401

        module, device = torch.openreg, torch.device("openreg:0")
        missing = {
            "Stream": functools.partial(torch.Stream, device),
            "Event": functools.partial(torch.Event, device),
            "stream": Stay,
            "current_stream": lambda _=None: torch.accelerator.current_stream(device),
            "synchronize": lambda _=None: None,
        }
        for name, value in missing.items():
            if not hasattr(module, name):
                setattr(module, name, value)
        strandway_torch.register()
        # Its memory cannot be freed under a tensor.
        with contextlib.suppress(ImportError):
            from torch.distributed.fsdp._fully_shard import _fsdp_param

            _fsdp_param.free_storage = _fsdp_param.alloc_storage = lambda _: None
    staging.PIECE_BYTES, staging.PART_MIN, staging.STAGED_MAX = 1 << 14, 1 << 10, 1 << 16


def on(kind, body, count=2, **options):
    return ranks(count, lambda *ranks: body(torch.device(kind, 0), *ranks), before=lambda: begin(kind), **options)


@pytest.mark.parametrize("length", [5, 50_000])
def test_all_collectives(kind, length):
    # The simulated accelerator has no view of them as real numbers, which torch takes.
    complex_types = () if kind == "openreg" else (torch.complex64,)

    def body(device, rank, count):
        def tensor(value, *more):
            return torch.full((length * count,), value, device=device) if not more else [tensor(one) for one in (value, *more)]

        def same(given, value):
            assert given.device == device and torch.equal(
                given.cpu(), value if isinstance(value, torch.Tensor) else torch.full_like(given.cpu(), value)
            )

        for dtype in (torch.float32, torch.bfloat16, torch.int64, *complex_types):
            total = torch.arange(length, device=device).to(dtype)
            dist.all_reduce(total)
            same(total, (torch.arange(length) * count).to(dtype))
        mean = tensor(float(rank))
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        same(mean, 0.5)
        largest = tensor(rank)
        dist.reduce(largest, 1, dist.ReduceOp.MAX)
        same(largest, rank)
        root = tensor(rank)
        dist.broadcast(root, 1)
        same(root, 1)
        lists = tensor(7, 7)
        dist.all_gather(lists, tensor(rank))
        same(torch.cat(lists), torch.cat([tensor(0), tensor(1)]).cpu())
        dist.all_gather(
            uneven := [torch.empty(3 + r, device=device) for r in range(count)], torch.full((3 + rank,), 1.0 + rank, device=device)
        )
        same(torch.cat(uneven), torch.tensor([1.0] * 3 + [2.0] * 4))
        whole = torch.empty(2 * length * count, dtype=torch.int64, device=device)
        dist.all_gather_into_tensor(whole, tensor(rank))
        same(whole, torch.cat([tensor(0), tensor(1)]).cpu())
        part = tensor(0)
        dist.reduce_scatter_tensor(part, whole)
        same(part, 2 * rank)
        dist.reduce_scatter(part, tensor(1, 2))
        same(part, 2 + 2 * rank)
        dist.all_to_all(swapped := tensor(7, 7), tensor(10 * rank, 10 * rank + 1))
        same(swapped[0], rank) or same(swapped[1], 10 + rank)
        rows = torch.arange(4.0, device=device) + 10 * rank
        dist.all_to_all_single(
            output := torch.empty(4, device=device), rows, [1, 3] if rank == 0 else [3, 1], [1, 3] if rank == 0 else [3, 1]
        )
        same(output, torch.tensor([0.0, 10, 11, 12]) if rank == 0 else torch.tensor([1.0, 2, 3, 13]))
        gathered = tensor(7, 7) if rank == 0 else None
        dist.gather(tensor(rank), gathered, 0)
        assert gathered is None or same(torch.cat(gathered), torch.cat([tensor(0), tensor(1)]).cpu()) is None
        dist.scatter(mine := tensor(7), tensor(3, 4) if rank == 0 else None, 0)
        same(mine, 3 + rank)
        received = tensor(7)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, received, 1 - rank), dist.P2POp(dist.isend, tensor(rank), 1 - rank)]):
            work.wait()
        same(received, 1 - rank)
        if rank == 0:
            dist.send(tensor(5), 1)
        else:
            assert dist.recv(received) == 0
            same(received, 5)
        columns = torch.arange(6.0, device=device).view(2, 3).t()
        dist.all_reduce(columns)
        same(columns, 2 * torch.arange(6.0).view(2, 3).t())
        future = dist.all_reduce(tensor(1), async_op=True).get_future()
        same(future.then(lambda future: future.value()[0] * 2).wait(), 4)
        dist.barrier()
        dist.barrier(device_ids=[0])
        everybody = [None] * count
        dist.all_gather_object(everybody, rank)
        assert everybody == [0, 1]

    on(kind, body)


def test_a_call_has_its_tensors_on_one_device(kind):
    def body(device, rank, count):
        backend = dist.group.WORLD._get_backend(device)
        with pytest.raises(ValueError, match="the tensors of a call are on one device, and these are on cpu and"):
            backend.allgather([[torch.zeros(2), torch.zeros(2)]], [torch.zeros(2, device=device)], distributed_c10d.AllgatherOptions())
        # Ranks may differ.
        total = torch.ones(3, device=device if rank == 0 else "cpu")
        dist.all_reduce(total)
        assert total.cpu().tolist() == [2, 2, 2]

    on(kind, body)


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))


def batch(step):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(step))


def trained(steps=3):
    """The weights of one process on the CPU."""
    alone = model()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        alone(batch(step)).square().mean().backward()
        optimizer.step()
    return alone.state_dict()


def train(ours, device, rank, count, steps=3):
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1, foreach=False)
    for step in range(steps):
        optimizer.zero_grad()
        ours(batch(step).chunk(count)[rank].to(device)).square().mean().backward()
        optimizer.step()


def assert_trained(state):
    for name, value in trained().items():
        torch.testing.assert_close(state[name].cpu(), value)


@pytest.mark.parametrize("hook", [False, True], ids=["plain", "hook"])
def test_ddp(kind, hook):
    def body(device, rank, count):
        ours = DistributedDataParallel(model().to(device), bucket_cap_mb=1e-3)
        if hook:

            def average(_, bucket):
                future = dist.all_reduce(bucket.buffer().div_(count), async_op=True).get_future()
                return future.then(lambda future: future.value()[0])

            ours.register_comm_hook(None, average)
        train(ours, device, rank, count)
        assert_trained(ours.module.state_dict())

    on(kind, body)


@pytest.mark.skipif(not MAKES_BACKENDS, reason="fully_shard is not there in all of these versions")
def test_fsdp2_and_a_checkpoint_of_it(kind):
    def body(device, rank, count):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (count,))

        def sharded():
            ours = model().to(device)
            for layer in (ours[0], ours[2], ours):
                fully_shard(layer, mesh=mesh)
            return ours

        ours = sharded()
        train(ours, device, rank, count)
        assert_trained({name: value.full_tensor() for name, value in ours.state_dict().items()})
        folder = [tempfile.mkdtemp() if rank == 0 else None]
        dist.broadcast_object_list(folder, 0)
        checkpoint.save({"model": ours.state_dict()}, checkpoint_id=folder[0])
        other = sharded()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        checkpoint.load({"model": (state := copy.copy(other.state_dict()))}, checkpoint_id=folder[0])
        assert_trained({name: value.full_tensor() for name, value in state.items()})

    on(kind, body)


@pytest.mark.skipif(not hasattr(torch, "accelerator"), reason="torch.accelerator is there since torch 2.6")
def test_calls_from_two_streams_while_memory_is_given_back_and_taken_again(kind):
    def body(device, rank, count):
        chosen = random.Random(5)
        streams = [torch.accelerator.current_stream(device), torch.Stream(device)]
        under_way = []

        def finish(work, result, expected, stream):
            torch.accelerator.set_stream(stream)
            work.wait()
            copied = result * 1
            del result
            torch.full((40_000,), -2.0, device=device)
            assert torch.equal(copied.cpu(), expected)

        for step in range(60):
            length, stream = chosen.choice([1, 1000, 5000, 40_000]), chosen.choice(streams)
            torch.accelerator.set_stream(stream)
            ours = torch.full((length,), float(step), device=device) + torch.full((length,), float(rank), device=device)
            if step % 2:
                work, expected = dist.all_reduce(ours, async_op=True), torch.full((length,), 2.0 * step + 1)
            else:
                both, ours = torch.cat([ours, ours + 5]), torch.empty(length, device=device)
                work, expected = dist.reduce_scatter_tensor(ours, both, async_op=True), torch.full((length,), 2.0 * step + 1 + 10 * rank)
                del both
            under_way.append((work, ours, expected, stream))
            del ours
            # Memory that was given back is taken again at once.
            torch.full((length,), -1.0, device=device)
            while len(under_way) > chosen.choice([0, 2, 5]):
                finish(*under_way.pop(chosen.randrange(len(under_way))))
        while under_way:
            finish(*under_way.pop())

    on(kind, body)


@pytest.mark.skipif(not MAKES_BACKENDS, reason="before torch 2.14 a group has no other backend")
def test_another_backend_for_the_cpu(kind):
    def body(device, rank, count):
        for where in ("cpu", device):
            total = torch.ones(3, device=where)
            dist.all_reduce(total)
            assert total.cpu().tolist() == [2, 2, 2]
        assert dist.group.WORLD._get_backend(device).getBackendName() == "strandway"
        assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "gloo"

    on(kind, body, backend=f"cpu:gloo,{kind}:strandway")


@pytest.mark.skipif(not MAKES_BACKENDS, reason="torch's ways to make groups differ between versions")
def test_a_device_that_is_bound_to_the_group(kind):
    def body(device, rank, count):
        dist.barrier()
        halves = [dist.new_group([r]) for r in range(count)]
        other = dist.split_group(split_ranks=[list(range(count))])
        for group, ranks_of_it in ((None, count), (halves[rank], 1), (other, count)):
            total = torch.ones(3, device=device)
            dist.all_reduce(total, group=group)
            assert total.cpu().tolist() == [ranks_of_it] * 3
        objects = [rank, None] if rank == 0 else [None, None]
        dist.broadcast_object_list(objects, 0, device=device)
        assert objects[0] == 0

    on(kind, body, device=f"{kind}:0")

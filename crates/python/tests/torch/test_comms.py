"""The backend of torchcomms, against a stand-in with torchcomms' published interface (0.3): its wheels are not on PyPI."""

import enum
import multiprocessing
import os
import sys
import types
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch")


class RedOpType(enum.Enum):
    SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, AVG = range(9)


class ReduceOp:
    def __init__(self, kind, factor=None):
        self.type, self.factor = kind, factor


def stand_in():
    """The module `torchcomms`, with what backends use of it."""
    module, inner = types.ModuleType("torchcomms"), types.ModuleType("torchcomms._comms")
    module.known = {}
    module.register_backend = module.known.__setitem__
    inner.TorchCommBackend = type("TorchCommBackend", (), {})
    module._comms = inner
    sys.modules["torchcomms"], sys.modules["torchcomms._comms"] = module, inner
    import strandway_torch.comms  # noqa: F401

    return module.known["strandway"]


def options(**fields):
    return types.SimpleNamespace(store=None, timeout=timedelta(seconds=60), hints={}, **fields)


def rank_of_four(rank, port, said):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="4")
    try:
        calls(stand_in(), rank)
        said.put((rank, "fine"))
    except BaseException as error:
        import traceback

        traceback.print_exc()
        said.put((rank, repr(error)))
        raise


def calls(make, rank):
    comm = make()
    with pytest.raises(RuntimeError, match="not been made"):
        comm.get_rank()
    with pytest.raises(RuntimeError, match="meta"):
        comm.init(torch.device("meta"), "w", options())
    comm.init(torch.device("cpu"), "world", options())
    assert (comm.get_rank(), comm.get_size(), comm.get_backend_name(), comm.get_comm_name()) == (rank, 4, "strandway", "world")
    with pytest.raises(RuntimeError, match="already"):
        comm.init(torch.device("cpu"), "world", options())

    def full(number, length=3):
        return torch.full((length,), float(number))

    for kind, wanted in [("SUM", 10), ("PRODUCT", 24), ("MIN", 1), ("MAX", 4), ("AVG", 2.5)]:
        tensor = full(rank + 1)
        assert comm.all_reduce(tensor, ReduceOp(RedOpType[kind]), False) is None
        assert tensor.eq(wanted).all(), kind
    tensor = full(rank + 1)
    comm.all_reduce(tensor, ReduceOp(RedOpType.PREMUL_SUM, 0.5), False)
    assert tensor.eq(5).all()
    bits = torch.tensor([1 << rank])
    comm.all_reduce(bits, ReduceOp(RedOpType.BOR), False)
    assert bits.item() == 15

    tensor = full(rank)
    work = comm.broadcast(tensor, 2, True)
    work.wait()
    assert tensor.eq(2).all()
    tensor = full(rank)
    comm.reduce(tensor, 1, ReduceOp(RedOpType.SUM), False)
    assert tensor.eq(6).all() or rank != 1

    gathered = [torch.zeros(r + 1) for r in range(4)]
    comm.all_gather_v(gathered, full(rank, rank + 1), False)
    assert all(one.eq(r).all() for r, one in enumerate(gathered))
    whole = torch.zeros(12)
    comm.all_gather_single(whole, full(rank), False)
    assert whole.view(4, 3).eq(torch.arange(4.0)[:, None]).all()

    output = torch.zeros(3)
    comm.reduce_scatter(output, [full(rank * r) for r in range(4)], ReduceOp(RedOpType.SUM), False)
    assert output.eq(6 * rank).all()
    comm.reduce_scatter_single(output, torch.arange(12.0), ReduceOp(RedOpType.SUM), False)
    assert torch.equal(output, 4 * torch.arange(12.0).view(4, 3)[rank])
    uneven = torch.zeros(rank + 1)
    comm.reduce_scatter_v(uneven, [full(1, r + 1) for r in range(4)], ReduceOp(RedOpType.SUM), False)
    assert uneven.eq(4).all()

    output = torch.zeros(8)
    comm.all_to_all_single(output, torch.full((8,), float(rank)), False)
    assert torch.equal(output, torch.arange(4.0).repeat_interleave(2))
    # Rank r sends r + 1 rows to each.
    output = torch.zeros(10)
    comm.all_to_all_v_single(output, full(rank, 4 * (rank + 1)), [1, 2, 3, 4], [rank + 1] * 4, False)
    assert torch.equal(output, torch.arange(4.0).repeat_interleave(torch.tensor([1, 2, 3, 4])))
    outputs = [torch.zeros(2) for _ in range(4)]
    comm.all_to_all(outputs, [full(10 * rank + r, 2) for r in range(4)], False)
    assert [one[0].item() for one in outputs] == [10 * r + rank for r in range(4)]

    output = torch.zeros(3)
    comm.scatter(output, [full(r) for r in range(4)] if rank == 3 else [], 3, False)
    assert output.eq(rank).all()
    outputs = [torch.zeros(3) for _ in range(4)] if rank == 0 else []
    comm.gather(outputs, full(rank), 0, False)
    assert all(one.eq(r).all() for r, one in enumerate(outputs))

    following, before = (rank + 1) % 4, (rank - 1) % 4
    tensor = torch.zeros(3)
    sent = comm.send(full(rank), following, True)
    comm.recv(tensor, before, False)
    sent.wait()
    assert tensor.eq(before).all()
    comm.barrier(False)

    half = comm.split([0, 2] if rank % 2 == 0 else [3, 1], "half", options())
    assert half.get_size() == 2 and half.get_rank() == {0: 0, 2: 1, 3: 0, 1: 1}[rank]
    tensor = full(rank)
    half.all_reduce(tensor, ReduceOp(RedOpType.SUM), False)
    assert tensor.eq(2 if rank % 2 == 0 else 4).all()
    with pytest.raises(RuntimeError, match="each once"):
        comm.split([rank, rank], "twice", options())
    assert comm.split([], "none", options()) is None
    half.finalize()
    comm.barrier(False)
    comm.finalize()
    with pytest.raises(RuntimeError, match="ended"):
        comm.barrier(False)


def test_all_calls_of_four_ranks():
    from strandway_torch.compat import MAKES_BACKENDS

    if not MAKES_BACKENDS:
        pytest.skip("torchcomms needs a newer torch than this")
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    ranks = [context.Process(target=rank_of_four, args=(rank, port, said)) for rank in range(4)]
    for process in ranks:
        process.start()
    heard = sorted(said.get(timeout=300) for _ in ranks)
    for process in ranks:
        process.join()
    assert heard == [(rank, "fine") for rank in range(4)]


def test_a_rank_without_a_place_is_told(monkeypatch):
    from strandway_torch.compat import MAKES_BACKENDS

    if not MAKES_BACKENDS:
        pytest.skip("torchcomms needs a newer torch than this")
    for name in list(os.environ):
        if name.startswith(("TORCHCOMM_", "OMPI_", "PMI_", "PALS_", "SLURM_")) or name in (
            "RANK",
            "WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "torchcomms", None)
    monkeypatch.setitem(sys.modules, "torchcomms._comms", None)
    monkeypatch.delitem(sys.modules, "strandway_torch.comms", raising=False)
    comm = stand_in()()
    with pytest.raises(RuntimeError, match="TORCHCOMM_RANK"):
        comm.init(torch.device("cpu"), "world", options())
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(RuntimeError, match="MASTER_ADDR"):
        comm.init(torch.device("cpu"), "world", options())

"""Calls with wrong arguments, numbers of all types, and tensors of all layouts."""

import pytest
import torch
import torch.distributed as dist
from support import outcome, ranks

F64, I32, C64 = torch.float64, torch.int32, torch.complex64
SUM, MAX, AVG, PRODUCT = dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT


def blank(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def single(output, tensor, *sizes):
    return lambda: dist.all_to_all_single(output, tensor, *sizes)


WRONG = {
    "rows of the output have the shape": single(blank(4, 1), blank(2, 2)),
    "without a dimension": single(torch.tensor(1.0), torch.tensor(2.0)),
    "the output has 3 rows, which 2 ranks cannot share": single(blank(3, 2), blank(3, 2)),
    r"the input has 4 rows, and its split sizes are \[3, 2\]": single(blank(4), blank(4), [2, 2], [3, 2]),
    r"split sizes are \[5, -1\]": single(blank(4), blank(4), [5, -1], [5, -1]),
    "1 output split sizes for 2 ranks": single(blank(4), blank(4), [4], [2, 2]),
    "1 outputs for 2 ranks": lambda: dist.all_to_all([blank(2)], [blank(2), blank(2)]),
    "torch.float32 and torch.float64": lambda: dist.all_gather_into_tensor(blank(2, dtype=F64), blank(2)),
    "torch.float32 and torch.int32": lambda: (lambda output: dist.all_gather_into_tensor(output, output[:2].view(I32)))(blank(4)),
    "torch.int32": lambda: dist.reduce_scatter_tensor(blank(2, dtype=I32), blank(4)),
    "20 bytes does not consist of blocks": lambda: dist.all_gather_into_tensor(blank(5), blank(2)),
    "16 bytes does not consist of blocks": lambda: dist.reduce_scatter_tensor(blank(3), blank(4)),
    "3 outputs for 2 ranks": lambda: dist.all_gather([blank(2) for _ in range(3)], blank(2)),
    "two outputs share memory": lambda: dist.all_gather([blank(2)] * 2, blank(2)),
    "1 inputs for 2 ranks": lambda: dist.reduce_scatter(blank(2), [blank(2)]),
    "2 ranks: give one for each": lambda: dist.gather(blank(2), [blank(2) for _ in range(3)], 0),
    "inputs for 2 ranks": lambda: dist.scatter(blank(2), [blank(2)], 0),
    "it is expanded": lambda: dist.all_reduce(torch.zeros(1).expand(4)),
    "root -1": lambda: dist.broadcast(blank(2), -1),
    "no rank 7": lambda: dist.broadcast(blank(2), 7),
    "float8_e4m3fn": lambda: dist.reduce(blank(2).to(torch.float8_e4m3fn), 0),
    "avg is not defined for int32": lambda: dist.all_reduce(blank(2, dtype=I32), AVG),
    "max is not defined for complex64": lambda: dist.reduce(blank(2, dtype=C64), 0, MAX),
}


def test_a_call_that_is_refused_at_one_rank_fails_at_all_and_later_sums_are_right():
    def body(rank, count):
        for number, (why, call) in enumerate(WRONG.items()):
            if rank == 0:
                with pytest.raises((TypeError, ValueError, RuntimeError), match=why):
                    call()
            else:
                with pytest.raises(RuntimeError, match=f"rank 0 has given up: the call was refused there: .*{why}"):
                    dist.barrier()
            total = torch.tensor([100 * number + rank])
            dist.all_reduce(total)
            assert total.item() == 200 * number + 1, why

    ranks(2, body)


def test_after_a_call_that_torch_itself_refused_at_one_rank_there_are_errors_and_no_wrong_sums():
    def body(rank, count):
        output = [blank(2, dtype=F64 if rank == 0 else torch.float32) for _ in range(count)]
        errors = [outcome(lambda: dist.all_gather(output, torch.ones(2)))]
        if rank == 0:
            # Rank 0 has not come to the backend, so its calls are one behind from now on.
            assert isinstance(errors[0], ValueError) and backend()._group.begun() == 0
        for step in range(4):
            total = torch.tensor([100.0 * step + rank])
            errors.append(outcome(lambda total=total: dist.all_reduce(total)))
        return [str(error) for error in errors]

    for texts in ranks(3, body, leave=False):
        assert all("call all ranks alike" in text or " is gone" in text for text in texts[1:]), texts


def test_tags_and_ranks_of_sends_are_named():
    def body(rank, count):
        other = 1 - rank
        for call in (dist.send, dist.recv):
            with pytest.raises(ValueError, match="tag -1: give 0 to 2147483647"):
                call(torch.ones(1), other, tag=-1)
        if rank == 0:
            dist.send(torch.ones(2), 1, tag=2**31 - 1)
        else:
            dist.recv(torch.ones(2), 0, tag=2**31 - 1)

    ranks(2, body)


def test_complex_numbers_are_reduced_in_all_operations():
    def body(rank, count):
        for dtype in (torch.complex64, torch.complex128):
            given = [torch.tensor([complex(r + 1, 2), complex(1, -r), complex(0, 3)], dtype=dtype) for r in range(count)]
            for operation, right in ((SUM, sum(given)), (AVG, sum(given) / count)):
                mine = given[rank].clone()
                dist.all_reduce(mine, operation)
                torch.testing.assert_close(mine, right)
                mine = given[rank].clone()
                dist.reduce(mine, 1, operation)
                assert rank != 1 or torch.allclose(mine, right)
                mine = torch.empty_like(right)
                dist.reduce_scatter_tensor(mine, given[rank].repeat(count), operation)
                torch.testing.assert_close(mine, right)
                dist.reduce_scatter(mine, [given[rank].clone() for _ in range(count)], operation)
                torch.testing.assert_close(mine, right)
            mine = given[rank].clone()
            dist.reduce(mine, 0, PRODUCT)
            assert rank != 0 or torch.allclose(mine, torch.stack(given).prod(0))

    ranks(3, body)


def test_a_result_that_is_not_contiguous_is_there_for_who_polls():
    def body(rank, count):
        from strandway_torch.backend import StrandwayWork

        whole = torch.zeros(4, 2)
        column = whole[:, 1]
        work = backend().broadcast([torch.full((4,), 7.0) if rank == 0 else column], dist.BroadcastOptions())
        assert isinstance(work, StrandwayWork)
        while not work.is_completed():
            pass
        assert rank == 0 or whole.tolist() == [[0, 7]] * 4
        column.fill_(9)
        work.wait()
        assert column.tolist() == [9] * 4, "it is copied once"

    ranks(2, body)


def test_inputs_may_overlap_outputs():
    def body(rank, count):
        whole = torch.arange(4.0) + 10 * rank
        dist.all_to_all([whole[1:3], torch.empty(2)], [whole[0:2], whole[2:4]])
        # The output of the block from rank 0 lies over both inputs.
        first = 0 if rank == 0 else 2
        assert whole[1:3].tolist() == [first, first + 1]
        whole = torch.arange(4.0) + 10 * rank
        dist.gather(whole[1:3], [whole[0:2], whole[2:4]] if rank == 0 else None, 0)
        assert whole.tolist() == ([1, 2, 11, 12] if rank == 0 else [10, 11, 12, 13])
        whole = torch.arange(4.0)
        mine = whole[1:3]
        dist.scatter(mine, [whole[0:2], whole[2:4]] if rank == 0 else None, 0)
        assert mine.tolist() == [2 * rank, 2 * rank + 1]

    ranks(2, body)


def test_rows_may_go_to_one_rank_alone():
    def body(rank, count):
        output, mine = torch.empty(3 if rank == 0 else 0, 2), torch.ones(3 if rank == 1 else 0, 2)
        dist.all_to_all_single(output, mine, [0, 3 * (1 - rank)], [3 * rank, 0])
        assert output.tolist() == [[1, 1]] * (3 * (1 - rank))

    ranks(2, body)

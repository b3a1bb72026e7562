"""Collectives on arrays of every kind: the numbers are those of numpy, or an error names the kind and a remedy."""

import array
import sys
import threading

import numpy as np
import pytest
import strandway

LENGTHS = (1, 7, 5_000)
REDUCED = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "c16", "c8", "b1"]
MOVED = [*REDUCED, "longdouble", "clongdouble", "S3", "U2", "V5", "M8[ns]", "m8[s]", ">f4", ">i8", "u1, <f4"]
OPERATIONS = {
    "sum": np.add.reduce,
    "avg": lambda arrays: np.add.reduce([a.astype(np.promote_types(a.dtype, "f8")) for a in arrays]) / len(arrays),
    "premul_sum": lambda arrays: np.add.reduce([a * a.dtype.type(2) for a in arrays]),
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "product": np.multiply.reduce,
    "band": np.bitwise_and.reduce,
    "bor": np.bitwise_or.reduce,
    "bxor": np.bitwise_xor.reduce,
}


def ranks(count, work):
    """Runs `work(group)` as ranks that are threads of this process; the results by rank."""
    store, results, errors = strandway.MemoryStore(), [None] * count, []

    def run(rank):
        try:
            results[rank] = work(strandway.Group.meet(store, rank, count, timeout=60, apart=True))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    if errors:
        raise errors[0]
    return results


def defined(kind, operation):
    """Does the operation have a meaning for numbers of this kind?"""
    letter = kind[0]
    if operation in ("avg", "premul_sum"):
        return letter in "fc"
    if operation in ("min", "max"):
        return letter != "c"
    if operation in ("band", "bor", "bxor"):
        return letter in "iub"
    return True


def numbers(kind, rank, length):
    """Small numbers whose sums and products are exact, and which need all their bytes where they have several."""
    values = (np.arange(length) * 7 + 3 * rank) % 5 + 1
    if kind == "b1":
        return values > 2
    values = values.astype(kind)
    if kind in ("u2", "u4", "u8", "i2", "i4", "i8"):
        values *= 300
    if kind[0] == "c":
        values = (values + 1j * ((np.arange(length) + rank) % 3)).astype(kind)
    return values


def things(kind, rank, length):
    """Items of any kind, made of bytes that differ by rank; not to be read as numbers."""
    dtype = np.dtype(kind)
    return np.random.default_rng(rank).integers(0, 100, length * dtype.itemsize, np.uint8).view(dtype)


def same(ours, right):
    return np.ascontiguousarray(ours).tobytes() == np.ascontiguousarray(right).tobytes()


@pytest.mark.parametrize("count", [2, 3])
def test_every_kind_is_reduced_as_numpy_does_or_the_reduction_is_refused(count):
    def check(group, kind, operation, length):
        given = [numbers(kind, rank, length) for rank in range(count)]
        mine, root = given[group.rank].copy(), count - 1
        options = {"factor": 2.0} if operation == "premul_sum" else {}
        if not defined(kind, operation):
            with pytest.raises(strandway.WireError, match=f"{operation} is not defined for {np.dtype(kind).name}"):
                group.all_reduce(mine, operation, **options)
            assert same(mine, given[group.rank])
            return
        right = OPERATIONS[operation](given).astype(kind)

        def close(result, right):
            assert result.dtype == right.dtype
            # Averages are rounded by numpy and here in another order.
            assert np.allclose(result, right, rtol=2e-3 if kind == "f2" else 1e-6, atol=0) if operation == "avg" else same(result, right), (
                kind,
                operation,
                length,
                result[:4],
                right[:4],
            )

        close(group.all_reduce(mine, operation, **options), right)
        mine = given[group.rank].copy()
        group.reduce(mine, root, operation, **options)
        if group.rank == root:
            close(mine, right)
        blocks = np.concatenate([np.roll(given[group.rank], -block) for block in range(count)])
        mine = np.empty(length, kind)
        close(group.reduce_scatter(blocks, mine, operation, **options), np.roll(right, -group.rank))

    def work(group):
        for kind in REDUCED:
            for operation in OPERATIONS:
                for length in LENGTHS if operation == "sum" else LENGTHS[1:2]:
                    check(group, kind, operation, length)

    ranks(count, work)


@pytest.mark.parametrize("count", [2, 3])
def test_every_kind_is_moved(count):
    def work(group):
        for kind in MOVED:
            for length in LENGTHS:
                given = [things(kind, rank, length) for rank in range(count)]
                mine, whole = given[group.rank], np.concatenate(given, dtype=kind)
                blank = np.zeros_like(mine)
                assert same(group.all_gather(mine), whole)
                assert all(map(same, group.all_gather(mine, [np.zeros_like(mine) for _ in given]), given))
                assert same(group.broadcast(mine.copy(), count - 1), given[-1])
                gathered = group.gather(mine, root=1)
                assert group.rank != 1 or same(gathered, whole)
                assert same(group.scatter(whole if group.rank == 1 else None, blank.copy(), 1), mine)
                assert same(group.all_to_all(np.tile(mine, count), np.tile(blank, count)), whole)
                if group.rank == 0:
                    group.send(mine, 1)
                elif group.rank == 1:
                    assert same(group.recv(blank.copy(), 0), given[0])

    ranks(count, work)


@pytest.mark.parametrize("kind", [kind for kind in MOVED if kind not in REDUCED])
def test_a_kind_that_is_not_reduced_is_named_with_a_remedy(kind):
    def work(group):
        for call in (
            lambda mine: group.all_reduce(mine),
            lambda mine: group.reduce(mine, 1),
            lambda mine: group.reduce_scatter(np.tile(mine, 2), mine.copy()),
        ):
            with pytest.raises(TypeError, match=r"are not reduced: pass array\.astype") as told:
                call(things(kind, 0, 6))
            assert np.dtype(kind).str.lstrip("<|=") in str(told.value)
        assert group.all_reduce(np.ones(2))[1] == 2

    ranks(2, work)


@pytest.mark.parametrize("code", sorted(set(array.typecodes) - {"u", "w"}))
def test_arrays_of_the_standard_library_are_reduced(code):
    def work(group):
        mine = array.array(code, [3 + group.rank, 100, 0])
        return group.all_reduce(mine).tolist()

    right = [7, -56 if code == "b" else 200, 0]
    assert ranks(2, work) == [right, right]


@pytest.mark.parametrize("kind", [kind for kind in REDUCED if kind not in ("c16", "c8") or sys.version_info >= (3, 14)])
def test_memory_views_are_reduced(kind):
    def work(group):
        mine = numbers(kind, group.rank, 9)
        group.all_reduce(memoryview(mine))
        return mine

    right = np.add.reduce([numbers(kind, rank, 9) for rank in range(2)]).astype(kind)
    assert all(same(result, right) for result in ranks(2, work))


def test_memory_views_and_byte_arrays_are_moved():
    def work(group):
        text = bytearray(b"from zero" if group.rank == 0 else 9)
        assert group.broadcast(text) == b"from zero"
        view = memoryview(bytearray([group.rank] * 6)).cast("B", (2, 3))
        whole = [bytearray(6) for _ in range(2)]
        assert group.all_gather(view, whole) == [bytes(6), bytes([1] * 6)]
        with pytest.raises(TypeError, match="kind c are not reduced"):
            group.all_reduce(memoryview(bytearray(4)).cast("c"))
        with pytest.raises(TypeError, match="Python objects"):
            group.broadcast(np.array([None, "x"]))

    ranks(2, work)


def test_arrays_that_share_memory_are_refused():
    def work(group):
        whole = np.arange(8.0)
        for call in (
            lambda: group.reduce_scatter(whole, whole[2:6]),
            lambda: group.all_gather(whole[:4], whole),
            lambda: group.all_gather(np.zeros(2), [whole[:2], whole[1:3]]),
            lambda: group.all_to_all(whole, whole),
            lambda: group.all_to_all([whole[:2], whole[2:4]], [whole[4:6], whole[3:5]]),
        ):
            with pytest.raises((ValueError, strandway.WireError), match="share memory"):
                call()
        # Inputs may share theirs.
        outputs = [np.zeros(2), np.zeros(2)]
        group.all_to_all([whole[:2], whole[1:3]], outputs)
        assert [list(output) for output in outputs] == [[group.rank, group.rank + 1]] * 2
        assert (whole == np.arange(8.0)).all()

    ranks(2, work)


def test_a_call_that_is_refused_at_one_rank_fails_at_all_and_later_sums_are_right():
    wrong = {
        "not contiguous": lambda group: group.all_reduce(np.zeros((4, 4))[:, 1]),
        "share memory": lambda group: group.all_to_all(*[np.zeros(4)] * 2),
        "one kind": lambda group: group.all_gather(np.zeros(2), np.zeros(4, "i8")),
        "does not consist of blocks": lambda group: group.all_gather(np.zeros(2), np.zeros(5)),
        "are not reduced": lambda group: group.all_reduce(np.zeros(2, "M8[s]")),
        "no reduction": lambda group: group.all_reduce(np.zeros(2), "mean"),
        "is not defined": lambda group: group.all_reduce(np.zeros(2, "c8"), "max"),
        "no rank 5": lambda group: group.broadcast(np.zeros(2), 5),
        "root -1": lambda group: group.broadcast(np.zeros(2), -1),
        "rows": lambda group: group.all_to_all(np.zeros((3, 2)), np.zeros((3, 2))),
        "memoryview": lambda group: group.all_reduce([1, 2]),
    }

    def work(group):
        for call in (group.send, group.recv):
            with pytest.raises(ValueError, match="tag -1"):
                call(np.zeros(2), 0, tag=-1)
            with pytest.raises(ValueError, match="rank -2"):
                call(np.zeros(2), -2)
        for number, (why, call) in enumerate(wrong.items()):
            if group.rank == 0:
                with pytest.raises((TypeError, ValueError, strandway.WireError), match=why):
                    call(group)
            else:
                with pytest.raises(strandway.WireError, match=f"the call was refused there: .*{why}") as told:
                    group.barrier()
                assert told.value.rank == 0
            total = group.all_reduce(np.array([number * 100 + group.rank]))
            assert total[0] == 200 * number + 1, why

    ranks(2, work)

"""Process groups: collectives on arrays, ranks that end and ranks that stop."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import strandway

PREFIX = """
import os, sys, time
import numpy as np
import strandway
group = strandway.Group.from_env(timeout=30)
print("here", flush=True)
"""


def ranks(count, work):
    """Runs `work(group)` as ranks that are threads of this process."""
    store, results, errors = strandway.MemoryStore(), [None] * count, []

    def run(rank):
        try:
            results[rank] = work(strandway.Group.meet(store, rank, count, timeout=30, apart=True))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors
    return results


def processes(count, body, folder):
    """The same body as ranks that are processes, as Slurm would start them."""
    environment = dict(os.environ, SLURM_NTASKS=str(count), STRANDWAY_STORE=f"{folder}/store", SLURM_JOB_ID="7")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PREFIX + body],
            env=dict(environment, SLURM_PROCID=str(rank)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    for process in started:
        # Byte by byte, since `communicate` does not see what a buffer here has read ahead.
        line = b""
        while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
            line += byte
        assert line == b"here\n", line
    return started


@pytest.mark.parametrize("count", [1, 2, 3])
def test_collectives_on_arrays(count):
    def work(group):
        rank = group.rank
        for length in (1, 1000, 300_000):
            whole = np.arange(length, dtype=np.float64)
            assert (group.all_reduce(whole + rank) == whole * count + sum(range(count))).all()
            assert (group.all_reduce(np.full(length, rank, np.float32), "avg") == np.float32(sum(range(count)) / count)).all()
            assert (group.all_reduce(np.full(length, rank, np.int32), "max") == count - 1).all()
            assert (group.broadcast(np.full(length, rank), root=count - 1) == count - 1).all()
            gathered = group.all_gather(np.full(length, rank, np.int16))
            assert gathered.shape == (count, length) and (gathered == np.arange(count)[:, None]).all()
            block = group.reduce_scatter(np.arange(length * count, dtype=np.int64), np.empty(length, np.int64))
            assert (block == count * (np.arange(length) + rank * length)).all()
            exchanged = group.all_to_all(np.full((count, length), rank), np.empty((count, length), np.int64))
            assert (exchanged == np.arange(count)[:, None]).all()
            at_root = group.gather(np.full(length, rank))
            assert (at_root is None) == (rank != 0)
            mine = group.scatter(at_root, np.empty(length, np.int64))
            assert (mine == rank).all()
        uneven = group.all_gather(np.full(rank + 1, rank), [np.empty(r + 1, np.int64) for r in range(count)])
        assert all((array == r).all() for r, array in enumerate(uneven))
        group.barrier()

    ranks(count, work)


def test_sends_receives_and_work():
    def work(group):
        array = np.arange(100_000)
        if group.rank == 0:
            sending = group.send(array, 1, tag=3, wait=False)
            sending.wait(30)
            assert sending.done()
        else:
            assert (group.recv(np.empty_like(array), tag=3) == array).all()
        half = group.split(group.rank)
        assert half is not None and half.ranks == 1

    ranks(2, work)


def test_wrong_arrays_are_refused():
    def work(group):
        with pytest.raises(ValueError, match="not contiguous"):
            group.all_reduce(np.zeros((4, 4))[:, 1])
        with pytest.raises(strandway.WireError, match="avg is not defined for int64"):
            group.all_reduce(np.zeros(4, np.int64), "avg")
        with pytest.raises(strandway.WireError, match="no rank 5"):
            group.broadcast(np.zeros(4), root=5)

    ranks(1, work)


def test_the_first_message_of_a_program_arrives_though_it_is_the_last(tmp_path):
    body = """
number = np.array([float(group.rank)])
if group.rank == 0:
    group.send(number, 1)
else:
    group.recv(number, 0)
    print("got", number[0], flush=True)
"""
    for turn in range(5):
        folder = tmp_path / str(turn)
        folder.mkdir()
        started = processes(2, body, folder)
        assert started[1].communicate(timeout=30)[0] == "got 0.0\n"
        assert started[0].communicate(timeout=30)[0] == ""


def test_a_forked_child_has_no_sockets_of_groups_with_a_node_of_their_own():
    group = strandway.Group.meet(strandway.MemoryStore(), 0, 1, apart=True)
    sockets = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
    sockets = [name for name in sockets if os.readlink(f"/proc/self/fd/{name}").startswith("socket:")]
    ours = [str(descriptor) for descriptor in strandway._lab.wire_descriptors()]
    assert ours and set(ours) <= set(sockets)
    if (child := os.fork()) == 0:
        covered = all(os.readlink(f"/proc/self/fd/{name}") == "/dev/null" for name in ours)
        os._exit(0 if covered else 1)
    assert os.waitpid(child, 0)[1] == 0
    group.barrier()


def test_a_forked_child_ends_its_own_groups_whatever_its_parent_has_dropped():
    held = []
    ranks(3, held.append)
    held.clear()
    if (child := os.fork()) == 0:
        # A close that waits for a wrong thread never ends.
        signal.alarm(20)
        try:
            strandway.Group.meet(strandway.MemoryStore(), 0, 1).barrier()
            strandway._lab.close_wire()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_gets_an_error_and_does_not_hide_the_death_of_its_parent(tmp_path):
    body = """
group.barrier()
if group.rank == 1:
    if os.fork() == 0:
        try:
            group.barrier()
        except strandway.WireError as error:
            open(os.environ["CHILD"], "w").write(str(error))
        time.sleep(20)
        os._exit(0)
    while not os.path.exists(os.environ["CHILD"]):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
try:
    group.barrier()
except strandway.WireError as error:
    print(error.kind, flush=True)
"""
    dies_beside_its_child(body, tmp_path)


def test_a_child_of_a_fork_in_c_does_not_hide_the_death_of_its_parent_on_the_host(tmp_path):
    # No handler of Python's runs, so the child keeps all sockets open.
    body = """
import ctypes
group.barrier()
if group.rank == 1:
    if ctypes.CDLL(None).fork() == 0:
        open(os.environ["CHILD"], "w").write("forked in C")
        time.sleep(20)
        os._exit(0)
    while not os.path.exists(os.environ["CHILD"]):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
try:
    group.barrier()
except strandway.WireError as error:
    print(error.kind, "the kernel of this host" in str(error), flush=True)
"""
    dies_beside_its_child(body, tmp_path, "gone True")


def dies_beside_its_child(body, tmp_path, line="gone"):
    child = tmp_path / "child"
    os.environ["CHILD"] = str(child)
    try:
        started = processes(2, body, tmp_path)
        # The child holds the output of rank 1, too.
        # More lines may follow: which messages of the barrier the dead rank has not acknowledged.
        assert started[0].communicate(timeout=30)[0].splitlines()[0] == line
    finally:
        del os.environ["CHILD"]
    assert "forked" in child.read_text()


def test_a_signal_prints_who_waits_for_whom(tmp_path):
    body = """
if group.rank == 0:
    group.recv(np.zeros(4), 1)
else:
    while not os.path.exists(os.environ["SEEN"]):
        time.sleep(0.01)
    assert strandway.waiting() == []
    group.send(np.zeros(4), 0)
"""
    seen = tmp_path / "seen"
    os.environ["STRANDWAY_DUMP_ON_SIGUSR1"], os.environ["SEEN"] = "1", str(seen)
    try:
        started = processes(2, body, tmp_path)
        output, text, tries = started[0].stdout.fileno(), b"", 0
        os.set_blocking(output, False)
        # A signal before rank 0 waits shows that nobody waits.
        while b"waits for rank 1 at " not in text and tries < 100:
            started[0].send_signal(signal.SIGUSR1)
            time.sleep(0.2)
            tries += 1
            with contextlib.suppress(BlockingIOError):
                text += os.read(output, 65_536)
        seen.touch()
        os.set_blocking(output, True)
        assert started[0].wait(timeout=30) == started[1].wait(timeout=30) == 0
    finally:
        del os.environ["STRANDWAY_DUMP_ON_SIGUSR1"], os.environ["SEEN"]
    assert b"recv, for " in text and b"waits for rank 1 at " in text, text


@pytest.mark.parametrize(("shared", "evidence"), [("0", "refuses"), ("1", "the kernel of this host")])
def test_a_killed_process_is_named_within_seconds(tmp_path, monkeypatch, shared, evidence):
    monkeypatch.setenv("STRANDWAY_SHARED_MEMORY", shared)
    body = """
began = time.monotonic()
try:
    # A busy rank may still be in its barrier when rank 2 ends.
    group.barrier()
    if group.rank == 2:
        time.sleep(60)
    group.all_reduce(np.zeros(1_000_000))
except strandway.WireError as error:
    print(error.kind, error.rank, round(time.monotonic() - began, 2), error, flush=True)
"""
    started = processes(3, body, tmp_path)
    time.sleep(1)
    started[2].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    for process in started[:2]:
        words = process.communicate(timeout=30)[0].split()
        assert words[0] in ("gone", "told") and evidence in " ".join(words) and "rank 2" in " ".join(words), words
    # A second on an idle machine; this one may be busy. Without the death, the group's timeout is 30 s.
    assert time.monotonic() - killed < 20


def test_a_stopped_process_is_waited_for(tmp_path):
    body = """
group.barrier()
if group.rank == 1:
    time.sleep(0.3)
print(group.all_reduce(np.ones(1_000_000))[0], flush=True)
"""
    started = processes(2, body, tmp_path)
    started[1].send_signal(signal.SIGSTOP)
    time.sleep(float(os.environ.get("STRANDWAY_STOP_SECONDS", "4")))
    assert started[0].poll() is None, "it waits"
    started[1].send_signal(signal.SIGCONT)
    assert [process.communicate(timeout=30)[0] for process in started] == ["2.0\n", "2.0\n"]


def test_ranks_that_do_not_come_are_an_error(tmp_path):
    with pytest.raises(strandway.WireError, match="rank 1 has not come"):
        strandway.Group.meet(strandway.MemoryStore(), 0, 2, patience=0.2, apart=True)


def test_ten_thousand_groups_leave_no_memory_behind(tmp_path):
    # In processes of their own: other tests leave threads that end later.
    body = """
def memory_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

sizes = []
for number in range(10_000):
    half = group.split(0, group.rank)
    if number % 50 == 0:
        assert half.all_reduce(np.ones(10))[0] == 2
    if number in (2_000, 9_999):
        sizes.append(memory_kib())
print(sizes[1] - sizes[0], flush=True)
group.barrier()
"""
    # A group that has ended is remembered by its number, some 40 bytes.
    grown = [int(process.communicate(timeout=60)[0]) for process in processes(2, body, tmp_path)]
    assert max(grown) < 1_500, f"{grown} KiB"


def test_those_that_are_left_make_a_group_without_the_dead(tmp_path):
    body = """
group.barrier()
if group.rank == 1:
    os.kill(os.getpid(), 9)
try:
    group.all_reduce(np.zeros(1_000_000))
except strandway.WireError as error:
    rest = group.shrink([1])
    print(rest.ranks, rest.all_reduce(np.full(1_000, group.rank + 1.0))[0], flush=True)
    rest.barrier()
"""
    started = processes(3, body, tmp_path)
    outputs = [process.communicate(timeout=30)[0] for process in started]
    # The dead rank may have got the last message of the barrier without a word; its sender says so at its end.
    results = [[line for line in text.splitlines() if "these did not arrive" not in line] for text in outputs]
    assert results == [["2 4.0"], [], ["2 4.0"]], outputs

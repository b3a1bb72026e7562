"""The transport of torch 2.15: reads and writes of tensors between two processes. Older torch has none; the tests are skipped then."""

import asyncio
import multiprocessing
import os
import threading
import time
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch")
transports = pytest.importorskip("torch.distributed._transport", reason="torch before 2.15 has no transports")

from strandway.errors import WireError  # noqa: E402
from strandway_torch.transport import StrandwayRemoteBuffer, StrandwayTransport  # noqa: E402

ENVIRONMENT = ("STRANDWAY_KEY_FILE", "STRANDWAY_KEY", "STRANDWAY_PLANES", "STRANDWAY_IFNAME")


@pytest.fixture(autouse=True)
def _loopback(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRANDWAY_PLANES", "127.0.0.1")


def a_pair(**options):
    """Two transports that are connected both ways."""
    one, other = StrandwayTransport("cpu", **options), StrandwayTransport("cpu", **options)
    urls = one.bind(), other.bind()
    assert one.connect(urls[1]) == 0 and other.connect(urls[0]) == 0
    return one, other


def test_torch_finds_the_transport():
    assert "strandway" in transports.available_transports()
    with transports.new_transport("strandway", "cpu") as transport:
        assert isinstance(transport, StrandwayTransport)
        assert not transport.connected()


@pytest.mark.parametrize("options", [{}, {"key": bytes(range(32))}, {"protection": "none"}, {"planes": ["127.0.0.1", "127.0.0.2"]}])
def test_writes_and_reads_move_bytes(options):
    one, other = a_pair(**options)
    with one, other:
        mine, theirs = torch.arange(100_000, dtype=torch.float32), torch.zeros(100_000)
        source, target = one.register_memory(mine), other.register_memory(theirs)
        remote = StrandwayRemoteBuffer.deserialize(target.to_remote_buffer().serialize())
        assert one.write(source.to_view(), remote) == 0
        assert torch.equal(mine, theirs)
        theirs.mul_(2)
        work = one.read(source.to_mutable_view(), remote, async_op=True)
        assert work.wait() and work.is_completed() and work.is_success() and work.result() == []
        assert work.get_future().wait() == []
        assert torch.equal(mine, torch.arange(100_000) * 2.0)


def _native_threads():
    """The number of threads of movers. The system lists one for a moment after it was joined."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as comm:
                names.append(comm.read().strip())
        except (FileNotFoundError, ProcessLookupError):
            pass  # It has ended.
    return names.count("strandway")


def _await_native_threads(count):
    until = time.monotonic() + 60
    while _native_threads() != count:
        assert time.monotonic() < until, f"{_native_threads()} threads of movers, not {count}"
        time.sleep(0.001)


def _python_threads():
    return [thread.name for thread in threading.enumerate()].count("strandway-transport")


def test_no_thread_outlives_the_last_transport():
    native, python = _native_threads(), _python_threads()
    for _ in range(20):
        one, other = a_pair()
        one.close()
        # A thread has its name when it has run for the first time.
        _await_native_threads(native + 1)
        assert _python_threads() == python + 1
        other.close()
        assert _python_threads() == python
        _await_native_threads(native)


def test_ranges_of_both_sides():
    one, other = a_pair()
    with one, other:
        mine, theirs = torch.arange(10, dtype=torch.uint8), torch.zeros(10, dtype=torch.uint8)
        source, remote = one.register_memory(mine), other.register_memory(theirs).to_remote_buffer()
        one.write(source.to_view(2, 3), remote.part(7, 3))
        assert theirs.tolist() == [0] * 7 + [2, 3, 4]
        one.write(source.to_view(10), remote)  # No byte.
        for call in (lambda: source.to_view(8, 3), lambda: source.to_view(-1), lambda: remote.part(8, 3)):
            with pytest.raises(ValueError):
                call()
        with pytest.raises(ValueError, match="does not fit"):
            one.write(source.to_view(0, 4), remote.part(7, 3))
        with pytest.raises(TypeError):
            one.read(source.to_view(), remote)
        with pytest.raises(TypeError):
            one.write(mine, remote)


def test_more_transfers_than_a_connection_has_room_for():
    one, other = a_pair()
    with one, other:
        mine, theirs = torch.arange(10_000, dtype=torch.int32), torch.zeros(10_000, dtype=torch.int32)
        source, remote = one.register_memory(mine), other.register_memory(theirs).to_remote_buffer()
        works = [one.write(source.to_view(4 * i, 4), remote.part(4 * i, 4), async_op=True) for i in range(10_000)]
        for work in works:
            work.wait()
        assert torch.equal(mine, theirs)


def test_asyncio():
    one, other = a_pair()
    mine, theirs = torch.ones(1_000), torch.zeros(1_000)
    source, remote = one.register_memory(mine), other.register_memory(theirs).to_remote_buffer()

    async def move():
        await one.write_async(source.to_view(), remote)
        theirs.add_(1)
        await one.read_async(source.to_mutable_view(), remote, timeout=30.0)
        await one.close_async()
        await other.close_async()

    asyncio.run(move())
    assert mine.eq(2).all()


def test_callbacks_may_wait_for_other_transfers():
    one, other = a_pair()
    with one, other:
        mine, theirs = torch.ones(1_000), torch.zeros(1_000)
        source, remote = one.register_memory(mine), other.register_memory(theirs).to_remote_buffer()
        future = one.write(source.to_view(), remote, async_op=True).get_future()
        chained = future.then(lambda _: one.read(source.to_mutable_view(), remote))
        assert chained.wait() == 0


def test_memory_that_is_taken_back():
    one, other = a_pair()
    with one, other:
        mine, theirs = torch.ones(1_000), torch.zeros(1_000)
        source, target = one.register_memory(mine), other.register_memory(theirs)
        assert one.register_memory(mine)._registration is source._registration
        remote, view = target.to_remote_buffer(), source.to_view()
        other.unregister_memory(target)
        other.unregister_memory(target)
        # A read names its key in its request, and is refused.
        with pytest.raises(WireError, match="key"):
            one.read(source.to_mutable_view(), remote)
        one.unregister_memory(source)
        with pytest.raises(RuntimeError, match="unregistered"):
            one.write(view, remote)
        # The same tensor again.
        again = other.register_memory(theirs).to_remote_buffer()
        assert again.key != remote.key
        one.write(one.register_memory(mine).to_view(), again)
        assert theirs.eq(1).all()


def test_tensors_that_are_refused():
    with StrandwayTransport() as one:
        for tensor in (torch.zeros(4, 4).T, torch.zeros(0), torch.zeros(4, device="meta")):
            with pytest.raises(ValueError):
                one.register_memory(tensor)
        with pytest.raises(TypeError):
            one.register_memory([1.0])
        grown = torch.zeros(4)
        memory = one.register_memory(grown)
        grown.resize_(1_000)
        with pytest.raises(RuntimeError, match="resized"):
            memory.to_view()
    with pytest.raises(ValueError, match="CPU"):
        StrandwayTransport("meta")


def test_calls_in_a_wrong_order_are_refused():
    one, other = StrandwayTransport(), StrandwayTransport()
    memory = one.register_memory(torch.zeros(4))
    remote = other.register_memory(torch.zeros(4)).to_remote_buffer()
    with pytest.raises(RuntimeError, match="not connected"):
        one.write(memory.to_view(), remote)
    one.connect(other.bind())
    with pytest.raises(RuntimeError, match="connected already"):
        one.connect(other.bind())
    with pytest.raises(ValueError, match="connected peer"):
        one.write(memory.to_view(), StrandwayRemoteBuffer("another", bytes(16), 0, 16))
    for timeout in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError):
            one.write(memory.to_view(), remote, timeout=timeout)
    view = memory.to_view()
    one.close()
    one.close()
    for call in (one.bind, lambda: one.register_memory(torch.zeros(1)), lambda: one.write(view, remote)):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    other.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"backend":"strandway","version":2}', b'{"backend":"nixl","version":1}',
     b'{"backend":"strandway","version":1,"node":"a","key":"AAAA","offset":0,"length":1}',
     b'{"backend":"strandway","version":1,"node":"a","key":"!","offset":0,"length":1}',
     b'{"backend":"strandway","version":1,"node":"a","key":"AAAAAAAAAAAAAAAAAAAAAA==","offset":-1,"length":1}',
     b'{"backend":"strandway","version":1,"node":"a","key":"AAAAAAAAAAAAAAAAAAAAAA==","offset":true,"length":1}'],
)  # fmt: skip
def test_bytes_that_are_no_descriptor(data):
    with pytest.raises(ValueError):
        StrandwayRemoteBuffer.deserialize(data)
    with StrandwayTransport() as one, pytest.raises(ValueError):
        one.connect(data)


def test_settings_that_differ_are_named():
    with StrandwayTransport(protection="none") as one, StrandwayTransport() as other:
        with pytest.raises(ValueError, match="protection"):
            one.connect(other.bind())
    with pytest.raises(ValueError, match="STRANDWAY_IFNAME"), StrandwayTransport(planes=[], ifname="no-such") as one:
        os.environ.pop("STRANDWAY_PLANES")
        one._settings = tuple(pair for pair in one._settings if pair[0] != "STRANDWAY_PLANES")
        one.bind()
    with StrandwayTransport(payload=1_000) as one, StrandwayTransport(payload=1_200) as other:
        theirs = torch.zeros(5_000)
        one.connect(other.bind())
        one.write(one.register_memory(torch.ones(5_000)).to_view(), other.register_memory(theirs).to_remote_buffer())
        assert theirs.eq(1).all()


def test_threads_share_a_transport():
    one, other = a_pair()
    with one, other:
        mine, theirs = torch.arange(64_000, dtype=torch.int64), torch.zeros(64_000, dtype=torch.int64)
        source, remote = one.register_memory(mine), other.register_memory(theirs).to_remote_buffer()
        part = 8 * 4_000

        def move(i):
            for _ in range(20):
                one.write(source.to_view(i * part, part), remote.part(i * part, part))

        threads = [threading.Thread(target=move, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.equal(mine, theirs)


def _peer(pipe, life):
    from strandway_torch.transport import StrandwayTransport

    transport = StrandwayTransport("cpu")
    tensor = torch.zeros(1 << 20, dtype=torch.uint8)
    memory = transport.register_memory(tensor)
    pipe.send((transport.bind(), memory.to_remote_buffer().serialize()))
    if life == "dies":
        pipe.recv()
        os._exit(1)
    pipe.send(int(tensor.sum(dtype=torch.int64)) if pipe.recv() == "sum" else None)
    pipe.recv()
    transport.close()


def _with_peer(life):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_peer, args=(theirs, life))
    process.start()
    return process, ours, *ours.recv()


def test_two_processes():
    process, pipe, url, remote = _with_peer("lives")
    with StrandwayTransport("cpu") as one:
        one.connect(url)
        ones = one.register_memory(torch.ones(1 << 20, dtype=torch.uint8))
        one.write(ones.to_view(), StrandwayRemoteBuffer.deserialize(remote))
        pipe.send("sum")
        assert pipe.recv() == 1 << 20
    pipe.send("end")
    process.join()
    assert process.exitcode == 0


def test_a_peer_that_dies_ends_its_transfers_with_an_error():
    process, pipe, url, remote = _with_peer("dies")
    one = StrandwayTransport("cpu")
    one.connect(url)
    memory = one.register_memory(torch.zeros(1 << 20, dtype=torch.uint8))
    pipe.send("die")
    process.join()
    work = one.read(memory.to_mutable_view(), StrandwayRemoteBuffer.deserialize(remote), async_op=True)
    with pytest.raises(WireError, match=r"silent|ended"):
        work.wait(timedelta(seconds=60))
    assert work.is_completed() and not work.is_success() and isinstance(work.exception(), WireError)
    with pytest.raises(Exception, match=r"silent|ended"):
        work.get_future().wait()
    assert not one.connected()
    with pytest.raises(WireError, match="ended"):
        one.write(memory.to_view(), StrandwayRemoteBuffer.deserialize(remote))
    one.close()


def test_a_child_of_a_fork_is_told():
    one, other = a_pair()
    source = one.register_memory(torch.zeros(4))
    remote = other.register_memory(torch.zeros(4)).to_remote_buffer()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            one.write(source.to_view(), remote)
            said = b"no error"
        except WireError as error:
            said = str(error).encode()
        os.write(writing, said)
        os._exit(0)
    os.waitpid(child, 0)
    assert b"child of a fork" in os.read(reading, 1_000)
    one.write(source.to_view(), remote)
    one.close()
    other.close()
    os.close(reading)
    os.close(writing)

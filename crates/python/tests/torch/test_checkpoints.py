"""The checkpoint transport for torchft: one sender, and receivers that come, die or come late. Skipped without torchft."""

import contextlib
import json
import logging
import multiprocessing
import os
import socket
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchft.checkpointing", reason="without torchft there is nothing to transport checkpoints for")
pytest.importorskip("torch.distributed.tensor", reason="torchft's tests need DTensor")

from strandway.errors import WireError, WireTimeout  # noqa: E402
from strandway_torch import temporary  # noqa: E402
from strandway_torch.checkpoints import CheckpointTransportStrandway  # noqa: E402
from torchft.checkpointing import transport_test  # noqa: E402

ENVIRONMENT = ("STRANDWAY_KEY_FILE", "STRANDWAY_KEY", "STRANDWAY_PLANES", "STRANDWAY_IFNAME", "STRANDWAY_RATE", "STRANDWAY_TEAM")
# A busy machine takes minutes for what takes seconds elsewhere.
LONG = timedelta(seconds=120)
SHORT = timedelta(seconds=1)
spawn = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def _loopback(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRANDWAY_PLANES", "127.0.0.1")


@pytest.fixture
def make(tmp_path):
    """Makes transports whose folders are below the test's, and checks that nothing is left there."""
    with contextlib.ExitStack() as stack:

        def one(**options):
            transport = CheckpointTransportStrandway(**{"folder": tmp_path, **options})
            stack.callback(transport.shutdown)
            return transport

        yield one
    assert list(tmp_path.iterdir()) == []


def a_state(length=1000):
    torch.manual_seed(7)
    weight = torch.nn.Parameter(torch.randn(length, 3))
    return {
        "user": {"default": {"weight": weight, "view": weight.detach()[:, 1], "empty": torch.zeros(0, 4)}},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0), "moments": [torch.ones(5, dtype=torch.bfloat16), None]}}},
        "torchft": {"step": 7, "batches_committed": 14},
        "bits": torch.tensor([True, False]),
        "text": "a text",
        "span": timedelta(seconds=3),
    }


def assert_equal(one, other):
    assert type(one) is type(other) or isinstance(one, torch.Tensor)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert_equal(value, other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_equal(*pair)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and other.device.type == "cpu" and torch.equal(one, other)
    else:
        assert one == other


def test_a_state_arrives_with_all_that_is_in_it(make):
    sender, receiver = make(), make()
    state = a_state()
    sender.send_checkpoint([1], 7, state, LONG)
    expected = a_state()
    # The sender trains on.
    with torch.no_grad():
        state["user"]["default"]["weight"].zero_()
    got = receiver.recv_checkpoint(0, sender.metadata(), 7, LONG)
    assert_equal(expected, got)
    assert isinstance(got["user"]["default"]["weight"], torch.nn.Parameter)
    assert got["user"]["default"]["view"].data_ptr() != 0
    # The memory is the receiver's own.
    got["bits"].fill_(True)
    sender.disallow_checkpoint()


@pytest.mark.parametrize("options", [{}, {"key": bytes(range(32))}, {"protection": "none"}, {"planes": ["127.0.0.1", "127.0.0.2"]}])
def test_several_receivers_are_served_in_one_round(make, caplog, options):
    caplog.set_level(logging.INFO, "strandway_torch.checkpoints")
    sender, receivers = make(gather=LONG, **options), [make(**options) for _ in range(3)]
    sender.send_checkpoint([1, 2, 3], 7, a_state(100_000), LONG)
    with ThreadPoolExecutor(3) as threads:
        got = list(threads.map(lambda one: one.recv_checkpoint(0, sender.metadata(), 7, LONG), receivers))
    sender.disallow_checkpoint()
    for state in got:
        assert_equal(a_state(100_000), state)
    assert len([text for text in caplog.messages if "to 3 receivers" in text]) == 1


def test_torchfts_own_test_passes():
    def attempt():
        def init(rank, size):
            return CheckpointTransportStrandway()

        transport_test.run_multi_recovery_test(unittest.TestCase(), init, torch.device("cpu"))

    # It has a deadline of ten seconds for all of it, which a busy machine misses with any transport: once more then.
    try:
        attempt()
    except TimeoutError:
        torch.distributed.destroy_process_group()
        attempt()


def test_torchfts_manager_recovers_replicas_by_it(monkeypatch):
    tests = pytest.importorskip("torchft.manager_integ_test", reason="the wheel has no tests of the manager").ManagerIntegTest
    received = []

    class Transport(CheckpointTransportStrandway):
        # As the manager makes its default.
        def __init__(self, timeout, num_chunks):
            super().__init__()

        def recv_checkpoint(self, *arguments, **named):
            received.append(super().recv_checkpoint(*arguments, **named))
            return received[-1]

        def __class_getitem__(cls, kind):
            return cls

    monkeypatch.setattr("torchft.manager.HTTPTransport", Transport)
    names = [name for name in unittest.TestLoader().getTestCaseNames(tests) if "recovery" in name and "torchcomms" not in name]
    assert names
    for name in names:
        # Its deadlines are a few seconds, too.
        results = []
        while len(results) < 2 and not (results and results[-1].wasSuccessful()):
            results.append(unittest.TestResult())
            unittest.TestSuite([tests(name)]).run(results[-1])
        assert results[-1].wasSuccessful(), results[-1].failures + results[-1].errors
    assert received


def test_a_receiver_that_comes_first_waits_for_the_offer(make):
    sender, receiver = make(), make()
    with ThreadPoolExecutor(1) as thread:
        later = thread.submit(receiver.recv_checkpoint, 0, sender.metadata(), 7, LONG)
        while not sender._waiting:
            time.sleep(0.01)
        sender.send_checkpoint([1], 7, a_state(), LONG)
        assert_equal(a_state(), later.result())


def test_receivers_that_others_do_not_wait_for_are_served_in_another_round(make):
    sender = make(gather=timedelta(0))
    sender.send_checkpoint([1, 2], 7, a_state(), LONG)
    for _ in range(2):
        assert_equal(a_state(), make().recv_checkpoint(0, sender.metadata(), 7, LONG))
    # All have it: it is withdrawn by itself.
    sender._offer and sender._offer.thread.join()
    with pytest.raises(WireTimeout, match="timed out after 1 s: the sender has withdrawn its checkpoint of step 7"):
        make().recv_checkpoint(0, sender.metadata(), 7, SHORT)


def test_late_receivers_hear_why_there_is_nothing(make):
    sender, receiver = make(), make()
    sender.send_checkpoint([1], 7, a_state(), LONG)
    sender.disallow_checkpoint()
    with pytest.raises(WireTimeout, match="timed out after 1 s: the sender has withdrawn its checkpoint of step 7"):
        receiver.recv_checkpoint(0, sender.metadata(), 7, SHORT)
    with pytest.raises(WireTimeout, match=r"timed out after 1 s: its sender, rank 0 .* has not offered it yet"):
        receiver.recv_checkpoint(0, sender.metadata(), 8, SHORT)
    with pytest.raises(WireError, match="step 6 is not to be had: the sender is at step 7"):
        receiver.recv_checkpoint(0, sender.metadata(), 6, LONG)
    # The same step again, as torchft does after a failed commit.
    with ThreadPoolExecutor(1) as thread:
        later = thread.submit(receiver.recv_checkpoint, 0, sender.metadata(), 7, LONG)
        sender.send_checkpoint([1], 7, a_state(), LONG)
        assert_equal(a_state(), later.result())
    sender.shutdown()
    with pytest.raises(WireError, match=r"rank 0 .* does not answer"):
        receiver.recv_checkpoint(0, sender.metadata(), 8, LONG)


def test_receivers_of_a_sender_that_shuts_down_hear_it(make):
    sender, receiver = make(), make()
    with ThreadPoolExecutor(1) as thread:
        later = thread.submit(receiver.recv_checkpoint, 0, sender.metadata(), 7, LONG)
        while not sender._waiting:
            time.sleep(0.01)
        sender.shutdown()
        with pytest.raises(WireError, match="was shut down"):
            later.result()
    with pytest.raises(RuntimeError, match="was shut down"):
        sender.send_checkpoint([1], 7, a_state(), LONG)


@pytest.mark.parametrize(
    "metadata", ["<n/a>", "http://host:80/checkpoint/", "[1]", '{"strandway":1}', '{"strandway":1,"addresses":[],"port":1}']
)
def test_metadata_of_other_transports_is_refused(make, metadata):
    with pytest.raises(ValueError, match="is not that of a checkpoint transport of strandway"):
        make().recv_checkpoint(0, metadata, 7, LONG)


def test_versions_and_planes_and_settings_must_fit(make):
    sender, receiver = make(), make()
    sender.send_checkpoint([1], 7, a_state(), LONG)
    metadata = sender.metadata()
    with pytest.raises(ValueError, match="version 2"):
        receiver.recv_checkpoint(0, metadata.replace('"strandway":1', '"strandway":2'), 7, LONG)
    with pytest.raises(WireError, match="the receiver has 2 planes, the sender 1"):
        make(planes=["127.0.0.1", "127.0.0.2"]).recv_checkpoint(0, metadata, 7, LONG)
    with pytest.raises(ValueError, match="STRANDWAY_PROTECTION"):
        make(protection="none").recv_checkpoint(0, metadata, 7, LONG)
    assert_equal(a_state(), receiver.recv_checkpoint(0, metadata, 7, LONG))


def test_keys_of_users_must_be_the_same(make):
    sender = make(key=bytes(range(32)))
    sender.send_checkpoint([1], 7, a_state(), LONG)
    with pytest.raises(ValueError, match="has a key from its user"):
        make().recv_checkpoint(0, sender.metadata(), 7, LONG)
    with pytest.raises(WireError, match=r"no checkpoint of step 7 from rank 0 \(.*\): .* key"):
        make(key=bytes(32)).recv_checkpoint(0, sender.metadata(), 7, LONG)
    assert_equal(a_state(), make(key=bytes(range(32))).recv_checkpoint(0, sender.metadata(), 7, LONG))


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"{}\n", b'{"strandway":1,"step":-1}\n', b"x" * 70_000 + b"\n", b""])
def test_a_desk_survives_what_strangers_say(make, words):
    sender = make()
    place = json.loads(sender.metadata())
    with socket.create_connection((place["addresses"][0], place["port"])) as stranger:
        with contextlib.suppress(OSError):
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(1000):
                pass
    sender.send_checkpoint([1], 7, a_state(), LONG)
    assert_equal(a_state(), make().recv_checkpoint(0, sender.metadata(), 7, LONG))


def _receive(pipe, folder, metadata):
    transport = CheckpointTransportStrandway(folder=folder)
    pipe.send("begins")
    try:
        state = transport.recv_checkpoint(0, metadata, 7, LONG)
        pipe.send(("state", float(state["x"].double().sum()), state["x"].numel()))
    except Exception as error:
        pipe.send(("error", str(error), 0))
    transport.shutdown()


def _send(pipe, folder, length):
    transport = CheckpointTransportStrandway(folder=folder, rate=0.1)
    transport.send_checkpoint([1], 7, {"x": torch.arange(length, dtype=torch.float32)}, LONG)
    pipe.send(transport.metadata())
    pipe.recv()


def start(body, *arguments):
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=body, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def bytes_in(folder):
    """The bytes of all files below a folder, whatever their names are meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_blocks * 512
    return total


def swept(folder, monkeypatch):
    """The folders that killed processes have left, and those that are left after the next transport's sweep."""
    left = [name for name in os.listdir(folder) if name.startswith("strandway-checkpoint-")]
    monkeypatch.setattr(temporary, "_YOUNG", 0.0)
    temporary.sweep(folder)
    return left, os.listdir(folder)


def test_a_receiver_that_is_killed_does_not_hold_the_others(make, tmp_path, monkeypatch):
    sender = make(gather=LONG, rate=0.2)
    # 48 MB in about two seconds.
    x = torch.arange(12_000_000, dtype=torch.float32)
    folders = [tmp_path / f"receiver{number}" for number in range(3)]
    for folder in folders:
        folder.mkdir()
    started = [start(_receive, folder, sender.metadata()) for folder in folders]
    for _, pipe in started:
        assert pipe.recv() == "begins"
    sender.send_checkpoint([1, 2, 3], 7, {"x": x}, LONG)
    victim, _ = started[1]
    while bytes_in(folders[1]) == 0:
        time.sleep(0.005)
    victim.kill()
    victim.join()
    for place in (0, 2):
        assert started[place][1].recv() == ("state", float(x.double().sum()), x.numel())
        started[place][0].join()
        assert os.listdir(folders[place]) == []
    sender.disallow_checkpoint()
    left, remaining = swept(folders[1], monkeypatch)
    assert len(left) == 1 and remaining == []
    for folder in folders:
        folder.rmdir()


def test_a_receiver_hears_that_its_sender_was_killed(make, tmp_path, monkeypatch):
    folder = tmp_path / "sender"
    folder.mkdir()
    process, pipe = start(_send, folder, 25_000_000)
    metadata = pipe.recv()
    own = tmp_path / "own"
    own.mkdir()
    receiver = make(folder=own)

    def kill():
        while bytes_in(own) == 0:
            time.sleep(0.005)
        process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(WireError, match=rf"no checkpoint of step 7 from rank 0 \({socket.gethostname()}, process {process.pid}\)"):
        receiver.recv_checkpoint(0, metadata, 7, LONG)
    killer.join()
    process.join()
    assert os.listdir(own) == []
    # Nobody is there any more.
    with pytest.raises(WireError, match=rf"rank 3 .*process {process.pid}\) does not answer: 127.0.0.1"):
        receiver.recv_checkpoint(3, metadata, 7, LONG)
    left, remaining = swept(folder, monkeypatch)
    assert len(left) == 1 and remaining == []
    folder.rmdir()
    own.rmdir()


def test_the_time_of_a_sender_bounds_its_cast(make):
    sender, receiver = make(rate=0.01), make()
    # 100 MB would take more than a minute.
    sender.send_checkpoint([1], 7, {"x": torch.zeros(25_000_000)}, timedelta(seconds=2))
    with pytest.raises(WireError, match="timed out"):
        receiver.recv_checkpoint(0, sender.metadata(), 7, LONG)

"""Nodes, blocking and for asyncio; copies and casts of files."""

import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import pytest
import strandway


def test_bytes_move_by_sends_and_writes():
    with strandway.Node("::1") as server, strandway.Node("::1", payload=1344) as client:
        ours = client.connect(server.addresses, timeout=10)
        theirs = server.accept(timeout=10)
        assert ours.source is None and theirs.source and theirs.source.startswith("[::1]:")
        data = os.urandom(300_000)
        inbox, outbox = server.zeros(len(data)), client.register(data)
        receiving = threading.Thread(target=lambda: theirs.recv(inbox, timeout=30))
        receiving.start()
        ours.send(outbox, timeout=30)
        receiving.join(30)
        assert inbox.read() == data and len(inbox) == len(data)
        key = inbox.expose(theirs, 100, 200)
        assert len(key) == 16
        outbox.write(b"x" * 50)
        ours.write(outbox, key, 10, start=0, end=50, immediate=5, timeout=30)
        assert theirs.written(timeout=30) == (5, 50)
        assert inbox.read(110, 160) == b"x" * 50 and inbox.read(0, 110) == data[:110]
        assert theirs.revoke(key) and not theirs.revoke(key)
        counters = ours.counters()
        assert sum(counters["sent_bytes"]) >= 300_050 and counters["up"] == [True]
        assert outbox.free()[:50] == b"x" * 50


def test_nodes_servers_and_groups_say_what_they_are(tmp_path):
    with strandway.Node("::1") as node:
        assert repr(node) == f"Node({node.addresses[0]})" and node.addresses[0].startswith("[::1]:")
    assert repr(node) == "Node(closed)"
    with strandway.serve(tmp_path, planes="::1", port=0) as server:
        assert repr(server) == f"FileServer({server.addresses[0]})"
    assert repr(server) == "FileServer(ended)"
    group = strandway.Group.meet(strandway.MemoryStore(), 0, 1, apart=True)
    assert repr(group) == "Group(rank 0 of 1)"


def test_errors_say_what_is_wrong():
    with strandway.Node("::1") as node:
        with pytest.raises(TimeoutError, match=r"after 0\.05 s"):
            node.accept(timeout=0.05)
        region = node.zeros(10)
        with pytest.raises(ValueError, match="bytes 0 to 11 of a region of 10"):
            region.read(0, 11)
        other = strandway.Node("::1")
        ours, theirs = node.connect(other.addresses), other.accept()
        with pytest.raises(ValueError, match="keys that expose"):
            ours.write(region, b"short")
        theirs.close()
        with pytest.raises(strandway.WireError) as caught:
            ours.recv(region, timeout=10)
        assert caught.value.kind == "closed" and ours.ended
        other.close()
        with pytest.raises(strandway.WireError, match="the node was closed"):
            other.zeros(1)
    with pytest.raises(ValueError, match="the same key"):
        strandway.Node("2001:db8::1")
    with pytest.raises(ValueError, match="take encrypted, authenticated or none"):
        strandway.Node("::1", protection="some")
    with pytest.raises(ValueError, match="rate"):
        strandway.Node("::1", rate="fast")
    with pytest.raises(strandway.WireError) as caught:
        strandway.Node("::1", peer_timeout=0.3).connect("[::1]:9")
    assert caught.value.kind == "closed"


def test_asyncio():
    async def run():
        async with strandway.AsyncNode("::1") as server, strandway.AsyncNode("::1") as client:
            theirs, ours = await asyncio.gather(server.accept(), client.connect(server.addresses))
            data = [os.urandom(n) for n in (1, 5_000, 200_000)]
            inboxes = [await server.zeros(len(one)) for one in data]
            outboxes = [await client.register(one) for one in data]
            receives = [asyncio.ensure_future(theirs.recv(inbox)) for inbox in inboxes]
            await asyncio.sleep(0)
            await asyncio.gather(*(ours.send(outbox) for outbox in outboxes))
            assert await asyncio.gather(*receives) == [len(one) for one in data]
            assert [await inbox.read() for inbox in inboxes] == data
            # A task that is cancelled leaves the rest alone.
            waiting = asyncio.ensure_future(theirs.written())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            key = await inboxes[2].expose(theirs)
            await ours.write(outboxes[1], key, immediate=1)
            assert await theirs.written() == (1, 5_000)
            await ours.close()
            with pytest.raises(strandway.WireError):
                await theirs.written()

    asyncio.run(asyncio.wait_for(run(), 60))


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in pathlib.Path(folder).rglob("*") if path.is_file()}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    for name, length in (("a", 0), ("b", 1_000), ("sub/c", 3_000_000)):
        (folder / name).write_bytes(os.urandom(length))
    return folder


def test_a_copy_arrives_and_is_not_sent_again(data, tmp_path):
    (tmp_path / "there").mkdir()
    seen = []
    with strandway.serve(tmp_path / "there", planes="::1", port=0) as server:
        to = server.addresses
        assert strandway.copy(data, to, dry_run=True)["bytes"]["missing"] == 3_001_000
        summary = strandway.copy(data, to, "monday", rate="10 Gbps", rtt="1 ms", progress=lambda done, all: seen.append((done, all)))
        assert summary["files"] == {"all": 3, "sent": 3, "there": 0} and not summary["failures"]
        assert strandway.copy([data], to, "monday")["files"] == {"all": 3, "sent": 0, "there": 3}
        with pytest.raises(ZeroDivisionError):
            strandway.copy(data, to, "tuesday", progress=lambda done, all: 1 / 0)
        with pytest.raises(ValueError, match="none"):
            strandway.copy(data / "none", to)
    assert tree(tmp_path / "there" / "monday" / "data") == tree(data)
    assert all(all_ == 3_001_000 for _, all_ in seen)


def test_a_copy_mirrors_leaves_names_out_and_keeps_more_of_files(data, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (data / "skip.tmp").write_bytes(b"x")
    os.link(data / "b", data / "b2")
    (there / "old").write_bytes(b"x")
    with strandway.serve(there, planes="::1", port=0, allow=["delete"]) as server:
        how = {"exclude": ["*.tmp"], "keep": ["hard_links", "sparse", "xattrs"], "delete": True}
        summary = strandway.copy(f"{data}/.", server.addresses, **how)
        assert (summary["files"]["sent"], summary["links"], summary["removed"]) == (3, 1, 1)
        with pytest.raises(strandway.WireError, match="--allow owner"):
            strandway.copy(data, server.addresses, keep=["owner"])
        with pytest.raises(ValueError, match="keep"):
            strandway.copy(data, server.addresses, keep=["nothing"])
    assert sorted(tree(there)) == ["a", "b", "b2", "sub/c"]
    assert (there / "b").stat().st_ino == (there / "b2").stat().st_ino
    (tmp_path / "cast").mkdir()
    with strandway.receive(tmp_path / "cast", planes="::1", port=0) as server:
        strandway.cast(data, [server.addresses], rate="10 Gbps", multicast=False, exclude=["*.tmp"], keep=["hard_links"])
    got = tmp_path / "cast" / "data"
    assert sorted(tree(got)) == ["a", "b", "b2", "sub/c"] and (got / "b").stat().st_ino == (got / "b2").stat().st_ino


def test_a_cast_reaches_all(data, tmp_path):
    servers = []
    for name in "xyz":
        (tmp_path / name).mkdir()
        servers.append(strandway.receive(tmp_path / name, planes="::1", port=0, once=True))
    summary = strandway.cast(data, [server.addresses for server in servers], rate="10 Gbps", multicast=False)
    assert [receiver["done"] for receiver in summary["receivers"]] == [True] * 3 and summary["multicast_planes"] == 0
    for name, server in zip("xyz", servers, strict=True):
        assert server.wait(timeout=20)
        assert tree(tmp_path / name / "data") == tree(data)
    with pytest.raises(ValueError, match="no receivers"):
        strandway.cast(data, [])


RECEIVER = """
import os, socket, sys, strandway
other = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
other.bind(("::", 47940))                     # does not share it
with strandway.receive(sys.argv[1], planes="fd99::2", key=b"k" * 32, once=True) as server:
    print("ready", flush=True)
    server.wait()
"""
SENDER = """
import json, sys, strandway
print(json.dumps(strandway.cast(sys.argv[1], ["fd99::2"], planes="fd99::1", key=b"k" * 32, rate="1 Gbps")))
"""


def test_a_cast_steps_over_a_port_that_is_taken_at_a_receiver_alone(tmp_path):
    def ip(words, check=True):
        subprocess.run(["ip", *words.split()], check=check, capture_output=True)

    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip")
    try:
        ip("netns add swt1")
    except subprocess.CalledProcessError:
        pytest.skip("no network namespaces here")
    try:
        ip("netns add swt2")
        ip("link add e0 netns swt1 type veth peer name e0 netns swt2")
        for host in (1, 2):
            ip(f"-n swt{host} addr add fd99::{host}/64 dev e0 nodad")
            ip(f"-n swt{host} link set lo up")
            ip(f"-n swt{host} link set e0 up")
        (tmp_path / "there").mkdir()
        (tmp_path / "weights").write_bytes(os.urandom(500_000))
        run = [sys.executable, "-c"]
        with subprocess.Popen(["ip", "netns", "exec", "swt2", *run, RECEIVER, str(tmp_path / "there")], stdout=subprocess.PIPE) as receiver:
            try:
                assert receiver.stdout is not None and receiver.stdout.readline() == b"ready\n"
                sender = ["ip", "netns", "exec", "swt1", *run, SENDER, str(tmp_path / "weights")]
                said = json.loads(subprocess.run(sender, check=True, capture_output=True, timeout=60).stdout)
            finally:
                receiver.kill()
        assert (tmp_path / "there" / "weights").read_bytes() == (tmp_path / "weights").read_bytes()
        assert said["multicast_planes"] == 1
    finally:
        ip("netns del swt1", check=False)
        ip("netns del swt2", check=False)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2:0", "::ffff:127.0.0.1"])
def test_nodes_and_files_take_ipv4_addresses(address, tmp_path):
    with strandway.Node(address) as server, strandway.Node(address) as client:
        (theirs,) = server.addresses
        assert theirs.startswith("127.0.0."), "as people write it"
        ours = client.connect(theirs, timeout=10)
        peer = server.accept(timeout=10)
        data = os.urandom(100_000)
        inbox, outbox = server.zeros(len(data)), client.register(data)
        receiving = threading.Thread(target=lambda: peer.recv(inbox, timeout=30))
        receiving.start()
        ours.send(outbox, timeout=30)
        receiving.join(30)
        assert inbox.read() == data
    source = tmp_path / "weights"
    source.write_bytes(os.urandom(200_000))
    for serve, send in ((strandway.serve, strandway.copy), (strandway.receive, lambda what, to: strandway.cast(what, [to]))):
        target = tmp_path / serve.__name__
        target.mkdir()
        with serve(target, planes=address, port=0) as server:
            assert server.addresses[0].startswith("127.0.0.")
            send(source, server.addresses)
        assert (target / "weights").read_bytes() == source.read_bytes()


def test_a_host_has_a_name_and_a_name_is_looked_up_in_the_family_of_the_node():
    with strandway.Node("127.0.0.1") as server, strandway.Node("127.0.0.1") as client:
        port = server.addresses[0].rsplit(":", 1)[1]
        client.connect(f"localhost:{port}", timeout=10)
        assert server.accept(timeout=10).source.startswith("127.0.0.1:")
    with strandway.Node() as node:
        assert node.addresses[0].startswith(("[::1]:", "127.0.0.1:"))
    with pytest.raises(ValueError, match=r"write it as 10\.0\.0\.2, "):
        strandway.Node("10.0.0.2:x")


def test_the_port_is_that_of_planes_without_one(tmp_path):
    with strandway.serve(tmp_path, port=0) as server:
        assert not server.addresses[0].endswith(":47931")
    with strandway.serve(tmp_path, planes=["[::1]:0", "127.0.0.1"], port=0) as server:
        assert server.addresses[0].startswith("[::1]:") and server.addresses[1].startswith("127.0.0.1:")

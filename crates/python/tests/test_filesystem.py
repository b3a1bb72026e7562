"""Files that are written through fsspec arrive at a host that serves a directory; `torch.distributed.checkpoint` writes so."""

import os
import pathlib

import pytest
import strandway

fsspec = pytest.importorskip("fsspec", reason="needs the package fsspec (pip install fsspec)")

from strandway.filesystem import StrandwayFileSystem  # noqa: E402


@pytest.fixture
def served(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    with strandway.serve(there, planes="127.0.0.1", port=0) as server:
        yield there, server.addresses[0]


def test_files_arrive_when_they_are_closed(served):
    there, address = served
    fs = StrandwayFileSystem(to=address)
    contents = os.urandom(3_000_000)
    fs.makedirs("run/step", exist_ok=True)
    with fs.open("run/step/shard", "wb") as file:
        file.write(contents[:1_000_000])
        file.write(contents[1_000_000:])
        assert not (there / "run/step/shard").exists()
    assert (there / "run/step/shard").read_bytes() == contents
    assert fs.exists("run/step") and fs.info("run/step/shard")["size"] == 3_000_000
    assert fs.ls("run/step", detail=False) == ["run/step/shard"]
    # Written again: it is replaced.
    fs.pipe_file("run/step/shard", b"short")
    assert (there / "run/step/shard").read_bytes() == b"short"


def test_a_file_whose_block_fails_is_not_sent(served):
    there, address = served
    fs = StrandwayFileSystem(to=address)
    with pytest.raises(RuntimeError), fs.open("half", "wb") as file:
        file.write(b"bytes")
        raise RuntimeError("stop")
    assert list(there.iterdir()) == [] and not fs.exists("half")


def test_a_temporary_name_is_kept_here_until_it_is_renamed(served):
    there, address = served
    fs = StrandwayFileSystem(to=address)
    fs.pipe_file("a/.metadata.tmp", b"bytes")
    assert list(there.iterdir()) == [] and fs.exists("a/.metadata.tmp")
    fs.rename("a/.metadata.tmp", "a/.metadata")
    assert (there / "a/.metadata").read_bytes() == b"bytes"
    assert fs.exists("a/.metadata") and not fs.exists("a/.metadata.tmp")
    with pytest.raises(NotImplementedError):
        fs.rename("a/.metadata", "a/other")


def test_names_that_lead_out_are_refused(served):
    there, address = served
    fs = StrandwayFileSystem(to=address)
    with pytest.raises((OSError, ValueError, strandway.WireError)):
        fs.pipe_file("../out", b"bytes")
    assert not (there.parent / "out").exists()


def test_addresses_name_host_and_directory(served):
    there, address = served
    fs, path = fsspec.core.url_to_fs(f"strandway://{address}/a/b")
    assert isinstance(fs, StrandwayFileSystem) and path == "a/b"
    with fsspec.open(f"strandway://{address}/a/b", "wb") as file:
        file.write(b"bytes")
    assert (there / "a/b").read_bytes() == b"bytes"
    with pytest.raises(NotImplementedError):
        fs.open(path, "rb")


def test_a_checkpoint_of_torch_is_written_and_read_at_the_host(served):
    torch = pytest.importorskip("torch", reason="needs torch")
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    try:
        from torch.distributed.checkpoint.fsspec_filesystem import FsspecWriter
    except ImportError:
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

    there, address = served
    state = {"weights": torch.arange(1000.0), "step": 7}
    for step in (1, 2):
        place = f"strandway://{address}/run/step"
        state["step"] = step
        writer = FsspecWriter(place)
        checkpoint.save(state, storage_writer=writer, no_dist=True)
    assert (there / "run/step/.metadata").exists()
    assert not list(pathlib.Path(there).rglob("*.tmp"))
    loaded = {"weights": torch.zeros(1000), "step": 0}
    checkpoint.load(loaded, checkpoint_id=there / "run/step", no_dist=True)
    assert loaded["step"] == 2 and torch.equal(loaded["weights"], state["weights"])

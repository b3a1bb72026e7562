"""A file system of fsspec whose files go to a host that serves a directory (`strandway copy --serve`, or `serve`).

It writes, and does not read: the host has the files. A program that writes through fsspec, such as `torch.distributed.checkpoint`, writes
to another host with it:

    from torch.distributed.checkpoint.fsspec_filesystem import FsspecWriter  # _fsspec_filesystem in older versions

    writer = FsspecWriter("strandway://10.0.0.2/run-7/step-100", key_file="key")

The address is `strandway://HOST:PORT/DIRECTORY`, with the port if it is not 47931. IPv6 addresses, whose `::` fsspec takes for its own, and
hosts with several planes are named by `to=`. Options are those of `strandway.copy`. A file is written to a temporary file of this host and
sent when it is closed; the host checks its hash before the file gets its name. A file whose name ends in `.tmp` is kept here until it is
renamed.
"""

from __future__ import annotations

import io
import os
import pathlib
import shutil
import tempfile
import threading
from typing import Any

from fsspec.spec import AbstractFileSystem

from . import files
from .node import Addresses


class StrandwayFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Writes files to a host that serves a directory."""

    protocol = "strandway"
    cachable = False

    def __init__(self, host: str | None = None, to: Any = None, staging: str | None = None, **options: Any) -> None:
        """`host` from the address, or `to`, one address per plane. `staging` is a directory for files that are being written."""
        super().__init__()
        if host is None and to is None:
            raise ValueError("no host: write strandway://HOST/DIRECTORY, or to=")
        self._to: Addresses = to if to is not None else str(host)
        self._options = options
        self._staging = staging
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()
        # Sizes of the files that were sent, and the paths of those that are kept here.
        self._sent: dict[str, int] = {}
        self._held: dict[str, pathlib.Path] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("strandway://"):
            path = path.removeprefix("strandway://").partition("/")[2]
        return path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        host = path.removeprefix("strandway://").partition("/")[0] if path.startswith("strandway://") else ""
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return {"host": host} if host else {}

    def _temporary(self) -> pathlib.Path:
        """A directory for one file that is being written."""
        with self._lock:
            if self._place is None:
                self._place = tempfile.TemporaryDirectory(prefix="strandway-", dir=self._staging)
        return pathlib.Path(tempfile.mkdtemp(dir=self._place.name))

    def _send(self, path: str, here: pathlib.Path) -> None:
        """Sends a file, which has its last name here, and removes it."""
        size = here.stat().st_size
        directory = path.rpartition("/")[0]
        try:
            summary = files.copy(here, self._to, directory, **self._options)
        finally:
            shutil.rmtree(here.parent, ignore_errors=True)
        if summary["failures"]:
            raise OSError(f"{path}: {summary['failures'][0][1]}")
        with self._lock:
            self._sent[path] = size

    def _finished(self, path: str, here: pathlib.Path) -> None:
        if path.endswith(".tmp"):
            with self._lock:
                self._held[path] = here
        else:
            self._send(path, here)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> _Written:
        path = self._strip_protocol(path)
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f"mode {mode!r}: files are written (wb); read them at the host that has them")
        if not path:
            raise ValueError("no name of a file")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        return _Written(self, path, self._temporary() / path.rpartition("/")[2])

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Nothing: directories come with their files."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing: directories come with their files."""

    def exists(self, path: str, **_: Any) -> bool:
        """Was this file, or a file in this directory, written by this object?"""
        path = self._strip_protocol(path)
        with self._lock:
            known = [*self._sent, *self._held]
        return any(one == path or one.startswith(f"{path}/") or not path for one in known)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Of a file that this object has written: its size; of a directory, that it is one."""
        path = self._strip_protocol(path)
        with self._lock:
            if path in self._sent:
                return {"name": path, "size": self._sent[path], "type": "file"}
            if path in self._held:
                return {"name": path, "size": self._held[path].stat().st_size, "type": "file"}
        if self.exists(path):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """The files of a directory that this object has written."""
        path = self._strip_protocol(path)
        with self._lock:
            known = [*self._sent, *self._held]
        below = [one[len(path) :].strip("/") for one in known if not path or one.startswith(f"{path}/")]
        names = sorted({f"{path}/{one.partition('/')[0]}".strip("/") for one in below})
        return [self.info(name) for name in names] if detail else names

    def rm_file(self, path: str) -> None:
        """Forgets a file; one that is kept here is removed. A file that was sent stays at the host until it is written again."""
        path = self._strip_protocol(path)
        with self._lock:
            self._sent.pop(path, None)
            held = self._held.pop(path, None)
        if held is not None:
            shutil.rmtree(held.parent, ignore_errors=True)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """As `rm_file`, for a path or several."""
        for one in path if isinstance(path, list) else [path]:
            self.rm_file(one)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Gives a file that is kept here (`.tmp`) its name: then it is sent. Others cannot be renamed."""
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        with self._lock:
            held = self._held.pop(old, None)
        if held is None:
            raise NotImplementedError(f"{old}: it was sent with its name; only names that end in .tmp can be changed")
        named = held.with_name(new.rpartition("/")[2])
        held.rename(named)
        self._finished(new, named)

    def rename(self, path1: str, path2: str, **options: Any) -> None:
        """As `mv`."""
        self.mv(path1, path2, **options)

    def created(self, path: str) -> Any:
        """Not known: the host has the files."""
        raise NotImplementedError("the host has the files")

    def modified(self, path: str) -> Any:
        """Not known: the host has the files."""
        raise NotImplementedError("the host has the files")

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Not possible: the host has the files."""
        raise NotImplementedError("the host has the files")


class _Written(io.FileIO):
    """A file of this host that is sent when it is closed."""

    def __init__(self, owner: StrandwayFileSystem, path: str, here: pathlib.Path) -> None:
        super().__init__(here, "wb")
        self._owner, self._path, self._here = owner, path, here
        self._failed = False

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        self._failed = kind is not None
        self.close()

    def discard(self) -> None:
        """Closes it without sending it."""
        self._failed = True
        self.close()

    def close(self) -> None:
        """Sends it; after an error in its `with` block nothing is sent."""
        if self.closed:
            return
        super().close()
        if self._failed:
            shutil.rmtree(self._here.parent, ignore_errors=True)
        else:
            self._owner._finished(self._path, self._here)

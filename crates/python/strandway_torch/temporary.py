"""Folders for a moment: in memory (`/dev/shm`) where there is room, else with the system's temporary files.

A process keeps a lock on each of its folders. The system releases it when the process ends in whatever way, and `sweep` removes folders
without a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from types import TracebackType

__all__ = ["Folder", "sweep"]

_MEMORY = "/dev/shm"
_PREFIX = "strandway-checkpoint-"
# Bytes that stay free in memory: ours.
_RESERVE = 64 << 20
# Seconds in which a new folder gets its lock.
_YOUNG = 60.0


class Folder:
    """A folder that only this user can read. Use it in `with`, or call `remove`."""

    def __init__(self, room: int, base: str | os.PathLike[str] | None = None) -> None:
        """Below `base`, or where `room` bytes are free."""
        self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=_base(room) if base is None else base)
        self._lock: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def file(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)

    def remove(self) -> None:
        """Removes it with its files. Files that are mapped stay in memory."""
        lock, self._lock = self._lock, None
        if lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)

    def __enter__(self) -> Folder:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        """Removes it."""
        self.remove()


def _base(room: int) -> str:
    with contextlib.suppress(OSError):
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= room + _RESERVE:
            return _MEMORY
    return tempfile.gettempdir()


def sweep(base: str | os.PathLike[str] | None = None) -> None:
    """Removes folders of this user whose processes have ended."""
    for place in {_MEMORY, tempfile.gettempdir()} if base is None else {os.fspath(base)}:
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(place)):
                if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                    _remove_left(entry.path)


def _remove_left(path: str) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            found = os.fstat(lock)
            if found.st_uid != os.geteuid() or time.time() - found.st_ctime < _YOUNG:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)

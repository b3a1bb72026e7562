"""Files to one host (`copy`) and to many at the same time (`cast`), and the other side of both (`serve`, `receive`).

These are `strandway copy` and `strandway cast` of the command line, with the same protocol: either side may be the other program.

>>> import pathlib, tempfile, strandway
>>> place = tempfile.TemporaryDirectory()
>>> here = pathlib.Path(place.name)
>>> (here / "weights").write_bytes(bytes(100_000))
100000
>>> (here / "there").mkdir()
>>> with strandway.serve(here / "there", planes="::1", port=0) as server:
...     summary = strandway.copy(here / "weights", server.addresses)
>>> summary["files"]["sent"], (here / "there" / "weights").stat().st_size
(1, 100000)
>>> place.cleanup()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import _lab
from .node import Addresses, BasicOptions, WireOptions, many, settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

Path = str | os.PathLike[str]
Progress = Callable[[int, int], object]
Keep = Literal["sparse", "hard_links", "xattrs", "owner"]
Allow = Literal["owner", "delete"]


def _paths(sources: Path | Sequence[Path]) -> list[str]:
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    return [os.fspath(source) for source in sources]


def copy(
    sources: Path | Sequence[Path],
    to: Addresses,
    directory: str = "",
    *,
    planes: Addresses = (),
    limit: str | None = None,
    dry_run: bool = False,
    exclude: Sequence[str] = (),
    keep: Sequence[Keep] = (),
    delete: bool = False,
    progress: Progress | None = None,
    **wire: Unpack[WireOptions],
) -> dict[str, Any]:
    """Copies files and directories into `directory` below the directory that the host `to` serves.

    `to` has the host's address on each plane, or its name; `planes` this host's addresses, if they do not follow from it. `progress` gets
    the bytes done and in all. Files that are there already are not sent; a copy that ended early continues where it stopped.

    `exclude` has patterns of names that are left out, in rsync's manner. `keep` names what is kept of files besides contents, modes and
    times: `"sparse"` (holes), `"hard_links"`, `"xattrs"`, `"owner"`. With `delete` the server removes, in the directories that are copied,
    what is not here. The server must allow `owner` and `delete`. The other arguments are those of `WireOptions`: `profile` is `sdr_auto`
    by default, `rate` 1 Gb/s and `rtt` 50 ms.

    The result has the fields of `strandway copy --json`; files that could not be copied are in its `failures`.
    """
    given = settings(planes, **wire)
    left, kept = list(exclude), [str(one) for one in keep]
    return _lab.copy(given, _paths(sources), many(to), directory, limit, dry_run, left, kept, delete, progress)


def cast(
    sources: Path | Sequence[Path],
    to: Sequence[Addresses],
    *,
    planes: Addresses = (),
    wait: str = "3s",
    patience: str = "20s",
    all_or_nothing: bool = False,
    trust: str = "source",
    team: int = 0,
    multicast: bool = True,
    exclude: Sequence[str] = (),
    keep: Sequence[Keep] = (),
    progress: Progress | None = None,
    **wire: Unpack[WireOptions],
) -> dict[str, Any]:
    """Casts files and directories to all receivers at once; each is one address per plane, or a name.

    Without multicast on the network, receivers form a chain; with `multicast=False` it is not tried. `wait`: for receivers that do not
    answer; `patience`: with one that is silent. `exclude` and `keep` are those of `copy`, without `"owner"`. `trust="members"` leaves out
    the hashes by which receivers check each other's repairs. `progress` is called ten times a second, and may raise to end the cast. The
    other arguments are those of `WireOptions`; `rate` is that of the slowest receiver, and receivers ask for lost chunks after a few times
    `rtt` (2 ms at least).

    The result has the fields of `strandway cast --json`.
    """
    given = settings(planes, **wire)
    receivers = [many(one) for one in to]
    left, kept = list(exclude), [str(one) for one in keep]
    return _lab.cast(given, _paths(sources), receivers, wait, patience, all_or_nothing, trust, team, multicast, left, kept, progress)


class FileServer:
    """A thread that takes copies or casts below a directory, and nowhere else."""

    def __init__(self, inner: _lab.FileServer) -> None:
        """See `serve` and `receive`."""
        self._inner = inner

    @property
    def addresses(self) -> list[str]:
        """Its address on each plane."""
        return self._inner.addresses()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its end: with `once`, that of the first copy or cast; `WireError` if that failed. False if it is not over in time."""
        return self._inner.wait(timeout)

    def close(self) -> None:
        """Ends it."""
        self._inner.stop()
        self._inner.wait(None)

    def __repr__(self) -> str:
        """Its addresses, or that it has ended."""
        return f"FileServer({'ended' if self._inner.is_ended() else ', '.join(self.addresses)})"

    def __enter__(self) -> FileServer:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        """Closes it."""
        self.close()


def serve(
    directory: Path,
    *,
    planes: Addresses = (),
    port: int | None = None,
    once: bool = False,
    allow: Sequence[Allow] = (),
    **wire: Unpack[WireOptions],
) -> FileServer:
    """Takes copies below `directory` from now on. `port` is that of planes without one, 47931 by default; 0 takes a free one.

    `allow` lets clients do more than write files: `"owner"` (give them owners), `"delete"` (list and remove them). The other arguments are
    those of `WireOptions`.
    """
    given = settings(planes, **wire)
    return FileServer(_lab.FileServer.copies(given, os.fspath(directory), port, once, [str(one) for one in allow]))


def receive(
    directory: Path,
    *,
    planes: Addresses = (),
    port: int | None = None,
    once: bool = False,
    **wire: Unpack[BasicOptions],
) -> FileServer:
    """Takes casts below `directory` from now on. `port` is that of planes without one, 47932 by default; 0 takes a free one.

    The other arguments are those of `BasicOptions`.
    """
    given = settings(planes, **wire)
    return FileServer(_lab.FileServer.casts(given, os.fspath(directory), port, once))

"""The backend for NIXL that the package brings: `libplugin_STRANDWAY.so`.

NIXL looks for backends in one folder. :func:`enable` makes a folder that has NIXL's own and this one, and tells NIXL of it. Call it before
the first agent::

    import strandway.nixl

    strandway.nixl.enable()
    agent = nixl_agent("prefill-3", nixl_agent_config(backends=["STRANDWAY"]))

For a program that cannot be changed, `eval "$(python -m strandway.nixl FOLDER)"` makes the folder and sets the variable for it.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

__all__ = ["enable", "link", "plugin"]

_VARIABLE = "NIXL_PLUGIN_DIR"
# The wheels of NIXL, in the order of its own package `nixl`.
_WHEELS = ("nixl_cu13", "nixl_cu12", "nixl_rocm")


def plugin() -> Path:
    """The file of the backend; its folder can be `NIXL_PLUGIN_DIR` if no other backend is wanted."""
    file = Path(__file__).parent / "plugins" / "libplugin_STRANDWAY.so"
    if not file.exists():
        how = "build it by crates/c/nixl/build.sh, see docs/movers.md"
        raise FileNotFoundError(f"this build of the package has no backend for NIXL: {how}")
    return file


def _wheel() -> str | None:
    """The wheel of NIXL that this program uses: the imported one, or the one that NIXL's package `nixl` chooses, or any."""
    installed = [name for name in _WHEELS if importlib.util.find_spec(name)]
    if len(installed) > 1 and not any(name in sys.modules for name in installed) and importlib.util.find_spec("nixl"):
        importlib.import_module("nixl")
    return next((name for name in installed if name in sys.modules), installed[0] if installed else None)


def _libraries(name: str | None) -> Path | None:
    """The folder of a wheel's libraries, `nixl` within it has the backends."""
    if name is not None:
        found = importlib.util.find_spec(name)
        for place in found.submodule_search_locations or () if found else ():
            libraries = Path(place).parent / f"{name}.libs"
            if (libraries / "nixl").is_dir():
                return libraries
    return None


def link(folder: str | os.PathLike[str], wheel: str | None = None) -> Path:
    """Makes links in a folder to this backend and to those of NIXL's wheel: the folder within it that `NIXL_PLUGIN_DIR` takes.

    `wheel` is the module of NIXL, such as `nixl_cu12`; by default the one that is imported, or the one that the
    package `nixl` chooses. Links that are there are made anew.
    """
    ours = plugin()
    root = Path(folder).absolute()
    backends = root / "nixl"
    backends.mkdir(parents=True, exist_ok=True)
    # NIXL's backends find their libraries one folder above, and so does ours.
    wanted = {root / extension.name: extension for extension in ours.parent.parent.glob("_lab*.so")}
    libraries = _libraries(wheel or _wheel())
    if libraries is not None:
        wanted.update({root / one.name: one for one in libraries.iterdir() if one.name != "nixl"})
        wanted.update({backends / one.name: one for one in (libraries / "nixl").iterdir()})
    wanted[backends / ours.name] = ours
    for at, to in wanted.items():
        if at.is_symlink():
            at.unlink()
        at.symlink_to(to.absolute())
    return backends


def enable(wheel: str | None = None) -> Path:
    """Lets NIXL find this backend beside its own, in this process and its children: the folder that it was told of.

    The folder is removed when the process ends. If `NIXL_PLUGIN_DIR` has a folder with this backend already, that one stays.
    """
    present = os.environ.get(_VARIABLE)
    if present and (Path(present) / plugin().name).exists():
        return Path(present)
    root = tempfile.mkdtemp(prefix="strandway-nixl-")
    owner = os.getpid()
    backends = link(root, wheel)
    os.environ[_VARIABLE] = str(backends)

    def remove() -> None:
        # A child of a fork has the same list of functions for its end.
        if os.getpid() == owner:
            shutil.rmtree(root, ignore_errors=True)

    atexit.register(remove)
    return backends


def _main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m strandway.nixl FOLDER\n\nMakes links to NIXL's backends and to this one in FOLDER.", file=sys.stderr)
        return 2
    print(f"export {_VARIABLE}={link(arguments[0])}")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

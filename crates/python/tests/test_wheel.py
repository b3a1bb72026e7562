"""The installed wheel: it asks for no newer C library than its name says."""

import importlib.metadata
import pathlib
import re

import pytest
from strandway import _lab


def newest_glibc(library: pathlib.Path) -> tuple[int, int]:
    """The newest version of glibc that a library names: those are texts such as `GLIBC_2.28` in its table of strings."""
    found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", library.read_bytes())
    return max((int(major), int(minor)) for major, minor in found)


def test_the_extension_needs_no_newer_glibc_than_the_wheel_says():
    wheel = importlib.metadata.distribution("strandway").read_text("WHEEL") or ""
    tag = re.search(r"^Tag: (\S+)-abi3-manylinux_(\d+)_(\d+)_", wheel, re.MULTILINE)
    if tag is None:
        pytest.skip("this is no manylinux wheel")
    assert tag[1] == "cp310"
    newest = newest_glibc(pathlib.Path(_lab.__file__))
    assert (2, 17) <= newest <= (int(tag[2]), int(tag[3])), newest

"""The backend for NIXL that the wheel brings, with NIXL's own library where it can be had."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import strandway.nixl
from test_wheel import newest_glibc

HERE = Path(strandway.nixl.__file__).parent

pytestmark = pytest.mark.skipif(
    not (HERE / "plugins" / "libplugin_STRANDWAY.so").exists(), reason="this build of the package has no backend for NIXL"
)

# Two agents in one process. The target's memory is filled by a write of the other one, and read back.
MOVES = """
import numpy as np, os, sys, time
import strandway.nixl
print(strandway.nixl.enable())
from nixl_cu12._api import nixl_agent, nixl_agent_config
agents = []
for name in ("a", "b"):
    agent = nixl_agent(name, nixl_agent_config(backends=[]))
    if name == "a":
        print("plug-ins", " ".join(agent.get_plugin_list()))
    agent.create_backend("STRANDWAY", {"planes": "127.0.0.1"})
    agents.append(agent)
a, b = agents
x, y = np.arange(1 << 20, dtype=np.uint8), np.zeros(1 << 20, np.uint8)
for agent, memory in ((a, x), (b, y)):
    agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
a.add_remote_agent(b.get_agent_metadata())
lists = [a.get_xfer_descs([(memory.ctypes.data, memory.nbytes, 0)], "DRAM") for memory in (x, y)]
for operation in ("WRITE", "READ"):
    handle = a.initialize_xfer(operation, *lists, "b")
    state = a.transfer(handle)
    until = time.monotonic() + 30
    while state == "PROC" and time.monotonic() < until:
        time.sleep(1e-3)
        state = a.check_xfer_state(handle)
    assert state == "DONE", state
    assert (x == y).all()
    x[:] = 0 if operation == "WRITE" else x
    a.release_xfer_handle(handle)
assert (y == np.arange(1 << 20, dtype=np.uint8)).all()
# The process has one copy of the library: NIXL's backend and the package's own nodes.
copies = {line.split()[-1] for line in open("/proc/self/maps") if "strandway" in line and "_lab" in line}
assert len(copies) == 1, copies
print("moved")
"""


def test_nixl_finds_the_backend_of_the_wheel_and_moves_bytes(tmp_path: Path) -> None:
    missing = [name for name in ("nixl_cu12", "numpy") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"this Python has no {' and no '.join(missing)}: `pip install --no-deps nixl-cu12` and `pip install numpy`")
    program = tmp_path / "moves.py"
    program.write_text(MOVES)
    env = {**os.environ, "STRANDWAY_KEY": "07" * 32}
    env.pop("NIXL_PLUGIN_DIR", None)
    done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("moved"), done.stdout + done.stderr
    plugins = next(line for line in done.stdout.splitlines() if line.startswith("plug-ins")).split()
    assert "STRANDWAY" in plugins and "UCX" in plugins, plugins
    folder = Path(done.stdout.splitlines()[0])
    assert not folder.exists(), "it goes with its process"


def test_the_command_makes_links_and_says_what_to_set(tmp_path: Path) -> None:
    for _ in range(2):
        said = subprocess.check_output([sys.executable, "-m", "strandway.nixl", str(tmp_path)], text=True)
        assert said == f"export NIXL_PLUGIN_DIR={tmp_path / 'nixl'}\n"
        assert (tmp_path / "nixl" / "libplugin_STRANDWAY.so").resolve() == strandway.nixl.plugin().resolve()
    done = subprocess.run([sys.executable, "-m", "strandway.nixl"], capture_output=True, text=True)
    assert done.returncode == 2 and "usage" in done.stderr


def test_a_folder_with_this_backend_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = strandway.nixl.plugin().parent
    monkeypatch.setenv("NIXL_PLUGIN_DIR", str(folder))
    assert strandway.nixl.enable() == folder


def test_the_backend_needs_no_newer_glibc_than_the_oldest_system() -> None:
    assert newest_glibc(strandway.nixl.plugin()) <= (2, 28)

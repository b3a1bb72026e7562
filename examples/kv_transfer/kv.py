"""One host of the example: `prefill` has a KV cache, `decode` reads it block by block. `run.sh` starts both."""

import os
import pathlib
import sys
import time

import numpy as np

from nixl_cu12._api import nixl_agent, nixl_agent_config

BLOCK = 64 << 10
# Blocks of a transfer: those of a layer.
LAYER = 256


def cache(mebibytes, of_prefill):
    if not of_prefill:
        return np.zeros(mebibytes << 20, np.uint8)
    return np.random.default_rng(7).integers(0, 1 << 63, mebibytes << 17, dtype=np.int64).view(np.uint8)


def publish(folder, name, text):
    partial = folder / f"{name}.partial"
    partial.write_text(text)
    partial.rename(folder / f"{name}.metadata")


def lookup(folder, name):
    while not (folder / f"{name}.metadata").exists():
        time.sleep(0.02)
    return (folder / f"{name}.metadata").read_text().split()


def main(role, backend, folder, mebibytes):
    folder = pathlib.Path(folder)
    agent = nixl_agent(role, nixl_agent_config(backends=[backend]))
    memory = cache(mebibytes, role == "prefill")
    agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    publish(folder, role, f"{agent.get_agent_metadata().hex()} {memory.ctypes.data}")
    metadata, there = lookup(folder, "decode" if role == "prefill" else "prefill")
    agent.add_remote_agent(bytes.fromhex(metadata))
    if role == "prefill":
        while not agent.check_remote_xfer_done("decode", b"all"):
            time.sleep(0.01)
        return
    # Blocks of a cache lie anywhere: another order on each side.
    blocks = memory.nbytes // BLOCK
    order = np.random.default_rng(1).permutation(blocks)
    moved = []
    began = time.time()
    (folder / "begun").touch()
    for layer in range(0, blocks, LAYER):
        part = [int(block) for block in order[layer : layer + LAYER]]
        lists = [
            agent.get_xfer_descs([(first + block * BLOCK, BLOCK, 0) for block in part], "DRAM")
            for first in (memory.ctypes.data, int(there))
        ]
        handle = agent.initialize_xfer("READ", *lists, "prefill")
        state = agent.transfer(handle)
        while state == "PROC":
            time.sleep(2e-4)
            state = agent.check_xfer_state(handle)
        assert state == "DONE", state
        agent.release_xfer_handle(handle)
        moved.append((time.time(), len(part) * BLOCK))
    took = time.time() - began
    agent.send_notif("prefill", b"all")
    equal = (memory == cache(mebibytes, True)).all()
    longest = max(after - before for before, after in zip([began] + [t for t, _ in moved], [t for t, _ in moved]))
    print(f"{backend}: {memory.nbytes >> 20} MiB in {took:.2f} s, {memory.nbytes * 8 / took / 1e9:.2f} Gb/s, "
          f"{'all bytes are right' if equal else 'BYTES ARE WRONG'}, no error")
    if (folder / "cut").exists():
        cut = float((folder / "cut").read_text())
        for name, start, end in (("before the cut", began, cut), ("after the cut", cut, moved[-1][0])):
            there = sum(size for at, size in moved if start < at <= end)
            print(f"    {name}: {there * 8 / max(end - start, 1e-9) / 1e9:.2f} Gb/s")
        print(f"    the longest time for {LAYER * BLOCK >> 20} MiB: {longest * 1e3:.0f} ms")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

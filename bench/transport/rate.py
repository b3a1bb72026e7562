"""Transports of PyTorch 2.15 between two processes on loopback, in turns: strandway, encrypted and plain, and NIXL's UCX where it is.

    python bench/transport/rate.py [ROUNDS]

Each round makes a new pair of processes for each transport, moves 64 MiB fifteen times after three to warm up, in one piece and in 4,096
pieces of 16 KiB in random order, and prints medians over the rounds in Gb/s, with the least and the most. It needs the package
and PyTorch 2.15; for UCX also `nixl`.
"""

import importlib.util
import multiprocessing
import os
import random
import statistics
import sys
import time

BYTES = 64 << 20
PIECE = 16 << 10
TIMES, WARM = 15, 3

KINDS = {
    "strandway, encrypted": ("strandway", {}),
    "strandway, plain": ("strandway", {"protection": "none"}),
    "nixl, UCX": ("nixl", {"plugin": "UCX"}),
}


def make(kind):
    """A transport, and a tensor that it has registered."""
    import torch
    from torch.distributed._transport import new_transport

    name, options = KINDS[kind]
    transport = new_transport(name, "cpu", **options)
    tensor = torch.randint(0, 256, (BYTES,), dtype=torch.uint8)
    return transport, tensor, transport.register_memory(tensor)


def target(kind, pipe):
    """The side whose memory is written and read."""
    transport, tensor, memory = make(kind)
    pieces = [memory.to_remote_buffer()]
    if kind.startswith("nixl"):
        # A descriptor of NIXL begins where its registration does.
        memories = [transport.register_memory(tensor[at : at + PIECE]) for at in range(0, BYTES, PIECE)]
        pieces += [one.to_remote_buffer() for one in memories]
    pipe.send((transport.bind(), [one.serialize() for one in pieces]))
    transport.connect(pipe.recv())
    pipe.send("ready")
    while pipe.recv() != "end":
        pipe.send(tensor[:: 1 << 16].clone())
    transport.close()


def measure(kind):
    """Gb/s of writes and reads, in one piece and in many."""
    import torch

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(kind, theirs))
    process.start()
    transport, tensor, memory = make(kind)
    url, buffers = ours.recv()
    ours.send(transport.bind())
    transport.connect(url)
    ours.recv()
    kind_of = type(memory.to_remote_buffer())
    remote, *many = [kind_of.deserialize(one) for one in buffers]
    many = many or [remote.part(at, PIECE) for at in range(0, BYTES, PIECE)]
    local = [memory.to_mutable_view(at, PIECE) for at in range(0, BYTES, PIECE)]
    order = list(range(len(many)))
    random.Random(1).shuffle(order)
    rates = {}
    for name, begin in (("write", transport.write), ("read", transport.read)):
        for shape in ("1 x 64 MiB", "4,096 x 16 KiB"):
            took = []
            for _ in range(WARM + TIMES):
                began = time.perf_counter()
                if shape.startswith("1 "):
                    begin(memory.to_mutable_view(), remote)
                else:
                    for work in [begin(local[i], many[i], async_op=True) for i in order]:
                        work.wait()
                took.append(time.perf_counter() - began)
            rates[f"{name}, {shape}"] = BYTES * 8 / statistics.median(took[WARM:]) / 1e9
        ours.send("show")
        assert torch.equal(ours.recv(), tensor[:: 1 << 16])
    ours.send("end")
    process.join()
    transport.close()
    return rates


def main():
    """Prints the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    os.environ.setdefault("STRANDWAY_PLANES", "127.0.0.1")
    kinds = [kind for kind in KINDS if not kind.startswith("nixl") or importlib.util.find_spec("nixl")]
    all_rates = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            all_rates[kind].append(measure(kind))
    print("| |", " | ".join(kinds), "|")
    print("|---|" + "--:|" * len(kinds))
    for row in all_rates[kinds[0]][0]:
        cells = [[rates[row] for rates in all_rates[kind]] for kind in kinds]
        shown = [f"{statistics.median(cell):.1f} ({min(cell):.1f} to {max(cell):.1f})" for cell in cells]
        print(f"| {row} |", " | ".join(shown), "|")
    print(f"load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()

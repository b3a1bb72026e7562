#!/usr/bin/env python3
"""A job under torchrun whose rank dies in step 5: torchrun starts all ranks again, and they go on from their checkpoint.

    python examples/elastic_restart.py            # starts torchrun itself
    torchrun --nproc-per-node 2 --max-restarts 3 examples/elastic_restart.py FOLDER

Ranks of every life meet at the same store of torchrun, and take nothing there for new that an earlier life has left.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, DIES_IN = 10, 5


def train(folder: Path) -> None:
    """Ten steps of data-parallel training; a checkpoint behind each of them."""
    import strandway_torch  # noqa: F401  torch finds it by itself since 2.5
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("strandway")
    rank, life = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(16, 4))
    steps = torch.optim.SGD(model.parameters(), 0.1)
    checkpoint, first = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        first = state["step"] + 1
    # No rank writes before all have read.
    dist.barrier()
    for step in range(first, STEPS):
        if step == DIES_IN and rank == 1 and life == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        data = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = model(data).square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        if rank == 0:
            draft = folder / "draft.pt"
            torch.save({"model": model.state_dict(), "step": step}, draft)
            draft.replace(checkpoint)
    dist.barrier()
    if rank == 0:
        weights = float(sum(parameter.abs().sum() for parameter in model.parameters()))
        print(f"life {life}: steps {first} to {STEPS - 1}, sum of weights {weights:.5f}", flush=True)
    dist.destroy_process_group()


def main() -> int:
    """Starts torchrun, or is a rank of it."""
    if "TORCHELASTIC_RESTART_COUNT" in os.environ:
        train(Path(sys.argv[1]))
        return 0
    with tempfile.TemporaryDirectory(prefix="strandway-elastic-") as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
        command += ["--master-port", os.environ.get("MASTER_PORT", "29511"), __file__, folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        print(done.stdout.strip())
        return 0 if "life 1: steps" in done.stdout else 1


if __name__ == "__main__":
    sys.exit(main())

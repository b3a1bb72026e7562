"""Ranks for tests of the backend: processes that are forked from the test, with a process group."""

import multiprocessing
import os
import tempfile
import time
import traceback
from datetime import timedelta

import strandway_torch  # noqa: F401  torch finds it by itself since 2.5
import torch
import torch.distributed as dist

# A busy machine takes minutes for what takes seconds elsewhere.
LIMIT = 300


def _rank(pipe, body, arguments, rank, count, backend, folder, timeout, leave, before, device):
    try:
        before()
        torch.set_num_threads(1)
        options = {"timeout": timedelta(seconds=timeout), **({"device_id": torch.device(device)} if device else {})}
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=count, **options)
        result = body(rank, count, *arguments)
        if leave:
            dist.barrier()
            dist.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
        # The others do not wait for this rank until their timeout.
        os._exit(1)


def ranks(count, body, *arguments, backend="strandway", timeout=60.0, leave=True, before=lambda: None, device=None):
    """Runs `body(rank, count, *arguments)` in `count` processes with a process group; gives the results by rank.

    `timeout` is that of the group. With `leave` all ranks end by a barrier and by leaving the group. `before` runs before there is a group.
    `device` names the one that is bound to the group.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="strandway-test-") as folder:
        pipes, started = [], []
        for rank in range(count):
            ours, theirs = context.Pipe(False)
            given = (theirs, body, arguments, rank, count, backend, folder, timeout, leave, before, device)
            process = context.Process(target=_rank, args=given)
            process.start()
            theirs.close()
            pipes.append(ours)
            started.append(process)
        until, results = time.monotonic() + LIMIT, []
        try:
            for rank, pipe in enumerate(pipes):
                if not pipe.poll(max(until - time.monotonic(), 0.1)):
                    results.append((False, f"rank {rank} is not over after {LIMIT} s"))
                    continue
                try:
                    results.append(pipe.recv())
                except EOFError:
                    results.append((False, f"rank {rank} has ended without a result"))
            for process in started:
                process.join(max(until - time.monotonic(), 0.1))
        finally:
            for process in started:
                process.kill()
                process.join()
    failures = [text for good, text in results if not good]
    assert not failures, "\n".join(failures)
    return [result for _, result in results]


def outcome(call):
    """The exception of a call, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None

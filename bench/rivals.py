"""Collectives of Gloo and of an MPI between the hosts of a fabric, for rows beside ours.

`measure` starts one process per host. A process of Gloo needs torch, one of MPI needs mpi4py and an MPI whose `mpiexec` stands beside the
Python in use, such as the wheels `mpich` and `mpi4py`. Buffers are float32. The fabric needs plain routes (`Fabric.route_plain`): both
libraries take one address and one interface per host.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

LIBRARIES = ("gloo", "mpi")


def missing(library):
    """The reason why this Python cannot run a library; None if it can."""
    module = {"gloo": "torch", "mpi": "mpi4py"}[library]
    if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode:
        return f"not measured: {sys.executable} has no {module}"
    if library == "mpi" and not mpiexec():
        return "not measured: no mpiexec"
    return None


def mpiexec():
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.path.exists(beside) else shutil.which("mpiexec")


def measure(fabric, library, operation, hosts, size, runs):
    """Milliseconds of each of `runs` collectives on hosts 0 to `hosts` - 1, after a warm-up run; the time of a run is that of its slowest rank.

    `size` is in bytes: the whole result of an all-gather, or the buffer of an all-reduce.
    """
    own = [sys.executable, os.path.abspath(__file__), library, operation, str(size), str(runs)]
    inside = ["ip", "netns", "exec"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR")
    if library == "mpi":
        # One launcher starts all ranks; each enters the namespace of its host. TCP and no shared memory, since the
        # namespaces stand for machines.
        environment.update(MPIR_CVAR_NOLOCAL="1", UCX_TLS="tcp,self", UCX_NET_DEVICES="p0", UCX_TCP_CM_REUSEADDR="y")
        enter = f'exec ip netns exec {fabric.name}-h$PMI_RANK "$@"'
        command = [mpiexec(), "-n", str(hosts), "sh", "-c", enter, "sh", *own]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"MPI failed: {done.stderr[-2000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])
    environment.update(WORLD_SIZE=str(hosts), MASTER_ADDR=fabric.plain(0), MASTER_PORT="29555", GLOO_SOCKET_IFNAME="p0")
    ranks = []
    for rank in range(hosts):
        pipe = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        ranks.append(subprocess.Popen([*inside, f"{fabric.name}-h{rank}", *own], env=dict(environment, RANK=str(rank)), stdout=pipe, text=True))
    said = ranks[0].communicate()[0]
    if any(rank.wait() for rank in ranks):
        raise RuntimeError("a rank of Gloo failed")
    return json.loads(said.strip().splitlines()[-1])


class Gloo:
    def __init__(self):
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.torch, self.dist = torch, dist
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.barrier = dist.barrier

    def operation(self, name, count):
        if name == "all_reduce":
            buffer = self.torch.ones(count)
            return lambda: self.dist.all_reduce(buffer)
        source, target = self.torch.full((count // self.ranks,), float(self.rank)), self.torch.empty(count)
        return lambda: self.dist.all_gather_into_tensor(target, source)

    def slowest(self, value):
        tensor = self.torch.tensor([value], dtype=self.torch.float64)
        self.dist.all_reduce(tensor, self.dist.ReduceOp.MAX)
        return tensor.item()


class Mpi:
    def __init__(self):
        import numpy
        from mpi4py import MPI

        self.numpy, self.mpi, self.world = numpy, MPI, MPI.COMM_WORLD
        self.rank, self.ranks = self.world.Get_rank(), self.world.Get_size()
        self.barrier = self.world.Barrier

    def operation(self, name, count):
        if name == "all_reduce":
            buffer = self.numpy.ones(count, dtype=self.numpy.float32)
            return lambda: self.world.Allreduce(self.mpi.IN_PLACE, buffer)
        source = self.numpy.full(count // self.ranks, self.rank, dtype=self.numpy.float32)
        target = self.numpy.empty(count, dtype=self.numpy.float32)
        return lambda: self.world.Allgather(source, target)

    def slowest(self, value):
        return self.world.allreduce(value, self.mpi.MAX)


def rank(library, operation, size, runs):
    face = {"gloo": Gloo, "mpi": Mpi}[library]()
    run, times = face.operation(operation, int(size) // 4), []
    for _ in range(int(runs) + 1):
        face.barrier()
        began = time.perf_counter()
        run()
        times.append(1e3 * face.slowest(time.perf_counter() - began))
    if face.rank == 0:
        print(json.dumps(times[1:]), flush=True)
    face.barrier()


def spread(times):
    """Median, shortest and longest, with the keys of our JSON."""
    return {"p50": statistics.median(times), "min": min(times), "max": max(times)}


if __name__ == "__main__":
    rank(*sys.argv[1:])

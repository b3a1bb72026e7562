#!/usr/bin/env python3
"""A checkpoint from one replica to others by torchft's transports: seconds, and the bytes that leave the sender's port.

sudo python bench/transport/checkpoints.py [MEGABYTES] [ROUNDS] [--receivers N] [--gbps G] [--loss PERCENT] [--mtu BYTES]

Hosts are network namespaces that a bridge joins. It floods multicast. Its ports run at G Gb/s in each direction, and those to receivers
lose packets. Strandway and torchft's HTTPTransport take turns. Needs root, torch, torchft and the Python package; three copies of the state
per host must fit into memory.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from datetime import timedelta

TIMEOUT = timedelta(seconds=500)
NAMES = "tfckpt"


def sh(command):
    subprocess.run(command.split(), check=True)


@contextlib.contextmanager
def hosts(count, gbps, loss, mtu):
    """Namespaces `tfckpt0` and so on with the addresses 10.77.0.1 and so on, and `tfckpt` with the bridge."""
    names = [NAMES] + [f"{NAMES}{host}" for host in range(count)]
    try:
        for name in names:
            sh(f"ip netns add {name}")
        sh(f"ip -n {NAMES} link add br0 type bridge mcast_snooping 0")
        sh(f"ip -n {NAMES} link set br0 up")
        for host, name in enumerate(names[1:]):
            sh(f"ip -n {NAMES} link add p{host} type veth peer name e0 netns {name}")
            sh(f"ip -n {NAMES} link set p{host} master br0")
            sh(f"ip -n {name} addr add 10.77.0.{host + 1}/24 dev e0")
            sh(f"ip -n {name} link set lo up")
            for place, port in ((name, "e0"), (NAMES, f"p{host}")):
                # Each packet goes and is lost alone.
                sh(f"ip -n {place} link set {port} mtu {mtu} gso_max_segs 1 up")
                sh(f"tc -n {place} qdisc add dev {port} root tbf rate {gbps}gbit burst 128kb limit 512kb")
            if loss and host:
                # A random number of 32 bits: below the share, the packet is dropped.
                drop = f"4,32 0 0 4294963256,53 1 0 {int(loss / 100 * 2**32)},6 0 0 2,6 0 0 4294967295"
                sh(f"tc -n {name} qdisc add dev e0 clsact")
                subprocess.run([*f"tc -n {name} filter add dev e0 ingress bpf da bytecode".split(), drop], check=True)
        yield names[1:]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def transport(kind):
    if kind == "strandway":
        from strandway_torch.checkpoints import CheckpointTransportStrandway

        return CheckpointTransportStrandway()
    from torchft.checkpointing import HTTPTransport

    return HTTPTransport(timeout=TIMEOUT, num_chunks=0)


def sent():
    """Bytes that have left this host's port."""
    with open("/sys/class/net/e0/statistics/tx_bytes") as file:
        return int(file.read())


def a_state(bytes_in_all):
    import torch

    torch.manual_seed(1)
    return {f"layer{number}": torch.randn(bytes_in_all // 64) for number in range(16)}


def sender(kind, size, receivers):
    ours, state = transport(kind), a_state(size)
    where = ours.metadata()
    if kind == "http":
        # torchft gives the name of the host, which all namespaces share.
        where = f"http://10.77.0.1:{where.rsplit(':', 1)[1]}"
    print(where, flush=True)
    sys.stdin.readline()
    before, began = sent(), time.monotonic()
    ours.send_checkpoint(list(range(1, receivers + 1)), 1, state, TIMEOUT)
    saved = time.monotonic() - began
    sys.stdin.readline()
    print(saved, sent() - before, flush=True)
    ours.disallow_checkpoint()
    ours.shutdown()


def receiver(kind, size, where):
    import torch

    ours, expected = transport(kind), a_state(size)
    print("ready", flush=True)
    sys.stdin.readline()
    state = ours.recv_checkpoint(0, where, 1, TIMEOUT)
    print("here", flush=True)
    good = all(torch.equal(tensor, state[name]) for name, tensor in expected.items())
    print("equal" if good else "differs", flush=True)
    ours.shutdown()


def one_round(kind, names, size, gbps):
    """Seconds until all have the state, seconds of `send_checkpoint`, and bytes that left the sender's port."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STRANDWAY_RATE": str(gbps)}
    with contextlib.ExitStack() as stack:

        def start(name, *arguments):
            command = ["ip", "netns", "exec", name, sys.executable, __file__, "--as", kind, str(size), *arguments]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            stack.callback(process.kill)
            return process

        def go_on(process):
            process.stdin.write("\n")
            process.stdin.flush()

        source = start(names[0], "sender", str(len(names) - 1))
        where = source.stdout.readline().strip()
        targets = [start(name, "receiver", where) for name in names[1:]]
        for target in targets:
            assert target.stdout.readline() == "ready\n"
        began = time.monotonic()
        for process in [source, *targets]:
            go_on(process)
        for target in targets:
            assert target.stdout.readline() == "here\n"
        seconds = time.monotonic() - began
        for target in targets:
            assert target.stdout.readline() == "equal\n"
        go_on(source)
        saved, bytes_sent = source.stdout.readline().split()
        for process in [source, *targets]:
            process.wait(60)
        return seconds, float(saved), int(bytes_sent)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("megabytes", type=int, nargs="?", default=1000)
    parser.add_argument("rounds", type=int, nargs="?", default=3)
    parser.add_argument("--receivers", type=int, default=3)
    parser.add_argument("--gbps", type=float, default=1.0)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--only", default="strandway,http")
    options = parser.parse_args()
    # Namespaces and processes go then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    size = options.megabytes * 1_000_000
    rows = {kind: [] for kind in options.only.split(",")}
    with hosts(options.receivers + 1, options.gbps, options.loss, options.mtu) as names:
        for _ in range(options.rounds):
            for kind, row in rows.items():
                row.append(one_round(kind, names, size, options.gbps))
                print(f"  {kind}: {row[-1][0]:.2f} s, of which {row[-1][1]:.2f} s to save; {row[-1][2] / size:.3f} times the state")
    for kind, row in rows.items():
        seconds, share = sorted(one[0] for one in row), sorted(one[2] / size for one in row)
        print(
            f"{kind}: {statistics.median(seconds):.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f}), "
            f"{statistics.median(share):.3f} times the state ({share[0]:.3f} to {share[-1]:.3f})"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as"]:
        _, _, kind, size, job, last = sys.argv
        sender(kind, int(size), int(last)) if job == "sender" else receiver(kind, int(size), last)
    else:
        main()

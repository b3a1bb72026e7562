"""The NIXL backend beside UCX over TCP of the same wheel: two processes, 64 MiB in one descriptor and in 4,096.

    python crates/c/nixl/bench.py PLUGINS [rounds [planes]]
    sudo RATE=1gbit bench/planes.sh python crates/c/nixl/bench.py PLUGINS [rounds]

PLUGINS is the folder of libplugin_STRANDWAY.so. The systems take turns, so that other work of the machine meets all. The second command
runs the two processes in namespaces that two links join.
"""

import os
import statistics
import subprocess
import sys
import time

SIZE = 64 << 20
CASES = {"1 x 64 MiB": 1, "4,096 x 16 KiB": 4_096}
SYSTEMS = ("strandway", "strandway plain", "UCX/TCP")
WARM_UP = 3
TRANSFERS = 15


def open_agent(name, system):
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    backend = "UCX" if system == "UCX/TCP" else "STRANDWAY"
    agent = nixl_agent(name, nixl_agent_config(backends=[]))
    params = {}
    if backend == "STRANDWAY":
        protection = "none" if "plain" in system else "encrypted"
        params = {"planes": os.environ.get("BENCH_PLANES", ""), "key": "07" * 32, "protection": protection}
        if "BENCH_PEER" in os.environ:
            # That of the links, below what their shapers let pass.
            params["rate"] = os.environ.get("BENCH_GBPS", "2")
    agent.create_backend(backend, params)
    return agent


def target(system):
    import numpy as np

    agent = open_agent("target", system)
    memory = np.zeros(SIZE, np.uint8)
    agent.register_memory([(memory.ctypes.data, SIZE, 0, "")], "DRAM")
    print("METADATA", agent.get_agent_metadata().hex(), memory.ctypes.data, flush=True)
    sys.stdin.read()


def initiator(system, operation, count):
    import numpy as np

    peer = os.environ.get("BENCH_PEER", "").split()
    with subprocess.Popen([*peer, sys.executable, __file__, "target", system], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        line = ""
        while not line.startswith("METADATA"):
            line = process.stdout.readline()
        _, metadata, first = line.split()
        agent = open_agent("initiator", system)
        memory = np.ones(SIZE, np.uint8)
        agent.register_memory([(memory.ctypes.data, SIZE, 0, "")], "DRAM")
        agent.add_remote_agent(bytes.fromhex(metadata))
        size = SIZE // count
        order = np.random.default_rng(1).permutation(count)
        ours = [(memory.ctypes.data + int(i) * size, size, 0) for i in order]
        theirs = [(int(first) + int(i) * size, size, 0) for i in reversed(order)]
        lists = [agent.get_xfer_descs(one, "DRAM") for one in (ours, theirs)]
        handle = agent.initialize_xfer(operation, *lists, "target")
        times = []
        for _ in range(WARM_UP + TRANSFERS):
            began = time.perf_counter()
            state = agent.transfer(handle)
            while state == "PROC":
                # Leaves the cores to the threads that move the bytes.
                time.sleep(1e-4)
                state = agent.check_xfer_state(handle)
            assert state == "DONE", state
            times.append(time.perf_counter() - began)
        agent.release_xfer_handle(handle)
        process.stdin.close()
        process.kill()
    print("RATE", SIZE * 8 / statistics.median(times[WARM_UP:]) / 1e9)


def run(system, operation, count, plugins, planes):
    env = {**os.environ, "BENCH_PLANES": planes, "UCX_TLS": "tcp", "NIXL_LOG_LEVEL": "ERROR"}
    if "BENCH_PEER" in env:
        del env["BENCH_PLANES"]
    if system != "UCX/TCP":
        env["NIXL_PLUGIN_DIR"] = plugins
    done = subprocess.run([sys.executable, __file__, "initiator", system, operation, str(count)], env=env, text=True,
                          capture_output=True, timeout=300)
    rates = [line for line in done.stdout.splitlines() if line.startswith("RATE")]
    if not rates:
        raise SystemExit(f"{system}: {done.stdout}{done.stderr}")
    return float(rates[0].split()[1])


def main(plugins, rounds, planes):
    for operation in ("WRITE", "READ"):
        for case, count in CASES.items():
            rates = {system: [] for system in SYSTEMS}
            for at in range(rounds):
                for system in SYSTEMS[at % 3:] + SYSTEMS[:at % 3]:
                    rates[system].append(run(system, operation, count, plugins, planes))
            middle = {system: statistics.median(all_) for system, all_ in rates.items()}
            ratios = {system: [ours / theirs for ours, theirs in zip(rates[system], rates["UCX/TCP"])]
                      for system in SYSTEMS[:2]}
            print(f"{operation} {case}: " + ", ".join(
                f"{system} {middle[system]:.2f} Gb/s ({min(all_):.2f} to {max(all_):.2f})"
                for system, all_ in rates.items()), flush=True)
            print("    to UCX, median of the rounds: " + ", ".join(
                f"{system} {statistics.median(all_):.2f}" for system, all_ in ratios.items()), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "target":
        target(sys.argv[2])
    elif sys.argv[1] == "initiator":
        initiator(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(sys.argv[1], int((sys.argv[2:] + ["3"])[0]), (sys.argv[3:] + ["127.0.0.1"])[0])

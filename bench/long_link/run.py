#!/usr/bin/env python3
"""Repair schemes over a long link between two network namespaces, beside TCP: times, bytes and CPU, one CSV row a cell.

    sudo bench/long_link/run.py times    schemes by round trip, loss and message size
    sudo bench/long_link/run.py tails    a thousand messages of 4 MiB, one at a time
    sudo bench/long_link/run.py tcp      what TCP CUBIC and BBR carry
    sudo bench/long_link/run.py shares   four transfers under `longhaul`, and one beside a TCP flow

The link is a delay line in user space (`strandway fabric`): 1 Gb/s, packets of 1,500 bytes with 1,344 of payload. STRANDWAY is the
program to run, by default target/release/strandway. SECONDS is how long TCP runs in each cell, by default 15.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from fabric import STRANDWAY, Fabric  # noqa: E402

SECONDS = float(os.environ.get("SECONDS", "15"))
SCHEMES = ["sdr_sr", "sdr_nack", "sdr_xor", "sdr_mds", "sdr_auto"]
LOSSES = [("0", None), ("1e-4", None), ("1e-3", None), ("1e-2", None), ("3e-2", None), ("1e-2", "1 ms")]
PAYLOAD = 1344
PACE = "920 Mbps"

SCENARIO = """
name = "long link"
[fabric]
kind = "sites"
sites = 2
hosts_per_site = {hosts}
rate = "{rate}"
long_latency = "{latency} ms"
long_rate = "1 Gbps"
long_queue = "50 ms"
loss = {loss}
{burst}
loss_one_way = true
queue = "4 MiB"
trimming = false
ecn = false
[profile]
name = "{profile}"
{congestion}
[profile.transport]
mtu = 1344
[workload]
kind = "flows"
flows = [{flows}]
messages = {messages}
gap = "1 ms"
[run]
time_limit = "600 s"
"""


def scenario(profile, loss, burst, rtt, size, messages, hosts=1, congestion=None, rate="1 Gbps"):
    """The text of a scenario: a flow from each host of site 0 to its counterpart."""
    flows = ", ".join(f'{{ from = {i}, to = {i + hosts}, size = "{size}" }}' for i in range(hosts))
    return SCENARIO.format(
        hosts=hosts, rate=rate, latency=rtt / 2, loss=loss, burst=f'burst = "{burst}"' if burst else "",
        profile=profile, congestion=f'congestion = "{congestion}"' if congestion else "", flows=flows, messages=messages)


def run(text):
    """The report of a run between real nodes, and the CPU seconds of both ends together."""
    with Link(text) as fabric, tempfile.TemporaryDirectory() as folder:
        fabric.pace(PACE)
        out = os.path.join(folder, "out.json")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [STRANDWAY, "fabric", "run", fabric.file.name, "--name", fabric.name, "--quiet", "--json", out]
        done = subprocess.run(command, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not os.path.exists(out):
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        with open(out) as file:
            report = json.load(file)
    return report, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(*cells):
    print(",".join(str(cell) for cell in cells), flush=True)


def mib(size):
    """Bytes of "4 MiB"."""
    number, unit = size.split()
    return int(number) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit]


def times(cells):
    row("scheme", "rtt_ms", "loss", "burst", "size", "messages", "finished", "min_ms", "p50_ms", "mean_ms", "max_ms", "sent_over_payload",
        "lost", "dropped", "cpu_s_per_gib")
    for size, messages, rtt, (loss, burst), scheme in cells:
        report, cpu = run(scenario(scheme, loss, burst, rtt, size, messages + 1))
        f, sent = report["fct_us"], report["packets"]["sent"]
        needed = (mib(size) + PAYLOAD - 1) // PAYLOAD * (messages + 1)
        ms = [None if f[k] is None else round(f[k] / 1e3, 2) for k in ("min", "p50", "mean", "max")]
        row(scheme, rtt, loss, burst or "", size, messages, report["flows"]["finished"], *ms, round(sent / needed, 4),
            report["packets"]["lost"], report["packets"]["dropped"], round(cpu / (mib(size) * (messages + 1)) * (1 << 30), 2))


def time_cells():
    for size, messages, rtts in (("4 MiB", 20, (25, 50, 100)), ("128 MiB", 4, (50,)), ("1 MiB", 20, (50,))):
        for rtt in rtts:
            for loss in LOSSES:
                for scheme in SCHEMES:
                    yield size, messages, rtt, loss, scheme
    for loss in (("0", None), ("1e-3", None), ("1e-2", None)):
        for scheme in ("sdr_nack", "sdr_mds", "sdr_auto"):
            yield "1 GiB", 1, 50, loss, scheme


def tails():
    row("scheme", "messages", "p50_ms", "p99_ms", "p999_ms", "max_ms", "p999_over_p50")
    for scheme in ("sdr_mds", "sdr_auto", "sdr_nack"):
        report, _ = run(scenario(scheme, "1e-3", None, 50, "4 MiB", 1000))
        f = report["fct_us"]
        row(scheme, report["flows"]["finished"], *(round(f[k] / 1e3, 2) for k in ("p50", "p99", "p999", "max")), round(f["p999"] / f["p50"], 3))


SINK = """
import socket, sys
s = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6)
print("ready", flush=True)
c, _ = s.accept()
n = 0
while True:
    b = c.recv(1 << 20)
    if not b: break
    n += len(b)
    print(n, flush=True)
"""
SOURCE = """
import socket, sys, time
s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
s.setsockopt(socket.IPPROTO_TCP, 13, sys.argv[3].encode())
s.connect((sys.argv[1], int(sys.argv[2])))
end, b = time.time() + float(sys.argv[4]), bytes(1 << 18)
s.settimeout(1)
while time.time() < end:
    try: s.send(b)
    except TimeoutError: pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0\\0\\0\\0\\0")
s.close()
"""


class Link(Fabric):
    """A long link between hosts of two sites."""

    def __init__(self, text):
        super().__init__("ll", text)

    def pace(self, rate):
        """From now on nodes send at this rate: the ports are shaped with all headers, which the nodes do not count."""
        folder = f"/run/strandway/{self.name}"
        for name in os.listdir(folder):
            if re.fullmatch(r"h\d+\.toml", name):
                path = os.path.join(folder, name)
                with open(path) as file:
                    old = file.read()
                with open(path, "w") as file:
                    file.write(re.sub(r'(?m)^rate = .*$', f'rate = "{rate}"', old))

    def received(self, host):
        """Bytes that a host's ports have received."""
        return sum(port["stats64"]["rx"]["bytes"] for port in self.ports(f"h{host}"))

    def address(self, host):
        with open(self.node(host)) as file:
            return next(line for line in file if line.startswith("planes")).split("[")[2].split("]")[0]

    def route(self, hosts):
        """Plain routes between sites of `hosts` hosts each, since TCP does not use micro segments."""

        def add(node, host, via, device):
            command = ["ip", "-n", f"{self.name}-{node}", "-6", "route", "add", f"{self.address(host)}/64", "via", via, "dev", device, "mtu", "1500"]
            subprocess.run(command, check=True)

        for host in range(2 * hosts):
            site = host // hosts
            add(f"t0-p0-{1 - site}", host, "fe80::4001", "u0")
            for other in range(2 * hosts):
                if other // hosts != site:
                    add(f"h{other}", host, f"fe80::{2 - site:x}", "p0")

    def tcp(self, source, target, control, seconds, port=5001):
        """Mb/s of payload that a TCP flow carries."""
        sink = self.on(target, sys.executable, "-c", SINK, str(port), stdout=subprocess.PIPE)
        sink.stdout.readline()
        began = time.time()
        sender = self.on(source, sys.executable, "-c", SOURCE, self.address(target), str(port), control, str(seconds))
        got = 0

        def read():
            nonlocal got
            for line in sink.stdout:
                if time.time() - began <= seconds:
                    got = int(line)

        reader = threading.Thread(target=read)
        reader.start()
        sender.wait()
        reader.join(5)
        sink.kill()
        return got * 8 / 1e6 / seconds


def tcp():
    row("control", "rtt_ms", "loss", "burst", "mbps")
    for rtt in (50, 25, 100):
        for loss, burst in LOSSES:
            with Link(scenario("sdr_mds", loss, burst, rtt, "4 MiB", 1)) as fabric:
                fabric.route(1)
                for control in ("cubic", "bbr"):
                    row(control, rtt, loss, burst or "", round(fabric.tcp(0, 1, control, SECONDS), 1))


def shares():
    """Transfers begin a second apart; rates are counted at the receiving hosts from 8 to 20 s after the last one began."""
    row("loss", "queue_ms", "who", "mbps", "jain")
    for loss, others in (("0", []), ("1e-3", []), ("1e-2", []), ("0", ["cubic"]), ("0", ["bbr"]), ("1e-3", ["cubic"]), ("1e-3", ["bbr"])):
        ours = 1 if others else 4
        hosts = ours + len(others)
        text = scenario("sdr_nack", loss, None, 50, "1 GiB", 1, hosts=hosts, congestion="longhaul")
        flows = ", ".join(f'{{ from = {i}, to = {i + hosts}, size = "{1 if ours > 1 else 3} GiB", start = "{i} s" }}' for i in range(ours))
        text = re.sub(r"(?m)^flows = .*$", f"flows = [{flows}]", text)
        with Link(text) as fabric:
            fabric.route(hosts)
            running = subprocess.Popen([STRANDWAY, "fabric", "run", fabric.file.name, "--name", fabric.name, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            tcp = []
            for at, control in enumerate(others, ours):
                time.sleep(1)
                tcp.append(threading.Thread(target=fabric.tcp, args=(at, at + hosts, control, 25)))
                tcp[-1].start()
            time.sleep(8 + ours)
            before, began = [fabric.received(hosts + i) for i in range(hosts)], time.time()
            time.sleep(12)
            after, spent = [fabric.received(hosts + i) for i in range(hosts)], time.time() - began
            running.terminate()
            running.wait()
            for thread in tcp:
                thread.join()
        rates = [(b - a) * 8 / 1e6 / spent for a, b in zip(before, after)]
        jain = sum(rates) ** 2 / (len(rates) * sum(r * r for r in rates))
        row(loss, 50, " ".join(["longhaul"] * ours + others), " ".join(f"{r:.0f}" for r in rates), round(jain, 3))


if __name__ == "__main__":
    jobs = {"times": lambda: times(time_cells()), "tails": tails, "tcp": tcp, "shares": shares}
    if len(sys.argv) != 2 or sys.argv[1] not in jobs:
        sys.exit(__doc__)
    if os.geteuid() != 0:
        sys.exit("this makes network namespaces: run it as root")
    jobs[sys.argv[1]]()

"""A fabric of network namespaces that a bench builds by `strandway fabric`, with a folder of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STRANDWAY = os.environ.get("STRANDWAY", os.path.join(ROOT, "target/release/strandway"))


class Fabric:
    """The fabric of a scenario (its text). It is up within `with`, and its folder is removed with it."""

    def __init__(self, prefix, scenario):
        self.name = f"{prefix}{os.getpid()}"
        # In memory, since otherwise the disk that all hosts share would be measured.
        self.folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.file = os.path.join(self.folder, "bench.toml")
        with open(self.file, "w") as file:
            file.write(scenario)

    def __enter__(self):
        done = subprocess.run([STRANDWAY, "fabric", "up", self.file, "--name", self.name, "--quiet"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return self

    def __exit__(self, *_):
        subprocess.run([STRANDWAY, "fabric", "down", "--name", self.name], capture_output=True)
        shutil.rmtree(self.folder)

    def node(self, host):
        """The node file of a host."""
        return f"/run/strandway/{self.name}/h{host}.toml"

    def on(self, host, *command, **options):
        """Starts a program on a host."""
        return subprocess.Popen(["ip", "netns", "exec", f"{self.name}-h{host}", *command], text=True, **options)

    def plain(self, host):
        """A host's own address in plane 0: the words of its leaf and of its downlink. A fabric has no routes to it from other leaves unless
        `route_plain` makes them."""
        with open(self.node(host)) as file:
            return next(line for line in file if line.startswith("planes")).split("[")[2].split("]")[0]

    def route_plain(self, hosts, hosts_per_leaf, spines):
        """Routes to plain addresses for programs that know no segment lists, on a fabric of one plane. The spine of a route is the host's
        number modulo `spines`. Spines know the leaves, and leaves their hosts. A host has its address at its port and not on `lo`, for programs
        that ask for the address of an interface."""

        def ip(node, lines):
            command = ["ip", "-n", f"{self.name}-{node}", "-batch", "-"]
            subprocess.run(command, input="".join(line + "\n" for line in lines), text=True, check=True)

        leaves = -(-hosts // hosts_per_leaf)
        for host in range(hosts):
            move = [f"addr del {self.plain(host)}/128 dev lo", f"addr add {self.plain(host)}/128 dev p0 nodad"]
            ip(f"h{host}", move)
        for leaf in range(leaves):
            far = [host for host in range(hosts) if host // hosts_per_leaf != leaf]
            ip(f"t0-p0-{leaf}", [f"route add {self.plain(host)}/64 via fe80::{0x4001 + host % spines:x} dev u{host % spines}" for host in far])

    def ports(self, namespace):
        """The counters of all ports of a host or switch, such as h0 or t0-p1-2."""
        words = subprocess.run(["ip", "-j", "-s", "-n", f"{self.name}-{namespace}", "link"], capture_output=True, text=True).stdout
        return [port for port in json.loads(words) if port["ifname"][0] in "pudh" and port["ifname"][1:].isdigit()]

    def nodes(self):
        """All hosts and switches."""
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split()
        return [name[len(self.name) + 1 :] for name in names if name.startswith(self.name + "-")]

    def sent(self, only=None):
        """Bytes that ports have sent: the ports of all hosts and switches (each cable counts once in each direction), or those of one node."""
        return sum(port["stats64"]["tx"]["bytes"] for node in ([only] if only else self.nodes()) for port in self.ports(node))

"""Documents that the package `infragraph` writes are read, and what is read has its links."""

import subprocess
import sys

import pytest

infragraph = pytest.importorskip("infragraph", reason="needs the package infragraph (pip install infragraph)")

from infragraph.blueprints.devices.generic.generic_switch import Switch  # noqa: E402
from infragraph.blueprints.devices.generic.server import Server  # noqa: E402
from infragraph.blueprints.devices.nvidia.dgx import NvidiaDGX  # noqa: E402
from infragraph.blueprints.fabrics.clos_fat_tree_fabric import ClosFatTreeFabric  # noqa: E402
from infragraph.blueprints.fabrics.closfabric import ClosFabric  # noqa: E402
from infragraph.blueprints.fabrics.dragonfly_fabric import DragonflyFabric  # noqa: E402
from infragraph.blueprints.fabrics.single_tier_fabric import SingleTierFabric  # noqa: E402

FABRICS = {
    "two tiers": (
        lambda: ClosFatTreeFabric(Switch(port_count=8), Server(), 2, []),
        "32 GPUs, a NIC each, 2 per server; 4 below a leaf, 4 spines, 1 planes",
    ),
    "three tiers": (
        lambda: ClosFatTreeFabric(Switch(port_count=4), Server(), 3, []),
        "16 NICs, 2 on a switch; 20 switches, 32 links between them",
    ),
    "small": (ClosFabric, "8 GPUs, a NIC each, 2 per server; 2 below a leaf, 3 spines, 1 planes"),
    "dragonfly": (
        lambda: DragonflyFabric(Switch(port_count=8), Server(), 4, 2, 2),
        "72 NICs, 2 on a switch; 36 switches, 90 links between them",
    ),
    "one tier": (
        lambda: SingleTierFabric(NvidiaDGX("dgx_h100", "cx5"), 4),
        "32 GPUs, a NIC each, 8 per server; 32 below a leaf, 0 spines, 1 planes",
    ),
}


def described(path):
    command = [sys.executable, "-m", "strandway", "import", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", FABRICS)
def test_a_blueprint_is_read_in_yaml_and_json(name, tmp_path):
    make, wanted = FABRICS[name]
    document = make()
    said = []
    for encoding, ending in ((document.YAML, "yaml"), (document.JSON, "json")):
        path = tmp_path / f"fabric.{ending}"
        path.write_text(document.serialize(encoding))
        said.append(described(path))
    assert said[0] == said[1]
    assert wanted in said[0], said[0]


# Scenarios whose fabrics are exported: XPUs, NICs, switches (those of servers, too), ports, and two NICs under different leaves.
EXPORTED = {
    "servers": ("hosts = 16\nhosts_per_leaf = 4\n[servers]\ngpus = 4\n", (16, 16, 12, 48), ("host.0.nic.0", "host.1.nic.3")),
    "dragonfly": ('kind = "dragonfly"\nhosts = 72\n', (0, 72, 36, 0), None),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_a_document_of_ours_is_read_by_the_package(name, tmp_path):
    networkx = pytest.importorskip("networkx")
    from infragraph.infragraph_service import InfraGraphService

    text, (xpus, nics, switches, ports), pair = EXPORTED[name]
    (tmp_path / "scenario.toml").write_text(f"[fabric]\n{text}")
    command = [sys.executable, "-m", "strandway", "fabric", "export", "scenario.toml", "--to", "infragraph", "--out", "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "out").glob("*.yaml")
    document = infragraph.Infrastructure()
    document.deserialize(path.read_text())
    service = InfraGraphService()
    service.set_graph(document)
    graph = service.get_networkx_graph()
    kinds = [data["type"] for _, data in graph.nodes(data=True)]
    assert kinds.count("switch") == switches and kinds.count("nic") == nics
    assert (kinds.count("xpu"), kinds.count("port")) == (xpus, ports) or not ports
    assert networkx.is_connected(networkx.Graph(graph))
    if pair:
        # From the NIC: port, switch and port of its leaf; of a spine; of the other leaf; and the other NIC.
        assert networkx.shortest_path_length(networkx.Graph(graph), *pair) == 10
    assert f"{nics} " in described(path)

"""Simulates the networks that AI training runs on, packet by packet, and moves tensors over real ones.

>>> import strandway
>>> scenario = strandway.Scenario({
...     "fabric": {"hosts": 16},
...     "profile": {"name": "uec"},
...     "workload": {"kind": "incast", "senders": 8, "size": "1 MB"},
... })
>>> result = scenario.run()
>>> result.values["flows.finished"]
8.0
>>> len(result.flows["fct_us"])
8

`docs/scenario.md` of the repository explains the keys of a scenario. The results are those of the command line, with
equal digests. The other half moves bytes over real networks: `Group` has collectives on arrays between processes, `Node` connections
and memory, `copy` and `cast` files.
"""

from ._lab import __version__
from .congestion import CongestionControl
from .errors import Problem, ScenarioError, WireError, WireTimeout
from .files import FileServer, cast, copy, receive, serve
from .live import Event, Lab
from .node import AsyncNode, AsyncPeer, AsyncRegion, Node, Peer, Region
from .reproduction import Reproduction, import_, reproduce, reproduction_sets
from .results import Result
from .scenario import Scenario
from .sweeps import Rows, compare, sweep
from .tables import Table
from .wire import Group, MemoryStore, Store, Work, waiting

__all__ = [
    "AsyncNode",
    "AsyncPeer",
    "AsyncRegion",
    "CongestionControl",
    "Event",
    "FileServer",
    "Group",
    "Lab",
    "MemoryStore",
    "Node",
    "Peer",
    "Problem",
    "Region",
    "Reproduction",
    "Result",
    "Rows",
    "Scenario",
    "ScenarioError",
    "Store",
    "Table",
    "WireError",
    "WireTimeout",
    "Work",
    "__version__",
    "cast",
    "compare",
    "copy",
    "import_",
    "receive",
    "reproduce",
    "reproduction_sets",
    "serve",
    "sweep",
    "waiting",
]

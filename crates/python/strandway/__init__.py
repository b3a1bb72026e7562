"""Simulates the networks that AI training runs on, packet by packet.

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
equal digests.
"""

from ._lab import __version__
from .errors import Problem, ScenarioError
from .results import Result
from .scenario import Scenario
from .sweeps import Rows, compare, sweep
from .tables import Table

__all__ = ["Problem", "Result", "Rows", "Scenario", "ScenarioError", "Table", "__version__", "compare", "sweep"]

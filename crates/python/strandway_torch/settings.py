"""The settings of nodes: arguments of a call, or else variables of the environment.

The extension reads them (`strandway_udp::environment`), so a variable means the same in all libraries.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from strandway import _lab

__all__ = ["VARIABLES", "given_key", "given_variables"]

# Keyword arguments, and the variables of the environment that stand for them.
VARIABLES = {
    "planes": "STRANDWAY_PLANES",
    "ifname": "STRANDWAY_IFNAME",
    "profile": "STRANDWAY_PROFILE",
    "protection": "STRANDWAY_PROTECTION",
    "payload": "STRANDWAY_PAYLOAD",
    "rate": "STRANDWAY_RATE",
    "base_rtt_us": "STRANDWAY_BASE_RTT_US",
    "team": "STRANDWAY_TEAM",
}
_KEY_VARIABLES = ("STRANDWAY_KEY_FILE", "STRANDWAY_KEY")


def given_variables(given: Mapping[str, object]) -> dict[str, str]:
    """The variables of these arguments: each has the argument if that is given, else its value in the environment, if it has one."""
    values = {VARIABLES[name]: str(value or os.environ.get(VARIABLES[name], "")) for name, value in given.items()}
    return {name: value for name, value in values.items() if value}


def given_key(key: bytes | None) -> bytes | None:
    """The key of the user: the argument, else that of the environment, if it has one."""
    if key is not None:
        return bytes(key)
    return _lab.key_of_environment({name: os.environ.get(name, "") for name in _KEY_VARIABLES})

"""Congestion controls written in Python, for experiments in the lab."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal

from ._lab import AckSample, Environment, LossSample


class CongestionControl(ABC):
    """Decides how many bytes one connection may have in flight, and at which rate it sends them.

    `Scenario.run(congestion=...)` takes a subclass, and makes one object per connection. Bytes are those of the wire, headers included;
    times are whole picoseconds of the simulation. Use whole numbers or simple arithmetic, and no clock and no randomness of your own:
    then equal scenarios have equal digests.

    >>> class Halving(CongestionControl):
    ...     '''One packet more per round trip; half after a mark or a loss, at most once per round trip.'''
    ...     def __init__(self, environment):
    ...         super().__init__(environment)
    ...         self.bytes, self.acked, self.until_next_cut = environment.bdp, 0, 0
    ...     def cut(self, sample):
    ...         if self.until_next_cut <= 0:
    ...             self.bytes, self.acked = max(self.bytes // 2, self.environment.packet), 0
    ...             self.until_next_cut = sample.in_flight
    ...     def on_ack(self, sample):
    ...         self.until_next_cut -= sample.bytes
    ...         if sample.marked:
    ...             return self.cut(sample)
    ...         self.acked += sample.bytes
    ...         if self.acked >= self.bytes:
    ...             self.bytes, self.acked = min(self.bytes + self.environment.packet, self.environment.bdp), 0
    ...     def on_loss(self, loss):
    ...         self.until_next_cut -= loss.bytes
    ...         self.cut(loss)
    ...     def window(self):
    ...         return self.bytes
    >>> from strandway import Scenario
    >>> incast = {"kind": "incast", "senders": 8, "size": "1 MB"}
    >>> scenario = Scenario({"fabric": {"hosts": 16}, "workload": incast})
    >>> result = scenario.run(congestion=Halving)
    >>> result.values["flows.finished"], result.values["packets.dropped"]
    (8.0, 0.0)
    """

    def __init__(self, environment: Environment) -> None:
        """Keeps the connection's environment: its rate, round trip and packet size, for the first window."""
        self.environment = environment

    @abstractmethod
    def on_ack(self, sample: AckSample) -> None:
        """An acknowledgement arrived."""

    @abstractmethod
    def on_loss(self, loss: LossSample) -> None:
        """A packet is lost. Called once per packet."""

    @abstractmethod
    def window(self) -> int:
        """Bytes that may be in flight. One packet may be, however small the window is."""

    def on_sent(self, now_ps: int, bytes: int, in_flight: int) -> None:
        """A packet was sent. `in_flight` includes it."""
        return None

    def on_notification(self, now_ps: int) -> None:
        """A congestion notification packet arrived."""
        return None

    def rate(self, now_ps: int) -> int | None:
        """The pacing rate in bits per second, asked for after each packet; None: as fast as the window allows.

        More than the line rate counts as the line rate.
        """
        return None

    def last_cut(self) -> Literal["marks", "delay", "loss"] | None:
        """The reason for the latest cut of the window or rate, for the report's account of what limited flows; None: it was not cut.

        Without this method the account gives no reason.
        """
        return None


CongestionFactory = Callable[[Environment], CongestionControl]
"""Makes the control of one connection: a subclass of `CongestionControl`, or a function."""

Controls = CongestionFactory | Mapping[str, CongestionFactory]
"""One factory for all profiles of a scenario, or one per name of a profile."""

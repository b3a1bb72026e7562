"""A checkpoint transport for torchft: `Manager(checkpoint_transport=CheckpointTransportStrandway(), ...)`.

A replica that is up to date sends its state once to all that have fallen behind, by multicast where the planes carry it, else along a
chain. The sender keeps a rendezvous at which receivers meet it (`rendezvous`), and casts the state as a file (`strandway.cast`) from memory
to memory (`temporary`).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from strandway import _lab
from strandway.errors import WireError, WireTimeout
from strandway.files import FileServer, cast, receive
from strandway.node import BasicOptions
from torch.utils._pytree import tree_leaves
from torchft.checkpointing import CheckpointTransport

from .rendezvous import VERSION, Link, Message, Rendezvous, visit
from .settings import given_key, given_variables
from .temporary import Folder, sweep

__all__ = ["CheckpointTransportStrandway"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

# The file of the state.
_STATE = "state"
# Bits per second if no interface tells its rate: NCCL's guess for sockets.
_RATE = 10_000_000_000
# The round trip with the time that busy hosts take to wake up: ours. With less, receivers ask for chunks that are on their way.
_RTT = "20 ms"
# Seconds between looks at what else may have happened.
_LOOK = 0.05
# Seconds for a receiver to open its node once it has been asked.
_ANSWER = 10.0
# The most receivers that wait: ours.
_WAITING_MAX = 4_096


@dataclasses.dataclass(eq=False)
class _Receiver:
    """A receiver that has come to the rendezvous."""

    link: Link
    step: int
    planes: int
    payload: int
    rate: int
    addresses: list[str] = dataclasses.field(default_factory=list)
    since: float = dataclasses.field(default_factory=time.monotonic)

    @classmethod
    def of(cls, link: Link, message: Message) -> _Receiver:
        """From its first message; a ValueError if that has something else than a receiver says."""
        numbers = {name: message.get(name) for name in ("step", "planes", "payload", "rate")}
        for name, number in numbers.items():
            if type(number) is not int or not 0 <= number < 1 << 53:
                raise ValueError(f"a receiver says {name} {number!r}: a number is wanted")
        link.peer = f"the receiver {str(message.get('host'))[:256]}, process {message.get('pid')}"
        return cls(link, **numbers)  # type: ignore[arg-type]


@dataclasses.dataclass(eq=False)
class _Offer:
    """A checkpoint that can be had: those that want it are served in rounds."""

    step: int
    wanted: int
    folder: Folder
    bytes: int
    until: float
    served: int = 0
    lost: int = 0
    withdrawn: bool = False
    thread: threading.Thread | None = None


class _ReceiverGone(Exception):
    """A receiver has ended."""


class CheckpointTransportStrandway(CheckpointTransport[T]):  # type: ignore[misc]
    """Sends checkpoints to all receivers at the same time.

    `send_checkpoint` returns when the state is written to memory; from then on it may change. Receivers get tensors on the CPU.
    """

    def __init__(
        self,
        *,
        gather: timedelta = timedelta(seconds=3),
        folder: str | os.PathLike[str] | None = None,
        planes: str | Sequence[str] | None = None,
        ifname: str | None = None,
        key: bytes | None = None,
        protection: str | None = None,
        payload: int | None = None,
        rate: float | None = None,
        team: int | None = None,
    ) -> None:
        """Takes the settings, of which those from `planes` on stand before their variables of the environment, such as `STRANDWAY_PLANES`.

        `gather`: how long the first receiver waits for others that are due; those that come later are served in another round. `folder`:
        where states are kept meanwhile, by default in memory (`/dev/shm`) if there is room, else with the system's temporary files.
        `planes`: this host's addresses, one per plane, or `ifname`: its interfaces, with commas between them; by default all that lead to
        other hosts. `key`: at least 16 bytes that all have; by default each round has one of its own, which the sender gives to those that
        come. `protection`: encrypted (default), authenticated or none. `rate`: Gb/s that the host can receive by all planes. `team`: the
        number of the multicast team, where switches copy only for teams that they know.
        """
        given = {
            "planes": ",".join([planes] if isinstance(planes, str) else planes or []),
            "ifname": ifname,
            "protection": protection,
            "payload": payload,
            "rate": rate,
            "team": team,
        }
        found = _lab.options_of_environment(given_variables(given))
        self._planes: list[str] = found["planes"]
        self._payload, self._protection, self._team = found["payload"], found["protection"], found["team"]
        self._rate: int = found["rate"] or _RATE
        self._key = given_key(key)
        self._gather_seconds, self._folder = gather.total_seconds(), folder
        self._changed = threading.Condition()
        self._waiting: list[_Receiver] = []
        self._offer: _Offer | None = None
        # The last step that was offered.
        self._latest = -1
        self._closed = False
        sweep(folder)
        self._rendezvous = Rendezvous(self._planes, self._greet)
        _transports.add(self)

    def metadata(self) -> str:
        """Where receivers find this process."""
        return self._rendezvous.metadata

    # The sender's side.

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: T, timeout: timedelta) -> None:
        """Offers the state to as many receivers as `dst_ranks` has; the work goes on when this returns, for `timeout` at most."""
        until = time.monotonic() + timeout.total_seconds()
        self._withdraw(None)
        folder = Folder(_bytes_of(state_dict), self._folder)
        try:
            torch.save(state_dict, folder.file(_STATE))
            offer = _Offer(step, len(dst_ranks), folder, os.path.getsize(folder.file(_STATE)), until)
            offer.thread = threading.Thread(target=self._serve, args=(offer,), name="strandway-checkpoint", daemon=True)
            with self._changed:
                if self._closed:
                    raise RuntimeError("the checkpoint transport was shut down")
                self._offer, self._latest = offer, step
                late = [receiver for receiver in self._waiting if receiver.step < step]
                self._waiting = [receiver for receiver in self._waiting if receiver.step >= step]
                offer.thread.start()
        except BaseException:
            folder.remove()
            raise
        for receiver in late:
            _answer(receiver, {"error": self._past(receiver.step)})

    def disallow_checkpoint(self) -> None:
        """Waits until receivers that have come have the checkpoint, and offers it to no others."""
        self._withdraw(None)

    def shutdown(self, wait: bool = True) -> None:
        """Ends it; a transfer that is under way fails. Without `wait` its thread ends by itself."""
        _transports.discard(self)
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify_all()
        self._rendezvous.close()
        for receiver in waiting:
            _answer(receiver, {"error": "the sender's checkpoint transport was shut down"})
        self._withdraw(None if wait else 0.0)

    def _withdraw(self, seconds: float | None) -> None:
        """Ends the offer after the round that is under way, and waits for its end."""
        with self._changed:
            offer = self._offer
            if offer is None:
                return
            offer.withdrawn = True
            self._changed.notify_all()
        if offer.thread is not None and offer.thread is not threading.current_thread():
            offer.thread.join(seconds)

    def _past(self, step: int) -> str:
        return f"step {step} is not to be had: the sender is at step {self._latest}"

    def _greet(self, link: Link, message: Message) -> None:
        """A receiver has come."""
        receiver = _Receiver.of(link, message)
        if receiver.planes != len(self._planes):
            raise ValueError(
                f"the receiver has {receiver.planes} planes, the sender {len(self._planes)} ({', '.join(self._planes)}): "
                "name the same ones on all hosts with STRANDWAY_PLANES or STRANDWAY_IFNAME"
            )
        with self._changed:
            if self._closed:
                raise ValueError("the sender's checkpoint transport was shut down")
            if receiver.step < self._latest:
                raise ValueError(self._past(receiver.step))
            for one in [one for one in self._waiting if one.link.is_gone()]:
                if self._offer is None or one.step != self._offer.step:
                    self._waiting.remove(one)
                    one.link.close()
            if len(self._waiting) >= _WAITING_MAX:
                raise ValueError(f"{_WAITING_MAX} receivers wait already")
            self._waiting.append(receiver)
            self._changed.notify_all()
            withdrawn = self._offer is None and receiver.step == self._latest
        if withdrawn:
            self._tell_withdrawn(receiver)

    @staticmethod
    def _tell_withdrawn(receiver: _Receiver) -> None:
        """It waits on: the sender offers the step again if the step is repeated."""
        with contextlib.suppress(WireError):
            receiver.link.send({"note": f"the sender has withdrawn its checkpoint of step {receiver.step}"})

    def _serve(self, offer: _Offer) -> None:
        """Serves receivers until all have the checkpoint, its time is over, or it is withdrawn."""
        try:
            while receivers := self._next_round(offer):
                self._cast(offer, receivers)
        except Exception:
            logger.exception("the checkpoint of step %d is withdrawn", offer.step)
        finally:
            offer.folder.remove()
            with self._changed:
                if self._offer is offer:
                    self._offer = None
                left = [receiver for receiver in self._waiting if receiver.step == offer.step]
            for receiver in left:
                self._tell_withdrawn(receiver)

    def _next_round(self, offer: _Offer) -> list[_Receiver]:
        """The receivers of the next round: all that are due, or those that have come within the time that the first one waits."""
        with self._changed:
            while True:
                here = [receiver for receiver in self._waiting if receiver.step == offer.step]
                for receiver in [receiver for receiver in here if receiver.link.is_gone()]:
                    # The others do not wait for it, but it may come again.
                    logger.warning("%s has left before it had the checkpoint of step %d", receiver.link.peer, offer.step)
                    here.remove(receiver)
                    self._waiting.remove(receiver)
                    receiver.link.close()
                    offer.lost += 1
                now = time.monotonic()
                if self._closed or now >= offer.until:
                    return []
                due = offer.wanted - offer.served - offer.lost
                if here and (len(here) >= due or offer.withdrawn or now >= here[0].since + self._gather_seconds):
                    self._waiting = [receiver for receiver in self._waiting if receiver not in here]
                    return here
                if not here and (offer.withdrawn or offer.served >= offer.wanted > 0):
                    return []
                self._changed.wait(_LOOK)

    def _cast(self, offer: _Offer, members: list[_Receiver]) -> None:
        """One round."""
        while members := self._ready(offer, members, key := self._key or secrets.token_bytes(32)):
            try:
                summary = self._cast_once(offer, members, key)
            except _ReceiverGone:
                # The others keep what they have, and the next cast sends the rest.
                continue
            except Exception as error:
                for receiver in members:
                    self._end(offer, receiver, _reason(str(error), ",".join(receiver.addresses)))
                return
            failures = {who: f"{path}: {why}" for who, path, why in summary["failures"]}
            for receiver, end in zip(members, summary["receivers"], strict=True):
                self._end(offer, receiver, failures.get(end["name"]) or (None if end["done"] else end["state"]))
            logger.info("step %d: %d bytes to %d receivers: %s", offer.step, offer.bytes, len(members), summary)
            return

    def _ready(self, offer: _Offer, receivers: list[_Receiver], key: bytes) -> list[_Receiver]:
        """Lets receivers open nodes for a cast; those that do."""
        about = {"bytes": offer.bytes, "payload": self._payload_of(receivers), "protection": self._protection}
        for receiver in receivers:
            with contextlib.suppress(WireError):
                receiver.link.send(about | {"key": None if self._key else key.hex()})
        soon = min(offer.until, time.monotonic() + _ANSWER)
        return [receiver for receiver in receivers if self._take_addresses(offer, receiver, soon)]

    def _payload_of(self, receivers: list[_Receiver]) -> int:
        payloads: list[int] = [self._payload, *(receiver.payload for receiver in receivers)]
        return min(payloads)

    def _cast_once(self, offer: _Offer, members: list[_Receiver], key: bytes) -> dict[str, Any]:
        """One cast to these receivers; `_ReceiverGone` if one of them ends in its middle."""

        def note_progress(done: int, all_bytes: int) -> None:
            if self._closed:
                raise WireError("the sender's checkpoint transport was shut down", "aborted")
            if time.monotonic() >= offer.until:
                raise WireTimeout(f"timed out when {done} of {all_bytes} bytes were there", "timeout")
            if any(receiver.link.is_gone() for receiver in members):
                raise _ReceiverGone

        left = offer.until - time.monotonic()
        rate = min([self._rate, *(receiver.rate for receiver in members if receiver.rate)])
        return cast(
            offer.folder.file(_STATE),
            [receiver.addresses for receiver in members],
            planes=self._planes,
            key=key,
            payload=self._payload_of(members),
            protection=self._protection,
            rate=f"{rate} bps",
            rtt=_RTT,
            wait=f"{_milliseconds(left / 2, 3.0)} ms",
            patience=f"{_milliseconds(left / 6, 10.0)} ms",
            team=secrets.randbelow((1 << 16) - 1) + 1 if self._team is None else self._team,
            # They load what the sender has pickled, and have the same key: hashes would cost a hundredth of the bytes.
            trust="members",
            multicast=len(members) > 1,
            progress=note_progress,
        )

    def _take_addresses(self, offer: _Offer, receiver: _Receiver, until: float) -> bool:
        """Takes the addresses of a receiver's node; False if it does not give them."""
        try:
            message = receiver.link.poll(max(until - time.monotonic(), 0.0))
        except WireError as error:
            self._end(offer, receiver, str(error))
            return False
        addresses = (message or {}).get("addresses")
        if type(addresses) is not list or len(addresses) != len(self._planes) or not all(type(one) is str for one in addresses):
            self._end(offer, receiver, "it has not opened its node in time" if message is None else "it has not given its addresses")
            return False
        receiver.addresses = addresses
        return True

    def _end(self, offer: _Offer, receiver: _Receiver, failure: str | None) -> None:
        """A receiver has the checkpoint, or it has failed."""
        if failure is None:
            offer.served += 1
            _answer(receiver, {"done": True})
            return
        offer.lost += 1
        logger.warning("%s does not have the checkpoint of step %d: %s", receiver.link.peer, offer.step, failure)
        _answer(receiver, {"error": failure})

    # The receiver's side.

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> T:
        """The state that the sender with this metadata offers for a step, with its tensors on the CPU."""
        seconds = timeout.total_seconds()
        until = time.monotonic() + seconds
        link = visit(metadata, src_rank, until)
        with contextlib.closing(link):
            place = {"host": os.uname().nodename, "pid": os.getpid()}
            numbers = {"step": step, "planes": len(self._planes), "payload": self._payload, "rate": self._rate}
            link.send({"strandway": VERSION, **place, **numbers})
            about = _wait_for_offer(link, step, until, seconds)
            with Folder(_number(link, about, "bytes"), self._folder) as folder:
                offers = [about]
                while offers:
                    with receive(folder.path, planes=self._planes, port=0, **self._node(link, offers.pop())) as server:
                        link.send({"addresses": server.addresses})
                        # The sender begins again if another receiver ends; what is here stays.
                        offers += _wait_for_state(server, link, step, until, seconds)
                path, size = folder.file(_STATE), _number(link, about, "bytes")
                if os.path.getsize(path) != size:
                    raise WireError(f"{link.peer} has sent {os.path.getsize(path)} of {size} bytes")
                # Mapped files stay in memory when the folder is gone.
                state: T = torch.load(path, map_location="cpu", mmap=True, weights_only=False)
                return state

    def _node(self, link: Link, about: Message) -> BasicOptions:
        """The options of the node that takes a checkpoint."""
        if about.get("protection") != self._protection:
            raise ValueError(
                f"{link.peer} has protection {about.get('protection')!r}, this side {self._protection!r}: "
                "give both the same, or STRANDWAY_PROTECTION"
            )
        key = about.get("key")
        if key is None and self._key is None:
            raise ValueError(f"{link.peer} has a key from its user: give this process the same, with key= or STRANDWAY_KEY_FILE")
        secret = self._key if key is None else bytes.fromhex(str(key))
        return {"key": secret, "payload": _number(link, about, "payload"), "protection": self._protection}


def _number(link: Link, about: Message, name: str) -> int:
    number = about.get(name)
    if type(number) is not int or not 0 <= number < 1 << 53:
        raise WireError(f"{link.peer} offers a checkpoint with {name} {number!r}: install the same strandway on all hosts")
    return number


def _wait_for_offer(link: Link, step: int, until: float, seconds: float) -> Message:
    """The sender's offer, as soon as it has the checkpoint."""
    note = f"its sender, {link.peer}, has not offered it yet"
    while (message := link.poll(max(until - time.monotonic(), 0.0))) is not None:
        if "error" in message:
            raise WireError(f"no checkpoint of step {step} from {link.peer}: {message['error']}", "gone")
        if "note" not in message:
            return message
        note = f"{message['note']} and has not offered another one: {link.peer}"
    raise WireTimeout(f"the checkpoint of step {step} timed out after {seconds:g} s: {note}", "timeout")


def _wait_for_state(server: FileServer, link: Link, step: int, until: float, seconds: float) -> list[Message]:
    """Waits until the state is here, or the sender offers it anew; a `WireError` names the sender and the reason if neither comes."""
    failure: str | None = None
    while failure is None and time.monotonic() < until:
        try:
            message = link.poll(_LOOK) or {}
            if "done" in message:
                return []
            if "bytes" in message:
                return [message]
            failure = message.get("error")
            # It ends only if its node fails.
            server.wait(0.0)
        except WireError as error:
            failure = str(error)
    if failure is not None:
        raise WireError(f"no checkpoint of step {step} from {link.peer}: {failure}", "gone")
    raise WireTimeout(f"the checkpoint of step {step} from {link.peer} timed out after {seconds:g} s", "timeout")


def _answer(receiver: _Receiver, message: Message) -> None:
    """The last word to a receiver."""
    with contextlib.suppress(WireError):
        receiver.link.send(message)
    receiver.link.close()


def _reason(text: str, name: str) -> str:
    """The part of a cast's error that concerns this receiver: if none takes part, there is a line for each."""
    lines = [line.removeprefix(f"{name}: ") for line in text.splitlines() if line.startswith(f"{name}: ")]
    return lines[0] if lines else text


def _milliseconds(seconds: float, most: float) -> int:
    return int(1000 * min(max(seconds, 0.5), most))


def _bytes_of(state: object) -> int:
    """The bytes of the tensors in a state, of which some may share memory."""
    tensors = [getattr(leaf, "_local_tensor", leaf) for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


_transports: weakref.WeakSet[CheckpointTransportStrandway[Any]] = weakref.WeakSet()


def _shut_all() -> None:
    """At the end of a program: no thread may run while the interpreter ends, and no folder is left behind."""
    for transport in list(_transports):
        transport.shutdown()


atexit.register(_shut_all)
os.register_at_fork(after_in_child=_transports.clear)

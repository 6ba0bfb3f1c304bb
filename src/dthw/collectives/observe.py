"""What this process has really sent and received: counters, and traces for pictures."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dthw.collectives.plan import Label


@dataclass(frozen=True)
class Counters:
    """Messages and bytes that this process sent and received; subtract two readings to get what lies between."""

    messages_sent: int = 0
    messages_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    def __sub__(self, earlier: "Counters") -> "Counters":
        return Counters(*(a - b for a, b in zip(vars(self).values(), vars(earlier).values(), strict=True)))


class Event(NamedTuple):
    """One message as the rank ``rank`` saw it; times are seconds of the system's monotonic clock.

    A sender's event lasts from handing the message over until its buffer was free again, a receiver's from posting the
    receive until the bytes were there. Ranks are group ranks.
    """

    rank: int
    side: str  # 'send' or 'receive'
    round: int
    start: float
    end: float
    src: int
    dst: int
    chunk: int
    n_chunks: int
    bytes: int


@dataclass
class Trace:
    """The messages seen while `trace` was active."""

    events: list[Event] = field(default_factory=list)

    def as_dicts(self) -> list[dict[str, int | float | str]]:
        """One dictionary an event, ready for JSON."""
        return [event._asdict() for event in self.events]

    def save(self, path: str | Path) -> None:
        """Write the events as JSON."""
        Path(path).write_text(json.dumps(self.as_dicts(), indent=1) + "\n", encoding="utf-8")


TRACES: list[Trace] = []
"""The traces in progress."""

_TOTALS: list[list[int]] = []


def new_totals() -> list[int]:
    """Running totals in the order of the fields of `Counters`, for one process group; they outlive it."""
    _TOTALS.append([0, 0, 0, 0])
    return _TOTALS[-1]


def add(totals: list[int], *moved: int) -> None:
    """Add to running totals, which only the thread that holds the group's lock may do."""
    for k, amount in enumerate(moved):
        totals[k] += amount


def counters() -> Counters:
    """Messages and bytes that `dthw.all_reduce` has moved in this process so far.

    Counted when a message is handed over and when it has arrived, from the size of the tensor that is really sent; a
    message is what the schedule calls one, also where it travels in pieces.

    >>> before = counters()
    >>> counters() - before
    Counters(messages_sent=0, messages_received=0, bytes_sent=0, bytes_received=0)
    """
    return Counters(*(sum(totals[k] for totals in _TOTALS) for k in range(4)))


@contextmanager
def trace() -> Iterator[Trace]:
    """Record every message of the calls to `dthw.all_reduce` made inside the ``with`` block, on this rank.

    Tracing reads the clock twice a message and so slows small messages by a few microseconds.

    >>> with trace() as seen:
    ...     pass  # dthw.all_reduce(tensor)
    >>> seen.events
    []
    """
    seen = Trace()
    TRACES.append(seen)
    try:
        yield seen
    finally:
        TRACES.remove(seen)


def record(rank: int, side: str, number: int, peer: int, chunk: int, n_chunks: int, start: float, end: float,
           nbytes: int) -> None:  # fmt: skip
    """Hand one message to the traces in progress."""
    src, dst = (rank, peer) if side == "send" else (peer, rank)
    for seen in TRACES:
        seen.events.append(Event(rank, side, number, start, end, src, dst, chunk, n_chunks, nbytes))


class Recorder:
    """Stands between the engine and the group while a trace is active, and notes when messages begin and end."""

    def __init__(self, group: Any, rank: int, sends: list[Label], receives: list[Label]) -> None:
        self.group, self.rank = group, rank
        self.labels = {"send": sends, "receive": receives}
        self.seen: dict[str, list[list[float]]] = {"send": [], "receive": []}  # of each piece: start, end, bytes

    def send(self, box: list[Any], peer: int, tag: int) -> "_Timed":
        """As the group's own."""
        return self._timed("send", self.group.send, box, peer, tag)

    def recv(self, box: list[Any], peer: int, tag: int) -> "_Timed":
        """As the group's own."""
        return self._timed("receive", self.group.recv, box, peer, tag)

    def _timed(self, side: str, post: Callable[..., Any], box: list[Any], peer: int, tag: int) -> "_Timed":
        note = [time.monotonic(), float("nan"), box[0].nbytes]
        self.seen[side].append(note)
        return _Timed(post(box, peer, tag), note)

    def hand_over(self) -> None:
        """Join the pieces of each message and give them to the traces."""
        for side, notes in self.seen.items():
            messages: list[tuple[Label, list[float]]] = []
            for label, (start, end, nbytes) in zip(self.labels[side], notes, strict=False):
                if label.first:
                    messages.append((label, [start, end, nbytes]))
                else:
                    whole = messages[-1][1]
                    whole[1], whole[2] = end, whole[2] + nbytes
            for label, (start, end, nbytes) in messages:
                chunk, n_chunks = label.message.chunk, label.message.n_chunks
                record(self.rank, side, label.round, label.peer, chunk, n_chunks, start, end, int(nbytes))


class _Timed:
    """A torch ``Work`` that notes the time at which waiting for it ended."""

    def __init__(self, work: Any, note: list[float]) -> None:
        self.work, self.note = work, note

    def wait(self) -> None:
        self.work.wait()
        self.note[1] = time.monotonic()

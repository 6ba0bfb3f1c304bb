"""What this process has really sent and received: counters, and traces for pictures."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


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


class _Meter:
    """The process's running totals and the trace in progress, if any."""

    total = [0, 0, 0, 0]  # in the order of Counters' fields
    lock = threading.Lock()  # groups may be at work in several threads
    traces: list[Trace] = []


def counters() -> Counters:
    """Messages and bytes that `dthw.all_reduce` has moved in this process so far.

    Counted when a message is handed over and when it has arrived, from the size of the tensor that is really sent; a
    message is what the schedule calls one, also where it travels in pieces.

    >>> before = counters()
    >>> counters() - before
    Counters(messages_sent=0, messages_received=0, bytes_sent=0, bytes_received=0)
    """
    return Counters(*_Meter.total)


def count(*moved: int) -> None:
    """Add to the totals, in the order of the fields of `Counters`."""
    with _Meter.lock:
        _Meter.total = [a + b for a, b in zip(_Meter.total, moved, strict=True)]


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
    _Meter.traces.append(seen)
    try:
        yield seen
    finally:
        _Meter.traces.remove(seen)


def active_traces() -> list[Trace]:
    """The traces in progress."""
    return _Meter.traces


def record(event: Event) -> None:
    """Hand one event to the traces in progress."""
    for seen in _Meter.traces:
        seen.events.append(event)

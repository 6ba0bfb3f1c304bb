"""What a schedule costs: bytes and messages of every rank, and seconds under the α-β-γ port model or LogGP."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dthw.collectives.schedule import Round, Schedule

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Port:
    """One full-duplex port a rank: a round takes ``alpha_s``, plus ``beta_s`` for each byte of the busiest direction of
    the busiest port, plus ``gamma_s`` for each byte that the busiest rank reduces.

    >>> Port.of(latency_s=5e-6, bytes_per_second=50e9)
    Port(alpha_s=5e-06, beta_s=2e-11, gamma_s=0.0)
    """

    alpha_s: float
    beta_s: float
    gamma_s: float = 0.0

    @classmethod
    def of(cls, latency_s: float, bytes_per_second: float, reduced_bytes_per_second: float = float("inf")) -> "Port":
        """From a latency and bandwidths in one direction."""
        return cls(latency_s, 1 / bytes_per_second, 1 / reduced_bytes_per_second)

    def round_s(self, sent: Ints, received: Ints, messages: int, reduced: int) -> float:
        """Seconds of one round, given the bytes each rank sends and receives and the most bytes that one reduces."""
        return self.alpha_s + self.beta_s * max(int(sent.max()), int(received.max())) + self.gamma_s * reduced


@dataclass(frozen=True)
class LogGP:
    """Latency L, overhead o, gap g between messages, Gap G per byte, and γ, all in seconds.

    A round in which the busiest rank handles m messages of B bytes takes L + 2o + (m-1) max(g, o) + (B-m) G + γ r.
    Unlike `Port` it charges every message, so that many small ones cost more than a large one.
    Reference: Alexandrov, Ionescu, Schauser and Scheiman, "LogGP", SPAA 1995.
    """

    L_s: float
    o_s: float
    g_s: float
    G_s: float
    gamma_s: float = 0.0

    def round_s(self, sent: Ints, received: Ints, messages: int, reduced: int) -> float:
        """Seconds of one round, given bytes as for `Port` and the most messages that one rank sends or receives."""
        size = max(int(sent.max()), int(received.max()))
        wait = (messages - 1) * max(self.g_s, self.o_s)
        return self.L_s + 2 * self.o_s + wait + max(size - messages, 0) * self.G_s + self.gamma_s * reduced


class Traffic(NamedTuple):
    """What each rank sends and receives over the whole schedule; arrays of shape (ranks,), sizes in bytes."""

    messages_sent: Ints
    messages_received: Ints
    bytes_sent: Ints
    bytes_received: Ints


@dataclass(frozen=True)
class Cost:
    """The price of a schedule. ``seconds`` follows from the rest and the machine.

    ``rounds`` counts rounds in which anything is sent; ``port_bytes`` sums over them the bytes of the busiest direction
    of the busiest port, ``reduced_bytes`` those that the busiest rank reduces.
    """

    seconds: float
    rounds: int
    port_bytes: int
    reduced_bytes: int
    traffic: Traffic

    def __str__(self) -> str:
        sent = self.traffic.bytes_sent
        return (
            f"{self.seconds * 1e6:,.1f} us in {self.rounds} rounds; busiest port {self.port_bytes:,} bytes\n"
            f"a rank sends {int(sent.min()):,} to {int(sent.max()):,} bytes and reduces up to {self.reduced_bytes:,}"
        )


def cost(schedule: Schedule, nbytes: int, machine: Port | LogGP, itemsize: int = 1) -> Cost:
    """Cost of carrying out ``schedule`` on buffers of ``nbytes`` bytes a rank.

    Parameters
    ----------
    schedule : Schedule
    nbytes : int
        Bytes of one rank's buffer, a multiple of ``itemsize``; 0 costs nothing.
    machine : Port or LogGP
    itemsize : int
        Bytes of one element: chunks are cut between elements, and the real sizes are charged.

    Returns
    -------
    Cost

    Raises
    ------
    ValueError
        A negative size, or one that is no whole number of elements.

    Notes
    -----
    O(messages of one repetition) a row when chunks divide the count, otherwise O(all messages).

    >>> from dthw.collectives.algorithms import ring
    >>> print(cost(ring(4), 100_000_000, Port.of(latency_s=5e-6, bytes_per_second=50e9)))
    3,030.0 us in 6 rounds; busiest port 150,000,000 bytes
    a rank sends 150,000,000 to 150,000,000 bytes and reduces up to 75,000,000
    """
    if itemsize < 1 or nbytes < 0 or nbytes % itemsize:
        raise ValueError(
            f"nbytes is {nbytes}, itemsize {itemsize}; need a size of 0 or more that is a multiple of itemsize"
        )
    p = schedule.ranks
    totals = [np.zeros(p, dtype=np.int64) for _ in range(4)]
    seconds, rounds, port_bytes, reduced_bytes = 0.0, 0, 0, 0
    for times, r, size in _sized_rounds(schedule, nbytes // itemsize):
        if not size.size:
            continue
        size *= itemsize
        here = [_sum(r.src, None, p), _sum(r.dst, None, p), _sum(r.src, size, p), _sum(r.dst, size, p)]
        reduced = int(_sum(r.dst, np.where(r.op == "+", size, 0), p).max())
        messages = max(int(here[0].max()), int(here[1].max()))
        seconds += times * machine.round_s(here[2], here[3], messages, reduced)
        rounds += times
        port_bytes += times * max(int(here[2].max()), int(here[3].max()))
        reduced_bytes += times * reduced
        for total, now in zip(totals, here, strict=True):
            total += times * now
    return Cost(seconds, rounds, port_bytes, reduced_bytes, Traffic(*totals))


def traffic(schedule: Schedule, count: int, itemsize: int = 1) -> Traffic:
    """Messages and bytes each rank sends and receives for ``count`` elements, with the real sizes of the chunks.

    >>> from dthw.collectives.algorithms import ring
    >>> traffic(ring(3), 4, itemsize=4).bytes_sent
    array([20, 24, 20])
    """
    return cost(schedule, count * itemsize, Port(0, 0), itemsize).traffic


def _sum(index: Ints, weights: Ints | None, p: int) -> Ints:
    if weights is None:
        return np.bincount(index, minlength=p).astype(np.int64, copy=False)
    total = np.zeros(p, dtype=np.int64)  # bincount would go through floats, which end at 2**53
    np.add.at(total, index, weights)
    return total


def _sized_rounds(schedule: Schedule, count: int) -> Iterator[tuple[int, Round, Ints]]:
    """(repetitions, messages that are not empty, their elements); repetitions of equal cost are given once."""
    bounds = schedule.bounds(count)
    even = count % schedule.chunks == 0
    for row in schedule.rows:
        alike = even and row.wrap
        for t in range(min(row.times, 1) if alike else row.times):
            r = row.at(t)
            size = bounds[r.lo + r.n] - bounds[r.lo]
            if not size.all():
                full = size > 0
                r, size = Round(*(a[full] for a in r)), size[full]
            yield (row.times if alike else 1), r, size

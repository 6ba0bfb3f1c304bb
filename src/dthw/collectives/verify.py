"""Proof that a schedule does what it says: contributions are propagated and each must arrive exactly once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dthw.collectives.schedule import Round, Schedule

EXACT_RANKS = 64
"""Up to this many ranks every contribution is counted; above, each rank's part is a random 64-bit weight."""


@dataclass(frozen=True)
class Verdict:
    """What was proved. ``exact`` tells counting from random weights (which miss an error with probability < 1e-12)."""

    name: str
    collective: str
    ranks: int
    chunks: int
    rounds: int
    exact: bool

    def __str__(self) -> str:
        how = "counted exactly" if self.exact else "checked with random 64-bit weights"
        return f"{self.name}: {self.collective} on {self.ranks} ranks verified in {self.rounds} rounds, {how}"


class WrongSchedule(ValueError):
    """A schedule whose result is wrong, with the place, the round and the parts at fault.

    Attributes: ``rank``, ``chunk`` (the first wrong place), ``round`` (1-based: the one that brought a surplus part, or
    the last one that wrote the place when a part is missing; 0 if none did), ``missing``, ``doubled`` and ``foreign``
    (tuples of the ranks whose part is missing, came more than once, or does not belong there).
    """

    def __init__(self, schedule: Schedule, rank: int, chunk: int, when: int, missing: tuple[int, ...],
                 doubled: tuple[int, ...], foreign: tuple[int, ...]) -> None:  # fmt: skip
        self.rank, self.chunk, self.round = rank, chunk, when
        self.missing, self.doubled, self.foreign = missing, doubled, foreign
        faults = [f"{_parts(who)} {what}" for who, what in ((missing, "missing"), (doubled, "added more than once"),
                                                            (foreign, "there but should not be")) if who]  # fmt: skip
        last = f"round {when}" if when else "no round: nothing was ever written there"
        where = f"first wrong place: rank {rank}, chunk {chunk}, {last}"
        super().__init__(f"{schedule.name} is not a correct {schedule.collective}\n{where}\n" + "\n".join(faults))


def _parts(who: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, who[:8])) + (", ..." if len(who) > 8 else "")
    return f"the part of rank {shown} is" if len(who) == 1 else f"the parts of ranks {shown} are"


def verify(schedule: Schedule) -> Verdict:
    """Propagate what every message carries and compare the end with what the collective promises.

    Parameters
    ----------
    schedule : Schedule
        Any collective but all-to-all, which is a message pattern only.

    Returns
    -------
    Verdict
        Printable; it only exists when the schedule is right.

    Raises
    ------
    WrongSchedule
        Names the first wrong (rank, chunk), the round, and which rank's part is missing or doubled.

    Notes
    -----
    Exact up to 64 ranks, in O(messages * n * ranks). Above, the sums of random 64-bit weights modulo 2**64 are compared
    in O(messages * n) time and 8 * ranks * chunks bytes; a wrong place is then traced exactly.

    >>> from dthw.collectives.algorithms import ring
    >>> print(verify(ring(8)))
    ring: all_reduce on 8 ranks verified in 14 rounds, counted exactly
    """
    if schedule.collective == "all_to_all":
        raise ValueError(
            "an all-to-all schedule is a message pattern for cost and simulation; there is nothing to verify"
        )
    p, exact = schedule.ranks, schedule.ranks <= EXACT_RANKS
    if exact:
        parts = contributions(schedule)
        for _ in propagate(schedule, parts):
            np.minimum(parts, 2, out=parts)  # 2 stands for "too often": no multiplicity may wrap round to 1
        wrong = (parts != _wanted(schedule)).any(axis=2)
    else:
        weight = np.random.default_rng(p).integers(0, 2**64, size=p, dtype=np.uint64)
        sums = np.repeat(weight[:, None], schedule.chunks, axis=1)
        for _ in propagate(schedule, sums):
            pass
        wanted = np.array([weight[np.flatnonzero(_contributors(schedule, c))].sum() for c in _one_per_owner(schedule)])
        wrong = sums != wanted[_owner_index(schedule)]
    wrong &= _judged(schedule)
    if wrong.any():
        rank, chunk = (int(x) for x in np.argwhere(wrong)[0])
        raise _trace_fault(schedule, rank, chunk)
    return Verdict(schedule.name, schedule.collective, p, schedule.chunks, schedule.n_rounds, exact)


def contributions(schedule: Schedule) -> NDArray[np.int64]:
    """The start of exact counting, shape (ranks, chunks, ranks): every place holds its own rank's part, once."""
    own = np.eye(schedule.ranks, dtype=np.int64)[:, None, :]
    return np.repeat(own, schedule.chunks, axis=1)


def propagate(schedule: Schedule, state: NDArray[Any]) -> Iterator[Round]:
    """Carry out a schedule on ``state`` in place, yielding each round's messages after they have been applied.

    ``state`` has shape (ranks, chunks, ...): what every rank holds in every chunk. '+' adds, '=' replaces; all reads of
    a round happen before its writes. Used by the verifier, the tables and the pictures alike.
    """
    for r in schedule.rounds():
        apply(r, state)
        yield r


def apply(r: Round, state: NDArray[Any]) -> None:
    """Carry out one round on ``state`` of shape (ranks, chunks, ...) in place."""
    if not r.src.size:
        return
    n = int(r.n[0])
    if (r.n == n).all():  # the common case: (messages, n) indices without repeating the ranks
        src, dst, adds, chunk = r.src[:, None], r.dst[:, None], r.op == "+", r.lo[:, None] + np.arange(n)
    else:
        starts = np.cumsum(r.n) - r.n
        chunk = np.arange(int(r.n.sum())) - np.repeat(starts - r.lo, r.n)
        src, dst, adds = (np.repeat(a, r.n) for a in (r.src, r.dst, r.op == "+"))
    moved = state[src, chunk]
    if not adds.all():
        copies = ~adds
        state[dst[copies], chunk[copies]] = moved[copies]
        dst, chunk, moved = dst[adds], chunk[adds], moved[adds]
    if np.unique(r.dst).size == r.dst.size:  # no two messages meet at one rank
        state[dst, chunk] += moved
    else:
        np.add.at(state, (dst, chunk), moved)


def _contributors(schedule: Schedule, chunk: int) -> NDArray[np.bool_]:
    """Whose part the finished chunk must hold."""
    if schedule.collective in ("all_reduce", "reduce_scatter", "reduce"):
        return np.ones(schedule.ranks, dtype=bool)
    source = schedule.root if schedule.collective == "broadcast" else schedule.owners[chunk]
    return np.equal(np.arange(schedule.ranks), source)


def _one_per_owner(schedule: Schedule) -> NDArray[np.int64]:
    """A chunk of each distinct owner: chunks of one owner want the same sum."""
    return np.unique(schedule.owners, return_index=True)[1]


def _owner_index(schedule: Schedule) -> NDArray[np.int64]:
    return np.unique(schedule.owners, return_inverse=True)[1]


def _wanted(schedule: Schedule) -> NDArray[np.int64]:
    """Shape (1, chunks, ranks): 1 where a rank's part must be in the finished chunk."""
    return np.stack([_contributors(schedule, c) for c in range(schedule.chunks)]).astype(np.int64)[None]


def _judged(schedule: Schedule) -> NDArray[np.bool_]:
    """Shape (ranks, chunks): the places whose content the collective promises."""
    rank = np.arange(schedule.ranks)[:, None]
    if schedule.collective == "reduce_scatter":
        return np.equal(rank, schedule.owners)
    if schedule.collective == "reduce":
        return np.broadcast_to(np.equal(rank, schedule.root), (schedule.ranks, schedule.chunks))
    return np.ones((schedule.ranks, schedule.chunks), dtype=bool)


def _trace_fault(schedule: Schedule, rank: int, chunk: int) -> WrongSchedule:
    """Follow one chunk through all rounds with exact counts; every rank count is cheap for a single chunk."""
    p = schedule.ranks
    parts = np.eye(p, dtype=np.int64)[:, None, :]  # one chunk: (ranks, 1, ranks)
    last_write, surplus = 0, np.zeros(p, dtype=np.int64)  # surplus[q]: first round that brought q's part once too often
    for k, r in enumerate(schedule.rounds(), start=1):
        on = (r.lo <= chunk) & (chunk < r.lo + r.n)
        if not on.any():
            continue
        one = np.ones(int(on.sum()), dtype=np.int64)
        apply(Round(r.src[on], r.dst[on], 0 * one, one, r.op[on]), parts)
        np.minimum(parts, 2, out=parts)
        surplus[(parts > 1).any(axis=(0, 1)) & (surplus == 0)] = k
        if (r.dst[on] == rank).any():
            last_write = k
    held, wanted = parts[rank, 0], _contributors(schedule, chunk)
    missing, foreign = np.flatnonzero(wanted & (held == 0)), np.flatnonzero(~wanted & (held > 0))
    doubled = np.flatnonzero(wanted & (held > 1))
    when = int(surplus[doubled].min()) if doubled.size else last_write
    return WrongSchedule(schedule, rank, chunk, when, *(tuple(map(int, who)) for who in (missing, doubled, foreign)))


def table(schedule: Schedule, only: Sequence[int] | None = None) -> str:
    """What each rank holds in each chunk after each round, as text: digits name contributing ranks, ``*`` is all.

    Made for up to ten ranks and few chunks (``only`` picks the ranks to show); the docstrings of
    `dthw.collectives.algorithms` show it at work.
    """
    p = schedule.ranks
    if p > 10:
        raise ValueError(f"table shows at most 10 ranks (one digit each), not {p}; use dthw.draw.schedule for more")
    parts = contributions(schedule)
    shown = range(p) if only is None else only

    def cells() -> list[list[str]]:
        return [
            ["*" if (c == 1).all() else "".join(str(q) * int(c[q]) for q in range(p)) for c in parts[r]] for r in shown
        ]

    rows = [("start", cells())]
    rows += [
        (f"{k} {''.join(sorted(set(r.op.tolist())))}", cells())
        for k, r in enumerate(propagate(schedule, parts), start=1)
    ]
    width = max(len(cell) for _, ranks in rows for row in ranks for cell in row)
    blocks = [(label, [" ".join(f"{cell:<{width}}" for cell in row) for row in ranks]) for label, ranks in rows]
    lines = [("round", [f"rank {r}" for r in shown]), *blocks]
    wide, first = (max(map(len, column)) for column in (lines[0][1] + blocks[0][1], [label for label, _ in lines]))
    return "\n".join(
        (f"{label:<{first}} | " + " | ".join(f"{b:<{wide}}" for b in block)).rstrip() for label, block in lines
    )

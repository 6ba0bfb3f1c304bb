"""What a picture of a schedule shows, before anything is drawn: one panel a round, with exact counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dthw.collectives.schedule import Round, Schedule
from dthw.collectives.verify import EXACT_RANKS, contributions, propagate

MANY = 24
"""Of a longer schedule only the first two repetitions and the last of each of its rows are shown."""


@dataclass(frozen=True)
class Panel:
    """The state after one round (round 0 is the start, with no messages) and how it came about."""

    round: int
    held: NDArray[np.int64]  # (ranks, chunks): how many ranks' parts are in each place
    written: NDArray[np.str_]  # (ranks, chunks): '+', '=' or '' where nothing was written in this round
    messages: Round | None
    port: Fraction  # of the buffer: what goes through the busiest port, in the direction with more

    @property
    def ops(self) -> str:
        """'+', '=', both, or neither."""
        return "" if self.messages is None else "".join(sorted(set(self.messages.op.tolist())))


def panels(schedule: Schedule, rounds: Sequence[int] | None = None) -> list[Panel]:
    """The start and the chosen ``rounds`` (from 1; by default all, or of more than `MANY` a sample).

    Raises ValueError for a round that the schedule does not have, and for more ranks than can be counted exactly.
    """
    p, total = schedule.ranks, schedule.n_rounds
    if p > EXACT_RANKS:
        raise ValueError(f"{schedule.name} has {p} ranks; at most {EXACT_RANKS} can be counted and drawn")
    chosen = set(_sample(schedule) if rounds is None else rounds)
    if unknown := sorted(chosen - set(range(total + 1))):
        raise ValueError(f"{schedule.name} has rounds 1 to {total}; there is no round {unknown[0]}")
    parts = contributions(schedule)
    nothing = np.full((p, schedule.chunks), "")
    shown = [Panel(0, parts.sum(axis=2), nothing, None, Fraction(0))]
    for k, r in enumerate(propagate(schedule, parts), start=1):
        if k in chosen:
            written = nothing.copy()
            for dst, lo, n, op in zip(r.dst, r.lo, r.n, r.op, strict=True):
                written[dst, lo : lo + n] = op
            busiest = max(int(np.bincount(end, r.n, minlength=p).max()) for end in (r.src, r.dst)) if r.src.size else 0
            shown.append(Panel(k, parts.sum(axis=2), written, r, Fraction(busiest, schedule.chunks)))
    return shown


def _sample(schedule: Schedule) -> list[int]:
    total = schedule.n_rounds
    if total <= MANY:
        return list(range(1, total + 1))
    ends = np.cumsum([row.times for row in schedule.rows])
    starts = ends - [row.times for row in schedule.rows]
    few = {int(k) for start, end in zip(starts, ends, strict=True) for k in (start + 1, min(start + 2, end), end)}
    return sorted(few)

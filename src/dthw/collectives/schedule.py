"""A collective algorithm as data: rows of messages that repeat, checked when built."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all")


class Round(NamedTuple):
    """The messages that are under way at the same time: message i moves chunks lo[i] to lo[i] + n[i] - 1."""

    src: Ints
    dst: Ints
    lo: Ints
    n: Ints
    op: NDArray[np.str_]  # '+' adds to what dst holds, '=' replaces it


@dataclass(frozen=True, eq=False)
class Step:
    """One row of a schedule: a set of messages, sent ``times`` times while the chunks they carry move on.

    In repetition t = 0 .. times-1, message i carries the ``n`` chunks that start at ``base + (lo + t*shift) mod span``:
    the window ``base .. base+span-1`` of the buffer is walked in a circle. With ``wrap=False`` the walk has ends, and a
    message rests while it is outside, that is unless ``0 <= lo + t*shift <= span - n``: a pipeline fills and drains.

    Every field but ``times`` and ``wrap`` may be an array; they broadcast over the messages. ``span=None`` means
    from ``base`` to the end of the buffer.

    >>> Step(src=[0, 1, 2], dst=[1, 2, 0], lo=[2, 0, 1], op="+", times=2, shift=-1).messages
    3
    """

    src: ArrayLike
    dst: ArrayLike
    lo: ArrayLike
    n: ArrayLike = 1
    op: ArrayLike = "+"
    times: int = 1
    shift: ArrayLike = 0
    base: ArrayLike = 0
    span: ArrayLike | None = None
    wrap: bool = True

    @property
    def messages(self) -> int:
        """Messages in one repetition."""
        fields = (self.src, self.dst, self.lo, self.n, self.op, self.shift, self.base)
        return int(np.prod(np.broadcast_shapes(*(np.shape(f) for f in fields)), dtype=int))


@dataclass(frozen=True, eq=False)
class Row:
    """A step with every field spelled out as an array over its messages (broadcast fields take no memory)."""

    src: Ints
    dst: Ints
    lo: Ints
    n: Ints
    op: NDArray[np.str_]
    shift: Ints
    base: Ints
    span: Ints
    times: int
    wrap: bool

    def at(self, t: int) -> Round:
        """The messages of repetition t."""
        at = self.lo + t * self.shift
        if self.wrap:
            return Round(self.src, self.dst, self.base + at % self.span, self.n, self.op)
        on = (at >= 0) & (at <= self.span - self.n)
        return Round(self.src[on], self.dst[on], (self.base + at)[on], self.n[on], self.op[on])

    def of_rank(self, rank: int) -> "Row":
        """The same row with only the messages this rank sends or receives."""
        on = (self.src == rank) | (self.dst == rank)
        numbers = (self.src, self.dst, self.lo, self.n, self.shift, self.base, self.span)
        src, dst, lo, n, shift, base, span = (a[on] for a in numbers)
        return Row(src, dst, lo, n, self.op[on], shift, base, span, self.times, self.wrap)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Messages that together carry out a collective operation on ``ranks`` ranks.

    The buffer of every rank is cut in ``chunks`` near-equal pieces (see `bounds`). Rounds follow one another; within a
    round every message reads before any writes.

    Parameters
    ----------
    ranks, chunks : int
        At least 1 each.
    steps : sequence of Step
        Carried out in order.
    name : str
        What it is called in tables, pictures and errors.
    collective : str
        What it achieves: 'all_reduce', 'reduce_scatter', 'all_gather', 'broadcast', 'reduce', or 'all_to_all' (a
        message pattern for cost and simulation only: there ``lo`` is a place in the sender's buffer).
    root : int
        Where a broadcast starts and a reduce ends.
    owner : array of int, optional
        owner[c] is the rank that ends (reduce-scatter) or starts (all-gather) with chunk c; default
        c * ranks // chunks.

    Raises
    ------
    ValueError
        A rank or chunk out of range, a message to oneself, a message that crosses the end of its window, or two
        messages of one round that write one place and do not both add.

    Examples
    --------
    >>> swap = Schedule(2, 1, [Step([0, 1], [1, 0], lo=0)], name="swap and add")
    >>> print(swap)
    swap and add: all_reduce on 2 ranks, 1 chunk, 1 round, 2 messages
    (round 1) 0>1 +0 · 1>0 +0
    """

    ranks: int
    chunks: int
    steps: Sequence[Step]
    name: str = "schedule"
    collective: str = "all_reduce"
    root: int = 0
    owner: ArrayLike | None = None
    rows: tuple[Row, ...] = field(init=False, repr=False)
    owners: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for what, value in (("ranks", self.ranks), ("chunks", self.chunks)):
            if value < 1:
                raise ValueError(f"{self.name}: {what} is {value}; a schedule needs at least 1")
        if self.collective not in COLLECTIVES:
            raise ValueError(
                f"{self.name}: collective is {self.collective!r}; it must be one of {', '.join(COLLECTIVES)}"
            )
        if not 0 <= self.root < self.ranks:
            raise ValueError(f"{self.name}: root is {self.root}; the ranks are 0 to {self.ranks - 1}")
        default = np.arange(self.chunks) * self.ranks // self.chunks
        owners = default if self.owner is None else np.asarray(self.owner, dtype=np.int64)
        if owners.shape != (self.chunks,) or owners.min() < 0 or owners.max() >= self.ranks:
            raise ValueError(
                f"{self.name}: owner must give one rank of 0 to {self.ranks - 1} for each of {self.chunks} chunks"
            )
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "owners", owners)
        object.__setattr__(self, "rows", tuple(self._row(k, step) for k, step in enumerate(self.steps)))

    def _row(self, k: int, step: Step) -> Row:
        span = np.asarray(self.chunks) - step.base if step.span is None else step.span
        numbers = (step.src, step.dst, step.lo, step.n, step.shift, step.base, span)
        whole = [np.atleast_1d(np.asarray(x, dtype=np.int64)) for x in numbers]
        shape = np.broadcast_shapes(*(a.shape for a in whole), np.shape(step.op))
        src, dst, lo, n, shift, base, window = (np.broadcast_to(a, shape) for a in whole)
        op = np.broadcast_to(np.asarray(step.op, dtype=np.str_), shape)
        row = Row(src, dst, lo, n, op, shift, base, window, step.times, step.wrap)
        self._check(k, row)
        return row

    def _check(self, k: int, row: Row) -> None:
        def refuse(bad: NDArray[np.bool_], why: str) -> None:
            if bad.any():
                i = int(np.argmax(bad))
                raise ValueError(f"{self.name}: row {k}, message {i} ({row.src[i]} to {row.dst[i]}): {why}")

        if row.times < 0:
            raise ValueError(f"{self.name}: row {k} is repeated {row.times} times; it must be 0 or more")
        refuse((row.src < 0) | (row.src >= self.ranks), f"the sender is not one of the ranks 0 to {self.ranks - 1}")
        refuse((row.dst < 0) | (row.dst >= self.ranks), f"the receiver is not one of the ranks 0 to {self.ranks - 1}")
        refuse(row.src == row.dst, "a rank does not send to itself")
        refuse((row.op != "+") & (row.op != "="), "op must be '+' (reduce) or '=' (copy)")
        refuse((row.base < 0) | (row.span < 1) | (row.base + row.span > self.chunks),
               f"its window leaves the buffer of {self.chunks} chunks")  # fmt: skip
        refuse((row.n < 1) | (row.n > row.span), "it must carry at least 1 chunk and fit its window")
        if row.wrap:
            refuse(_crosses_end(row), "it crosses the end of its window")
        if (self.collective != "all_to_all") and (row.op == "=").any() and not _surely_free_of_conflicts(row):
            for t in range(row.times):
                clash = _conflict(row.at(t))
                if clash is not None:
                    i, now = clash, row.at(t)
                    raise ValueError(
                        f"{self.name}: row {k}, repetition {t}: two messages write chunk {now.lo[i]} of rank "
                        f"{now.dst[i]}, one of them with '='; only additions may share a place in a round"
                    )

    def rounds(self, rank: int | None = None) -> Iterator[Round]:
        """Each round's messages as plain arrays; with ``rank``, only those that this rank sends or receives.

        Cost: a few numpy operations per round; a 16,384-ring has 32,766 rounds of 16,384 messages.
        """
        for row in self.rows:
            mine = row if rank is None else row.of_rank(rank)
            for t in range(row.times):
                yield mine.at(t)

    @property
    def n_rounds(self) -> int:
        """How many rounds follow one another."""
        return sum(row.times for row in self.rows)

    @property
    def n_messages(self) -> int:
        """How many messages are sent in all, by all ranks (of chunks that are not empty)."""
        return sum(row.times * row.src.size if row.wrap else sum(row.at(t).src.size for t in range(row.times))
                   for row in self.rows)  # fmt: skip

    def bounds(self, count: int) -> Ints:
        """First element of each chunk of a buffer of ``count`` elements, and the end: shape (chunks + 1,).

        The first ``count % chunks`` chunks are one element longer than the others; some are empty when count < chunks.

        >>> Schedule(1, 4, []).bounds(10)
        array([ 0,  3,  6,  8, 10])
        """
        if count < 0:
            raise ValueError(f"count is {count}; a buffer has 0 elements or more")
        size, longer = divmod(count, self.chunks)
        c = np.arange(self.chunks + 1)
        return c * size + np.minimum(c, longer)

    def summary(self) -> str:
        """One line: name, collective, size."""
        parts = (f"{self.collective} on {_count(self.ranks, 'rank')}", _count(self.chunks, "chunk"),
                 _count(self.n_rounds, "round"), _count(self.n_messages, "message"))  # fmt: skip
        return f"{self.name}: {', '.join(parts)}"

    def __str__(self) -> str:
        if self.n_messages > 400:
            return self.summary()
        lines = [self.summary()]
        for k, r in enumerate(self.rounds(), start=1):
            said = (f"{s}>{d} {o}{lo}" + (f"-{lo + n - 1}" if n > 1 else "") for s, d, lo, n, o in zip(*r, strict=True))
            lines.append(f"(round {k}) " + " · ".join(said))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Schedule {self.summary()}>"


def together(*tracks: Sequence[Step]) -> list[Step]:
    """Steps that run several sequences of steps at the same time, each cut where another one changes.

    Sequences of unequal length are allowed: the longer one goes on alone. Tracks must not write the same chunks.

    >>> first, second = [Step(0, 1, lo=0, span=2, times=3)], [Step(1, 0, lo=0, base=2, span=2, times=t) for t in (1, 2)]
    >>> [step.times for step in together(first, second)]
    [1, 2]
    """
    ends = [np.cumsum([step.times for step in track]) for track in tracks]
    cuts = np.unique(np.concatenate([[0], *ends]).astype(int))
    joined = []
    for start, stop in itertools.pairwise(cuts):
        now = []
        for track, end in zip(tracks, ends, strict=True):
            k = int(np.searchsorted(end, start, side="right"))
            if k < len(track):
                done = start - (end[k] - track[k].times)
                now.append((track[k], np.asarray(track[k].lo) + done * np.asarray(track[k].shift)))
        joined.append(_side_by_side(now, int(stop - start)))
    return joined


def _side_by_side(parts: list[tuple[Step, ArrayLike]], times: int) -> Step:
    """One step with the messages of several (each with its own present ``lo``)."""
    if any(step.span is None for step, _ in parts) and len(parts) > 1:
        raise ValueError("steps that run together must name their span")
    names = ("src", "dst", "lo", "n", "op", "shift", "base", "span")
    columns: dict[str, list[NDArray[np.generic]]] = {name: [] for name in names}
    for step, lo in parts:
        values = [lo if name == "lo" else getattr(step, name) for name in names]
        span_given = values[-1] is not None
        arrays = np.broadcast_arrays(*(np.atleast_1d(v) for v in (values if span_given else values[:-1])))
        for name, array in zip(names, arrays, strict=False):
            columns[name].append(array)
    merged = {name: np.concatenate(c) if c else None for name, c in columns.items()}
    return Step(**merged, times=times, wrap=parts[0][0].wrap)  # type: ignore[arg-type]


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _crosses_end(row: Row) -> NDArray[np.bool_]:
    """Whether a message of a circular row would run over the end of its window in any repetition."""
    if (row.n == 1).all() or ((row.lo % row.n == 0) & (row.shift % row.n == 0) & (row.span % row.n == 0)).all():
        return np.zeros(row.src.shape, dtype=bool)
    period = int((row.span // np.gcd(row.shift, row.span)).max())
    crosses = np.zeros(row.src.shape, dtype=bool)
    for t in range(min(row.times, period)):
        crosses |= (row.lo + t * row.shift) % row.span + row.n > row.span
    return crosses


def _surely_free_of_conflicts(row: Row) -> bool:
    """A proof, cheap and for all repetitions at once, that no two messages clash; False means: look at each round.

    Two messages of one window that move at one speed keep their distance, so one repetition stands for all.
    """
    order = np.lexsort((row.base, row.dst))
    dst, base, span, shift = (a[order] for a in (row.dst, row.base, row.span, row.shift))
    same_dst = dst[1:] == dst[:-1]
    if not same_dst.any():
        return True
    alike = (base[1:] == base[:-1]) & (span[1:] == span[:-1]) & (shift[1:] == shift[:-1])
    apart = base[1:] >= base[:-1] + span[:-1]
    if not (alike | apart | ~same_dst).all():
        return False
    at = row.lo % row.span if row.wrap else row.lo
    first = Round(row.src, row.dst * row.span.max() * 2 + row.base, at - at.min(), row.n, row.op)  # one group a window
    return _conflict(first) is None


def _conflict(r: Round) -> int | None:
    """Index of a message that overlaps another one at its receiver where not both add; None if there is none."""
    if r.src.size < 2:
        return None
    order = np.lexsort((r.lo, r.dst))
    dst, lo, end, copies = r.dst[order], r.lo[order], (r.lo + r.n)[order], (r.op == "=")[order]
    group = np.cumsum(np.concatenate([[0], dst[1:] != dst[:-1]]))
    far = int(end.max()) + 1
    # The furthest end so far within a receiver: of all messages, and of the copies alone.
    reach_all = np.maximum.accumulate(end + group * far) - group * far
    reach_copy = np.maximum.accumulate(np.where(copies, end, 0) + group * far) - group * far
    reach = np.where(copies[1:], reach_all[:-1], reach_copy[:-1])
    clash = (group[1:] == group[:-1]) & (lo[1:] < reach)
    return int(order[1:][np.argmax(clash)]) if clash.any() else None

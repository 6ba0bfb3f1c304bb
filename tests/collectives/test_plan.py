"""Compiled programs on a model of a rendezvous transport: no deadlock, no hazard, right sums, whatever the schedule.

A message moves only when its receive has been posted and its send handed over, at a moment that hypothesis chooses, as
late as the program allows: a receive reads the sender's buffer when it completes, so that a program which overwrites
what is still being sent, or lets early data land on what is still needed, gets wrong sums.
"""

from collections import defaultdict, deque
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dthw.collectives import plan as plans
from dthw.collectives.algorithms import ALL_REDUCE
from dthw.collectives.plan import ADD, COPY, GOT, POST, SEND, Plan, compile_plan
from dthw.collectives.schedule import Schedule, Step
from dthw.collectives.verify import propagate

SEEDS = st.integers(0, 2**32 - 1)


class Rank:
    def __init__(self, plan: Plan, data: np.ndarray) -> None:
        self.plan, self.data, self.at = plan, data, 0
        scratch = np.full(plan.scratch_size, -(10**9))
        self.views = [data[lo:hi] for lo, hi in plan.buffer_views] + [scratch[lo:hi] for lo, hi in plan.scratch_views]
        self.sent: set[int] = set()
        self.got: set[int] = set()


def carry_out(programs: list[Plan], data: np.ndarray, seed: int) -> None:
    """Run all programs, choosing at random which rank or message moves next."""
    random = Random(seed)
    ranks = [Rank(plan, data[r]) for r, plan in enumerate(programs)]
    posted: dict[tuple[int, int], deque[Any]] = defaultdict(deque)  # (src, dst) -> receives in order
    handed: dict[tuple[int, int], deque[Any]] = defaultdict(deque)

    def step(r: int) -> bool:
        rank = ranks[r]
        if rank.at == len(rank.plan.program):
            return False
        code, a, b, c = rank.plan.program[rank.at]
        if code == POST:
            posted[c, r].append((a, rank.views[b]))
        elif code == SEND:
            handed[r, c].append((a, rank.views[b]))
        elif code == GOT:
            if a not in rank.got:
                return False
        elif code == ADD:
            rank.views[a] += rank.views[b]
        elif code == COPY:
            rank.views[a][:] = rank.views[b]
        elif a not in rank.sent:
            return False
        rank.at += 1
        return True

    def move(pair: tuple[int, int]) -> bool:
        if not (posted[pair] and handed[pair]):
            return False
        (into, target), (out, source) = posted[pair].popleft(), handed[pair].popleft()
        assert target.size == source.size, "sender and receiver cut a message differently"
        target[:] = source
        ranks[pair[1]].got.add(into)
        ranks[pair[0]].sent.add(out)
        return True

    while any(rank.at < len(rank.plan.program) for rank in ranks):
        moves = [(step, r) for r in range(len(ranks))] + [(move, pair) for pair in list(posted)]
        random.shuffle(moves)
        # Lazy data: prefer steps of programs, so that messages move as late as they can.
        moves.sort(key=lambda m: m[0] is move and random.random() < 0.8)
        assert any(act(what) for act, what in moves), "deadlock"  # type: ignore[operator]


def check(schedule: Schedule, count: int, piece: int, seed: int, order: tuple[int, ...] | None = None) -> None:
    p = schedule.ranks
    order = order or tuple(range(p))
    data = np.random.default_rng(seed).integers(0, 1000, (p, count))
    # What the schedule means, element by element: rank i of the schedule is played by order[i].
    edges = schedule.bounds(count)
    wanted = data.copy()
    for c in range(count):
        chunk = int(np.searchsorted(edges, c, side="right")) - 1
        state = np.repeat(data[list(order), c][:, None], schedule.chunks, axis=1)
        for _ in propagate(schedule, state):
            pass
        wanted[list(order), c] = state[:, chunk]
    compile_plan.cache_clear()
    with patch.object(plans, "piece_bytes", lambda ranks: piece):
        programs = [compile_plan(schedule, order, r, count, 1) for r in range(p)]
    carry_out(programs, data, seed)
    assert (data == wanted).all()


@pytest.mark.parametrize("name", ALL_REDUCE)
@given(p=st.integers(1, 9), count=st.integers(0, 40), piece=st.integers(1, 7), seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_every_algorithm(name: str, p: int, count: int, piece: int, seed: int) -> None:
    order = list(range(p))
    Random(seed).shuffle(order)
    check(ALL_REDUCE[name](p), count, piece, seed, tuple(order))


@given(p=st.integers(2, 5), chunks=st.integers(1, 4), count=st.integers(0, 24), piece=st.integers(1, 6), seed=SEEDS,
       data=st.data())  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_arbitrary_schedules(p: int, chunks: int, count: int, piece: int, seed: int, data: st.DataObject) -> None:
    steps = []
    for _ in range(data.draw(st.integers(1, 4))):
        m = data.draw(st.integers(1, 6))
        src = data.draw(st.lists(st.integers(0, p - 1), min_size=m, max_size=m))
        hop = data.draw(st.lists(st.integers(1, p - 1), min_size=m, max_size=m))
        lo = data.draw(st.lists(st.integers(0, chunks - 1), min_size=m, max_size=m))
        dst = [(s + h) % p for s, h in zip(src, hop, strict=True)]
        clean = len(set(dst)) == m
        op = data.draw(st.lists(st.sampled_from("+="), min_size=m, max_size=m)) if clean else "+"
        shift = data.draw(st.integers(-1, 1))
        steps.append(
            Step(src, dst, lo, op=op, times=data.draw(st.integers(1, 3)), shift=shift, wrap=data.draw(st.booleans()))
        )
    check(Schedule(p, chunks, steps), count, piece, seed)

"""A schedule means what design says it means, and an invalid one cannot exist."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dthw.collectives.algorithms import ALL_REDUCE, halving_doubling, ring
from dthw.collectives.schedule import Schedule, Step, together
from dthw.collectives.verify import propagate


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([Step(0, 0, lo=0)], "does not send to itself"),
        ([Step(0, 9, lo=0)], "receiver is not one of the ranks 0 to 3"),
        ([Step(-1, 0, lo=0)], "sender is not one of the ranks"),
        ([Step(0, 1, lo=0, op="*")], "op must be"),
        ([Step(0, 1, lo=0, n=0)], "at least 1 chunk"),
        ([Step(0, 1, lo=0, n=9)], "at least 1 chunk and fit its window"),
        ([Step(0, 1, lo=0, base=2, span=7)], "leaves the buffer of 8 chunks"),
        ([Step(0, 1, lo=7, n=2)], "crosses the end of its window"),
        ([Step(0, 1, lo=0, n=2, times=8, shift=1)], "crosses the end of its window"),
        ([Step(0, 1, lo=0, times=-1)], "repeated -1 times"),
        ([Step([0, 2], 1, lo=0, op="=")], "two messages write chunk 0 of rank 1"),
        ([Step([0, 2], 1, lo=0, op=["+", "="])], "two messages write chunk 0 of rank 1"),
        ([Step([0, 2], 1, lo=[0, 1], n=[2, 1], op="=")], "two messages write chunk 1 of rank 1"),
        # Windows that differ: the clash comes only in repetition 3.
        ([Step([0, 2], 1, lo=[0, 3], op="=", times=5, shift=[1, 0])], "repetition 3: two messages write chunk 3"),
    ],
)
def test_invalid_steps_are_refused_with_the_message_named(steps: list[Step], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Schedule(4, 8, steps, name="planted")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"ranks": 0}, "ranks is 0"),
        ({"chunks": 0}, "chunks is 0"),
        ({"collective": "gossip"}, "collective is 'gossip'"),
        ({"root": 2}, "root is 2"),
        ({"owner": [0]}, "one rank of 0 to 1 for each of 2 chunks"),
    ],
)
def test_invalid_schedules_are_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Schedule(**{"ranks": 2, "chunks": 2, "steps": [], **arguments})  # type: ignore[arg-type]


def test_additions_may_share_a_place_and_windows_may_lie_side_by_side() -> None:
    Schedule(4, 8, [Step([0, 2, 3], 1, lo=0, op="+")])
    Schedule(4, 8, [Step([0, 2], 1, lo=0, base=[0, 4], span=4, op="=", times=4, shift=[1, -1])])


def test_a_window_is_walked_in_a_circle_and_a_pipeline_has_ends() -> None:
    circle = Schedule(2, 6, [Step(0, 1, lo=1, base=2, span=3, shift=2, times=4)])
    assert [r.lo.tolist() for r in circle.rounds()] == [[3], [2], [4], [3]]
    pipeline = Schedule(2, 6, [Step(0, 1, lo=-1, base=2, span=3, shift=1, times=6, wrap=False)])
    assert [r.lo.tolist() for r in pipeline.rounds()] == [[], [2], [3], [4], [], []]
    assert pipeline.n_messages == 3


@given(st.integers(1, 40), st.integers(0, 200))
def test_chunks_are_near_equal_and_the_first_are_longer(chunks: int, count: int) -> None:
    sizes = np.diff(Schedule(1, chunks, []).bounds(count))
    assert sizes.sum() == count and sizes.max() - sizes.min() <= 1
    assert (np.diff(sizes) <= 0).all()
    assert [len(part) for part in np.array_split(np.arange(count), chunks)] == sizes.tolist()


@given(st.integers(1, 6), st.integers(1, 5), st.data())
@settings(max_examples=150, deadline=None)
def test_propagate_is_the_plain_loop_over_messages(p: int, chunks: int, data: st.DataObject) -> None:
    """Whatever rows hypothesis builds: all reads of a round precede its writes."""
    steps = []
    for _ in range(data.draw(st.integers(0, 3)) if p > 1 else 0):
        m = data.draw(st.integers(1, 4))
        src = data.draw(st.lists(st.integers(0, p - 1), min_size=m, max_size=m))
        hop = data.draw(st.lists(st.integers(1, p - 1), min_size=m, max_size=m))
        lo = data.draw(st.lists(st.integers(-3, chunks), min_size=m, max_size=m))
        steps.append(
            Step(src, [(s + h) % p for s, h in zip(src, hop, strict=True)], lo, op="+",
                 times=data.draw(st.integers(0, 4)), shift=data.draw(st.integers(-2, 2)), wrap=data.draw(st.booleans()))
        )  # fmt: skip
    schedule = Schedule(p, chunks, steps)
    state = np.arange(p * chunks).reshape(p, chunks) ** 2
    plain = state.copy()
    for step in steps:
        for t in range(step.times):
            before = plain.copy()
            for s, d, lo in zip(step.src, step.dst, step.lo, strict=True):  # type: ignore[arg-type]
                at = lo + t * int(step.shift)  # type: ignore[call-overload]
                if step.wrap:
                    plain[d, at % chunks] += before[s, at % chunks]
                elif 0 <= at <= chunks - 1:
                    plain[d, at] += before[s, at]
    for _ in propagate(schedule, state):
        pass
    assert (state == plain).all()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_steps_run_together_carry_what_they_carry_alone(first: list[int], second: list[int]) -> None:
    def track(times: list[int], src: int, base: int) -> list[Step]:
        return [Step(src, src + 1, lo=k, base=base, span=7, shift=1 + k % 2, times=t) for k, t in enumerate(times)]

    a, b = track(first, 0, 0), track(second, 2, 7)
    both = list(Schedule(4, 14, together(a, b)).rounds())
    for steps in (a, b):
        alone = list(Schedule(4, 14, steps).rounds())
        assert len(both) >= len(alone)
        sender = int(np.asarray(steps[0].src))
        got = [r.lo[r.src == sender].tolist() for r in both]
        assert got == [r.lo.tolist() for r in alone] + [[]] * (len(both) - len(alone))


def test_a_ring_of_16384_takes_little_memory() -> None:
    """Its build time is shown by benchmarks/schedules.py."""
    tracemalloc.start()
    big = ring(16384)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert big.n_messages == 2 * 16383 * 16384
    assert peak < 10e6 and kept < 2e6


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_a_schedule_prints_itself(name: str) -> None:
    text = str(ALL_REDUCE[name](4))
    assert "all_reduce on 4 ranks" in text.splitlines()[0]
    assert text.count("(round ") == ALL_REDUCE[name](4).n_rounds


def test_one_rank_sees_exactly_its_messages() -> None:
    whole = halving_doubling(12)
    for rank in range(12):
        for mine, everybody in zip(whole.rounds(rank), whole.rounds(), strict=True):
            on = (everybody.src == rank) | (everybody.dst == rank)
            assert all((a == b[on]).all() for a, b in zip(mine, everybody, strict=True))

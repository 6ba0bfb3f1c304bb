"""The verifier accepts what is right, and finds and names what is not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dthw.collectives.algorithms import ALL_REDUCE, double_binary_tree, halving_doubling, hierarchical, ring, torus_2d
from dthw.collectives.primitives import all_gather, all_to_all, broadcast, reduce, reduce_scatter
from dthw.collectives.schedule import Schedule, Step
from dthw.collectives.verify import WrongSchedule, table, verify


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_every_all_reduce_is_right_for_1_to_65_ranks(name: str) -> None:
    for p in range(1, 66):
        assert verify(ALL_REDUCE[name](p)).ranks == p


@pytest.mark.parametrize("build", [reduce_scatter, all_gather, broadcast, reduce])
def test_the_other_collectives_are_right(build: object) -> None:
    for p in range(1, 66):
        verify(build(p))  # type: ignore[operator]
    for root in range(5):
        verify(broadcast(5, root))
        verify(reduce(5, root))


def test_every_shape_of_grid_and_every_number_of_segments() -> None:
    for p in (12, 30, 64):
        for side in (d for d in range(1, p + 1) if p % d == 0):
            verify(hierarchical(p, side))
            verify(torus_2d(p, side))
    for p in (2, 3, 7, 10):
        for segments in (1, 2, 3, 7):
            verify(double_binary_tree(p, segments))


@pytest.mark.parametrize("p", [100, 257, 1024])
def test_large_schedules_are_verified_with_random_weights(p: int) -> None:
    verdict = verify(halving_doubling(p))
    assert not verdict.exact
    verify(double_binary_tree(p))


def _without(schedule: Schedule, row: int, message: int) -> Schedule:
    """The schedule with one message of one row left out."""
    r = schedule.rows[row]
    keep = np.arange(r.src.size) != message
    step = Step(r.src[keep], r.dst[keep], r.lo[keep], r.n[keep], r.op[keep], r.times, r.shift[keep], r.base[keep],
                r.span[keep], r.wrap)  # fmt: skip
    return replace(schedule, steps=[*schedule.steps[:row], step, *schedule.steps[row + 1 :]])


@pytest.mark.parametrize("p", [4, 9, 80])
def test_a_missing_contribution_is_found_and_named(p: int) -> None:
    """Rank 1 of a ring never passes anything on while reducing: chunk 0 arrives without ranks 1, 2 ..."""
    with pytest.raises(WrongSchedule) as found:
        verify(_without(ring(p), 0, 1))
    error = found.value
    assert error.missing and not error.doubled
    assert "missing" in str(error) and f"rank {error.rank}, chunk {error.chunk}" in str(error)
    # Whatever chunk c is wrong, rank 1 and those before it on its way round did not get through to its owner c.
    assert 1 in error.missing


@pytest.mark.parametrize("p", [4, 9, 80])
def test_a_doubled_contribution_is_found_and_named(p: int) -> None:
    again = Step(1, 2, lo=0, op="+")  # rank 1 hands its own part of chunk 0 to rank 2 once more, before the ring starts
    with pytest.raises(WrongSchedule) as found:
        verify(replace(ring(p), steps=[again, *ring(p).steps]))
    error = found.value
    assert error.doubled == (1,) and error.missing == () and error.chunk == 0
    # The surplus copy meets the regular one at rank 2, in the ring's first round: the second round of the whole.
    assert error.round == 2
    assert "part of rank 1 is added more than once" in str(error)


def test_a_foreign_contribution_in_an_all_gather_is_named() -> None:
    extra = Step(2, 0, lo=3, op="+")
    with pytest.raises(WrongSchedule) as found:
        verify(replace(all_gather(4), steps=[*all_gather(4).steps, extra]))
    assert (found.value.rank, found.value.chunk, found.value.doubled) == (0, 3, (3,))


def test_many_surplus_copies_do_not_wrap_round_to_one() -> None:
    """Doubling 64 times multiplies by 2**64, which is 0 in 64-bit arithmetic; adding 1 more would look right."""
    twice = [Step([0, 1], [1, 0], lo=0, op="+")] * 70
    with pytest.raises(WrongSchedule, match="more than once"):
        verify(Schedule(2, 1, twice))


@given(st.integers(2, 20), st.data())
@settings(max_examples=60, deadline=None)
def test_dropping_any_message_of_any_algorithm_is_noticed(p: int, data: st.DataObject) -> None:
    """Every message of these algorithms is needed; the verifier must say so whichever is missing."""
    schedule = ALL_REDUCE[data.draw(st.sampled_from(sorted(ALL_REDUCE)))](p)
    row = data.draw(st.integers(0, len(schedule.rows) - 1))
    message = data.draw(st.integers(0, schedule.rows[row].src.size - 1))
    with pytest.raises(WrongSchedule):
        verify(_without(schedule, row, message))


def test_an_all_to_all_pattern_cannot_be_verified() -> None:
    with pytest.raises(ValueError, match="message pattern"):
        verify(all_to_all(4))


def test_the_table_refuses_what_it_cannot_show() -> None:
    with pytest.raises(ValueError, match="at most 10 ranks"):
        table(ring(11))

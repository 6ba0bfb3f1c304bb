"""Counted message by message, a schedule costs exactly what the textbook says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dthw.collectives import formulas
from dthw.collectives.algorithms import (
    ALL_REDUCE,
    double_binary_tree,
    hierarchical,
    ring,
    sharded_parameter_server,
    torus_2d,
)
from dthw.collectives.cost import Cost, LogGP, Port, cost, traffic
from dthw.collectives.primitives import all_gather, all_to_all, broadcast, reduce, reduce_scatter
from dthw.collectives.schedule import Schedule

ONE = Port(alpha_s=1.0, beta_s=1.0, gamma_s=1.0)


def terms(c: Cost) -> tuple[float, ...]:
    return (
        c.rounds,
        c.port_bytes,
        c.reduced_bytes,
        int(c.traffic.messages_sent.sum()),
        int(c.traffic.bytes_sent.sum()),
    )


@pytest.mark.parametrize("name", ALL_REDUCE)
@pytest.mark.parametrize("itemsize", [1, 4])
def test_messages_bytes_and_time_equal_the_closed_form_for_1_to_65_ranks(name: str, itemsize: int) -> None:
    for p in range(1, 66):
        schedule = ALL_REDUCE[name](p)
        n = schedule.chunks * itemsize * 3
        counted, closed = cost(schedule, n, ONE, itemsize), formulas.ALL_REDUCE[name](p, n)
        assert terms(counted) == pytest.approx(tuple(closed), rel=1e-12)
        assert counted.seconds == pytest.approx(closed.seconds(1, 1, 1), rel=1e-12)


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_nothing_costs_nothing(name: str) -> None:
    assert terms(cost(ALL_REDUCE[name](7), 0, ONE)) == (0, 0, 0, 0, 0) == tuple(formulas.ALL_REDUCE[name](7, 0))


def test_other_grids_and_segment_numbers_equal_their_closed_forms_too() -> None:
    for p in (12, 36):
        for side in (d for d in range(1, p + 1) if p % d == 0):
            for build, form in ((hierarchical, formulas.hierarchical), (torus_2d, formulas.torus_2d)):
                schedule = build(p, side)
                assert terms(cost(schedule, schedule.chunks, ONE)) == pytest.approx(
                    tuple(form(p, schedule.chunks, side))
                )
    for p in (2, 3, 4, 5, 8, 9, 33, 100, 129):
        fill = 2 * (p - 1).bit_length()
        for segments in (fill, fill + 1, 40):
            schedule = double_binary_tree(p, segments)
            closed = formulas.double_binary_tree(p, schedule.chunks, segments)
            assert terms(cost(schedule, schedule.chunks, ONE)) == pytest.approx(tuple(closed))
        with pytest.raises(ValueError, match="never fill a pipeline"):
            formulas.double_binary_tree(p, 1000, fill - 1)


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_no_algorithm_beats_the_lower_bounds(name: str) -> None:
    for p in range(1, 66):
        n = 8 * ALL_REDUCE[name](p).chunks
        rounds, port, reduced = formulas.lower_bound("all_reduce", p, n)
        closed = formulas.ALL_REDUCE[name](p, n)
        # The bound on rounds is for one message a round; a port that takes many at once is not bound by it.
        many_at_once = {"one_shot": 1, "parameter_server": 2, "sharded_parameter_server": 2}
        assert closed.rounds >= min(rounds, many_at_once.get(name, rounds))
        assert closed.port_bytes >= port - 1e-6 and closed.reduced_bytes >= reduced - 1e-6


@pytest.mark.parametrize(
    ("build", "collective"),
    [(reduce_scatter, "reduce_scatter"), (all_gather, "all_gather"), (broadcast, "broadcast"), (reduce, "reduce"),
     (all_to_all, "all_to_all")],
)  # fmt: skip
def test_the_other_collectives_meet_their_bound_in_bytes_or_in_rounds(build: object, collective: str) -> None:
    for p in range(1, 66):
        schedule: Schedule = build(p)  # type: ignore[operator]
        n = 8 * schedule.chunks
        c = cost(schedule, n, ONE)
        rounds, port, reduced = formulas.lower_bound(collective, p, n)
        assert (
            c.rounds >= rounds and c.port_bytes >= port and (collective == "all_to_all" or c.reduced_bytes >= reduced)
        )
        assert c.rounds == rounds or c.port_bytes == port


@given(st.sampled_from(sorted(ALL_REDUCE)), st.integers(1, 20), st.integers(0, 500), st.sampled_from([1, 2, 8]))
@settings(deadline=None, max_examples=80)
def test_uneven_chunks_are_charged_by_their_real_sizes(name: str, p: int, count: int, itemsize: int) -> None:
    """Message by message, with the bounds that numpy.array_split gives."""
    schedule = ALL_REDUCE[name](p)
    edges = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(count), schedule.chunks))])
    sent, messages = np.zeros(p, dtype=int), np.zeros(p, dtype=int)
    for r in schedule.rounds():
        for src, lo, n in zip(r.src, r.lo, r.n, strict=True):
            elements = edges[lo + n] - edges[lo]
            sent[src] += elements * itemsize
            messages[src] += elements > 0
    moved = traffic(schedule, count, itemsize)
    assert (moved.bytes_sent == sent).all() and (moved.messages_sent == messages).all()
    assert moved.bytes_received.sum() == moved.bytes_sent.sum()


def test_published_examples() -> None:
    # 100 MB on 4 GPUs: 150 MB out of each (NVIDIA/nccl issue 457, a maintainer's answer).
    assert formulas.ring(4, 100e6).port_bytes == 150e6
    # 1024 ranks, 5 us a step: 2046 ring steps take 10.2 ms before any data moves; a doubling in 10 rounds, 0.05 ms.
    assert formulas.ring(1024, 1).seconds(5e-6, 0) == pytest.approx(10.23e-3)
    assert formulas.recursive_doubling(1024, 1).seconds(5e-6, 0) == pytest.approx(50e-6)
    # 1 GiB over links of 50 GiB/s and 500 ns (a published flow-level formula): 40.984 ms at 1024, 56.381 ms at 16,384.
    # Both figures count the all-reduce's 2(p-1) steps with 500 ns each.
    link = {"alpha_s": 500e-9, "beta_s": 1 / (50e9 * 1.073741824)}
    assert formulas.ring(1024, 2**30).seconds(**link) * 1e3 == pytest.approx(40.984, abs=0.02)
    assert formulas.ring(16384, 2**30).seconds(**link) * 1e3 == pytest.approx(56.381, abs=0.02)
    # 6 ranks, folded: n + 1.5n + n through the busiest port in 6 rounds, a ring 1.67n in 10.
    assert formulas.halving_doubling(6, 6)[:2] == (6, 21.0) and formulas.ring(6, 6)[:2] == (10, 10.0)


def test_loggp_charges_every_message() -> None:
    """One message of k bytes costs L + 2o + (k-1)G (Alexandrov et al. 1995); m of them wait (m-1) gaps."""
    model = LogGP(L_s=10.0, o_s=2.0, g_s=3.0, G_s=0.5)
    assert cost(broadcast(2), 9, model).seconds == 10 + 2 * 2 + 8 * 0.5
    direct = cost(sharded_parameter_server(4), 4, model)  # two rounds of 3 messages of 1 byte
    assert direct.seconds == 2 * (10 + 2 * 2 + 2 * 3 + 0)
    port = Port(alpha_s=model.L_s + 2 * model.o_s, beta_s=model.G_s)
    few = {p: cost(ring(p), p, model).seconds / cost(ring(p), p, port).seconds for p in (16, 64)}
    many = {p: cost(sharded_parameter_server(p), p, model).seconds / cost(sharded_parameter_server(p), p, port).seconds
            for p in (16, 64)}  # fmt: skip
    assert many[64] > many[16] > 1 > few[64] * 0.99, "small messages cost the direct exchange more than the ring"


@pytest.mark.parametrize("p", [2, 6, 8, 64, 1000])
def test_crossover_is_where_the_two_lines_meet(p: int) -> None:
    link = {"alpha_s": 5e-6, "beta_s": 2e-11}
    size = formulas.crossover("recursive_doubling", "ring", p, **link)
    if size == 0 or math.isinf(size):
        assert p == 2
        return
    small, large = (formulas.ALL_REDUCE[name](p, size).seconds(**link) for name in ("recursive_doubling", "ring"))
    assert small == pytest.approx(large)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="nbytes is 10, itemsize 4"):
        cost(ring(4), 10, ONE, itemsize=4)
    with pytest.raises(ValueError, match="nbytes is -1"):
        cost(ring(4), -1, ONE)
    with pytest.raises(ValueError, match="count is -1"):
        ring(4).bounds(-1)
    with pytest.raises(ValueError, match="p is 0"):
        formulas.ring(0, 5)
    with pytest.raises(ValueError, match="number of ranks is 0"):
        ring(0)
    with pytest.raises(ValueError, match="gpus is 3"):
        hierarchical(8, 3)
    with pytest.raises(ValueError, match="collective is 'gossip'"):
        formulas.lower_bound("gossip", 4, 4)

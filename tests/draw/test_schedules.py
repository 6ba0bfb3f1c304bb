"""A picture of a schedule shows what the verifier counts, in as many panels as there are rounds."""

from fractions import Fraction

import numpy as np
import pytest
from matplotlib.axes import Axes

from dthw import draw
from dthw.collectives import algorithms, primitives
from dthw.collectives.cost import Port, cost
from dthw.collectives.schedule import Schedule, Step
from dthw.collectives.verify import propagate
from dthw.draw.panels import MANY, panels
from dthw.draw.schedules import layout, share

RANKS = (1, 2, 3, 5, 8)


def counts(schedule: Schedule) -> list[np.ndarray]:
    """How many ranks' parts the verifier finds in each (rank, chunk), at the start and after each round."""
    p = schedule.ranks
    parts = np.zeros((p, schedule.chunks, p), dtype=np.int64)
    parts[np.arange(p), :, np.arange(p)] = 1
    return [parts.sum(axis=2), *(parts.sum(axis=2) for _ in propagate(schedule, parts))]


def drawn(axes: Axes, schedule: Schedule, count: int) -> np.ndarray:
    """The counts that a panel shows, read back from its rectangles."""
    plan = layout(schedule.ranks, schedule.chunks, count)
    held = np.zeros((schedule.ranks, schedule.chunks), dtype=np.int64)
    for patch in axes.patches:
        if patch.get_label().startswith("holds "):
            corners = patch.get_path().vertices.reshape(-1, 5, 2)[:, 0]
            column = np.round((corners[:, 0] - plan.arrows) / plan.cell[0]).astype(int)
            row = np.round((corners[:, 1] - corners[:, 1].min()) / plan.cell[1]).astype(int)
            row += round((corners[:, 1].min() - 24) / plan.cell[1])
            assert (held[row, column] == 0).all(), "two rectangles in one place"
            held[row, column] = int(patch.get_label().split()[1])
    return held


@pytest.mark.parametrize("name", algorithms.ALL_REDUCE)
@pytest.mark.parametrize("p", RANKS)
def test_every_round_has_a_panel_with_the_counts_of_the_verifier(name: str, p: int) -> None:
    schedule = algorithms.ALL_REDUCE[name](p)
    shown = panels(schedule)
    figure = draw.schedule(schedule)
    *grids, _key = figure.axes
    assert len(grids) == len(shown)
    expected = counts(schedule)
    if schedule.n_rounds <= MANY:
        assert len(shown) == schedule.n_rounds + 1
    for panel, axes in zip(shown, grids, strict=True):
        np.testing.assert_array_equal(panel.held, expected[panel.round])
        np.testing.assert_array_equal(drawn(axes, schedule, len(shown)), expected[panel.round])


@pytest.mark.parametrize("name", algorithms.ALL_REDUCE)
def test_what_is_framed_is_what_the_round_wrote(name: str) -> None:
    schedule = algorithms.ALL_REDUCE[name](8)
    for panel in panels(schedule)[1:]:
        wanted = np.full((8, schedule.chunks), "")
        for dst, lo, n, op in zip(*panel.messages[1:], strict=True):
            wanted[dst, lo : lo + n] = op
        np.testing.assert_array_equal(panel.written, wanted)


@pytest.mark.parametrize("name", algorithms.ALL_REDUCE)
def test_the_shares_beside_the_titles_add_up_to_the_cost(name: str) -> None:
    schedule = algorithms.ALL_REDUCE[name](8)
    n = 64 * schedule.chunks
    shares = [panel.port for panel in panels(schedule, range(1, schedule.n_rounds + 1))]
    assert sum(shares) * n == cost(schedule, n, Port(0, 0)).port_bytes


def test_other_collectives_and_one_sided_rounds_can_be_drawn() -> None:
    for schedule in (primitives.broadcast(8), primitives.reduce(5), primitives.all_gather(4)):
        assert len(draw.schedule(schedule).axes) == schedule.n_rounds + 2
    idle = Schedule(2, 2, [Step(0, 1, lo=-1, op="=", times=2, shift=1, wrap=False)], collective="broadcast")
    assert panels(idle)[1].ops == ""
    assert len(draw.schedule(idle, theme=draw.DARK).axes) == 4


def test_a_long_schedule_shows_how_each_of_its_rows_begins_and_ends() -> None:
    assert [panel.round for panel in panels(algorithms.ring(16))] == [0, 1, 2, 15, 16, 17, 30]
    assert [panel.round for panel in panels(algorithms.ring(16), [3, 30])] == [0, 3, 30]


def test_what_cannot_be_drawn_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="ring has rounds 1 to 6; there is no round 7"):
        draw.schedule(algorithms.ring(4), rounds=[1, 7])
    with pytest.raises(ValueError, match="ring has 65 ranks; at most 64"):
        draw.schedule(algorithms.ring(65))


def test_shares_are_written_as_one_reads_them() -> None:
    assert [share(Fraction(*x)) for x in ((1, 1), (2, 1), (1, 8), (3, 4))] == ["n", "2n", "n/8", "3n/4"]

"""A schedule step by step: small multiples that read from left to right, from who sends to what everyone holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import hypot

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from dthw.collectives.schedule import Schedule
from dthw.draw.panels import Panel, panels
from dthw.draw.style import FONT, LIGHT, SMALL, WIDTH, Theme, canvas, drawing

TITLE, BELOW, KEY, HEAD = 24, 26, 42, 6  # pixels above a grid, below it, of the key, and of an arrow's head
HELD = "ranks' parts in a place"
PORT = "At the right of each title: bytes of the round through the busiest port, for buffers of n bytes."
ARROW_DASH, FRAME_DASH = (0, (3, 1.5)), (0, (2, 1.2))
Ends = Sequence[tuple[float, float, float, float]]
Line = str | tuple[float, tuple[float, ...]]
WORDS = {"+": "reduce", "=": "copy", "+=": "reduce, copy", "": "nothing sent"}


@dataclass(frozen=True)
class Layout:
    """Places within a panel, in pixels; the same for all panels of a figure."""

    columns: int
    arrows: int  # width of the strip in which arrows run, the ranks' numbers included
    cell: tuple[int, int]
    gap: int
    ranks: int
    chunks: int

    @property
    def size(self) -> tuple[int, int]:
        return self.arrows + self.chunks * self.cell[0] + 4, TITLE + self.ranks * self.cell[1] + BELOW

    @property
    def name(self) -> int:
        """Width of a rank's number, behind which its arrows begin."""
        return 16 if self.ranks <= 10 else 22

    @property
    def roomy(self) -> bool:
        """Whether every cell can carry its number; in narrow cells only the changing ones do."""
        return self.cell[0] >= 16 and self.chunks <= 8


def layout(ranks: int, chunks: int, count: int) -> Layout:
    """As many panels side by side as leave cells wide enough to read, spread evenly over the rows."""
    for columns in (5, 4, 3, 2, 1):
        room = (WIDTH + 18) // columns - 18 - 4
        if (room - 46) // chunks >= 11 or columns == 1:
            break
    columns = -(-count // -(-count // columns))
    room = (WIDTH + 18) // columns - 18 - 4
    wide = max(8, min((room - (46 if chunks > 8 else 54)) // chunks, 44 if chunks == 1 else 24 if chunks <= 4 else 18))
    arrows = min(room - chunks * wide, 110)
    gap = min(60, (WIDTH - columns * (arrows + chunks * wide + 4)) // max(columns - 1, 1))
    return Layout(columns, arrows, (wide, max(14, min(wide, 17))), gap, ranks, chunks)


def schedule(s: Schedule, rounds: Sequence[int] | None = None, theme: Theme = LIGHT) -> Figure:
    """Small multiples of a schedule: the start, then one panel a round.

    Arrows lead from the number of the rank that sends to the row of the rank that receives: solid adds to what is
    there ('+'), dashed replaces it ('='). The grid is what every rank (row) holds of every chunk (column) after the
    round: the number of ranks whose parts are in, and a frame where the round has written. On the right of the title,
    the share of the buffer of n bytes that goes through the busiest port.

    Parameters
    ----------
    s : Schedule
        Made for up to about 16 ranks, and at most 64.
    rounds : sequence of int, optional
        Which rounds to show; by default all, or of more than 24 the first two and the last of each of its rows.
    theme : Theme

    Raises
    ------
    ValueError
        A round that the schedule does not have, or more than 64 ranks.

    >>> from dthw.collectives.algorithms import ring
    >>> figure = schedule(ring(16), rounds=[1, 2, 15, 16, 30])
    """
    shown = panels(s, rounds)
    plan = layout(s.ranks, s.chunks, len(shown))
    wide, high = plan.size
    rows = -(-len(shown) // plan.columns)
    figure = canvas(rows * high + KEY)
    left = (WIDTH - plan.columns * wide - (plan.columns - 1) * plan.gap) // 2
    for k, panel in enumerate(shown):
        row, column = divmod(k, plan.columns)
        axes = drawing(figure, left + column * (wide + plan.gap), row * high, wide, high)
        _title(axes, panel, plan, theme)
        _grid(axes, panel, plan, theme)
        if panel.messages is None:
            _names(axes, plan, theme)
        else:
            _arrows(axes, panel, plan, theme)
    _key(drawing(figure, 0, rows * high, WIDTH, KEY), s.ranks, theme)
    return figure


def _title(axes: Axes, panel: Panel, plan: Layout, theme: Theme) -> None:
    x, y, wide = 1.0, TITLE - 10, plan.size[0]
    if panel.messages is None:
        axes.text(plan.arrows, y, "start", color=theme.text, fontsize=FONT, weight="bold")
        return
    axes.text(x, y, str(panel.round), color=theme.text, fontsize=FONT, weight="bold")
    x += width(str(panel.round), FONT, bold=True) + 6
    for k, op in enumerate(panel.ops or [""]):
        said = (", " if k else "") + WORDS[op]
        axes.text(x, y, said, color={"+": theme.add_text, "=": theme.copy_text}.get(op, theme.muted), fontsize=SMALL)
        x += width(said, SMALL)
    if panel.port:
        axes.text(wide - 4, y, share(panel.port), color=theme.muted, fontsize=SMALL, ha="right")


def share(part: Fraction) -> str:
    """
    >>> share(Fraction(7)), share(Fraction(1, 8)), share(Fraction(3, 4))
    ('7n', 'n/8', '3n/4')
    """
    top = "n" if part.numerator == 1 else f"{part.numerator}n"
    return top if part.denominator == 1 else f"{top}/{part.denominator}"


def _names(axes: Axes, plan: Layout, theme: Theme) -> None:
    """Numbers of the ranks beside the first grid, and of the chunks below it."""
    (wide, high), base = plan.cell, TITLE + plan.ranks * plan.cell[1]
    for rank in range(plan.ranks):
        name = f"rank {rank}" if rank == 0 else str(rank)
        axes.text(
            plan.arrows - 6,
            TITLE + (rank + 0.5) * high,
            name,
            color=theme.muted,
            fontsize=SMALL,
            ha="right",
            va="center_baseline",
        )
    if plan.chunks == 1:
        axes.text(plan.arrows + wide / 2, base + 14, "buffer", color=theme.muted, fontsize=SMALL, ha="center")
        return
    axes.text(plan.arrows - 6, base + 14, "chunk", color=theme.muted, fontsize=SMALL, ha="right")
    step = 1 if wide >= width(str(plan.chunks - 1), SMALL) + 2 else 3
    for chunk in range(0, plan.chunks, step):
        axes.text(
            plan.arrows + (chunk + 0.5) * wide, base + 14, str(chunk), color=theme.muted, fontsize=SMALL, ha="center"
        )


def _grid(axes: Axes, panel: Panel, plan: Layout, theme: Theme) -> None:
    wide, high = plan.cell
    for held in np.unique(panel.held).tolist():
        ground = theme.shade(held, plan.ranks)
        row, column = np.nonzero(panel.held == held)
        x, y = plan.arrows + column * wide, TITLE + row * high
        cells = PathPatch(boxes(x, y, wide - 1, high - 1), facecolor=ground, linewidth=0)
        cells.set_label(f"holds {held}")
        axes.add_patch(cells)
        changing = (panel.written[row, column] != "") | (panel.round == 0) | plan.roomy | (1 < held < plan.ranks)
        centre = x[changing] + (wide - 1) / 2, y[changing] + (high - 1) / 2
        write(axes, str(held), *centre, SMALL if wide >= 13 else 10, theme.on(ground))
    for op, colour, dash in (("+", theme.add, "-"), ("=", theme.copy, FRAME_DASH)):
        row, column = np.nonzero(panel.written == op)
        if row.size:
            frame = boxes(plan.arrows + column * wide + 0.5, TITLE + row * high + 0.5, wide - 2, high - 2)
            axes.add_patch(PathPatch(frame, facecolor="none", edgecolor=colour, linewidth=2, linestyle=dash))


def _arrows(axes: Axes, panel: Panel, plan: Layout, theme: Theme) -> None:
    high = plan.cell[1]
    for rank in range(plan.ranks):
        write(
            axes, str(rank), np.array([plan.name / 2 - 1]), np.array([TITLE + (rank + 0.5) * high]), SMALL, theme.muted
        )
    assert panel.messages is not None
    src, dst, _, _, ops = panel.messages
    pairs = sorted(set(zip(ops.tolist(), src.tolist(), dst.tolist(), strict=True)))
    thin = len(pairs) > 3 * plan.ranks
    for op, colour, dash in (("+", theme.add, "-"), ("=", theme.copy, ARROW_DASH)):
        ends = [
            (plan.name, TITLE + (a + 0.5) * high, plan.arrows - 3, TITLE + (b + 0.5) * high)
            for o, a, b in pairs
            if o == op
        ]
        if ends:
            _arrow(axes, ends, colour, dash, 0.7 if thin else 1.3)


def _arrow(axes: Axes, ends: Ends, colour: str, dash: Line, thick: float) -> None:
    stems = Path([at for x, y, u, v in ends for at in ((x, y), (u, v))], [Path.MOVETO, Path.LINETO] * len(ends))
    axes.add_patch(
        PathPatch(stems, facecolor="none", edgecolor=colour, linewidth=thick, linestyle=dash, capstyle="butt")
    )
    axes.add_patch(PathPatch(heads(ends), facecolor=colour, linewidth=0))


def _key(axes: Axes, ranks: int, theme: Theme) -> None:
    """What colours and lines mean, in two lines below the panels."""
    x, y = 1.0, 10.0
    for said, colour, line, frame in (
        ("reduce (+): adds to what is there", theme.add, "-", "-"),
        ("copy (=): replaces it", theme.copy, ARROW_DASH, FRAME_DASH),
    ):
        _arrow(axes, [(x, y, x + 26, y)], colour, line, 1.3)
        cell = boxes(np.array([x + 33]), np.array([y - 6]), 12, 12)
        axes.add_patch(PathPatch(cell, facecolor=theme.low, edgecolor=colour, linewidth=2, linestyle=frame))
        axes.text(x + 51, y + 4, said, color=theme.text, fontsize=SMALL)
        x += 51 + width(said, SMALL) + 22
    x = WIDTH - 1 - width(HELD, SMALL) - 6
    axes.text(WIDTH - 1, y + 4, HELD, color=theme.text, fontsize=SMALL, ha="right")
    for held in sorted({1, 2, ranks - 1, ranks} & set(range(1, ranks + 1)), reverse=True):
        x -= 19
        if held == 2 < ranks - 2:
            axes.text(x + 11, y + 4, "…", color=theme.muted, fontsize=SMALL, ha="center")
            x -= 15
        ground = theme.shade(held, ranks)
        axes.add_patch(PathPatch(boxes(np.array([x]), np.array([y - 7]), 18, 14), facecolor=ground, linewidth=0))
        write(axes, str(held), np.array([x + 9]), np.array([y]), SMALL, theme.on(ground))
    axes.text(1, y + 26, PORT, color=theme.muted, fontsize=SMALL)


def boxes(x: "np.ndarray", y: "np.ndarray", wide: float, high: float) -> Path:
    """One path of many rectangles: a figure with a thousand cells stays small."""
    corners = np.stack(
        [np.stack([x + dx, y + dy], axis=-1) for dx, dy in ((0, 0), (wide, 0), (wide, high), (0, high), (0, 0))], axis=1
    )
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(corners.reshape(-1, 2), codes * len(corners))


def heads(ends: Ends) -> Path:
    """Triangles at the ends of lines (x, y) to (u, v)."""
    vertices = []
    for x, y, u, v in ends:
        length = hypot(u - x, v - y)
        a, b = (u - x) / length, (v - y) / length
        back, side = (u - HEAD * a, v - HEAD * b), (-b * HEAD * 0.42, a * HEAD * 0.42)
        vertices += [(u, v), (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1]), (u, v)]
    return Path(vertices, [Path.MOVETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(ends))


def write(axes: Axes, text: str, x: "np.ndarray", y: "np.ndarray", size: float, colour: str) -> None:
    """The same text centred at many places: drawn as a marker, its outline is stored once."""
    if len(x):
        outline, reach = _outline(text)
        axes.plot(
            x,
            y,
            linestyle="",
            marker=outline,
            markersize=2 * reach * size / 100,
            markeredgewidth=0,
            color=colour,
            clip_on=False,
        )


@cache
def _outline(text: str) -> tuple[Path, float]:
    """The outline of ``text`` at 100 units about its centre, and the farthest it reaches from there."""
    prop = FontProperties(family="DejaVu Sans")
    raw, digit = (TextPath((0, 0), what, size=100, prop=prop) for what in (text, "0"))
    box, line = raw.get_extents(), digit.get_extents()
    path = Path(np.asarray(raw.vertices) - ((box.x0 + box.x1) / 2, (line.y0 + line.y1) / 2), raw.codes)
    return path, float(np.abs(path.vertices).max())


@cache
def width(text: str, size: float, bold: bool = False) -> float:
    """Pixels that ``text`` takes."""
    prop = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return float(TextPath((0, 0), text, size=size, prop=prop).get_extents().width) + 1

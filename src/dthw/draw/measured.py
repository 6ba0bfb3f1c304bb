"""Predicted, counted, measured: real runs beside the closed forms, on one figure."""

from collections.abc import Iterable, Mapping, Sequence
from math import exp
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dthw.collectives.algorithms import ALL_REDUCE as BUILDERS
from dthw.collectives.cost import traffic
from dthw.collectives.formulas import ALL_REDUCE
from dthw.draw import style
from dthw.draw.style import LIGHT, SMALL, WIDTH, Theme, in_bandwidth, in_bytes, in_seconds, look

LEFT, RIGHT, GAP, HEAD, TIMES, BYTES, LINE, KEY = 58, 8, 18, 72, 220, 110, 19, 54  # pixels
ITEM = 4  # the sweeps reduce float32


class Fitted(Protocol):
    """The constants of the α-β model for one number of ranks, and how far it misses (see `dthw.measure.fit`)."""

    @property
    def alpha_s(self) -> float: ...
    @property
    def beta_s(self) -> float: ...
    @property
    def median_miss(self) -> float: ...
    @property
    def worst_miss(self) -> float: ...


def measured(
    records: Iterable[Mapping[str, Any]], fits: Mapping[int, Fitted], cores: int | None = None, theme: Theme = LIGHT
) -> Figure:
    """One column for each number of ranks; time, bytes and messages from top to bottom, each against its prediction.

    Parameters
    ----------
    records : iterable of mapping
        As from `dthw.measure.collectives.sweep`: algorithm, ranks, bytes, seconds (of every repeat), bytes_sent and
        messages_sent (of rank 0, None where it is not told). Records of one cell are taken together.
    fits : mapping from ranks to their fitted constants
    cores : int, optional
        Of the machine; columns with more ranks than that say so.
    theme : Theme
    """
    cells = by_cell(records)
    ranks = sorted({p for p, _, _ in cells})
    names = [a for a in (*BUILDERS, "dist.all_reduce") if any(a == b for _, b, _ in cells)]
    modelled = [a for a in names if a in BUILDERS]
    sizes = sorted({n for _, _, n in cells})
    every = [s for seconds, _, _ in cells.values() for s in seconds]
    limits = min(every) * 0.6, max(every) * 1.6
    wide = (WIDTH - LEFT - RIGHT - GAP * (len(ranks) - 1)) / len(ranks)
    middle = HEAD + TIMES + 50
    low = middle + BYTES + 50
    figure = style.canvas(low + LINE * len(modelled) + 8 + KEY)
    for k, p in enumerate(ranks):
        mine = {(a, n): cell for (q, a, n), cell in cells.items() if q == p}
        x = LEFT + k * (wide + GAP)
        times = style.place(figure, x, HEAD, wide, TIMES)
        _times(times, mine, names, p, fits[p], limits, theme)
        _head(figure, x, f"{p} ranks" + (f" on {cores} cores" if cores and p > cores else ""), fits[p], theme)
        counts = style.place(figure, x, middle, wide, BYTES)
        _bytes(counts, mine, modelled, p, theme)
        _messages(style.place(figure, x, low, wide, LINE * len(modelled)), mine, modelled, p, theme)
        for axes in (times, counts):
            style.log_axis(axes, "x", [2.0**e for e in range(0, 60, 5) if sizes[0] <= 2**e <= sizes[-1]], in_bytes)
            axes.set_xlim(sizes[0] * 0.6, sizes[-1] * 1.7)
            axes.tick_params(labelleft=not k)
    for y, said in (
        (12, "Time of one all-reduce: median and quartiles measured (marks), α-β model (lines)"),
        (middle - 10, "Bytes sent by rank 0, as multiples of the buffer: counted (marks), predicted (lines)"),
        (low - 10, "Messages sent by rank 0: counted (marks and numbers), predicted (strokes)"),
    ):
        style.say(figure, 0, y, said, theme.text)
    style.key(figure, LEFT, [(look(a).label, _line(a, theme) | look(a).mark(theme)) for a in names], theme)
    return figure


def _head(figure: Figure, x: float, title: str, fit: Fitted, theme: Theme) -> None:
    beta = in_bandwidth(1 / fit.beta_s, 2) if fit.beta_s else "∞"
    style.say(figure, x, HEAD - 36, title, theme.text, weight="bold")
    style.say(figure, x, HEAD - 20, f"α = {in_seconds(fit.alpha_s, 2)}, β = 1/({beta})", theme.text)
    style.say(figure, x, HEAD - 5, f"misses by {fit.median_miss:.0%}, at most {fit.worst_miss:.0%}", theme.muted)


Cell = tuple[list[float], int | None, int | None]


def by_cell(records: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str, int], Cell]:
    """(ranks, algorithm, bytes) to (all seconds, bytes sent, messages sent)."""
    cells: dict[tuple[int, str, int], Cell] = {}
    for record in records:
        key = record["ranks"], record["algorithm"], record["bytes"]
        before = cells.get(key, ([], None, None))[0]
        cells[key] = [*before, *record["seconds"]], record["bytes_sent"], record["messages_sent"]
    return cells


def predicted(name: str, p: int, nbytes: int) -> tuple[int, int]:
    """Bytes and messages that rank 0 sends, from the schedule with its real chunk sizes."""
    told = traffic(BUILDERS[name](p), nbytes // ITEM, ITEM)
    return int(told.bytes_sent[0]), int(told.messages_sent[0])


def _line(name: str, theme: Theme) -> dict[str, Any]:
    """Torch's own all-reduce has no model, so its marks stand without a line."""
    return look(name).line(theme) if name in ALL_REDUCE else {"linestyle": ""}


def _times(
    axes: Axes,
    mine: Mapping[tuple[str, int], Cell],
    names: Sequence[str],
    p: int,
    fit: Fitted,
    limits: tuple[float, float],
    theme: Theme,
) -> None:
    style.plot_frame(axes, theme)
    for j, name in enumerate(names):
        n = np.array(sorted(size for a, size in mine if a == name), dtype=float)
        low, middle, high = np.array([np.quantile(mine[name, int(size)][0], (0.25, 0.5, 0.75)) for size in n]).T
        aside = n * exp(0.14 * (j - (len(names) - 1) / 2))  # so that marks do not cover each other
        bars = (middle - low, high - middle)
        axes.errorbar(aside, middle, bars, linestyle="", elinewidth=1, zorder=3, **look(name).mark(theme))
        if name in ALL_REDUCE:
            fine = np.geomspace(n[0], n[-1], 41)
            model = [ALL_REDUCE[name](p, size).seconds(fit.alpha_s, fit.beta_s) for size in fine]
            axes.plot(fine, model, **_line(name, theme))
    style.log_axis(axes, "y", [10.0**e for e in range(-7, 4) if limits[0] <= 10.0**e <= limits[1]], in_seconds)
    axes.set_ylim(*limits)


def _bytes(axes: Axes, mine: Mapping[tuple[str, int], Cell], names: Sequence[str], p: int, theme: Theme) -> None:
    style.plot_frame(axes, theme)
    for j, name in enumerate(names):
        n = np.array(sorted(size for a, size in mine if a == name))
        axes.plot(n, [predicted(name, p, int(size))[0] / size for size in n], **_line(name, theme))
        counts = [(mine[name, int(size)][1] or 0) / size for size in n]
        part = slice(j % 2, None, 2) if len(n) > 4 else slice(None)  # lines that coincide show marks in turn
        axes.plot(n[part], counts[part], linestyle="", clip_on=False, zorder=3, **look(name).mark(theme))
    axes.set_ylim(0, 3.4)
    axes.set_yticks([0, 1, 2, 3])


def _messages(axes: Axes, mine: Mapping[tuple[str, int], Cell], names: Sequence[str], p: int, theme: Theme) -> None:
    style.plot_frame(axes, theme)
    axes.grid(False)
    most = 0
    for j, name in enumerate(names):
        size = max(n for a, n in mine if a == name)
        told, count = predicted(name, p, size)[1], mine[name, size][2] or 0
        most = max(most, told, count)
        axes.plot([told, told], [j - 0.38, j + 0.38], color=theme.text, linewidth=1.3, clip_on=False)
        axes.plot([count], [j], clip_on=False, **look(name).mark(theme))
        said: dict[str, Any] = {
            "xytext": (9, 0),
            "textcoords": "offset points",
            "va": "center_baseline",
            "fontsize": SMALL,
        }
        axes.annotate(str(count), (count, j), color=theme.text, **said)
    axes.set_xlim(0, most * 1.18)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xticks([])

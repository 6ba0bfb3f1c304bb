"""The bandwidth hierarchy: what one direction carries at each step away from the GPU."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from dthw.draw.style import FONT, LIGHT, SMALL, WIDTH, Theme, canvas, drawing, in_bandwidth, log_axis, place, plot_frame

STEP, BAR, LEFT, TOP = 62, 28, 186, 4


class Rung(NamedTuple):
    """One step of the hierarchy: where, over what, and bytes per second in one direction."""

    where: str
    over: str
    bytes_per_second: float


def hierarchy(rungs: Sequence[Rung], theme: Theme = LIGHT) -> Figure:
    """Horizontal bars on a logarithmic axis, from the fastest down, with the ratio of each step to the one before.

    >>> figure = hierarchy([Rung("own memory", "HBM3", 3350e9), Rung("same node", "NVLink 4", 450e9)])
    """
    tall = STEP * len(rungs)
    figure = canvas(TOP + tall + 44)
    axes = place(figure, LEFT, TOP, WIDTH - LEFT - 8, tall)
    plot_frame(axes, theme)
    axes.grid(False, axis="y")
    rates = [rung.bytes_per_second / 1e9 for rung in rungs]
    low, high = min(10.0, min(rates) / 2), max(rates) * 3.5
    log_axis(axes, "x", [10.0**e for e in range(-3, 7) if low <= 10.0**e <= high / 2], lambda v: f"{v:,g} GB/s")
    axes.set_xlim(low, high)
    axes.set_ylim(len(rungs) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    names = drawing(figure, 0, TOP, LEFT, tall)
    blue = ("#0a66a8", "#6cb8f0")[theme.dark]
    for k, (rung, rate) in enumerate(zip(rungs, rates, strict=True)):
        middle = (k + 0.5) * STEP
        axes.barh(k, rate, height=BAR / STEP, color=blue)
        axes.annotate(
            in_bandwidth(rung.bytes_per_second),
            (rate, k),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=theme.text,
            fontsize=FONT,
            weight="bold",
        )
        names.text(LEFT - 12, middle - 4, rung.where, ha="right", color=theme.text, fontsize=FONT, weight="bold")
        names.text(LEFT - 12, middle + 11, rung.over, ha="right", color=theme.muted, fontsize=SMALL)
        if k:
            axes.text(
                low * 1.07,
                k - 0.5,
                f"↓ {rates[k - 1] / rate:.1f} times slower",
                va="center",
                color=theme.muted,
                fontsize=SMALL,
            )
    axes.set_xlabel("bytes per second in one direction, of one GPU", color=theme.text, fontsize=SMALL, labelpad=6)
    return figure

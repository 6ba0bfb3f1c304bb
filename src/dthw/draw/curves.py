"""Cost against size: what the closed forms say, for several algorithms and numbers of ranks."""

from collections.abc import Sequence
from math import log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dthw.collectives.cost import Port
from dthw.collectives.formulas import ALL_REDUCE, crossover, lower_bound
from dthw.draw import style
from dthw.draw.style import LIGHT, SMALL, WIDTH, Theme, in_bandwidth, in_bytes, in_seconds, look

SHOWN = (
    "parameter_server",
    "binary_tree",
    "double_binary_tree",
    "ring",
    "hierarchical",
    "recursive_doubling",
    "halving_doubling",
)
TALL, TOP, FOOT, LEFT, RIGHT, GAP = 270, 46, 116, 58, 8, 18  # pixels of the panels and around them

Floats = NDArray[np.float64]


def curves(
    ranks: Sequence[int],
    machine: Port,
    algorithms: Sequence[str] = SHOWN,
    sizes: tuple[float, float] = (2**10, 2**30),
    crossing: tuple[str, str] | None = ("recursive_doubling", "ring"),
    theme: Theme = LIGHT,
) -> Figure:
    """Time of an all-reduce against the bytes of one rank's buffer, both logarithmic; one panel for each of ``ranks``.

    Dotted are the two things no algorithm gets around: the bytes that each port must carry, and the rounds it takes to
    hear from everybody where a rank hears from one other at a time.

    Parameters
    ----------
    ranks : sequence of int
        Two to four numbers of ranks read best.
    machine : Port
        The constants α, β and γ; they are stated in the figure.
    algorithms : sequence of str
        Names from `dthw.collectives.formulas.ALL_REDUCE`.
    sizes : (float, float)
        The least and the largest buffer, in bytes.
    crossing : (str, str), optional
        Two algorithms; a circle marks the size above which the second is faster.
    theme : Theme

    >>> figure = curves([8, 64], Port.of(latency_s=5e-6, bytes_per_second=50e9))
    """
    figure = style.canvas(TOP + TALL + FOOT)
    wide = (WIDTH - LEFT - RIGHT - GAP * (len(ranks) - 1)) / len(ranks)
    n = np.geomspace(*sizes, 61)
    times = {p: {name: _seconds(name, p, n, machine) for name in algorithms} for p in ranks}
    every = np.concatenate([t for of_p in times.values() for t in of_p.values()])
    heights = 10 ** (log10(every.min()) - 0.25), every.max() * 1.3
    for k, p in enumerate(ranks):
        axes = style.place(figure, LEFT + k * (wide + GAP), TOP, wide, TALL)
        _frame(axes, sizes, heights, theme)
        axes.set_title(f"{p:,} ranks", color=theme.text, fontsize=SMALL + 1, weight="bold", loc="left", pad=8)
        axes.tick_params(labelleft=not k)
        for j, name in enumerate(algorithms):
            axes.plot(n, times[p][name], markevery=(3 + j % 5, 15), **look(name).line(theme) | look(name).mark(theme))
        rounds, port, _ = lower_bound("all_reduce", p, 1.0)
        for bound in (port * n * machine.beta_s, np.full_like(n, rounds * machine.alpha_s)):
            axes.plot(n, bound, **_bound(theme))
        if crossing:
            _mark(axes, crossing, p, machine, sizes, theme)
    style.say(
        figure, (LEFT + WIDTH - RIGHT) / 2, TOP + TALL + 38, "bytes of one rank's buffer", theme.text, ha="center"
    )
    style.say(figure, 0, 12, "Time of one all-reduce", theme.text)
    style.say(figure, WIDTH - RIGHT, 12, f"assumed: {_assumed(machine)}", theme.muted, ha="right")
    entries = [(look(name).label, look(name).line(theme) | look(name).mark(theme)) for name in algorithms]
    if crossing:
        said = f"{look(crossing[1]).label} overtakes {look(crossing[0]).label}"
        entries.append((said, _circle(theme, 11) | {"linestyle": ""}))
    style.key(figure, LEFT, [*entries, ("least bytes; least rounds", _bound(theme))], theme)
    return figure


def _frame(axes: Axes, sizes: tuple[float, float], heights: tuple[float, float], theme: Theme) -> None:
    style.plot_frame(axes, theme)
    style.log_axis(axes, "x", [2.0**e for e in range(0, 60, 10) if sizes[0] <= 2**e <= sizes[1]], in_bytes)
    style.log_axis(axes, "y", [10.0**e for e in range(-9, 6) if heights[0] <= 10.0**e <= heights[1]], in_seconds)
    axes.set_xlim(*sizes)
    axes.set_ylim(*heights)
    style.inward_labels(axes)


def _mark(
    axes: Axes, crossing: tuple[str, str], p: int, machine: Port, sizes: tuple[float, float], theme: Theme
) -> None:
    at = crossover(*crossing, p, machine.alpha_s, machine.beta_s, machine.gamma_s)
    if sizes[0] < at < sizes[1]:
        seconds = float(_seconds(crossing[1], p, np.array([at]), machine)[0])
        axes.plot([at], [seconds], **_circle(theme, 13))
        axes.annotate(
            in_bytes(at, 2), (at, seconds), (-6, 14), textcoords="offset points", ha="right", fontsize=SMALL,
            color=theme.text, bbox={"facecolor": theme.ground, "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip


def _circle(theme: Theme, size: float) -> dict[str, Any]:
    return {"marker": "o", "markersize": size, "markerfacecolor": "none", "markeredgewidth": 1.3, "color": theme.text}


def _bound(theme: Theme) -> dict[str, Any]:
    return {"color": theme.text, "linewidth": 1.2, "linestyle": (0, (1, 2))}


def _assumed(machine: Port) -> str:
    said = f"α = {in_seconds(machine.alpha_s)} a round, β = 1/({in_bandwidth(1 / machine.beta_s)})"
    return said + (f", γ = 1/({in_bandwidth(1 / machine.gamma_s)})" if machine.gamma_s else "")


def _seconds(name: str, p: int, n: Floats, machine: Port) -> Floats:
    form = ALL_REDUCE[name]
    return np.array([form(p, size).seconds(machine.alpha_s, machine.beta_s, machine.gamma_s) for size in n])

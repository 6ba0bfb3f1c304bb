"""How figures look: two themes, one look per algorithm, and a canvas measured in the pixels of the page.

A figure is `WIDTH` units wide, the width of the text on the site, and one unit is one pixel there: fonts, lines and
places are all given in that unit, so that nothing printed gets smaller than it says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

WIDTH = 700
FONT, SMALL = 12.0, 11.0  # nothing is set smaller


@dataclass(frozen=True)
class Theme:
    """Colours for one ground. Text has a contrast of 4.5 to 1 at least on what it stands on, lines of 3 to 1."""

    name: str
    ground: str  # the page's; figures themselves are transparent
    text: str
    muted: str
    rule: str
    add: str  # '+', reduce: arrows and frames, which must show on cells of every shade
    copy: str  # '=', copy
    add_text: str
    copy_text: str
    low: str  # a cell that holds one rank's part
    high: str  # a cell that lacks one
    full: str  # a finished cell

    @property
    def dark(self) -> bool:
        return self.name == "dark"

    def on(self, ground: str) -> str:
        """The colour of text on ``ground``: whichever of this theme's two extremes stands out more."""
        return max(("#ffffff", "#0b1217"), key=lambda text: contrast(text, ground))

    def shade(self, held: int, ranks: int) -> str:
        """The colour of a cell that holds the parts of ``held`` of ``ranks`` ranks."""
        if held == ranks:
            return self.full
        return mix(self.low, self.high, (held - 1) / max(ranks - 2, 1))


LIGHT = Theme(
    "light", "#ffffff", "#1c2329", "#4c5963", "#d7dee4",
    "#d55e00", "#009e73", "#b04600", "#00755a", "#e9eff4", "#a9cdea", "#17344d",
)  # fmt: skip
DARK = Theme(
    "dark", "#12181d", "#dfe5ea", "#b3bfc9", "#3d4a55",
    "#e8711a", "#00a87c", "#ff9a5c", "#4fd0a5", "#202b34", "#2f5878", "#eef6fd",
)  # fmt: skip
THEMES = (LIGHT, DARK)


class Look(NamedTuple):
    """One algorithm in every figure: its name in words, colour on light and dark, dashes and marker."""

    label: str
    light: str
    dark: str
    dash: tuple[float, ...]  # lengths on and off, in line widths; empty is solid
    marker: str

    def colour(self, theme: Theme) -> str:
        return self.dark if theme.dark else self.light

    def line(self, theme: Theme) -> dict[str, Any]:
        """Keywords for a line without markers."""
        return {"color": self.colour(theme), "linestyle": (0, self.dash) if self.dash else "-", "linewidth": 1.6}

    def mark(self, theme: Theme) -> dict[str, Any]:
        """Keywords for its marker."""
        size = 8.5 if self.marker == "*" else 6  # a star's points carry little ink
        return {"marker": self.marker, "markersize": size, "markeredgewidth": 0, "color": self.colour(theme)}


_BLUE, _ORANGE, _GREEN = ("#0a66a8", "#6cb8f0"), ("#c44e00", "#ff9a5c"), ("#007a59", "#4fd0a5")
_GOLD, _PURPLE, _OLIVE = ("#946200", "#f2c14e"), ("#94388a", "#e79ad3"), ("#56690a", "#c3cf6a")

# Related algorithms share a hue and differ in dashes and marker; no two look alike in grey either.
LOOKS = {
    "parameter_server": Look("parameter server", *_ORANGE, (), "s"),
    "sharded_parameter_server": Look("sharded parameter server", *_ORANGE, (4, 1.5), "D"),
    "one_shot": Look("one-shot", *_ORANGE, (1, 1.2), "H"),
    "ring": Look("ring", *_BLUE, (), "o"),
    "bidirectional_ring": Look("bidirectional ring", *_BLUE, (4, 1.5), "8"),
    "binary_tree": Look("binary tree", *_GREEN, (4, 1.5), "v"),
    "double_binary_tree": Look("double binary tree", *_GREEN, (), "^"),
    "recursive_doubling": Look("recursive doubling", *_GOLD, (6, 1.5, 1, 1.5), "X"),
    "halving_doubling": Look("halving-doubling", *_PURPLE, (3, 1.2), "P"),
    "halving_doubling_near_first": Look("halving-doubling, near first", *_PURPLE, (1, 1.2), "p"),
    "hierarchical": Look("hierarchical", *_OLIVE, (8, 2), "h"),
    "torus_2d": Look("2D torus", *_OLIVE, (1, 1.2), "d"),
    "dist.all_reduce": Look("torch's dist.all_reduce", "#4c5963", "#b3bfc9", (1, 2), "*"),
}


def look(name: str) -> Look:
    """How ``name`` is drawn; ValueError for what is no algorithm."""
    if name not in LOOKS:
        raise ValueError(f"no algorithm is named {name!r}; the names are {', '.join(LOOKS)}")
    return LOOKS[name]


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))


def mix(a: str, b: str, part: float) -> str:
    """The colour ``part`` of the way from ``a`` to ``b``."""
    channels = (round(255 * (x + part * (y - x))) for x, y in zip(_rgb(a), _rgb(b), strict=True))
    return "#" + "".join(f"{c:02x}" for c in channels)


def contrast(a: str, b: str) -> float:
    """The contrast ratio of WCAG 2, 1 to 21.

    >>> round(contrast("#ffffff", "#000000"))
    21
    """

    def luminance(colour: str) -> float:
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _rgb(colour))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def canvas(height: float) -> Figure:
    """An empty transparent figure of `WIDTH` x ``height`` pixels: at 72 dots an inch a point is a unit."""
    with rc_context({"font.family": "DejaVu Sans", "font.size": FONT}):
        return Figure(figsize=(WIDTH / 72, height / 72), dpi=72, facecolor="none")


def place(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at that place, in pixels from the upper left corner of the figure."""
    wide, high = figure.get_size_inches() * 72
    return figure.add_axes((x / wide, 1 - (y + height) / high, width / wide, height / high), facecolor="none")


def drawing(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """A place without axes whose coordinates are pixels from its own upper left corner."""
    axes = place(figure, x, y, width, height)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    return axes


def plot_frame(axes: Axes, theme: Theme) -> None:
    """A quiet frame: two thin spines, a grid behind everything."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.muted)
        spine.set_linewidth(1)
    axes.grid(True, color=theme.rule, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.muted, labelcolor=theme.text, labelsize=SMALL, length=4, width=1)


def log_axis(axes: Axes, which: str, ticks: Iterable[float], words: Any) -> None:
    """A logarithmic axis with labelled ``ticks`` and none between them; ``words`` turns a value into its label."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))


def say(figure: Figure, x: float, y: float, text: str, colour: str, **more: Any) -> None:
    """Text whose baseline is at (x, y) pixels from the upper left corner of the figure."""
    wide, high = figure.get_size_inches() * 72
    figure.text(x / wide, 1 - y / high, text, color=colour, fontsize=SMALL, **more)


def key(figure: Figure, left: float, entries: Sequence[tuple[str, dict[str, Any]]], theme: Theme) -> None:
    """What lines and markers mean, at the foot of the figure; ``entries`` are labels and keywords of a line."""
    lines = [Line2D([], [], **style) for _, style in entries]
    figure.legend(
        lines, [label for label, _ in entries], loc="lower left", bbox_to_anchor=(left / WIDTH - 0.012, 0), ncols=3,
        frameon=False, fontsize=SMALL, labelcolor=theme.text, handlelength=2.6, columnspacing=1.4, borderpad=0.1,
        labelspacing=0.45,
    )  # fmt: skip


def inward_labels(axes: Axes) -> None:
    """Keep the first and the last label of the x axis within its width, clear of the neighbouring panel."""
    labels = axes.get_xticklabels()
    labels[0].set_horizontalalignment("left")
    labels[-1].set_horizontalalignment("right")


def _scaled(value: float, units: tuple[tuple[float, str], ...], digits: int) -> str:
    if value == 0:
        return f"0 {units[-1][1]}"
    size, unit = next(((size, unit) for size, unit in units if value >= size * 0.9995), units[-1])
    number = float(f"{value / size:.{digits}g}")
    return f"{number:,.{digits}g} {unit}" if number < 10**digits else f"{number:,.0f} {unit}"


def in_bytes(value: float, digits: int = 3) -> str:
    """
    >>> in_bytes(1536), in_bytes(2**26), in_bytes(12)
    ('1.5 KiB', '64 MiB', '12 B')
    """
    if 0 < value < 1024:
        return f"{value:,.4g} B" if value % 1 else f"{value:,.0f} B"
    return _scaled(value, ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")), digits)


def in_seconds(value: float, digits: int = 3) -> str:
    """
    >>> in_seconds(87.3e-6), in_seconds(0.25), in_seconds(30)
    ('87.3 µs', '250 ms', '30 s')
    """
    return _scaled(value, ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")), digits)


def in_bandwidth(value: float, digits: int = 3) -> str:
    """
    >>> in_bandwidth(1.3e9), in_bandwidth(450e6)
    ('1.3 GB/s', '450 MB/s')
    """
    return _scaled(value, ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")), digits)

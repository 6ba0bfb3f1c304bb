"""A figure as SVG: the same bytes each time, and no more of them than needed."""

import re
from io import StringIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

_LONG = re.compile(r"-?\d+\.\d{3,}")
_PLACES = re.compile(r'(?<= )(?:d|x|y)="[^"]*"|translate\([^)]*\)')
_CORNER = r"(-?[\d.]+) (-?[\d.]+)"
_BOX = re.compile(rf"M{_CORNER}L{_CORNER}L{_CORNER}L{_CORNER}(?:L\1 \2)?z")
_MARKS = re.compile(r"<g>((?:<use [^>]*/>)+)</g>")
_MARK = re.compile(r'<use (xlink:href="[^"]*" x="[^"]*" y="[^"]*") style="([^"]*)"/>')


def svg(figure: Figure) -> str:
    """The figure as one line of SVG, glyphs as shared outlines, so that no reader's fonts shift anything.

    Matplotlib writes six decimals, comments, a name for every group and its own description; a page shows a tenth of
    a pixel at best. What is left out here halves the size.
    """
    text = StringIO()
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "dthw", "path.simplify": True}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    out = text.getvalue()
    out = out[out.index("<svg") :]
    out = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", out, flags=re.DOTALL)
    out = re.sub(r">\s+<", "><", out.strip())
    out = re.sub(r'(<g) id="[^"]*"', r"\1", out)
    out = re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', out)
    out = re.sub(r'style="[^"]*"', lambda m: m[0].replace(": ", ":").replace("; ", ";"), out)
    out = _PLACES.sub(lambda m: _LONG.sub(lambda n: f"{float(n[0]):.2f}".rstrip("0").rstrip("."), m[0]), out)
    out = re.sub(r' d="[^"]*"', lambda m: _boxes(re.sub(r"\s*([MLQCz])\s*", r"\1", m[0])), out)
    for name in sorted(set(re.findall(r'\bid="(m[0-9a-f]{10})"', out))):  # first use decides, not the hash
        out = out.replace(name, f"m{_order(out, name)}")
    out = _MARKS.sub(_shared_style, out)
    out = re.sub(r' xmlns:xlink="[^"]*"', "", out).replace("xlink:href", "href")
    while (less := re.sub(r"<g></g>|<defs></defs>|<g>(<use [^>]*/>)</g>|<g>(<path [^>]*/>)</g>", r"\1\2", out)) != out:
        out = less
    return out + "\n"


def _order(out: str, name: str) -> int:
    """How far into the file a marker is defined: a short name that depends on the drawing alone."""
    return out[: out.index(f'id="{name}"')].count("<path")


def _boxes(path: str) -> str:
    """Rectangles told by their sides (h, v) instead of their corners."""

    def short(m: re.Match[str]) -> str:
        ax, ay, bx, by, cx, cy, dx, dy = m.groups()
        return f"M{ax} {ay}h{_less(bx, ax)}v{_less(cy, ay)}H{ax}z" if (ay, bx, cy, dx) == (by, cx, dy, ax) else m[0]

    return _BOX.sub(short, path)


def _less(a: str, b: str) -> str:
    return f"{float(a) - float(b):.2f}".rstrip("0").rstrip(".")


def _shared_style(m: re.Match[str]) -> str:
    """Marks of one style in one group: the group says it once."""
    marks = _MARK.findall(m[1])
    styles = {style for _, style in marks}
    if len(styles) != 1 or len(marks) != m[1].count("<use "):
        return m[0]
    return f'<g style="{styles.pop()}">' + "".join(f"<use {place}/>" for place, _ in marks) + "</g>"


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as SVG and return where."""
    path = Path(path)
    path.write_text(svg(figure), encoding="utf-8", newline="\n")
    return path

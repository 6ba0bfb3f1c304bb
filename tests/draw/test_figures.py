"""The committed figures are what the script draws now, complete for every reader, and nothing in them is clipped."""

import importlib.util
import os
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from dthw import draw

DOCS = Path(__file__).parents[2] / "docs"
SIZE_LIMIT = 150_000


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures_script", DOCS / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


figures = _script()
ENTRIES = {entry.name: entry for entry in figures.entries()}
everyone = pytest.mark.parametrize("name", ENTRIES)


def written(folder: Path) -> dict[str, bytes]:
    files = [*folder.glob("assets/figures/*"), *folder.glob("_generated/figure-*.md")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_no_figure_is_stale_whatever_process_draws_it(seed: str, tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "figures.py"), "--redraw", "--out", str(tmp_path)]
    path = os.pathsep.join([str(DOCS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}, timeout=200)
    committed, now = written(DOCS), written(tmp_path)
    assert sorted(committed) == sorted(now), "run `nox -s figures -- --redraw`, and remove what it no longer writes"
    assert [name for name in now if now[name] != committed[name]] == [], "run `nox -s figures -- --redraw`"


@everyone
def test_a_figure_serves_every_reader(name: str) -> None:
    entry = ENTRIES[name]
    text = (DOCS / "_generated" / f"figure-{name}.md").read_text(encoding="utf-8")
    images = re.findall(r"!\[([^\]]+)\]\(/(\S+)#only-(\w+)\)\{ width=\"(\d+)\" height=\"(\d+)\"", text)
    assert [mode for *_, mode, _, _ in images] == ["light", "dark"]
    for alt, path, mode, width, height in images:
        assert alt == entry.alt
        assert 60 < len(alt) < 700
        root = ElementTree.parse(DOCS / path).getroot()
        assert path == f"assets/figures/{name}-{mode}.svg"
        assert (float(root.attrib["width"]), float(root.attrib["height"])) == (float(width), float(height))
    assert f"**{entry.conclusion}**" in text
    assert entry.conclusion.endswith(".")
    assert entry.caption.endswith(".")
    assert "{" not in entry.conclusion
    assert entry.rows
    assert {len(row) for row in entry.rows} == {len(entry.head)}
    assert "//// html | p.source" in text


@everyone
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_a_drawing_is_small_and_says_nothing_of_when_or_where_it_was_made(name: str, mode: str) -> None:
    path = DOCS / "assets" / "figures" / f"{name}-{mode}.svg"
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < SIZE_LIMIT
    assert not re.search(r"<metadata|<!--|<image|<text|matplotlib|20\d\d-\d\d", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)) <= {(i, "") for i in ids} | {("", i) for i in ids}


def texts(figure: Figure) -> list[tuple[str, tuple[float, float, float, float]]]:
    """Every visible text with the pixels it takes."""
    FigureCanvasAgg(figure).draw()
    found = []
    for artist in figure.findobj(Text):
        if artist.get_visible() and artist.get_text().strip():
            box = artist.get_window_extent()
            found.append((artist.get_text(), box.extents))
    return found


@everyone
def test_no_label_is_clipped_or_covers_another(name: str) -> None:
    figure = ENTRIES[name].draw(draw.LIGHT)
    said = texts(figure)
    wide, high = figure.bbox.width, figure.bbox.height
    outside = [text for text, (a, b, c, d) in said if a < -0.5 or b < -0.5 or c > wide + 0.5 or d > high + 0.5]
    assert outside == []
    boxes = [(text, (a + 1, b + 2, c - 1, d - 2)) for text, (a, b, c, d) in said]
    clashes = [
        (one, other)
        for (one, p), (other, q) in combinations(boxes, 2)
        if p[0] < q[2] and q[0] < p[2] and p[1] < q[3] and q[1] < p[3]
    ]
    assert clashes == []

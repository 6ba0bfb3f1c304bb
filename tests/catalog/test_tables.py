"""The catalog's tables are what the package says now, and they render."""

import re
import subprocess
import sys
from pathlib import Path

import markdown
import pytest

from dthw import catalog

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "_generated"
NAMES = ("gpus", "links", "switches", "nics", "systems", "runs")


def test_no_table_is_stale(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "docs/catalog.py", "--out", str(tmp_path)], cwd=ROOT, check=True)
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "_generated").iterdir()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in GENERATED.glob("catalog-*.md")}
    assert written.keys() == committed.keys() == {f"catalog-{name}.md" for name in NAMES}
    stale = [name for name in written if written[name] != committed[name]]
    assert stale == [], "write them anew with python docs/catalog.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_table_shows_every_entry_with_its_sources(name: str) -> None:
    text = (GENERATED / f"catalog-{name}.md").read_text(encoding="utf-8")
    html = markdown.markdown(text, extensions=["tables", "pymdownx.blocks.html"])
    first = html.split("</table>")[0]
    rows = re.findall(r"<tr>\n<td[^>]*>(.*?)</td>", first)
    assert [row.removesuffix(" (announced)") for row in rows] == [entry.name for entry in getattr(catalog, name)()]
    numbers = {int(n) for row in re.findall(r"<td[^>]*>([^<]*)</td>\n</tr>", first) for n in re.findall(r"\d+", row)}
    listed = [int(n) for n in re.findall(r"^(\d+)\. \[", text, re.MULTILINE)]
    assert listed == list(range(1, len(listed) + 1)) and numbers == set(listed)
    assert "|" not in re.sub(r"<[^>]*>", "", html).replace("div.scroll", "")

"""No block of a page escapes: what the site shows as Python is what runs, found by two independent ways.

One way is Sybil's fences, as `page_blocks` runs them. The other renders the page with the site's own Markdown
extensions and reads the languages off the HTML. What only one of them finds is reported.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import markdown
import pytest
from mkdocs.config import load_config
from page_blocks import LANGUAGES, REASONS, ROOT, blocks, normal, pages
from sybil import Document

PAGE_IDS = [path.relative_to(ROOT).as_posix() for path in pages()]
every_page = pytest.mark.parametrize("page", pages(), ids=PAGE_IDS)


@dataclass
class Shown:
    """A block as the site shows it."""

    language: str = ""
    title: str = ""
    text: str = ""


@dataclass
class Reader(HTMLParser):
    """Collects the blocks of a rendered page; a `highlight` box names the language, a `pre` holds the text."""

    found: list[Shown] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)  # one per open div
    title: str = ""
    inside: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = (dict(attrs).get("class") or "").split()
        if tag == "div":
            language = next((name.removeprefix("language-") for name in names if name.startswith("language-")), "")
            self.languages.append(language or (self.languages[-1] if self.languages else ""))
        elif tag == "span" and "filename" in names:
            self.inside, self.title = "title", ""
        elif tag == "td" and "linenos" in names:
            self.inside = "numbers"
        elif tag == "pre" and self.inside != "numbers":
            self.inside = "pre"
            self.found.append(Shown(self.languages[-1] if self.languages else "", self.title))
            self.title = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self.languages:
            self.languages.pop()
        if tag == {"title": "span", "numbers": "td", "pre": "pre"}.get(self.inside):
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "title":
            self.title += data
        elif self.inside == "pre":
            self.found[-1].text += data


@cache
def markdown_of_the_site() -> markdown.Markdown:
    config = load_config(str(ROOT / "mkdocs.yml"))
    return markdown.Markdown(extensions=config["markdown_extensions"], extension_configs=config["mdx_configs"])


def shown(text: str) -> list[Shown]:
    reader = Reader()
    reader.feed(markdown_of_the_site().reset().convert(re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)))
    return reader.found


def escapes(path: Path) -> list[str]:
    """What is wrong with a page's blocks, a line or two for each fault."""
    text = path.read_text(encoding="utf-8")
    faults = []
    on_page: Counter[tuple[str, str]] = Counter()
    titles: list[str] = []
    for block in shown(text):
        language = LANGUAGES.get(block.language, "")
        if language:
            on_page[language, normal(block.text)] += 1
            titles.append(block.title)
        elif re.search(r"^>>> ", block.text, re.MULTILINE):
            faults.append(f"a session that is not marked `pycon`, so that it never runs:\n{block.text}")
    accounted: Counter[tuple[str, str]] = Counter()
    for block in blocks(Document(text, str(path))):
        if block.skip == "inside a longer fence":  # the site shows it as part of that fence
            continue
        if block.skip == "a file from snippets/":
            (included,) = shown(f"```{block.language}\n{block.source}```")
            accounted[block.language, normal(included.text)] += 1
            continue
        if block.skip and block.skip not in REASONS:
            allowed = "; ".join(sorted(REASONS))
            faults.append(f"{block.skip!r} is no reason not to run a block; allowed: {allowed}")
        elif block.skip and not any(block.skip in title for title in titles):
            faults.append(f"the reader cannot see why this does not run ({block.skip}):\n{block.text}")
        accounted[block.language, block.text] += 1
    faults += [f"shown, but neither run nor skipped ({lang}):\n{text}" for lang, text in (on_page - accounted)]
    faults += [f"run or skipped, but not shown like this ({lang}):\n{text}" for lang, text in (accounted - on_page)]
    return [f"{path.name}: {fault}" for fault in faults]


@every_page
def test_every_block_is_run_or_visibly_skipped(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert "\n\n".join(escapes(page)) == ""


FENCES = {
    "title": '```python title="a.py"\nx = 1\n```\n',
    "session": "```pycon\n>>> 1\n1\n```\n",
    "tilde": "~~~ py\nx = 1\n~~~\n",
    "long": "`````python\nx = 1\n`````\n",
    "braces": "``` { .python .annotate linenums='1' }\nx = 1  # (1)\n```\n",
    "trailing blanks": "```python   \nx = 1\n```\n",
    "tab": '=== "A"\n\n    ```python\n    def f():\n\n        return 1\n    ```\n',
    "admonition in a list": '- item\n\n    !!! note\n\n        ```python\n        x = "<b> & c"\n        ```\n',
    "details": "??? note\n\n    ```pycon\n    >>> 1\n    1\n    ```\n",
    "fence in a fence": "````markdown\n```python\nx = 1\n```\n````\n",
    "raw HTML": '<figure markdown="1">\n\n```python\nx = 1\n```\n\n</figure>\n',
    "excused": '```python title="run.py (not run here: needs several nodes)"\nx = 1\n```\n',
    "other languages": "```bash\npython x.py\n```\n\n```text\nx = 1\n```\n",
    "twice": "```python\nx = 1\n```\n\n```python\nx = 1\n```\n",
}


@pytest.mark.parametrize("kind", FENCES)
def test_both_ways_agree_on_a_sound_page(kind: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{FENCES[kind]}\nText.\n")
    assert escapes(page) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<div class='highlight language-python'><pre><code>x = 1</code></pre></div>", "neither run nor skipped"),
        ("<!--\n```python\nx = 1\n```\n-->", "not shown like this"),
        ("Text.\n\n```python\nx = 1\n", "not shown like this"),
        ("```\n>>> 1\n2\n```", "never runs"),
        ("    >>> 1\n    2\n", "never runs"),
        ('```python title="not run here: no time"\nx = 1\n```', "is no reason"),
    ],
)
def test_a_block_that_escapes_is_named(text: str, fault: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    (message,) = escapes(page)
    assert fault in message
    assert message.startswith("page.md: ")


@every_page
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(
        re.findall(r"(?<![\w./-])(?:snippets|benchmarks|docs|tests)/[\w./-]+\.(?:py|sh|sbatch|json|svg)\b", text)
    )
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert missing == []


def test_every_snippet_is_run_by_a_test_or_a_block() -> None:
    runs = [path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py") if path != Path(__file__)]
    for page in pages():
        runs += [b.source for b in blocks(Document(page.read_text(encoding="utf-8"), str(page))) if not b.skip]
    forgotten = [
        path.name for path in sorted(ROOT.glob("snippets/*.py"))
        if not any(re.search(rf"\b{path.stem}\b", text) for text in runs)
    ]  # fmt: skip
    assert forgotten == [], "snippets that neither a test nor a block on a page runs"

"""Run the code blocks of the pages.

Sybil finds the fences; this module decides which are Python, what each is worth (a session, a program, or a block
that does not run, with its reason) and how a session's output is compared. Each page is one namespace, in which
its blocks run in the order a reader meets them, from the root of the checkout.
"""

import doctest
import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pygments.lexers import PythonConsoleLexer, PythonLexer
from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

ROOT = Path(__file__).parents[2]

# What a page may say to excuse a block, in the block's title: ```python title="train.py (not run here: a reason)"
REASONS = frozenset({"needs a GPU", "needs several nodes", "needs a Slurm cluster", "shows a mistake that hangs"})
EXCUSE = re.compile(r"\bnot run here: (?P<reason>[^\")]*)", re.IGNORECASE)
# Every name under which the site would highlight a block as Python.
LANGUAGES = dict.fromkeys(PythonLexer.aliases, "python") | dict.fromkeys(PythonConsoleLexer.aliases, "pycon")
INCLUDE = re.compile(r'\s*-+8<-+\s+"[^"\n]+"\s*')
FENCES = RawFencedCodeBlockLexer(re.compile(r"(?P<info>[^\n]*)\n"))


@dataclass(frozen=True)
class Block:
    """A fence whose language is Python's, as written in a page."""

    start: int
    end: int
    language: str  # python or pycon
    info: str
    source: Any  # a str that also knows its line
    skip: str = ""  # why it does not run

    @property
    def text(self) -> str:
        return normal(self.source)


def normal(source: str) -> str:
    """The text of a block, less what neither Python nor a reader sees."""
    lines = textwrap.dedent(source.expandtabs(4)).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def language_of(info: str) -> str:
    """The language in a fence's first line: ``python``, ``python title="x"``, ``{.python .annotate}``."""
    if info.lstrip().startswith("{"):
        found = re.search(r"(?<!\w)\.([\w+#-]+)", info)
    else:
        found = re.match(r"\s*\.?([\w+#-]+)", info)
    return LANGUAGES.get(found[1].lower(), "") if found else ""


def blocks(document: Document) -> list[Block]:
    """All Python fences of a page, in order, those that do not run included."""
    fences = sorted(FENCES(document), key=lambda fence: fence.start)
    found = []
    for fence in fences:
        info, source = fence.lexemes["info"], fence.lexemes["source"]
        language = language_of(info)
        if language:
            skip = ""
            excuse = EXCUSE.search(info)
            if any(other.start < fence.start and fence.end <= other.end for other in fences):
                skip = "inside a longer fence"
            elif all(INCLUDE.fullmatch(line) for line in source.splitlines() if line.strip()) and source.strip():
                skip = "a file from snippets/"
            elif excuse:
                skip = excuse["reason"].strip()
            found.append(Block(fence.start, fence.end, language, info, source, skip))
    return found


def parse(document: Document) -> Iterator[Region]:
    """A Sybil parser: the blocks that run."""
    for block in blocks(document):
        if not block.skip:
            evaluate = run_session if block.language == "pycon" else run_program
            yield Region(block.start, block.end, block.source, evaluate)


def run_program(example: Example) -> None:
    """Execute a ``python`` block; what it prints is not compared."""
    # The padding makes the line in a traceback the line in the page.
    source = "\n" * (example.line + example.parsed.line_offset) + example.parsed
    exec(compile(source, example.path, "exec", dont_inherit=True), example.namespace)


def run_session(example: Example) -> str:
    """Execute a ``pycon`` block and return what differs from the output it shows."""
    test = doctest.DocTest(
        list(statements(example.parsed)), {}, name=Path(example.path).name, filename=example.path,
        lineno=example.line, docstring=None,
    )  # fmt: skip
    test.globs = example.namespace  # DocTest would work on a copy; the next block continues from here
    flags = doctest.ELLIPSIS | doctest.DONT_ACCEPT_BLANKLINE | doctest.REPORT_ONLY_FIRST_FAILURE
    report: list[str] = []
    doctest.DocTestRunner(checker=DigitsShown(), verbose=False, optionflags=flags).run(
        test, out=report.append, clear_globs=False
    )
    return "".join(report)


def statements(session: str) -> Iterator[doctest.Example]:
    """Split a session into statements, each with the output below it, which may contain blank lines."""
    if "# doctest:" in session:
        raise ValueError("a session on a page has no doctest directives: write it so that it runs as shown")
    if not session.lstrip().startswith(">>>"):
        raise ValueError(f"a session starts with a prompt, not with {session.strip()[:40]!r}")
    source: list[str] = []
    want: list[str] = []
    start = 0
    for number, line in enumerate([*session.splitlines(), ">>>"]):
        if line.startswith(">>>"):
            if source:
                yield statement(source, want, start)
            source, want, start = [line[4:]], [], number
        elif line.startswith("...") and source and not want:
            source.append(line[4:])
        else:
            want.append(line)


def statement(source: list[str], want: list[str], start: int) -> doctest.Example:
    output = "\n".join(want).strip("\n")
    error = None
    if output.startswith("Traceback (most recent call last):"):
        frames = output.splitlines()[1:]
        # The frames are indented; what follows them is the exception.
        error = "\n".join(frames[next((i for i, line in enumerate(frames) if line[:1].strip()), 0) :])
    return doctest.Example("\n".join(source), output, exc_msg=error, lineno=start)


class DigitsShown(doctest.OutputChecker):
    """Compare output as text, but decimal numbers by the digits the page shows.

    ``0.33`` on the page accepts what rounds to it: anything within half a unit of its last digit. Integers,
    words and spaces within a line agree exactly; ``...`` stands for any text.
    """

    NUMBER = re.compile(
        r"(?<![\w.])[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)(?!\.?\d)",
    )

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        want, got = (re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip("\n") for text in (want, got))
        first, *others = want.split("...")
        if not others:
            return self.match(first, got, 0, whole=True) is not None
        at = self.match(first, got, 0)
        for piece in others[:-1]:
            at = self.find(piece, got, at)
        return self.find(others[-1], got, at, whole=True) is not None

    def find(self, piece: str, got: str, start: int | None, whole: bool = False) -> int | None:
        """Where the leftmost match of a piece at or after `start` ends."""
        if start is None:
            return None
        ends = (self.match(piece, got, at, whole) for at in range(start, len(got) + 1))
        return next((end for end in ends if end is not None), None)

    def match(self, piece: str, got: str, start: int, whole: bool = False) -> int | None:
        """Where a match of a piece at `start` ends."""
        shown = self.NUMBER.findall(piece)
        number = f"({self.NUMBER.pattern})"
        pattern = re.compile(number.join(map(re.escape, self.NUMBER.split(piece))))
        found = pattern.fullmatch(got, start) if whole else pattern.match(got, start)
        if found and all(self.agree(*pair) for pair in zip(shown, found.groups(), strict=True)):
            return found.end()
        return None

    @staticmethod
    def agree(shown: str, printed: str) -> bool:
        exact = Decimal(shown)
        exponent = exact.as_tuple().exponent
        assert isinstance(exponent, int)
        return abs(exact - Decimal(printed)) <= Decimal(1).scaleb(exponent) / 2


class Pages(Sybil):
    """The README and the pages under docs/, but for the tables that scripts write into docs/_generated/."""

    def should_parse(self, path: Path) -> bool:
        path = path.resolve()
        if path.suffix != ".md" or not path.is_relative_to(ROOT):
            return False
        parts = path.relative_to(ROOT).parts
        return parts == ("README.md",) or (parts[0] == "docs" and "_generated" not in parts)


def enter(namespace: dict[str, Any]) -> None:
    # As at a prompt: a guarded main part runs too, instead of only looking as if it did.
    namespace["__name__"] = "__main__"
    os.chdir(ROOT)


PAGES = Pages([parse], path=str(ROOT), setup=enter)


def pages() -> list[Path]:
    return [ROOT / "README.md", *(path for path in sorted(ROOT.glob("docs/**/*.md")) if PAGES.should_parse(path))]

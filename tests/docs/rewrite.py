"""Rewrite the outputs that sessions show by what they print now; review the difference before you commit it.

Run: python tests/docs/rewrite.py docs/lessons/6-all-reduce-algorithms.md
"""

import contextlib
import io
import sys
import textwrap
import traceback
from itertools import pairwise, takewhile
from pathlib import Path

from sybil import Document

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from page_blocks import blocks, statements  # noqa: E402


def shown(source: str, namespace: dict[str, object]) -> str:
    """What a prompt would print for one statement."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(source + "\n", "<session>", "single", dont_inherit=True), namespace)
        except Exception as error:
            last = traceback.format_exception_only(error)[-1]
            out.write(f"Traceback (most recent call last):\n    ...\n{last}")
    return out.getvalue().rstrip("\n")


def rewrite(path: Path) -> bool:
    """Bring one page up to date; whether anything changed."""
    text = path.read_text(encoding="utf-8")
    document, namespace = Document(text, str(path)), {"__name__": "__main__"}
    parts, done = [], 0
    for block in blocks(document):
        if block.skip:
            continue
        if block.language == "python":
            exec(compile(block.source, str(path), "exec", dont_inherit=True), namespace)
            continue
        lines = []
        prompts = textwrap.dedent(block.source).splitlines()
        for example, after in pairwise([*statements(block.source), None]):
            until = after.lineno if after else len(prompts)
            # Its prompts, as they stand: the output below them may begin with dots, but not right after.
            lines += takewhile(lambda line: line.startswith((">>>", "...")), prompts[example.lineno : until])
            printed = shown(example.source, namespace)
            lines += printed.split("\n") if printed else []
        raw = text[block.start : block.end]
        head, _, rest = raw.partition("\n")
        indent = head[: len(head) - len(head.lstrip())]
        fence = rest.rstrip("\n").rsplit("\n", 1)[-1]
        body = textwrap.indent("\n".join(lines), indent)
        parts += [text[done : block.start], f"{head}\n{body}\n{fence}", "\n" if raw.endswith("\n") else ""]
        done = block.end
    new = "".join([*parts, text[done:]])
    if new != text:
        path.write_text(new, encoding="utf-8")
    return new != text


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {'rewritten' if rewrite(Path(name)) else 'up to date'}")

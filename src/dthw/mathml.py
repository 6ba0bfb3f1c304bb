"""TeX in a page becomes MathML while the site is built: no script, no font, no other host.

A Python-Markdown extension that stands on two libraries. ``pymdownx.arithmatex`` finds the formulas
(and knows that ``$5`` is a price and that code is code); ``math_core`` translates them, and refuses
an unknown command or an open brace instead of printing something else.
"""

from html import unescape
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from math_core import LatexToMathML

_convert = LatexToMathML(fancy_error=False).convert_with_local_state


class _Formulas(Treeprocessor):  # type: ignore[misc]  # markdown has no types
    def run(self, root: Element) -> None:
        for box in root.iter():
            if box.get("class") == "arithmatex":
                # The stash keeps finished HTML out of reach of the processors that follow.
                tex = unescape(box.text or "").strip()
                box.text = self.md.htmlStash.store(_convert(tex, displaystyle=box.tag == "div"))


class MathML(Extension):  # type: ignore[misc]
    def extendMarkdown(self, md: Markdown) -> None:
        # After the inline patterns (20), which find the formulas; before the table of contents (5).
        md.treeprocessors.register(_Formulas(md), "mathml", 15)


def makeExtension(**config: object) -> MathML:
    return MathML(**config)

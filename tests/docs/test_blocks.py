"""The machinery that runs the pages, tried on small pages with planted faults."""

from pathlib import Path

import pytest
from page_blocks import DigitsShown, blocks, language_of, parse, statements
from sybil import Document
from sybil.example import SybilFailure

PAGE = """
# A page

```python title="first.py" hl_lines="1"
ran = ["title"]
```

=== "One"

    ```pycon
    >>> ran.append("tab")
    ```

=== "Two"

    ~~~python
    ran.append("tildes")
    ~~~

!!! note

    ```{.python .annotate}
    ran.append("braces")  # (1)
    ```

1.  In a list:

    ```python   \n    ran.append("list")
    ```

- ```py
  ran.append("bullet")
  ```

??? tip "Folded"

    ````python3 linenums="1"
    ran.append("long fence")
    ````

``` { .pycon title="a session" }
>>> for name in ran[:2]:
...     print(name)
title
tab

>>> print("one", "", "two", sep="\\n")
one

two
>>> 1 / 0
Traceback (most recent call last):
  ...
ZeroDivisionError: division by zero
```

````markdown
```python
ran.append("shown, not run")
```
````

```python
--8<-- "snippets/some_file.py"
```

```python title="not run here: needs a GPU"
ran.append("excused")
```

```bash
ran.append("not Python")
```
"""


def document(tmp_path: Path, text: str) -> Document:
    page = tmp_path / "page.md"
    page.write_text(text)
    return Document.parse(str(page), parse)


def test_every_kind_of_fence_runs_in_order_and_in_one_namespace(tmp_path: Path) -> None:
    page = document(tmp_path, PAGE)
    for example in page.examples():
        example.evaluate()
    assert page.namespace["ran"] == ["title", "tab", "tildes", "braces", "list", "bullet", "long fence"]


def test_what_does_not_run_has_its_reason(tmp_path: Path) -> None:
    skips = [block.skip for block in blocks(document(tmp_path, PAGE)) if block.skip]
    assert skips == ["inside a longer fence", "a file from snippets/", "needs a GPU"]


@pytest.mark.parametrize(
    "block",
    [
        "```pycon\n>>> 1 + 1\n3\n```",
        "```pycon\n>>> 1 + 1\n```",
        "```pycon\n>>> x = 1\n2\n```",
        '```pycon title="x"\n>>> 1 / 3\n0.34\n```',
        "!!! note\n\n    ```pycon\n    >>> 1 + 1\n    3\n    ```",
        "```pycon\n>>> int('x')\nTraceback (most recent call last):\nValueError: another message\n```",
    ],
)
def test_a_session_with_wrong_output_fails(tmp_path: Path, block: str) -> None:
    (example,) = document(tmp_path, block).examples()
    with pytest.raises(SybilFailure, match="Expected"):
        example.evaluate()


def test_a_session_that_raises_fails(tmp_path: Path) -> None:
    (example,) = document(tmp_path, "```pycon\n>>> 1 / 0\n```").examples()
    with pytest.raises(SybilFailure, match="ZeroDivisionError"):
        example.evaluate()


def test_a_program_that_raises_fails_at_its_line_in_the_page(tmp_path: Path) -> None:
    (example,) = document(tmp_path, 'text\n\n```python title="x"\na = 1\n1 / 0\n```').examples()
    with pytest.raises(ZeroDivisionError) as failure:
        example.evaluate()
    assert failure.traceback[-1].lineno + 1 == 5


@pytest.mark.parametrize("session", ["1 + 1\n2", "text\n>>> 1\n1", ">>> f()  # doctest: +SKIP\n3"])
def test_what_is_no_plain_session_is_refused(session: str) -> None:
    with pytest.raises(ValueError, match="session"):
        list(statements(session))


@pytest.mark.parametrize(
    ("info", "language"),
    [
        ("python", "python"),
        ("  python  ", "python"),
        ("py", "python"),
        ("Python3 title='a'", "python"),
        ("{.python .annotate}", "python"),
        ("{ #here .python }", "python"),
        ("pycon", "pycon"),
        ('{ .pycon title=".python" }', "pycon"),
        ("", ""),
        ("bash", ""),
        ("text title='python'", ""),
        ("{ .bash #python }", ""),
    ],
)
def test_language_of_a_fence(info: str, language: str) -> None:
    assert language_of(info) == language


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("0.33", "0.3333333333333333"),
        ("0.33", "0.325"),
        ("1e-05", "1.0400000000000001e-05"),
        ("-2.5 ms", "-2.48 ms"),
        ("[1.0, 2.00]", "[1.04, 2.0]"),
        ("1.5 ... 8", "1.5 and 7 and 8"),
        ("a ... 2.5 ... c", "a 1.0 2.51 x c"),
        ("3 x 0.5GB", "3 x 0.52GB"),
        ("torch 2.13.0", "torch 2.13.0"),
        ("one\n\ntwo", "one  \n\ntwo\n"),
    ],
)
def test_output_agrees_by_the_digits_shown(shown: str, printed: str) -> None:
    assert DigitsShown().check_output(shown, printed, 0)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("0.33", "0.3351"),
        ("0.33", "0.32"),
        ("3", "3.0"),
        ("3.0", "3"),
        ("8", "9"),
        ("1.5 s", "1.5 ms"),
        ("2.13.0", "2.13.1"),
        ("2.5", "-2.5"),
        ("a ... 2.5", "a 2.7"),
        ("1.0 2.0", "1.0  2.0"),
        ("one\ntwo", "one\n\ntwo"),
        ("nan", "0.0"),
    ],
)
def test_output_that_differs_is_told_apart(shown: str, printed: str) -> None:
    assert not DigitsShown().check_output(shown, printed, 0)

"""The reference answer passes; typical wrong ones fail with the hint that helps."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exercises import grade

HEAD = "import numpy as np\nfrom dthw.collectives.schedule import Schedule, Step\n"
RIGHT = """
def my_ring(p):
    r = np.arange(p)
    a = Step(r, (r + 1) % p, lo=r - 1, op="+", times=p - 1, shift=-1)
    b = Step(r, (r + 1) % p, lo=r, op="=", times=p - 1, shift=-1)
    return Schedule(p, p, [a, b] if p > 1 else [])
"""
WRONG = {
    "nothing copied": (RIGHT.replace("[a, b]", "[a]"), "nothing copies them"),
    "starts anywhere": (RIGHT.replace("lo=r - 1", "lo=0"), "passed on before the chunk moved|already complete"),
    "does not move on": (RIGHT.replace("shift=-1", "shift=0"), "look at shift|already complete"),
    "moves the other way": (RIGHT.replace("shift=-1", "shift=1"), "look at shift|already complete"),
    "one round short": (RIGHT.replace('lo=r, op="=", times=p - 1', 'lo=r, op="=", times=p - 2'), "too few"),
    "whole vectors": (
        RIGHT.replace("Schedule(p, p,", "Schedule(p, 1,").replace("lo=r - 1", "lo=0").replace("lo=r,", "lo=0,"),
        "send one chunk of 1/2",
    ),
    "one server": (
        "def my_ring(p):\n    o = np.arange(1, p)\n"
        "    return Schedule(p, 1, [Step(o, 0, lo=0), Step(0, o, lo=0, op='=')] if p > 1 else [])\n",
        "goes through its busiest port",
    ),
    "an invalid step": (RIGHT.replace("(r + 1) % p, lo=r - 1", "r + 1, lo=r - 1"), "builds no valid schedule"),
    "no schedule": ("def my_ring(p):\n    return None\n", "must return an all_reduce Schedule"),
    "another error": ("def my_ring(p):\n    return 1 / 0\n", "ZeroDivisionError"),
}


def answer(folder: Path, text: str) -> Path:
    path = folder / "answer.py"
    path.write_text(HEAD + text)
    return path


def test_the_reference_answer_passes(tmp_path: Path) -> None:
    assert grade.grade("6.2", answer(tmp_path, RIGHT)) == ""


def test_the_answer_printed_in_the_lesson_passes(tmp_path: Path) -> None:
    lesson = (grade.ROOT / "docs/lessons/6-all-reduce-algorithms.md").read_text(encoding="utf-8")
    lines = lesson[lesson.index("def my_ring") :].split(">>> print")[0].splitlines()
    shown = "\n".join([lines[0], *(line.split("... ", 1)[1] for line in lines[1:] if "... " in line)])
    assert grade.grade("6.2", answer(tmp_path, shown + "\n")) == ""


@pytest.mark.parametrize("name", WRONG)
def test_typical_wrong_answers_get_the_right_hint(name: str, tmp_path: Path) -> None:
    text, hint = WRONG[name]
    fault = grade.grade("6.2", answer(tmp_path, text))
    assert re.search(hint, fault), fault


def test_the_file_that_readers_start_from_is_wrong_and_says_so() -> None:
    assert "my ring is not a correct all_reduce" in grade.grade("6.2")


def test_the_command_lists_exercises_and_tells_the_outcome_by_its_status(tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, grade.__file__, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert run()[0] == 2 and "6.2 (snippets/exercises/ring.py)" in run()[1]
    assert run("6.2", str(answer(tmp_path, RIGHT))) == (0, "Exercise 6.2: passed.\n")
    status, said = run("6.2")
    assert status == 1 and "not yet" in said
    assert "is no Python file" in run("6.2", str(tmp_path / "missing.py"))[1]

"""Grade a reader's answer to an exercise: ``python tests/exercises/grade.py 6.2 [file]``."""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dthw.collectives import formulas
from dthw.collectives.cost import Port, cost
from dthw.collectives.schedule import Schedule
from dthw.collectives.verify import WrongSchedule, verify

ROOT = Path(__file__).parents[2]


def ring(answer: Any) -> str:
    """What is wrong with ``my_ring``, or nothing."""
    for p in (1, 2, 3, 4, 7, 16):
        try:
            schedule = answer.my_ring(p)
        except ValueError as error:
            return f"my_ring({p}) builds no valid schedule: {error}"
        if not isinstance(schedule, Schedule) or (schedule.ranks, schedule.collective) != (p, "all_reduce"):
            return f"my_ring({p}) returned {schedule!r}; it must return an all_reduce Schedule for {p} ranks"
        try:
            verify(schedule)
        except WrongSchedule as error:
            return f"my_ring({p}): {error}\n{_hint(error, schedule)}"
        n = 8 * p * schedule.chunks
        mine, best = cost(schedule, n, Port(1, 1)), formulas.ring(p, n)
        if mine.port_bytes > best.port_bytes:
            return (
                f"my_ring({p}) is a correct all-reduce, but {mine.port_bytes / n:.2f} n goes through its busiest port "
                f"instead of {best.port_bytes / n:.2f} n: send one chunk of 1/{p} of the buffer a message."
            )
        if mine.rounds != best.rounds:
            return f"my_ring({p}) is a correct all-reduce, but in {mine.rounds} rounds instead of {best.rounds}."
        neighbours = {(int(s), int(d)) for r in schedule.rounds() for s, d in zip(r.src, r.dst, strict=True)}
        if len({d for _, d in neighbours}) < len(neighbours):
            return f"my_ring({p}): some rank receives from two others; on a ring everybody has one predecessor."
    return ""


def _hint(error: WrongSchedule, schedule: Schedule) -> str:
    copies = any((row.op == "=").any() for row in schedule.rows)
    if error.doubled:
        return (
            "Hint: a part that arrives twice was passed on before the chunk moved: look at shift and where lo starts."
        )
    if not copies:
        return "Hint: the sums are there, but each on one rank only; nothing copies them ('=') to the others yet."
    if schedule.n_rounds < 2 * (schedule.ranks - 1):
        return f"Hint: {schedule.n_rounds} rounds are too few; both halves take {schedule.ranks - 1}."
    return "Hint: print(table(my_ring(4))) from dthw.collectives.verify: is what is copied already complete ('*')?"


class Exercise(NamedTuple):
    file: Path
    check: Callable[[Any], str]


EXERCISES = {"6.2": Exercise(ROOT / "snippets" / "exercises" / "ring.py", ring)}


def grade(number: str, file: Path | None = None) -> str:
    """What is wrong with the answer in ``file`` (default: the exercise's own), or nothing."""
    path = file or EXERCISES[number].file
    spec = importlib.util.spec_from_file_location("answer", path)
    if spec is None or spec.loader is None or not path.is_file():
        return f"{path} is no Python file"
    answer = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(answer)
        return EXERCISES[number].check(answer)
    except Exception:
        return f"{path.name} raised an error of its own:\n{traceback.format_exc(limit=-2)}"


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in EXERCISES:
        print("Name an exercise: " + ", ".join(f"{n} ({e.file.relative_to(ROOT)})" for n, e in EXERCISES.items()))
        return 2
    fault = grade(arguments[0], Path(arguments[1]) if len(arguments) > 1 else None)
    print(f"Exercise {arguments[0]}: {'not yet.' if fault else 'passed.'}" + (f"\n{fault}" if fault else ""))
    return bool(fault)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

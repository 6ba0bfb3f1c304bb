"""Draw every figure of the site, light and dark, with its caption, text alternative and data table.

    python docs/figures.py [--redraw] [--out FOLDER]

Writes assets/figures/NAME-light.svg, assets/figures/NAME-dark.svg and _generated/figure-NAME.md, which pages include by
``--8<-- "docs/_generated/figure-NAME.md"``. Where there is a CUDA GPU the machine is measured first, unless --redraw is
given; the drawing itself is a pure function of the package and of assets/data, and gives the same bytes each time.
"""

import argparse
import csv
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import isinf
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import dthw
from dthw import draw
from dthw.collectives import algorithms, formulas
from dthw.collectives.cost import Port
from dthw.collectives.schedule import Round, Schedule
from dthw.draw.curves import SHOWN
from dthw.draw.measured import by_cell, predicted
from dthw.draw.panels import panels
from dthw.draw.schedules import WORDS, share
from dthw.draw.style import Theme, in_bandwidth, in_bytes, in_seconds, look
from dthw.measure import fit, results

DOCS = Path(__file__).parent
DATA = DOCS / "assets" / "data"


@dataclass(frozen=True)
class Entry:
    """One figure: what draws it in a theme, what it shows, for those who see it and those who do not, and its data."""

    name: str
    draw: Callable[[Theme], Figure]
    conclusion: str  # the caption's first sentence, printed bold
    caption: str  # the rest of it
    alt: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    source: str  # where the numbers come from, with date and versions


# --- Schedules, step by step ---

RANKS = 8
# What each picture shows; {names} are counted from the schedule in `steps`.
STEPS = {
    "parameter_server": "Few rounds, but everything goes through one port, the server's.",
    "sharded_parameter_server": "A server for each chunk: as few rounds, and at most {largest} in each on any port.",
    "one_shot": "One round is enough if everybody sends everything to everybody.",
    "ring": "Every rank sends {largest} in every round, so that all ports are always busy.",
    "bidirectional_ring": "Two rings turn in opposite directions, each with half of the buffer: the bytes of one ring.",
    "binary_tree": "Every message is the whole buffer, and most ranks wait: on average {busy} of {ranks} take part.",
    "double_binary_tree": "Two trees share the work, each with half of the buffer in {segments} segments; in round "
    "{both} the first results come down while the last parts still climb.",
    "recursive_doubling": "What a rank holds doubles in every round: {held}.",
    "halving_doubling": "Half, a quarter, an eighth, and back: as few bytes as the ring in far fewer rounds.",
    "halving_doubling_near_first": "Near first, the halves go to a neighbour and only eighths go far.",
    "hierarchical": "With two nodes of four ranks, a rank sends only {across} to the other node.",
    "torus_2d": "Half of the buffer goes along rows first, half along columns first, and both are in use at once.",
}
SHAPED = {
    "double_binary_tree": algorithms.double_binary_tree(RANKS, segments=2),
    "hierarchical": algorithms.hierarchical(RANKS, gpus=4),
    "torus_2d": algorithms.torus_2d(RANKS, rows=2),
}
# Sixteen chunks leave room for two panels side by side: of fourteen like rounds, these tell it.
ONLY = {"bidirectional_ring": (1, 2, 4, 7, 8, 10, 14)}


def steps(name: str) -> Entry:
    """A schedule's small multiples, with everything that can be counted on them."""
    schedule = SHAPED.get(name) or algorithms.ALL_REDUCE[name](RANKS)
    states = panels(schedule, range(1, schedule.n_rounds + 1))
    moved = [(state, state.messages) for state in states if state.messages is not None]
    places, only = schedule.ranks * schedule.chunks, ONLY.get(name)
    finished = [int((state.held == schedule.ranks).sum()) for state in states[1:]]
    total = share(sum((state.port for state in states), Fraction(0)))
    numbers = {
        "ranks": schedule.ranks,
        "rounds": schedule.n_rounds,
        "port": total,
        "largest": share(max(state.port for state in states)),
        "busy": f"{np.mean([np.unique([*r.src, *r.dst]).size for _, r in moved]):.1f}",
        "held": ", ".join(str(state.held.max()) for state in states),
        "both": " and ".join(str(state.round) for state in states if len(state.ops) > 1),
        "segments": schedule.chunks // 2,
        "across": share(_across(schedule, 4)),
    }
    rows = [
        (str(state.round), WORDS[state.ops], share(state.port), f"{done} of {places}", _messages(schedule, r))
        for (state, r), done in zip(moved, finished, strict=True)
    ]
    left_out = f" Rounds {', '.join(map(str, only))} are shown; those between go on in the same way." if only else ""
    return Entry(
        name="steps-" + name.replace("_", "-"),
        draw=lambda theme: draw.schedule(schedule, only, theme=theme),
        conclusion=STEPS[name].format(**numbers),
        caption=f"{schedule.n_rounds} rounds, {schedule.n_messages} messages, {total} through the busiest port "
        f"for a buffer of n bytes.{left_out}",
        alt=f"All-reduce by {look(name).label} on {schedule.ranks} ranks, round by round: arrows from senders to "
        "receivers, and a grid of ranks by chunks with the number of ranks whose part each place holds. Finished "
        f"places after each round: {', '.join(map(str, finished))}.",
        head=("Round", "Operation", "Busiest port", "Finished places", "Messages (sender→receiver: chunks)"),
        rows=rows,
        source=f"Drawn by `docs/figures.py` from `dthw.collectives.algorithms.{name.removesuffix('_near_first')}`",
    )


def _messages(schedule: Schedule, r: Round, most: int = 8) -> str:
    chunks = [f": {lo}" if n == 1 else f": {lo}–{lo + n - 1}" for lo, n in zip(r.lo, r.n, strict=True)]
    if schedule.chunks == 1:
        chunks = [""] * len(chunks)
    said = [f"{src}→{dst}{what}" for src, dst, what in zip(r.src, r.dst, chunks, strict=True)]
    return ", ".join(said[:most]) + (f" and {len(said) - most} more" if len(said) > most else "")


def _across(schedule: Schedule, node: int) -> Fraction:
    """The most that one rank sends out of its node, as part of the buffer."""
    sent = np.zeros(schedule.ranks, dtype=np.int64)
    for r in schedule.rounds():
        away = r.src // node != r.dst // node
        np.add.at(sent, r.src[away], r.n[away])
    return Fraction(int(sent.max()), schedule.chunks)


# --- Cost, hierarchy, measurements ---


def cost_curves() -> Entry:
    alpha_s, rate, ranks = 5e-6, 50e9, (8, 64, 1024)
    port = Port.of(alpha_s, rate)

    def above(small: str, large: str) -> str:
        sizes = [formulas.crossover(small, large, p, port.alpha_s, port.beta_s) for p in ranks]
        said = [in_bytes(size, 2) for size in sizes if not isinf(size)]
        if len(set(said)) == 1:
            return f"{said[0]} on any of these numbers of ranks"
        return ", ".join(f"{size} on {p:,}" for p, size in zip(ranks, said, strict=True)) + " ranks"

    never = all(isinf(formulas.crossover("halving_doubling", "ring", p, port.alpha_s, port.beta_s)) for p in ranks)
    times = {
        (p, n): [formulas.ALL_REDUCE[name](p, n).seconds(port.alpha_s, port.beta_s) for name in SHOWN]
        for p in ranks
        for n in (2**10, 2**15, 2**20, 2**25, 2**30)
    }
    return Entry(
        name="cost-curves",
        draw=lambda theme: draw.curves(ranks, port, theme=theme),
        conclusion="Small buffers want few rounds, large ones few bytes.",
        caption=f"The ring overtakes recursive doubling above {above('recursive_doubling', 'ring')}, and a parameter "
        f"server above {above('parameter_server', 'ring')}."
        + (" Halving-doubling, with the bytes of a ring in fewer rounds, never loses to it here." if never else "")
        + f" *Assumed*: α = {in_seconds(alpha_s)} a round and {in_bandwidth(rate)} in each direction, as of one NDR "
        "InfiniBand port. The server dips below the least rounds because the model charges one start-up for a round, "
        "however many messages a rank receives in it.",
        alt="Time of an all-reduce against buffer size, both logarithmic, for "
        f"{', '.join(f'{p:,}' for p in ranks)} ranks. Curves are flat for small buffers, at the height of their number "
        "of rounds, and rise in proportion to the buffer for large ones.",
        head=("Ranks", "Buffer", *(look(name).label for name in SHOWN)),
        rows=[(f"{p:,}", in_bytes(n), *map(in_seconds, row)) for (p, n), row in times.items()],
        source="Drawn by `docs/figures.py` from `dthw.collectives.formulas`",
    )


def hierarchy() -> Entry:
    with (DATA / "hierarchy.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    rungs = [draw.Rung(row["where"], row["over"], float(row["per_direction_gb_s"]) * 1e9) for row in table]
    rates = [rung.bytes_per_second for rung in rungs]
    falls = [f"{a / b:.1f}" for a, b in pairwise(rates)]
    rows = [
        (row["where"], row["over"], row["per_direction_gb_s"], fall, f"{row['status']}: {row['note']}",
         f"[{row['source']}]({row['link']})")
        for row, fall in zip(table, ["", *falls], strict=True)
    ]  # fmt: skip
    each = ", ".join(f"{fall} times to {rung.where}" for rung, fall in zip(rungs[1:], falls, strict=True))
    bars = ", ".join(f"{rung.where} ({rung.over}) {in_bandwidth(rung.bytes_per_second)}" for rung in rungs)
    return Entry(
        name="hierarchy",
        draw=lambda theme: draw.hierarchy(rungs, theme=theme),
        conclusion=f"From a GPU's own memory to {rungs[-1].where}, bandwidth falls {rates[0] / rates[-1]:.0f} times.",
        caption=f"Each step against the one before: {each}. All are bytes in one direction, but for memory, whose "
        "reads and writes share what is shown.",
        alt=f"Bars on a logarithmic axis: {bars}.",
        head=("From a GPU to", "Over", "GB/s per direction", "Times slower", "Status", "Source"),
        rows=rows,
        source="Drawn by `docs/figures.py` from [`hierarchy.csv`](/assets/data/hierarchy.csv), as of "
        f"{max(row['as_of'] for row in table)}",
    )


def measured() -> Entry | None:
    """Of the newest measurement on gloo; None where there is none yet."""
    files = {path.name: results.read(path) for path in sorted(DATA.glob("gloo*.json"))}
    if not files:
        return None
    name, content = max(files.items(), key=lambda item: (item[1]["provenance"]["date"], item[0]))
    records, origin = content["records"], content["provenance"]
    fits, cells = fit.by_ranks(records), by_cell(records)
    counted = {key: (sent, told) for key, (_, sent, told) in cells.items() if sent is not None}
    exact = sum(predicted(a, p, n) == count for (p, a, n), count in counted.items())
    sizes = sorted({n for _, _, n in cells})
    kept = {sizes[0], sizes[len(sizes) // 2], sizes[-1]}
    constants = "; ".join(
        f"on {p} ranks α = {in_seconds(f.alpha_s, 2)} and {in_bandwidth(1 / f.beta_s, 2)}, missing by "
        f"{f.median_miss:.0%} in the median and {f.worst_miss:.0%} at worst"
        for p, f in fits.items()
    )
    return Entry(
        name="measured",
        draw=lambda theme: draw.measured(records, fits, origin["cores"], theme=theme),
        conclusion="What is counted equals what is predicted, "
        + (f"in all {exact} cells" if exact == len(counted) else f"in {exact} of {len(counted)} cells")
        + "; time follows two constants only roughly.",
        caption=f"For each number of ranks, one α and one β have to explain all algorithms and sizes: {constants}.",
        alt=f"For {', '.join(map(str, fits))} ranks, three plots each: time against buffer size with the fitted "
        "model's lines, bytes sent and messages sent with the predicted values. The model misses by "
        f"{', '.join(f'{f.median_miss:.0%} on {p} ranks' for p, f in fits.items())} in the median.",
        head=(
            "Ranks",
            "Algorithm",
            "Buffer",
            "Median time",
            "Model",
            "Bytes sent",
            "predicted",
            "Messages",
            "predicted",
        ),
        rows=[_measured_row(key, cells[key], fits) for key in sorted(cells) if key[2] in kept],
        source=f"Measured {origin['date']} by `{origin['command'].strip()}` on {origin['device']}, {origin['cores']} "
        f"cores, torch {origin['torch']}, Python {origin['python']}: [`{name}`](/assets/data/{name}); drawn by "
        "`docs/figures.py`",
    )


def _measured_row(key: tuple[int, str, int], cell: Any, fits: dict[int, fit.Fit]) -> tuple[str, ...]:
    p, name, n = key
    seconds, sent, told = cell
    first = (str(p), look(name).label, in_bytes(n), in_seconds(median(seconds)))
    if name not in formulas.ALL_REDUCE:
        return (*first, "", "", "", "", "")
    model = formulas.ALL_REDUCE[name](p, n).seconds(fits[p].alpha_s, fits[p].beta_s)
    form = predicted(name, p, n)
    return (*first, in_seconds(model), f"{sent:,}", f"{form[0]:,}", f"{told:,}", f"{form[1]:,}")


# --- The page's side ---


def snippet(entry: Entry, width: float, height: float) -> str:
    """Markdown that gives the site's figure markup, also when it is included inside a tab or a list.

    Paths begin with a slash, which mkdocs takes from docs/ and makes relative to the page (``relative_to_docs``).
    """
    images = "\n".join(
        f"![{entry.alt}](/assets/figures/{entry.name}-{theme.name}.svg#only-{theme.name})"
        f'{{ width="{width:.0f}" height="{height:.0f}" loading=lazy }}'
        for theme in draw.THEMES
    )
    rules = ["--:" if all(c[:1].isdigit() for c in column if c) else "---" for column in zip(*entry.rows, strict=True)]
    rows = "\n".join(f"| {' | '.join(row)} |" for row in (entry.head, rules, *entry.rows))
    versions = f"dthw {dthw.__version__}, Matplotlib {matplotlib.__version__}."
    return f"""\
/// html | figure#figure-{entry.name}.wide
//// html | div.scroll
{images}
////
//// html | figcaption
**{entry.conclusion}** {entry.caption}
////
//// html | details
///// html | summary
The data behind the figure
/////

{rows}

////
//// html | p.source
{entry.source}; {versions}
////
///
"""


def entries() -> Iterator[Entry]:
    yield from map(steps, STEPS)
    yield cost_curves()
    yield hierarchy()
    runs = measured()
    if runs is None:
        print("measured: skipped, there is no docs/assets/data/gloo*.json yet; `python -m dthw.measure` makes it")
    else:
        yield runs


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--redraw", action="store_true", help="draw from committed data, also where there is a GPU to measure"
    )
    parser.add_argument("--out", type=Path, default=DOCS, help="folder that gets assets/figures and _generated")
    asked = parser.parse_args(argv)
    if not asked.redraw and has_gpu():
        subprocess.run([sys.executable, "-m", "dthw.measure"], check=True, cwd=DOCS.parent)
    pictures, pages = asked.out / "assets" / "figures", asked.out / "_generated"
    for folder in (pictures, pages):
        folder.mkdir(parents=True, exist_ok=True)
    for entry in entries():
        for theme in draw.THEMES:
            figure = entry.draw(theme)
            draw.save(figure, pictures / f"{entry.name}-{theme.name}.svg")
        width, height = figure.get_size_inches() * figure.dpi
        (pages / f"figure-{entry.name}.md").write_text(snippet(entry, width, height), encoding="utf-8", newline="\n")
        print(entry.name)


if __name__ == "__main__":
    main()

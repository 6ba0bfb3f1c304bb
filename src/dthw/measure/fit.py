"""α and β of this machine: the two constants with which the closed forms come closest to what was measured."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dthw.collectives.auto import CANDIDATES
from dthw.collectives.cost import Port
from dthw.collectives.formulas import ALL_REDUCE


class Fit(NamedTuple):
    """Seconds a round, seconds a byte through the busiest port, and how far the model misses what was measured."""

    alpha_s: float
    beta_s: float
    median_miss: float  # |predicted - measured| / measured
    worst_miss: float


def alpha_beta(terms: Sequence[tuple[float, float, float]]) -> Fit:
    """Fit seconds = α rounds + β bytes to ``terms``, rows of (rounds, bytes through the busiest port, seconds).

    Least squares of the relative miss, so that a microsecond counts as much among small sizes as a millisecond among
    large ones. Neither constant is allowed below 0: where it would fall there, the other one is fitted alone.

    Raises ValueError for fewer than two rows, or a time that is not above 0.

    >>> fit = alpha_beta([(2, 1000, 12e-6), (14, 1000, 72e-6), (2, 1e6, 1.01e-3)])
    >>> f"{fit.alpha_s * 1e6:.0f} us, {1 / fit.beta_s / 1e9:.0f} GB/s"
    '5 us, 1 GB/s'
    """
    table = np.asarray(terms, dtype=float)
    if len(table) < 2 or not (table[:, 2] > 0).all():
        raise ValueError(f"got {len(table)} rows; a fit needs at least two, with times above 0")
    relative = table[:, :2] / table[:, 2:]
    ones = np.ones(len(table))
    constants = np.linalg.lstsq(relative, ones, rcond=None)[0]
    if (constants < 0).any():
        keep = int(np.argmax(constants >= 0))
        constants = np.zeros(2)
        constants[keep] = np.linalg.lstsq(relative[:, [keep]], ones, rcond=None)[0][0]
    miss = np.abs(relative @ constants - 1)
    return Fit(float(constants[0]), float(constants[1]), float(np.median(miss)), float(miss.max()))


def by_ranks(records: Iterable[Mapping[str, Any]]) -> dict[int, Fit]:
    """One fit for each number of ranks, over the medians of the algorithms that have a closed form.

    ``records`` are those of `dthw.measure.collectives.sweep`, of one run or of several, whose samples of one cell are
    taken together. Torch's own all-reduce does not tell its algorithm and takes no part.
    """
    terms: dict[int, list[tuple[float, float, float]]] = {}
    for (p, algorithm, nbytes), seconds in _medians(records).items():
        form = ALL_REDUCE[algorithm](p, nbytes)
        terms.setdefault(p, []).append((form.rounds, form.port_bytes, seconds))
    return {p: alpha_beta(rows) for p, rows in sorted(terms.items())}


def _medians(records: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str, int], float]:
    """Median seconds by (ranks, algorithm, bytes) of what has a closed form, all samples of a cell together."""
    samples: dict[tuple[int, str, int], list[float]] = {}
    for record in records:
        if record["algorithm"] in ALL_REDUCE and record["bytes"]:
            cell = record["ranks"], record["algorithm"], record["bytes"]
            samples.setdefault(cell, []).extend(record["seconds"])
    return {cell: median(seconds) for cell, seconds in samples.items()}


def port(records: Iterable[Mapping[str, Any]], ranks: int) -> Port:
    """α, β and γ for one number of ranks, over the algorithms that "auto" chooses among.

    γ can be told from β because recursive doubling adds as many bytes as it moves, the others half as many. Relative
    least squares, as in `alpha_beta`.
    """
    rows = np.array(
        [
            (*ALL_REDUCE[name](p, nbytes)[:3], seconds)
            for (p, name, nbytes), seconds in _medians(records).items()
            if p == ranks and name in CANDIDATES
        ]
    )
    constants = np.linalg.lstsq(rows[:, :3] / rows[:, 3:], np.ones(len(rows)), rcond=None)[0]
    return Port(*map(float, constants))

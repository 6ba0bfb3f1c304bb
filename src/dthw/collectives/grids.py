"""All-reduce on a grid of ranks, from rings along rows and columns; docstrings as in `dthw.collectives.algorithms`."""

from dthw.collectives import patterns
from dthw.collectives.patterns import Ints
from dthw.collectives.primitives import ranks_of
from dthw.collectives.schedule import Schedule, Step, together


def _divides(name: str, part: int | None, p: int) -> int:
    if part is None:
        return patterns.largest_divisor(p)
    if part < 1 or p % part:
        raise ValueError(f"{name} is {part}; it must divide the number of ranks, {p}")
    return part


def hierarchical(p: int, gpus: int | None = None) -> Schedule:
    """Reduce-scatter inside each node of ``gpus`` ranks, all-reduce across nodes, all-gather inside; rings throughout.

    Rank i is GPU i % gpus of node i // gpus. Default: the largest divisor of p up to its square root.

    Cost: with g GPUs on each of N nodes, 2(g-1 + N-1)α + 2(p-1)/p nβ + (p-1)/p nγ: the bytes of a ring in far fewer
    rounds, and only n/g of them cross nodes.
    Limits: p = N g exactly; a prime p leaves one flat ring.
    Reference: Jia et al., "Highly scalable deep learning training system with mixed-precision", 2018; Cho
    et al., "BlueConnect", 2019.

    >>> from dthw.collectives.verify import table
    >>> print(table(hierarchical(4, gpus=2)))
    round | rank 0      | rank 1      | rank 2      | rank 3
    start | 0  0  0  0  | 1  1  1  1  | 2  2  2  2  | 3  3  3  3
    1 +   | 01 01 0  0  | 1  1  01 01 | 23 23 2  2  | 3  3  23 23
    2 +   | *  01 0  0  | 1  1  *  01 | 23 *  2  2  | 3  3  23 *
    3 =   | *  *  0  0  | 1  1  *  *  | *  *  2  2  | 3  3  *  *
    4 =   | *  *  *  *  | *  *  *  *  | *  *  *  *  | *  *  *  *
    """
    r = ranks_of(p)
    gpus = _divides("gpus", gpus, p)
    node, gpu = patterns.grid(p, gpus)
    steps = _nested_rings(r, gpu, gpus, node, p // gpus, node * gpus + (gpu + 1) % gpus, (r + gpus) % p)
    return Schedule(p, p, steps, name=f"hierarchical, {gpus} a node")


def torus_2d(p: int, rows: int | None = None) -> Schedule:
    """Half of the buffer goes along rows first and then columns, the other half along columns first, at once.

    Rank i is at row i // (p/rows), column i % (p/rows). Default: the largest divisor of p up to its square root.

    Cost: on an r x c grid 2(r + c - 2)α + 2(p-1)/p nβ + (p-1)/p nγ for one port a rank; with a link of its own in each
    dimension both halves move at once and the bytes per link halve.
    Limits: p = r c exactly.
    Reference: Jain and Sabharwal, ICS 2010; Ying et al., "Image classification at supercomputer scale",
    2018 (TPU pods).

    >>> from dthw.collectives.verify import table
    >>> print(table(torus_2d(4), only=[0, 3]))
    round | rank 0                  | rank 3
    start | 0  0  0  0  0  0  0  0  | 3  3  3  3  3  3  3  3
    1 +   | 01 01 0  0  02 02 0  0  | 3  3  23 23 3  3  13 13
    2 +   | *  01 0  0  *  02 0  0  | 3  3  23 *  3  3  13 *
    3 =   | *  *  0  0  *  *  0  0  | 3  3  *  *  3  3  *  *
    4 =   | *  *  *  *  *  *  *  *  | *  *  *  *  *  *  *  *
    """
    r = ranks_of(p)
    rows = _divides("rows", rows, p)
    columns = p // rows
    i, j = patterns.grid(p, columns)
    right, below = i * columns + (j + 1) % columns, (r + columns) % p
    steps = together(
        _nested_rings(r, j, columns, i, rows, right, below),
        _nested_rings(r, i, rows, j, columns, below, right, base=p),
    )
    return Schedule(p, 2 * p, steps, name=f"2D torus, {rows} x {columns}")


def _nested_rings(
    r: Ints, inner: Ints, n_inner: int, outer: Ints, n_outer: int, next_inner: Ints, next_outer: Ints, base: int = 0
) -> list[Step]:
    """Reduce-scatter on inner rings, all-reduce on outer rings, all-gather on inner rings.

    ``inner`` and ``outer`` are each rank's place on its two rings, ``next_*`` its successor there. The window of
    n_inner * n_outer chunks at ``base`` is cut in n_inner blocks of n_outer chunks.
    """

    def inside(lo: Ints, op: str) -> Step:
        return Step(r, next_inner, lo, n_outer, op, n_inner - 1, -n_outer, base, n_inner * n_outer)

    def across(lo: Ints, op: str) -> Step:
        return Step(r, next_outer, lo, 1, op, n_outer - 1, -1, base + inner * n_outer, n_outer)

    steps = [
        inside((inner - 1) * n_outer, "+"),
        across(outer - 1, "+"),
        across(outer, "="),
        inside(inner * n_outer, "="),
    ]
    return [step for step in steps if step.times]

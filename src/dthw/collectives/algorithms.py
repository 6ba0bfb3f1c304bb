"""The algorithms: functions of the number of ranks that return a `Schedule`.

Each docstring states what the algorithm costs under the port model of `dthw.collectives.cost` (p ranks, n bytes, one
full-duplex port a rank, one start-up α a round, β per byte, γ per reduced byte), where it stops being good, where it
comes from, and shows it at work: each cell of the table names the ranks whose part it holds, ``*`` when all are in.
"""

from collections.abc import Callable

import numpy as np

from dthw.collectives import patterns
from dthw.collectives.formulas import default_segments
from dthw.collectives.grids import hierarchical, torus_2d
from dthw.collectives.patterns import Ints
from dthw.collectives.primitives import ranks_of, ring_steps
from dthw.collectives.schedule import Schedule, Step, together


def _all_pairs(p: int) -> tuple[Ints, Ints]:
    src, dst = np.divmod(np.arange(ranks_of(p).size * p), p)
    return src[src != dst], dst[src != dst]


def parameter_server(p: int) -> Schedule:
    """All ranks send everything to rank 0, which adds it up and sends it back.

    Cost: 2α + 2(p-1)nβ + (p-1)nγ; 2(p-1) messages of n bytes.
    Limits: the server's port carries (p-1)n bytes each way, so the time grows with p whatever the network.
    Reference: Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014 (there with many
    servers, see `sharded_parameter_server`).

    >>> from dthw.collectives.verify import table
    >>> print(table(parameter_server(4)))
    round | rank 0 | rank 1 | rank 2 | rank 3
    start | 0      | 1      | 2      | 3
    1 +   | *      | 1      | 2      | 3
    2 =   | *      | *      | *      | *
    """
    others = ranks_of(p)[1:]
    steps = [Step(others, 0, lo=0, op="+"), Step(0, others, lo=0, op="=")] if p > 1 else []
    return Schedule(p, 1, steps, name="parameter server")


def one_shot(p: int) -> Schedule:
    """Everybody sends everything to everybody and adds up for itself: a single round.

    Cost: α + (p-1)nβ + (p-1)nγ; p(p-1) messages of n bytes.
    Limits: p-1 messages and p-1 vectors through every port, so only for a few ranks and small buffers; there nothing
    has less latency. Operands are added in rank order everywhere, so that all ranks get the same bits.
    Reference: the one-shot all-reduce of TensorRT-LLM and vLLM; `sharded_parameter_server` is their two-shot.

    >>> from dthw.collectives.verify import table
    >>> print(table(one_shot(4)))
    round | rank 0 | rank 1 | rank 2 | rank 3
    start | 0      | 1      | 2      | 3
    1 +   | *      | *      | *      | *
    """
    src, dst = _all_pairs(p)
    return Schedule(p, 1, [Step(src, dst, lo=0, op="+")] if p > 1 else [], name="one-shot")


def sharded_parameter_server(p: int) -> Schedule:
    """Every rank is the server of one chunk: send each chunk to its server, then every server sends it to all.

    Cost: 2α + 2(p-1)/p nβ + (p-1)/p nγ; 2p(p-1) messages of n/p bytes.
    Limits: the port model charges one α for the p-1 messages of a round; where each message has its own overhead (see
    `dthw.collectives.cost.LogGP`) the many small messages cost more than the ring's few.
    Reference: Li et al., OSDI 2014; "direct exchange" in the MPI literature.

    >>> from dthw.collectives.verify import table
    >>> print(table(sharded_parameter_server(3)))
    round | rank 0 | rank 1 | rank 2
    start | 0 0 0  | 1 1 1  | 2 2 2
    1 +   | * 0 0  | 1 * 1  | 2 2 *
    2 =   | * * *  | * * *  | * * *
    """
    src, dst = _all_pairs(p)
    steps = [Step(src, dst, lo=dst, op="+"), Step(src, dst, lo=src, op="=")] if p > 1 else []
    return Schedule(p, p, steps, name="sharded parameter server")


def ring(p: int) -> Schedule:
    """Reduce-scatter around a ring, then all-gather around it: p-1 rounds each, one chunk of n/p bytes a round.

    Cost: 2(p-1)α + 2(p-1)/p nβ + (p-1)/p nγ; 2(p-1) messages a rank. Optimal in bytes.
    Limits: 2(p-1) rounds follow one another, so small buffers on many ranks pay for latency.
    Reference: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

    >>> from dthw.collectives.verify import table
    >>> print(table(ring(4)))
    round | rank 0          | rank 1          | rank 2          | rank 3
    start | 0   0   0   0   | 1   1   1   1   | 2   2   2   2   | 3   3   3   3
    1 +   | 0   0   03  0   | 1   1   1   01  | 12  2   2   2   | 3   23  3   3
    2 +   | 0   023 03  0   | 1   1   013 01  | 12  2   2   012 | 123 23  3   3
    3 +   | *   023 03  0   | 1   *   013 01  | 12  2   *   012 | 123 23  3   *
    4 =   | *   023 03  *   | *   *   013 01  | 12  *   *   012 | 123 23  *   *
    5 =   | *   023 *   *   | *   *   013 *   | *   *   *   012 | 123 *   *   *
    6 =   | *   *   *   *   | *   *   *   *   | *   *   *   *   | *   *   *   *
    """
    ranks_of(p)
    return Schedule(p, p, ring_steps(p, "reduce_scatter") + ring_steps(p, "all_gather"), name="ring")


def bidirectional_ring(p: int) -> Schedule:
    """Two rings at once, in opposite directions, each with half of the buffer.

    Cost: as `ring` for one full-duplex port a rank: 2(p-1)α + 2(p-1)/p nβ + (p-1)/p nγ; 4(p-1) messages a rank.
    Limits: the gain appears only where a rank has a separate link to each neighbour; then each link carries half.
    Reference: Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus
    interconnects", ICS 2010.

    >>> from dthw.collectives.verify import table
    >>> print(table(bidirectional_ring(3)))
    round | rank 0            | rank 1            | rank 2
    start | 0  0  0  0  0  0  | 1  1  1  1  1  1  | 2  2  2  2  2  2
    1 +   | 0  02 0  0  0  01 | 1  1  01 12 1  1  | 12 2  2  2  02 2
    2 +   | *  02 0  *  0  01 | 1  *  01 12 *  1  | 12 2  *  2  02 *
    3 =   | *  02 *  *  *  01 | *  *  01 12 *  *  | 12 *  *  *  02 *
    4 =   | *  *  *  *  *  *  | *  *  *  *  *  *  | *  *  *  *  *  *
    """
    ranks_of(p)
    steps = [
        step
        for part in ("reduce_scatter", "all_gather")
        for step in together(ring_steps(p, part, +1), ring_steps(p, part, -1, base=p))
    ]
    return Schedule(p, 2 * p, steps, name="bidirectional ring")


def binary_tree(p: int) -> Schedule:
    """Reduce up a binary tree level by level, then broadcast down it.

    Cost: with d = floor(log2 p) and v = 2d, or 2d - 1 where p = 2**d, 2dα + 2vnβ + vnγ: an inner rank receives both
    children's vectors, except where the last level holds a single rank. 2(p-1) messages of n bytes.
    Limits: every round carries the whole vector: about log2 p times the bytes a ring needs. Pipelining mends that, see
    `double_binary_tree`.
    Reference: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
    International Journal of High Performance Computing Applications 2005.

    >>> from dthw.collectives.verify import table
    >>> print(table(binary_tree(5)))
    round | rank 0 | rank 1 | rank 2 | rank 3 | rank 4
    start | 0      | 1      | 2      | 3      | 4
    1 +   | 0      | 134    | 2      | 3      | 4
    2 +   | *      | 134    | 2      | 3      | 4
    3 =   | *      | *      | *      | 3      | 4
    4 =   | *      | *      | *      | *      | *
    """
    r = ranks_of(p)
    parent, depth = patterns.heap_tree(p)
    levels = [r[depth == d] for d in range(1, int(depth.max()) + 1)]
    up = [Step(level, parent[level], lo=0, op="+") for level in reversed(levels)]
    down = [Step(parent[level], level, lo=0, op="=") for level in levels]
    return Schedule(p, 1, up + down, name="binary tree")


def double_binary_tree(p: int, segments: int | None = None) -> Schedule:
    """Two binary trees at once, each reducing and broadcasting its half of the buffer in ``segments`` pieces.

    Default: 16 segments, or twice the depth of the tree where that is more, so that the pipeline fills.

    Segment s climbs from a rank of depth d in round s + D - d (D = ceil(log2 p) is the depth of the tree) and comes
    down from it in round s + D + d; up and down overlap, so the whole is a pipeline of segments + 2D - 1 rounds.

    Cost: (segments + 2D - 1)α + about 2nβ(1 + D/segments); exactly, `dthw.collectives.formulas.double_binary_tree`.
    4 segments (p-1) messages of n/(2 segments) bytes.
    Limits: each rank is inner in one tree only, so no port carries more than four segments a round; few segments fill
    the pipeline badly, many pay α for each.
    Reference: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
    Parallel Computing 2009; NCCL since 2.4.

    >>> from dthw.collectives.verify import table
    >>> print(table(double_binary_tree(4, segments=2)))
    round | rank 0          | rank 1          | rank 2          | rank 3
    start | 0   0   0   0   | 1   1   1   1   | 2   2   2   2   | 3   3   3   3
    1 +   | 0   0   0   0   | 1   1   012 1   | 123 2   2   2   | 3   3   3   3
    2 +   | *   0   0   0   | 1   1   012 012 | 123 123 2   2   | 3   3   *   3
    3 +=  | *   *   0   0   | 1   1   *   012 | *   123 2   2   | 3   3   *   *
    4 =   | *   *   *   0   | *   1   *   *   | *   *   *   2   | *   3   *   *
    5 =   | *   *   *   *   | *   *   *   *   | *   *   *   *   | *   *   *   *
    """
    r = ranks_of(p)
    segments = default_segments(p) if segments is None else segments
    if segments < 1:
        raise ValueError(f"segments is {segments}; each tree needs at least 1")
    messages = []  # (src, dst, lo, op, base) of both directions of both trees
    top = (p - 1).bit_length()  # D
    for tree, (parent, depth) in enumerate(patterns.twin_trees(p)):
        child = r[parent >= 0]
        base = np.full(child.shape, tree * segments)
        messages.append((child, parent[child], depth[child] - top, np.full(child.shape, "+"), base))
        messages.append((parent[child], child, -top - depth[parent[child]], np.full(child.shape, "="), base))
    src, dst, lo, op, base = (np.concatenate(column) for column in zip(*messages, strict=True))
    pipeline = Step(src, dst, lo, op=op, times=segments + 2 * top - 1, shift=1, base=base, span=segments, wrap=False)
    return Schedule(p, 2 * segments, [pipeline] if p > 1 else [], name="double binary tree")


def _folded(p: int, chunks: int, inner: list[Step]) -> list[Step]:
    """Steps for p ranks from steps for the power of two below: the extra ranks hand in before and get back after."""
    extra = np.arange(patterns.power_of_two_below(p), p)
    if not extra.size:
        return inner
    partner = extra - extra[0]
    before = Step(extra, partner, lo=0, n=chunks, op="+")
    after = Step(partner, extra, lo=0, n=chunks, op="=")
    return [before, *inner, after]


def recursive_doubling(p: int) -> Schedule:
    """In round k exchange everything with the rank that differs in bit k.

    Cost: for p = 2**d, d(α + nβ + nγ): optimal in rounds. Otherwise, with 2**d below p, the surplus ranks fold in
    before and out after: + 2α + 2nβ + nγ.
    Limits: log2 p times n bytes a rank, so only for small buffers.
    Reference: Thakur, Rabenseifner and Gropp 2005.

    >>> from dthw.collectives.verify import table
    >>> print(table(recursive_doubling(5)))
    round | rank 0 | rank 1 | rank 2 | rank 3 | rank 4
    start | 0      | 1      | 2      | 3      | 4
    1 +   | 04     | 1      | 2      | 3      | 4
    2 +   | 014    | 014    | 23     | 23     | 4
    3 +   | *      | *      | *      | *      | 4
    4 =   | *      | *      | *      | *      | *
    """
    ranks_of(p)
    q = patterns.power_of_two_below(p)
    r = np.arange(q)
    rounds = [Step(r, r ^ (1 << k), lo=0, op="+") for k in range(q.bit_length() - 1)]
    return Schedule(p, 1, _folded(p, 1, rounds), name="recursive doubling")


def halving_doubling(p: int, near_first: bool = False) -> Schedule:
    """Recursive halving (reduce-scatter: exchange half, then a quarter, ...), then recursive doubling (all-gather).

    Cost: for p = 2**d, 2dα + 2(p-1)/p nβ + (p-1)/p nγ: few rounds and optimal in bytes. Otherwise the surplus ranks
    fold as in `recursive_doubling`: + 2α + 2nβ + nγ.
    Limits: distances double, so on a real network distant pairs share links. ``near_first`` exchanges the large halves
    with near ranks and the small ones with far ranks; far-first, the default, keeps each rank's result contiguous.
    Reference: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur et al. 2005.

    >>> from dthw.collectives.verify import table
    >>> print(table(halving_doubling(4)))
    round | rank 0      | rank 1      | rank 2      | rank 3
    start | 0  0  0  0  | 1  1  1  1  | 2  2  2  2  | 3  3  3  3
    1 +   | 02 02 0  0  | 13 13 1  1  | 2  2  02 02 | 3  3  13 13
    2 +   | *  02 0  0  | 13 *  1  1  | 2  2  *  02 | 3  3  13 *
    3 =   | *  *  0  0  | *  *  1  1  | 2  2  *  *  | 3  3  *  *
    4 =   | *  *  *  *  | *  *  *  *  | *  *  *  *  | *  *  *  *
    """
    ranks_of(p)
    q = patterns.power_of_two_below(p)
    r = np.arange(q)
    bits = range(q.bit_length() - 1)
    start, size = np.zeros(q, dtype=np.int64), q  # the block each rank still works on
    halving, doubling = [], []
    for k in bits if near_first else reversed(bits):
        size //= 2
        partner = r ^ (1 << k)
        theirs = start + size * (partner >> k & 1)
        start = start + size * (r >> k & 1)
        halving.append(Step(r, partner, lo=theirs, n=size, op="+"))
        doubling.append(Step(r, partner, lo=start, n=size, op="="))
    name = "halving-doubling" + (", near first" if near_first else "")
    return Schedule(p, q, _folded(p, q, halving + doubling[::-1]), name=name)


ALL_REDUCE: dict[str, Callable[[int], Schedule]] = {
    "one_shot": one_shot,
    "parameter_server": parameter_server,
    "sharded_parameter_server": sharded_parameter_server,
    "ring": ring,
    "bidirectional_ring": bidirectional_ring,
    "binary_tree": binary_tree,
    "double_binary_tree": double_binary_tree,
    "recursive_doubling": recursive_doubling,
    "halving_doubling": halving_doubling,
    "halving_doubling_near_first": lambda p: halving_doubling(p, near_first=True),
    "hierarchical": hierarchical,
    "torus_2d": torus_2d,
}
"""The all-reduce algorithms by name, each a function of the number of ranks."""

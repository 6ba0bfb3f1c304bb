"""Closed forms of the textbook, written out: what each algorithm costs on p ranks and n bytes, and what none can beat.

They hold for the port model of `dthw.collectives.cost.Port` whenever the chunks divide the buffer; the tests hold them
equal to the cost counted message by message. Standard library alone, so that a browser can run them.
"""

from collections.abc import Callable
from math import ceil, inf, log2
from typing import NamedTuple


class Terms(NamedTuple):
    """The coefficients of one all-reduce.

    ``rounds`` multiplies α, ``port_bytes`` (bytes of the busiest port, summed over rounds) β, ``reduced_bytes`` γ;
    ``messages`` and ``sent_bytes`` are totals over all ranks.
    """

    rounds: int
    port_bytes: float
    reduced_bytes: float
    messages: int
    sent_bytes: float

    def seconds(self, alpha_s: float, beta_s: float, gamma_s: float = 0.0) -> float:
        """Time for a start-up of ``alpha_s`` seconds, ``beta_s`` per byte moved and ``gamma_s`` per byte reduced.

        >>> f"{ring(4, 100_000_000).seconds(5e-6, 1 / 50e9) * 1e3:.2f} ms"
        '3.03 ms'
        """
        return self.rounds * alpha_s + self.port_bytes * beta_s + self.reduced_bytes * gamma_s


NOTHING = Terms(0, 0, 0, 0, 0)


def _floor_log2(p: int) -> int:
    return p.bit_length() - 1


def _ceil_log2(p: int) -> int:
    return (p - 1).bit_length()


def _trivial(p: int, n: float) -> bool:
    """Whether there is nothing to send; also the place where bad input is refused."""
    if p < 1 or n < 0:
        raise ValueError(f"p is {p} and n is {n}; need at least 1 rank and 0 bytes or more")
    return p == 1 or n == 0


def one_shot(p: int, n: float) -> Terms:
    """α + (p-1)nβ + (p-1)nγ: one round, in which every port carries everybody's vector."""
    if _trivial(p, n):
        return NOTHING
    return Terms(1, (p - 1) * n, (p - 1) * n, p * (p - 1), p * (p - 1) * n)


def parameter_server(p: int, n: float) -> Terms:
    """2α + 2(p-1)nβ + (p-1)nγ: the server's port carries everybody's vector, in and out."""
    if _trivial(p, n):
        return NOTHING
    return Terms(2, 2 * (p - 1) * n, (p - 1) * n, 2 * (p - 1), 2 * (p - 1) * n)


def sharded_parameter_server(p: int, n: float) -> Terms:
    """2α + 2(p-1)/p nβ + (p-1)/p nγ: p servers, each for 1/p of the vector, share the load evenly."""
    if _trivial(p, n):
        return NOTHING
    return Terms(2, 2 * (p - 1) * n / p, (p - 1) * n / p, 2 * p * (p - 1), 2 * (p - 1) * n)


def ring(p: int, n: float) -> Terms:
    """2(p-1)α + 2(p-1)/p nβ + (p-1)/p nγ.

    >>> ring(4, 100_000_000).port_bytes
    150000000.0
    """
    if _trivial(p, n):
        return NOTHING
    return Terms(2 * (p - 1), 2 * (p - 1) * n / p, (p - 1) * n / p, 2 * p * (p - 1), 2 * (p - 1) * n)


def bidirectional_ring(p: int, n: float) -> Terms:
    """As the ring for a rank with one port, in twice as many messages of half the size."""
    one = ring(p, n)
    return one._replace(messages=2 * one.messages)


def binary_tree(p: int, n: float) -> Terms:
    """With d = floor(log2 p): 2dα + 2(2d - [p = 2**d])nβ + (2d - [p = 2**d])nγ.

    Each level brings two vectors into one port, except where the last level has only one rank.
    """
    if _trivial(p, n):
        return NOTHING
    d = _floor_log2(p)
    vectors = 2 * d - (p == 1 << d)
    return Terms(2 * d, 2 * vectors * n, vectors * n, 2 * (p - 1), 2 * (p - 1) * n)


def double_binary_tree(p: int, n: float, segments: int | None = None) -> Terms:
    """(k + 2D - 1)α + (4k + 4D - 6 - 2[p = 2**(D-1) + 1]) n/2k β + (2k + 2D - 3) n/2k γ; D = ceil(log2 p), k segments.

    In the steady state a port carries 4 segments of n/2k bytes: three for the tree in which the rank is inner, one for
    the tree in which it is a leaf; the rest is the filling and draining of the pipeline. (p = 2 and 3, whose trees have
    no rank with two children or only one, carry 2 and 3.) It tends to 2nβ + nγ as k grows.

    Raises ValueError where k < 2D: that pipeline never fills and has no closed form; ask `dthw.collectives.cost`.
    """
    if _trivial(p, n):
        return NOTHING
    top = _ceil_log2(p)
    k = default_segments(p) if segments is None else segments
    if k < 2 * top:
        raise ValueError(f"{k} segments never fill a pipeline {2 * top} rounds deep; need at least {2 * top}")
    if p == 2:
        port, reduced = 2 * k, k
    elif p == 3:
        port, reduced = 3 * k + 3, 2 * k
    else:
        port, reduced = 4 * k + 4 * top - 6 - 2 * (p == (1 << (top - 1)) + 1), 2 * k + 2 * top - 3
    segment = n / (2 * k)
    return Terms(k + 2 * top - 1, port * segment, reduced * segment, 4 * k * (p - 1), 2 * (p - 1) * n)


def default_segments(p: int) -> int:
    """Segments of a double binary tree unless told otherwise: 16, or as many as fill the pipeline."""
    return max(16, 2 * _ceil_log2(p))


def _fold(p: int, n: float, inner: Terms) -> Terms:
    """Cost for p ranks from that of the power of two below: surplus ranks hand in their vector, and get the result."""
    extra = p - (1 << _floor_log2(p))
    if not extra:
        return inner
    a, b, c, messages, sent = inner
    return Terms(a + 2, b + 2 * n, c + n, messages + 2 * extra, sent + 2 * extra * n)


def recursive_doubling(p: int, n: float) -> Terms:
    """d(α + nβ + nγ) for p = 2**d; with surplus ranks + 2α + 2nβ + nγ."""
    if _trivial(p, n):
        return NOTHING
    d = _floor_log2(p)
    q = 1 << d
    return _fold(p, n, Terms(d, d * n, d * n, q * d, q * d * n))


def halving_doubling(p: int, n: float) -> Terms:
    """2dα + 2(q-1)/q nβ + (q-1)/q nγ for p = q = 2**d; with surplus ranks + 2α + 2nβ + nγ.

    The order of the distances, near or far first, changes nothing here: it matters where links are shared.
    """
    if _trivial(p, n):
        return NOTHING
    d = _floor_log2(p)
    q = 1 << d
    return _fold(p, n, Terms(2 * d, 2 * (q - 1) * n / q, (q - 1) * n / q, 2 * q * d, 2 * (q - 1) * n))


def hierarchical(p: int, n: float, gpus: int | None = None) -> Terms:
    """With g GPUs on each of N nodes: 2(g-1 + N-1)α + 2(p-1)/p nβ + (p-1)/p nγ."""
    if _trivial(p, n):
        return NOTHING
    g = _short_side(p, gpus)
    rounds = 2 * (g - 1 + p // g - 1)
    return Terms(rounds, 2 * (p - 1) * n / p, (p - 1) * n / p, p * rounds, 2 * (p - 1) * n)


def torus_2d(p: int, n: float, rows: int | None = None) -> Terms:
    """On an r x c grid with one port a rank: 2(r-1 + c-1)α + 2(p-1)/p nβ + (p-1)/p nγ, in two halves at once."""
    one = hierarchical(p, n, rows)
    return one._replace(messages=2 * one.messages)


def _short_side(p: int, given: int | None) -> int:
    side = given if given is not None else next(d for d in range(int(p**0.5), 0, -1) if p % d == 0)
    if side < 1 or p % side:
        raise ValueError(f"{side} does not divide the number of ranks, {p}")
    return side


ALL_REDUCE: dict[str, Callable[[int, float], Terms]] = {
    "one_shot": one_shot,
    "parameter_server": parameter_server,
    "sharded_parameter_server": sharded_parameter_server,
    "ring": ring,
    "bidirectional_ring": bidirectional_ring,
    "binary_tree": binary_tree,
    "double_binary_tree": double_binary_tree,
    "recursive_doubling": recursive_doubling,
    "halving_doubling": halving_doubling,
    "halving_doubling_near_first": halving_doubling,
    "hierarchical": hierarchical,
    "torus_2d": torus_2d,
}
"""Closed forms by the names of `dthw.collectives.algorithms.ALL_REDUCE`."""


def lower_bound(collective: str, p: int, n: float) -> tuple[int, float, float]:
    """(rounds, bytes through some port, bytes reduced by some rank) that no algorithm can do without.

    Where a rank exchanges one message a round, the number of ranks it has heard from at most doubles in each, which
    makes ceil(log2 p) rounds (servers and `one_shot` have fewer, with up to p-1 messages at a port in each). For
    all-reduce, each rank's share of the sums must come in and its result must go out: 2(p-1)/p n.
    In general no algorithm meets the bounds together, and a switch that adds (SHARP, NVLS) is not bound by the second.
    Source: Chan, Heimlich, Purkayastha and van de Geijn, CCPE 2007.

    >>> lower_bound("all_reduce", 8, 1024)
    (3, 1792.0, 896.0)
    """
    if _trivial(p, n):
        return 0, 0.0, 0.0
    share = (p - 1) * n / p
    bounds = {
        "all_reduce": (2 * share, share),
        "reduce_scatter": (share, share),
        "all_gather": (share, 0.0),
        "broadcast": (float(n), 0.0),
        "reduce": (float(n), share),
        "all_to_all": (share, 0.0),
    }
    if collective not in bounds:
        raise ValueError(f"collective is {collective!r}; it must be one of {', '.join(bounds)}")
    return ceil(log2(p)), *bounds[collective]


def crossover(small: str, large: str, p: int, alpha_s: float, beta_s: float, gamma_s: float = 0.0) -> float:
    """Bytes above which the all-reduce algorithm ``large`` is faster than ``small``; inf if it never is.

    All terms are linear in n, so the two lines meet once. 0 means that ``large`` is faster at every size.

    >>> f"{crossover('recursive_doubling', 'ring', 8, alpha_s=5e-6, beta_s=1 / 50e9):,.0f} bytes"
    '2,200,000 bytes'
    """
    a, b = (ALL_REDUCE[name](p, 1) for name in (small, large))
    head_start = b.rounds * alpha_s - a.rounds * alpha_s
    gain_per_byte = a._replace(rounds=0).seconds(0, beta_s, gamma_s) - b._replace(rounds=0).seconds(0, beta_s, gamma_s)
    if gain_per_byte <= 0:
        return 0.0 if head_start < 0 else inf
    return max(head_start / gain_per_byte, 0.0)

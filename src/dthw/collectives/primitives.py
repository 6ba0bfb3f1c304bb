"""The simpler collectives as schedules: broadcast, reduce, reduce-scatter, all-gather and the all-to-all pattern.

Costs as in `dthw.collectives.algorithms`: p ranks, n bytes, α a round, β per byte, γ per reduced byte.
"""

import numpy as np

from dthw.collectives import patterns
from dthw.collectives.patterns import Ints
from dthw.collectives.schedule import Schedule, Step


def ranks_of(p: int) -> Ints:
    """0 .. p-1, once p is known to be a number of ranks."""
    if p < 1:
        raise ValueError(f"the number of ranks is {p}; it must be at least 1")
    return np.arange(p)


def ring_steps(p: int, part: str, way: int = 1, base: int = 0) -> list[Step]:
    """One half of a ring all-reduce over the window of p chunks at ``base``; ``way`` is +1 or -1."""
    r = np.arange(p)
    lo, op = (r - way, "+") if part == "reduce_scatter" else (r, "=")
    return [Step(r, (r + way) % p, lo=lo, op=op, times=p - 1, shift=-way, base=base, span=p)] if p > 1 else []


def reduce_scatter(p: int) -> Schedule:
    """The first half of a ring all-reduce: rank r ends with chunk r summed over all ranks.

    Cost: (p-1)α + (p-1)/p nβ + (p-1)/p nγ. Reference: Patarasuk and Yuan 2009.
    """
    ranks_of(p)
    return Schedule(p, p, ring_steps(p, "reduce_scatter"), name="ring reduce-scatter", collective="reduce_scatter")


def all_gather(p: int) -> Schedule:
    """The second half of a ring all-reduce: chunk r of rank r travels to every rank.

    Cost: (p-1)α + (p-1)/p nβ. Reference: Patarasuk and Yuan 2009.
    """
    ranks_of(p)
    return Schedule(p, p, ring_steps(p, "all_gather"), name="ring all-gather", collective="all_gather")


def broadcast(p: int, root: int = 0) -> Schedule:
    """A binomial tree from ``root``: in every round each rank that has the data sends it on.

    Cost: ceil(log2 p)(α + nβ); p-1 messages of n bytes. Reference: Chan et al., "Collective communication", CCPE 2007.

    >>> print(broadcast(4))
    binomial broadcast: broadcast on 4 ranks, 1 chunk, 2 rounds, 3 messages
    (round 1) 0>1 =0
    (round 2) 0>2 =0 · 1>3 =0
    """
    ranks_of(p)
    steps = [
        Step((v + root) % p, (v + (1 << k) + root) % p, lo=0, op="=") for k, v in enumerate(patterns.binomial_rounds(p))
    ]
    return Schedule(p, 1, steps, name="binomial broadcast", collective="broadcast", root=root)


def reduce(p: int, root: int = 0) -> Schedule:
    """The binomial tree of `broadcast` run backwards: the sum arrives at ``root``.

    Cost: ceil(log2 p)(α + nβ + nγ); p-1 messages of n bytes. Reference: Chan et al. 2007.
    """
    ranks_of(p)
    steps = [
        Step((v + (1 << k) + root) % p, (v + root) % p, lo=0, op="+") for k, v in enumerate(patterns.binomial_rounds(p))
    ]
    return Schedule(p, 1, steps[::-1], name="binomial reduce", collective="reduce", root=root)


def all_to_all(p: int) -> Schedule:
    """Every rank has one chunk for each other rank: in round k rank r sends to r + k. A message pattern only.

    Cost: (p-1)α + (p-1)/p nβ; p-1 messages of n/p bytes a rank. It is costed and simulated but not verified or run (use
    ``torch.distributed.all_to_all_single``): chunk c of rank r lands in a different place of rank c.
    Reference: Thakur, Rabenseifner and Gropp 2005 (pairwise exchange).
    """
    r = ranks_of(p)
    steps = [Step(r, (r + k) % p, lo=(r + k) % p, op="=") for k in range(1, p)]
    return Schedule(p, p, steps, name="pairwise all-to-all", collective="all_to_all")

"""What every route has to be, whoever chose it."""

import numpy as np
from numpy.typing import NDArray

from dthw.topology import Routes, Topology

Ints = NDArray[np.int64]


def connected(t: Topology, src: Ints, dst: Ints, routes: Routes) -> bool:
    """Every route starts at its source, ends at its destination, and each link starts where the last ended."""
    links, offsets = routes
    moves = np.diff(offsets) > 0
    first, last = offsets[:-1][moves], offsets[1:][moves] - 1
    inner = np.ones(links.size, bool)
    inner[first] = False
    return bool(
        (src[~moves] == dst[~moves]).all()
        and (t.src[links[first]] == src[moves]).all()
        and (t.dst[links[last]] == dst[moves]).all()
        and (t.src[links[inner]] == t.dst[links[np.flatnonzero(inner) - 1]]).all()
    )


def all_pairs(t: Topology) -> tuple[Ints, Ints]:
    """Every rank's vertex to every rank's vertex."""
    n = t.ranks.size
    return t.ranks.repeat(n), np.tile(t.ranks, n)

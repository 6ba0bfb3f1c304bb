"""What can be said of a network without running anything on it: distances, cuts, tapering, parts."""

from collections import Counter

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from dthw.topology.graph import Ints, Topology


def distances(t: Topology, among: ArrayLike | None = None) -> Ints:
    """Links on shortest paths between vertices (default: the ranks'); shape (n, n).

    Cost: a breadth-first search per vertex.
    """
    chosen = t.ranks if among is None else np.asarray(among)
    return np.stack([t.hops(int(v))[chosen] for v in chosen])


def diameter(t: Topology, among: ArrayLike | None = None) -> int:
    """The longest of the shortest paths, in links.

    >>> from dthw.topology.fabrics import fat_tree
    >>> t = fat_tree(4, 3)
    >>> diameter(t), diameter(t, np.flatnonzero(t.kinds != "host"))
    (6, 4)
    """
    return int(distances(t, among).max())


def mean_hops(t: Topology, among: ArrayLike | None = None) -> float:
    """The mean over ordered pairs of distinct vertices, in links."""
    hops = distances(t, among)
    return float(hops.sum() / max(len(hops) * (len(hops) - 1), 1))


def bisection(t: Topology, part: ArrayLike | None = None) -> float:
    """Bytes per second from ``part`` of the ranks' vertices to the others, in one direction: exact, by maximum flow.

    Parameters
    ----------
    part : array of int, optional
        Vertices; by default those of the first half of the ranks.

    Raises
    ------
    ValueError
        A vertex that is no rank's, or a part that is empty or everything.

    Cost: one maximum flow; seconds at a few hundred hosts.

    >>> from dthw.topology.fabrics import fat_tree
    >>> [bisection(fat_tree(8, 2, taper)) / 50e9 for taper in (1, 3)]  # of 32 and 48 hosts, in links
    [16.0, 8.0]
    """
    chosen = t.ranks[: t.ranks.size // 2] if part is None else np.unique(np.asarray(part, np.int64))
    rest = np.setdiff1d(t.ranks, chosen)
    if not chosen.size or not rest.size or not np.isin(chosen, t.ranks).all():
        raise ValueError(
            f"{t.name}: the part is {chosen.tolist()}; it must be some of the ranks' vertices, and not all"
        )
    # Whole numbers, for which a maximum flow is exact; an edge without capacity carries any amount.
    graph = nx.DiGraph()
    for a, b, edge in t.to_networkx().edges(data=True):
        graph.add_edge(a, b, capacity=round(edge["capacity"]))
    source, sink = (t.name, "source"), (t.name, "sink")
    graph.add_edges_from((source, t.names[v]) for v in chosen)
    graph.add_edges_from((t.names[v], sink) for v in rest)
    return float(nx.maximum_flow_value(graph, source, sink))


def oversubscription(t: Topology) -> dict[str, float]:
    """Capacity from below over capacity upwards, of every kind of vertex that has both.

    Below is what lies fewer hops from the nearest rank. Networks without levels (a torus, say) have no entry.

    >>> from dthw.topology.fabrics import fat_tree
    >>> oversubscription(fat_tree(16, 3, (3, 7), hosts=168))
    {'leaf': 3.0, 'spine': 7.0}
    """
    height = np.where(np.isin(np.arange(len(t.names)), t.ranks), 0, -1)
    for level in range(len(t.names)):
        found = t.dst[(height[t.src] == level) & (height[t.dst] < 0)]
        if not found.size:
            break
        height[found] = level + 1
    rising = height[t.dst] > height[t.src]
    ratios = {}
    for kind in dict.fromkeys(t.kinds.tolist()):
        below, above = (t.capacity[rising & (t.kinds[end] == kind)].sum() for end in (t.dst, t.src))
        if below and above:
            ratios[kind] = float(below / above)
    return ratios


def parts(t: Topology) -> dict[str, int]:
    """How many of each kind of vertex, and of cables by the kinds they join (both directions are one cable).

    >>> from dthw.topology.fabrics import fat_tree
    >>> parts(fat_tree(4, 2))
    {'host': 8, 'leaf': 4, 'spine': 2, 'host-leaf': 8, 'leaf-spine': 8}
    """
    kinds = Counter(t.kinds.tolist())
    ends = zip(t.kinds[t.src].tolist(), t.kinds[t.dst].tolist(), strict=True)
    order = list(kinds)
    cables = Counter(tuple(sorted(pair, key=order.index)) for pair in ends)
    return {**kinds, **{f"{a}-{b}": n // 2 for (a, b), n in cables.items()}}

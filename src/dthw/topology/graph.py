"""A network as arrays: named vertices, directed links, one routing function."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LATENCY_S = 5e-7  # of a link, with the switch or port it leads to, where nothing better is known: assumed

PLURAL = {"switch": "switches", "nvswitch": "nvswitches", "leaf": "leaves"}


class Walk(NamedTuple):
    """Where flows pass. A vertex that repeats is no hop, so that flows of unequal length share one array."""

    vertices: Ints  # (flows, hops + 1)
    cables: Ints  # (flows, hops): which one of parallel links, modulo their number


class Routes(NamedTuple):
    """Flow f takes ``links[offsets[f] : offsets[f + 1]]``."""

    links: Ints
    offsets: Ints  # (flows + 1,)


Router = Callable[[Ints, Ints, int | None], Walk]


def spread(src: Ints, dst: Ints, seed: int, salt: int) -> Ints:
    """A whole number of 0 .. 2**62 per flow, as a switch's hash gives (splitmix64's finaliser); same in, same out.

    >>> flows = np.arange(6)
    >>> spread(flows, flows + 1, seed=0, salt=1) % 4
    array([3, 0, 3, 2, 0, 1])
    """
    x = np.full(np.shape(src), (seed * 0x9E3779B97F4A7C15 + salt * 0xD1342543DE82EF95) % 2**64, dtype=np.uint64)
    for part in (src, dst):
        x += np.asarray(part).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(2)).astype(np.int64)


class Topology:
    """Vertices, and links that carry traffic one way.

    Rank i of a job sits on the i-th vertex of kind 'gpu', or of kind 'host' where there are no GPUs.

    Parameters
    ----------
    name : str
    names, kinds : sequence of str
        Of each vertex; one kind may stand for all.
    src, dst : array of int or str
        The ends of each link, as positions or as names. Parallel links are allowed.
    capacity, latency : array of float
        Bytes per second in the link's direction, and seconds.
    router : callable, optional
        Says where flows pass, by arithmetic: (sources, destinations, seed) to `Walk`. Without one, flows take the
        fewest hops, then at each hop the widest link, then the link that was named first.
    duplex : bool
        Add the reverse of every link: link i + n is the other direction of link i.
    relay : array of bool
        Whether others' traffic may pass through a vertex; searches heed it (a GPU does not forward by itself).

    Raises
    ------
    ValueError
        Two vertices of one name, a link with an unknown end or from a vertex to itself, a capacity that is not a
        positive finite number, a negative latency, no rank, or ranks that the first one cannot reach or hear.

    Examples
    --------
    >>> t = Topology("pair", ["a", "s", "b"], ["host", "switch", "host"], ["a", "b"], "s", capacity=50e9, duplex=True)
    >>> t.route("a", "b")
    array([0, 3])
    >>> print(t.describe())
    pair: 2 hosts, 1 switch; 4 links
      host > switch: 2 x 50 GB/s
      switch > host: 2 x 50 GB/s
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        kinds: ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        capacity: ArrayLike,
        latency: ArrayLike = LATENCY_S,
        router: Router | None = None,
        duplex: bool = False,
        relay: ArrayLike = True,
    ) -> None:
        self.name, self.names, self.router = name, names, router
        n = len(names)
        self._position = {name: i for i, name in enumerate(names)}
        if len(self._position) < n:
            raise ValueError(f"{self.name}: two vertices are called {Counter(self.names).most_common(1)[0][0]!r}")
        whole = (self._ends(src), self._ends(dst), np.asarray(capacity, float), np.asarray(latency, float))
        tail, head, rate, delay = (np.atleast_1d(a) for a in np.broadcast_arrays(*whole))
        for bad, why in (
            ((tail < 0) | (tail >= n) | (head < 0) | (head >= n), f"an end is not one of the {n} vertices"),
            (tail == head, "a link leads from a vertex to another one"),
            (~(np.isfinite(rate) & (rate > 0)), "a capacity is a positive number of bytes per second"),
            (~(np.isfinite(delay) & (delay >= 0)), "a latency is 0 or more seconds"),
        ):
            if bad.any():
                i = int(np.argmax(bad))
                ends = ", ".join(names[v] if 0 <= v < n else f"vertex {v}" for v in (tail[i], head[i]))
                raise ValueError(f"{name}: link {i} ({ends}, {rate[i]} B/s, {delay[i]} s): {why}")
        both = [(tail, head), (head, tail), (rate, rate), (delay, delay)]
        tail, head, rate, delay = (np.concatenate(pair) for pair in both) if duplex else (tail, head, rate, delay)
        self.src: Ints = tail
        self.dst: Ints = head
        self.capacity: Floats = rate
        self.latency: Floats = delay
        self.kinds: NDArray[np.str_] = np.broadcast_to(np.asarray(kinds, dtype=np.str_), n)
        self.relay: NDArray[np.bool_] = np.broadcast_to(np.asarray(relay, bool), n)
        keys = tail * n + head
        self._order: Ints = np.argsort(keys, kind="stable")
        self._keys: Ints = keys[self._order]
        self.ranks: Ints = np.flatnonzero(self.kinds == ("gpu" if (self.kinds == "gpu").any() else "host"))
        self._check_ranks()

    def _check_ranks(self) -> None:
        ranks = self.ranks
        if not ranks.size:
            raise ValueError(f"{self.name}: no vertex is of kind 'gpu' or 'host'; ranks need one of them to sit on")
        for backward, verb in ((False, "reach"), (True, "hear")):
            lost = ranks[self.hops(int(ranks[0]), backward)[ranks] < 0]
            if lost.size:
                raise ValueError(f"{self.name}: {self.names[ranks[0]]} cannot {verb} {self.names[lost[0]]}; link them")

    def _ends(self, ends: ArrayLike) -> Ints:
        given = np.asarray(ends)
        if given.dtype.kind != "U":
            return given.astype(np.int64)
        unknown = [name for name in given.ravel().tolist() if name not in self._position]
        if unknown:
            raise ValueError(f"{self.name}: no vertex is called {unknown[0]!r}")
        return np.array([self._position[name] for name in given.ravel().tolist()], np.int64).reshape(given.shape)

    def vertices(self, kind: str) -> Ints:
        """The vertices of one kind, in order."""
        return np.flatnonzero(self.kinds == kind)

    def hops(self, vertex: int, backward: bool = False) -> Ints:
        """Links on a shortest path from ``vertex`` to each vertex (``backward``: from each to it), -1 where none is.

        Cost: one pass over the links per hop.
        """
        tails, heads = (self.dst, self.src) if backward else (self.src, self.dst)
        distance = np.full(len(self.names), -1)
        distance[vertex] = level = 0
        while True:
            on = (distance[tails] == level) & (distance[heads] < 0)
            if level:
                on &= self.relay[tails]
            if not on.any():
                return distance
            level += 1
            distance[heads[on]] = level

    def walk(self, src: ArrayLike, dst: ArrayLike, seed: int | None = 0) -> Walk:
        """The vertices that flows pass, by the router or by search. ``seed`` as in `routes`."""
        first, last = np.broadcast_arrays(*(np.atleast_1d(self._ends(end)) for end in (src, dst)))
        for end in (first, last):
            unknown = end[(end < 0) | (end >= len(self.names))]
            if unknown.size:
                raise ValueError(f"{self.name}: vertex {unknown[0]} is not one of the {len(self.names)}")
        return self.router(first, last, seed) if self.router else self._search(first, last)

    def _search(self, src: Ints, dst: Ints) -> Walk:
        preferred = np.lexsort((-self.capacity, self.src))[::-1]  # the last assignment to a place wins below
        columns = [src]
        onward = {}
        for goal in np.unique(dst).tolist():
            left = self.hops(goal, backward=True)
            cut_off = src[(dst == goal) & (left[src] < 0)]
            if cut_off.size:
                raise ValueError(f"{self.name}: {self.names[cut_off[0]]} cannot reach {self.names[goal]}")
            closer = left[self.src] == left[self.dst] + 1
            closer &= (left[self.dst] >= 0) & (self.relay[self.dst] | (self.dst == goal))
            pick = preferred[closer[preferred]]
            onward[goal] = np.arange(len(self.names))
            onward[goal][self.src[pick]] = self.dst[pick]
            onward[goal][goal] = goal
        table = np.stack(list(onward.values())) if onward else np.zeros((0, 0), int)  # (goals, vertices)
        row = np.searchsorted(np.unique(dst), dst)
        while (columns[-1] != dst).any():
            columns.append(table[row, columns[-1]])
        return Walk(np.stack(columns, axis=1), np.zeros((src.size, len(columns) - 1), np.int64))

    def routes(self, src: ArrayLike, dst: ArrayLike, seed: int | None = 0) -> Routes:
        """The links that each flow takes, for many flows at once.

        Parameters
        ----------
        src, dst : array of int or str
            Where flows start and end; they broadcast. A flow to its own start takes no link.
        seed : int or None
            Of the hash that picks among equal paths; None picks by the destination's number (static routing).

        Raises
        ------
        ValueError
            An unknown vertex, or one that cannot be reached.

        Cost: a few array operations per hop, and one search per destination where the topology has no router.
        """
        vertices, cables = self.walk(src, dst, seed)
        tails, heads = vertices[:, :-1], vertices[:, 1:]
        moves = tails != heads
        keys = (tails * len(self.names) + heads)[moves]
        at = np.searchsorted(self._keys, keys)
        parallel = np.searchsorted(self._keys, keys, side="right") - at
        if not parallel.all():
            a, b = divmod(int(keys[np.argmin(parallel)]), len(self.names))
            raise ValueError(f"{self.name}: its router sends from {self.names[a]} to {self.names[b]}: there is no link")
        links = self._order[at + cables[moves] % parallel]
        return Routes(links, np.concatenate([[0], np.cumsum(moves.sum(axis=1))]))

    def route(self, src: int | str, dst: int | str, seed: int | None = 0) -> Ints:
        """The links that one flow takes, in order (see `routes`)."""
        return self.routes([src], [dst], seed).links

    def paths(self, src: int | str, dst: int | str) -> Iterator[Ints]:
        """Every shortest path as link positions, whatever the router takes; parallel links count as several paths."""
        start, goal = (int(self._ends(end)) for end in (src, dst))
        left = self.hops(goal, backward=True)
        if left[start] < 0:
            raise ValueError(f"{self.name}: {self.names[start]} cannot reach {self.names[goal]}")
        stack: list[tuple[int, tuple[int, ...]]] = [(start, ())]
        while stack:
            at, taken = stack.pop()
            if at == goal:
                yield np.array(taken, np.int64)
                continue
            lo, hi = np.searchsorted(self._keys, [at * len(self.names), (at + 1) * len(self.names)])
            for link in self._order[lo:hi][::-1]:
                to = int(self.dst[link])
                if left[to] == left[at] - 1 and (self.relay[to] or to == goal):
                    stack.append((to, (*taken, int(link))))

    def load(self, src: ArrayLike, dst: ArrayLike, bytes_: ArrayLike, seed: int | None = 0) -> Floats:
        """Bytes that each link carries when flow f moves ``bytes_[f]`` bytes from src[f] to dst[f]; shape (links,)."""
        links, offsets = self.routes(src, dst, seed)
        each = np.broadcast_to(np.asarray(bytes_, dtype=float), offsets.size - 1)
        return np.bincount(links, np.repeat(each, np.diff(offsets)), self.src.size).astype(float)  # ints if no link

    def to_networkx(self) -> "nx.DiGraph[str]":
        """A directed graph by vertex name; parallel links are one edge with their capacities added.

        Vertices have ``kind``; edges have ``capacity`` (B/s), ``latency`` (s, the least) and ``cables``.
        """
        graph = nx.DiGraph(name=self.name)
        graph.add_nodes_from((name, {"kind": str(k)}) for name, k in zip(self.names, self.kinds, strict=True))
        for a, b, c, s in zip(self.src, self.dst, self.capacity.tolist(), self.latency.tolist(), strict=True):
            edge = (self.names[a], self.names[b])
            had = graph.edges[edge] if graph.has_edge(*edge) else {"capacity": 0.0, "latency": s, "cables": 0}
            graph.add_edge(*edge, capacity=had["capacity"] + c, latency=min(had["latency"], s),
                           cables=had["cables"] + 1)  # fmt: skip
        return graph

    def describe(self) -> str:
        """Vertices by kind, then links by the kinds they join, with their number and capacity in one direction."""
        kinds = Counter(self.kinds.tolist())
        said = ", ".join(f"{n:,} {k if n == 1 else PLURAL.get(k, f'{k}s')}" for k, n in kinds.items())
        joined = Counter(
            zip(self.kinds[self.src].tolist(), self.kinds[self.dst].tolist(), self.capacity.tolist(), strict=True)
        )
        rows = [f"  {a} > {b}: {n:,} x {c / 1e9:.4g} GB/s" for (a, b, c), n in joined.items()]
        return "\n".join([f"{self.name}: {said}; {self.src.size:,} links", *rows])

    def __repr__(self) -> str:
        return f"<Topology {self.describe().splitlines()[0]}>"

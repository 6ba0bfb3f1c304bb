"""Fabrics: switches between hosts. Every builder's arithmetic also routes, so that any size routes at once.

Hosts are the first vertices, so host h is vertex h. A switch's hash over equal paths is seeded; ``seed=None`` picks by
the destination's number instead, as static routing does. Rates are bytes per second per direction of a cable, latencies
seconds of a link. A number below 1, or one that the rest rules out, is a ValueError that names it. Building takes a few
array operations per level or dimension.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from dthw.topology.graph import LATENCY_S, Ints, Router, Topology, Walk, spread
from dthw.topology.servers import PORT

NDR = PORT["NDR"]
TIERS = ("leaf", "spine", "core", *(f"tier{i}" for i in range(4, 9)))


def _fabric(name: str, counts: dict[str, int], cables: Sequence[tuple[Ints, Ints, ArrayLike]], latency: float,
            router: Router) -> Topology:  # fmt: skip
    names = [f"{kind}{i}" for kind, n in counts.items() for i in range(n)]
    kinds = np.repeat(list(counts), list(counts.values()))
    a, b = (np.concatenate([np.asarray(c[end], np.int64).ravel() for c in cables]) for end in (0, 1))
    rates = np.concatenate([np.broadcast_to(np.asarray(rate, float), np.size(end)) for end, _, rate in cables])
    return Topology(name, names, kinds, a, b, rates, latency, router, duplex=True)


def _need(name: str, **numbers: int) -> None:
    for what, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name}: {what} is {value}; it must be 1 or more")


def _columns(vertices: Sequence[Ints], cable: Ints | int = 0) -> Walk:
    walked = np.stack(vertices, axis=1)
    walked = np.where(walked[:, :1] == walked[:, -1:], walked[:, :1], walked)  # a flow to its own start moves nowhere
    cables = np.broadcast_to(np.reshape(cable, (-1, 1)), (len(walked), len(vertices) - 1))
    return Walk(walked, cables)


def clos(
    down: Sequence[int],
    up: Sequence[int] = (),
    trunks: Sequence[int] | None = None,
    rates: float | Sequence[float] = NDR,
    latency: float = LATENCY_S,
    name: str = "Clos",
) -> Topology:
    """A tree of switches whose upper levels are several: the parallel-port generalised fat tree (Zahavi, 2010).

    Parameters
    ----------
    down : sequence of int
        Per level from the leaves: children of a switch. Their product is the number of hosts.
    up, trunks : sequence of int
        Per level but the last: parents of a switch, and parallel cables to each (default 1).
    rates : float or sequence
        B/s per direction of a cable: below the leaves, then above each level but the last.

    Flows go up until source and destination share a switch, by a hash per level over the uplinks, then down.

    >>> print(clos(down=(2, 4), up=(2,), trunks=(1,)).describe())
    Clos: 8 hosts, 4 leaves, 2 spines; 32 links
      host > leaf: 8 x 50 GB/s
      leaf > spine: 8 x 50 GB/s
      leaf > host: 8 x 50 GB/s
      spine > leaf: 8 x 50 GB/s
    """
    levels = len(down)
    w, p = (1, *up), (1, *(trunks or (1,) * len(up)))
    rate = (rates,) * levels if isinstance(rates, int | float) else tuple(rates)
    if not len(w) == len(p) == len(rate) == levels <= len(TIERS):
        raise ValueError(f"{name}: {levels} levels of down need as many rates, and up and trunks for all but the last")
    _need(name, **{f"{kind} {what}": n for what, ns in (("down", down), ("up", w[1:]), ("trunk", p[1:]))
                   for kind, n in zip(TIERS, ns, strict=False)})  # fmt: skip
    below: list[int] = np.cumprod([1, *down]).tolist()  # hosts below a switch of each level; level 0 is a host
    beside: list[int] = np.cumprod([1, *w]).tolist()  # switches that have the same hosts below them
    counts = [below[-1] // below[i] * beside[i] for i in range(levels + 1)]
    first: list[int] = [0, *np.cumsum(counts).tolist()]

    def at(level: int, host: Ints, among: Ints) -> Ints:
        return first[level] + host // below[level] * beside[level] + among % beside[level]

    def router(src: Ints, dst: Ints, seed: int | None) -> Walk:
        turn = sum((src // below[i] != dst // below[i]).astype(np.int64) for i in range(levels))
        among, climb, cables = np.zeros_like(src), [src], []
        for i in range(levels):
            port = (dst // beside[i] if seed is None else spread(src, dst, seed, i)) % (w[i] * p[i])
            among = among + beside[i] * (port % w[i])
            cables.append(port // w[i])
            climb.append(np.where(i < turn, at(i + 1, src, among), climb[-1]))
        descent = [climb[-1]]
        for i in reversed(range(levels)):
            descent.append(np.where(i < turn, at(i, dst, among), descent[-1]))
        return Walk(np.stack(climb + descent[1:], axis=1), np.stack(cables + cables[::-1], axis=1))

    joins = []
    for i in range(levels):
        child = np.repeat(np.arange(counts[i]), w[i] * p[i])
        among = child % beside[i] + beside[i] * (np.arange(child.size) % w[i])
        joins.append((first[i] + child, at(i + 1, child // beside[i] * below[i], among), rate[i]))
    return _fabric(name, dict(zip(("host", *TIERS), counts, strict=False)), joins, latency, router)


def single_switch(hosts: int, rate: float = NDR, latency: float = LATENCY_S) -> Topology:
    """Every host on one switch.

    >>> single_switch(4).route("host0", "host3").size
    2
    """
    return clos((hosts,), rates=rate, latency=latency, name=f"one switch, {hosts} hosts")


def fat_tree(
    radix: int,
    levels: int,
    oversubscription: float | Sequence[float] = 1,
    hosts: int | None = None,
    rate: float = NDR,
    latency: float = LATENCY_S,
) -> Topology:
    """A fat tree of equal switches: 2 (radix/2)^levels hosts when full and not oversubscribed (Al-Fares et al., 2008).

    Parameters
    ----------
    oversubscription : float or sequence
        Downlinks over uplinks: of the leaves, or of each level but the last.
    hosts : int, optional
        Fewer than fit: the last level shrinks to the smallest number of switches that divides the uplinks below it,
        with parallel cables.

    Raises
    ------
    ValueError
        A ratio that no split of the radix gives, or hosts that do not fill whole blocks.

    >>> [fat_tree(k, l).ranks.size for k, l in ((4, 2), (4, 3), (8, 3))]
    [8, 16, 128]
    >>> fat_tree(64, 2, oversubscription=3, hosts=480).describe().splitlines()[0]
    'fat tree, radix 64, 2 levels, 3:1: 480 hosts, 10 leaves, 4 spines; 1,280 links'
    """
    given = [oversubscription] if isinstance(oversubscription, int | float) else list(oversubscription)
    ratios = [Fraction(o).limit_denominator(radix) for o in [*given, *[1] * (levels - 1 - len(given))][: levels - 1]]
    name = f"fat tree, radix {radix}, {levels} level{'s' * (levels > 1)}" + "".join(
        f", {r.numerator}:{r.denominator}" for r in ratios if r != 1 or len(given) > 1
    )
    _need(name, radix=radix, levels=levels)
    up = [radix * r.denominator // (r.numerator + r.denominator) for r in ratios]
    for r, u in zip(ratios, up, strict=True):
        if not 0 < u < radix or Fraction(radix - u, u) != r:
            near = ", ".join(f"{radix - v}:{v}" for v in (u, u + 1) if 0 < v < radix)
            raise ValueError(f"{name}: {radix} ports do not split {r.numerator}:{r.denominator}; near are {near}")
    down = [*(radix - u for u in up), radix]
    if hosts is not None:
        block = prod(down[:-1])
        if not 0 < hosts <= block * radix or hosts % block:
            raise ValueError(f"{name}: hosts is {hosts}; it must be a multiple of {block}, at most {block * radix}")
        down[-1] = hosts // block
    trunks = [1] * len(up)
    if up:
        spread_over = next(s for s in range(1, up[-1] + 1) if up[-1] % s == 0 and s * radix >= down[-1] * up[-1])
        trunks[-1], up[-1] = up[-1] // spread_over, spread_over
    return clos(down, up, trunks, rate, latency, name)


def torus(dims: Sequence[int], wrap: bool = True, rate: float = NDR, latency: float = LATENCY_S) -> Topology:
    """Hosts (TPU chips, say) on a grid, each linked to its neighbours; ``wrap`` closes every row to a ring.

    A dimension of two has one cable, not two. Flows go dimension by dimension, the short way round; half way round,
    hosts of even coordinate go up and the others down. Diameter: the sum of dims // 2.

    >>> t = torus((4, 4, 4))
    >>> t.ranks.size, t.src.size // 2, int(t.hops(0).max())
    (64, 192, 6)
    """
    name = f"{'x'.join(map(str, dims))} {'torus' if wrap else 'mesh'}"
    _need(name, **{f"dimension {axis}": k for axis, k in enumerate(dims)})
    n = prod(dims)
    place = [*np.unravel_index(np.arange(n), dims)]

    def router(src: Ints, dst: Ints, seed: int | None) -> Walk:
        at, goal, columns = [*np.unravel_index(src, dims)], np.unravel_index(dst, dims), [src]
        for axis, k in enumerate(dims):
            ahead = (goal[axis] - at[axis]) % k if wrap else goal[axis] - at[axis]
            upward = 2 * ahead + at[axis] % 2 <= k if wrap else ahead > 0
            left = np.where(upward | (not wrap), abs(ahead), k - ahead)
            step = np.where(upward, 1, -1)
            for taken in range(int(left.max(initial=0))):
                at[axis] = (at[axis] + step * (taken < left)) % k
                columns.append(np.ravel_multi_index(at, dims))
        return _columns(columns)

    cables = []
    for axis, k in enumerate(dims):
        on = place[axis] < k - (1 if k < 3 or not wrap else 0)
        ahead = [(c + (axis == i)) % dims[i] for i, c in enumerate(place)]
        cables.append((np.flatnonzero(on), np.ravel_multi_index(ahead, dims)[on], rate))
    return _fabric(name, {"host": n}, cables, latency, router)


def hyperx(dims: Sequence[int], hosts: int, rate: float = NDR, latency: float = LATENCY_S) -> Topology:
    """Switches on a grid, each linked to all others of its row in every dimension, with ``hosts`` hosts each.

    Flows correct one dimension after the other: at most len(dims) hops between switches (Ahn et al., 2009).

    >>> print(hyperx((3, 2), hosts=2))
    <Topology 3x2 HyperX: 12 hosts, 6 switches; 42 links>
    """
    name = f"{'x'.join(map(str, dims))} HyperX"
    _need(name, hosts=hosts, **{f"dimension {axis}": k for axis, k in enumerate(dims)})
    switches, n = prod(dims), prod(dims) * hosts
    place = np.unravel_index(np.arange(switches), dims)

    def router(src: Ints, dst: Ints, seed: int | None) -> Walk:
        at, goal = [*np.unravel_index(src // hosts, dims)], np.unravel_index(dst // hosts, dims)
        columns = [src, n + src // hosts]
        for axis in range(len(dims)):
            at[axis] = goal[axis]
            columns.append(n + np.ravel_multi_index(at, dims))
        return _columns([*columns, dst])

    cables = [(np.arange(n), n + np.arange(n) // hosts, rate)]
    for axis, k in enumerate(dims):
        for further in range(1, k):
            on = place[axis] + further < k
            cables.append((n + np.flatnonzero(on), n + np.flatnonzero(on) + further * prod(dims[axis + 1 :]), rate))
    return _fabric(name, {"host": n, "switch": switches}, cables, latency, router)


def _between_groups(
    name: str, groups: int, a: int, h: int
) -> tuple[Callable[..., tuple[Ints, Ints, Ints]], tuple[Ints, Ints]]:
    """The switches on both ends of a cable between groups, by flow; and the ends of all cables.

    Port m * (groups - 1) + q of a group has the m-th cable to the q-th of its other groups; a switch has h ports.
    """
    each = a * h // (groups - 1) if groups > 1 else 1
    if each < 1:
        raise ValueError(f"{name}: groups is {groups}; the {a * h} ports of a group reach {a * h + 1} groups at most")

    def ends(m: Ints, g: Ints, d: Ints) -> tuple[Ints, Ints]:
        out, into = (x * a + (m * (groups - 1) + y - (y > x)) // h for x, y in ((g, d), (d, g)))
        return out, into

    def gate(src: Ints, dst: Ints, g: Ints, d: Ints, seed: int | None) -> tuple[Ints, Ints, Ints]:
        m = (dst if seed is None else spread(src, dst, seed, 0)) % each
        return *ends(m, g, d), m

    one, other = np.triu_indices(groups, 1)
    return gate, ends(np.repeat(np.arange(each), one.size), np.tile(one, each), np.tile(other, each))


def dragonfly(
    a: int, p: int, h: int, groups: int | None = None, rate: float = NDR, latency: float = LATENCY_S
) -> Topology:
    """Groups of ``a`` fully linked switches with ``p`` hosts and ``h`` cables to other groups each (Kim et al., 2008).

    By default a h + 1 groups, each with one cable to each other; with fewer, cables are shared out evenly and what is
    left over stays unused. Minimal routing: at most one global cable, three hops between switches.

    >>> t = dragonfly(a=4, p=2, h=2)
    >>> t.ranks.size, t.vertices("switch").size, t.src.size // 2
    (72, 36, 162)
    """
    groups = a * h + 1 if groups is None else groups
    _need("dragonfly", a=a, p=p, h=h, groups=groups)
    n, per = a * p * groups, a * p
    gate, globals_ = _between_groups("dragonfly", groups, a, h)

    def router(src: Ints, dst: Ints, seed: int | None) -> Walk:
        start, end, (g, d) = src // p, dst // p, (src // per, dst // per)
        out, into, cable = gate(src, dst, g, d, seed)
        hops = [src, n + start, n + np.where(g == d, start, out), n + np.where(g == d, end, into), n + end, dst]
        return _columns(hops, cable)

    i, j = (n + np.arange(groups)[:, None] * a + side for side in np.triu_indices(a, 1))
    cables = [(np.arange(n), n + np.arange(n) // p, rate), (i, j, rate), (n + globals_[0], n + globals_[1], rate)]
    return _fabric(f"dragonfly({a}, {p}, {h})", {"host": n, "switch": a * groups}, cables, latency, router)


def dragonfly_plus(
    leaves: int, spines: int, p: int, h: int, groups: int | None = None, rate: float = NDR, latency: float = LATENCY_S
) -> Topology:
    """Groups of leaves (``p`` hosts each) linked to all spines of the group, ``h`` cables of a spine to other groups.

    Minimal routing: leaf, spine, spine, leaf (Shpiner et al., 2017). Groups as in `dragonfly`, spines * h + 1 at most.

    >>> print(dragonfly_plus(leaves=2, spines=2, p=2, h=2))
    <Topology dragonfly+(2, 2, 2, 2): 20 hosts, 10 leaves, 10 spines; 100 links>
    """
    groups = spines * h + 1 if groups is None else groups
    _need("dragonfly+", leaves=leaves, spines=spines, p=p, h=h, groups=groups)
    n, per, top = leaves * p * groups, leaves * p, leaves * p * groups + leaves * groups
    gate, globals_ = _between_groups("dragonfly+", groups, spines, h)

    def router(src: Ints, dst: Ints, seed: int | None) -> Walk:
        start, end, (g, d) = n + src // p, n + dst // p, (src // per, dst // per)
        out, into, cable = gate(src, dst, g, d, seed)
        near = g * spines + (dst if seed is None else spread(src, dst, seed, 1)) % spines
        via = [np.where(start == end, start, top + np.where(g == d, near, spine)) for spine in (out, into)]
        return _columns([src, start, *via, end, dst], cable)

    leaf, spine = (side.ravel() for side in np.divmod(np.arange(leaves * spines), spines))
    g = np.arange(groups)[:, None]
    cables = [(np.arange(n), n + np.arange(n) // p, rate), (n + g * leaves + leaf, top + g * spines + spine, rate),
              (top + globals_[0], top + globals_[1], rate)]  # fmt: skip
    counts = {"host": n, "leaf": leaves * groups, "spine": spines * groups}
    return _fabric(f"dragonfly+({leaves}, {spines}, {p}, {h})", counts, cables, latency, router)

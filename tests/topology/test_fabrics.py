"""Fabrics have the numbers of their published closed forms, and their routes are paths, shortest where claimed."""

from math import comb, prod

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dthw.topology import Topology
from dthw.topology import fabrics as f
from dthw.topology.metrics import bisection, diameter, distances, oversubscription, parts
from tests.topology.checks import all_pairs, connected

B = 50e9


def switches(t: Topology) -> np.ndarray:
    return np.flatnonzero(t.kinds != "host")


def between_switches(t: Topology) -> int:
    return int(((t.kinds[t.src] != "host") & (t.kinds[t.dst] != "host")).sum()) // 2


# --- Closed forms ---


@pytest.mark.parametrize(("k", "levels"), [(4, 1), (4, 2), (6, 2), (8, 2), (10, 2), (4, 3), (6, 3), (8, 3), (4, 4)])
def test_full_fat_trees(k: int, levels: int) -> None:
    t = f.fat_tree(k, levels)
    hosts = k if levels == 1 else 2 * (k // 2) ** levels
    assert t.ranks.size == hosts
    assert switches(t).size == (1 if levels == 1 else (2 * levels - 1) * (k // 2) ** (levels - 1))
    assert between_switches(t) == (levels - 1) * hosts
    assert diameter(t, switches(t)) == 2 * (levels - 1)
    assert diameter(t) == 2 * levels == nx.eccentricity(t.to_networkx(), "host0")
    assert bisection(t) == hosts / 2 * B
    assert len(list(t.paths("host0", f"host{hosts - 1}"))) == (k // 2) ** (levels - 1)
    assert set(oversubscription(t).values()) <= {1.0}


@pytest.mark.parametrize(
    ("k", "levels", "over", "hosts"),
    [
        (8, 2, 3, None), (8, 2, 1, 16), (16, 2, 3, 96), (12, 2, 2, None), (12, 2, 0.5, None), (8, 3, (1, 3), 48),
        (8, 3, (3, 1), 48), (16, 2, 7, None), (6, 3, (2, 2), 64), (10, 2, (4,), 80), (8, 3, 3, None),
    ],
)  # fmt: skip
def test_tapered_and_partial_fat_trees(k: int, levels: int, over: float | tuple[float, ...], hosts: int | None) -> None:
    t = f.fat_tree(k, levels, over, hosts)
    ratios = [over, *[1] * (levels - 2)] if isinstance(over, int | float) else list(over)
    down = [k - round(k / (1 + r)) for r in ratios]
    assert t.ranks.size == (hosts or prod(down) * k)
    degree = np.bincount(t.src, minlength=len(t.names))
    assert (degree[switches(t)] <= k).all()
    assert (degree[t.ranks] == 1).all()
    taper = oversubscription(t)
    assert [taper[kind] for kind in f.TIERS[: levels - 1]] == pytest.approx(ratios)
    # Every level passes on 1/ratio of what it gets, and half of that crosses.
    through = t.ranks.size * B / prod(max(r, 1) for r in ratios)
    assert bisection(t) == pytest.approx(min(through / 2, t.ranks.size * B / 2))


@pytest.mark.parametrize("dims", [(5,), (4, 4), (2, 2), (3, 4), (6, 5), (4, 4, 4), (2, 3, 4), (2,) * 5, (8, 3), (16,)])
def test_tori(dims: tuple[int, ...]) -> None:
    t = f.torus(dims)
    n = prod(dims)
    assert t.ranks.size == n
    assert t.src.size // 2 == sum(n if k > 2 else n // 2 for k in dims)
    assert diameter(t) == sum(k // 2 for k in dims) == nx.diameter(t.to_networkx())
    longest = max(range(len(dims)), key=lambda axis: dims[axis])
    if dims[longest] % 2 == 0:
        half = np.flatnonzero(np.unravel_index(np.arange(n), dims)[longest] < dims[longest] // 2)
        assert bisection(t, half) == (2 if dims[longest] > 2 else 1) * n / dims[longest] * B
    mesh = f.torus(dims, wrap=False)
    assert mesh.src.size // 2 == sum(n // k * (k - 1) for k in dims)
    assert diameter(mesh) == sum(k - 1 for k in dims)


@pytest.mark.parametrize(
    ("dims", "hosts"), [((4,), 2), ((3, 2), 2), ((4, 4), 1), ((4, 6), 3), ((2, 2, 2), 1), ((3, 3, 3), 1), ((5, 2), 4),
                        ((6, 4), 2)],
)  # fmt: skip
def test_hyperx(dims: tuple[int, ...], hosts: int) -> None:
    t = f.hyperx(dims, hosts)
    n = prod(dims)
    assert (t.ranks.size, switches(t).size) == (n * hosts, n)
    assert between_switches(t) == n * sum(k - 1 for k in dims) // 2
    assert diameter(t, switches(t)) == len(dims)
    assert {d for v, d in t.to_networkx().out_degree() if v.startswith("switch")} == {hosts + sum(dims) - len(dims)}
    for axis, k in enumerate(dims):
        if k % 2 == 0:  # the cut across a dimension: (k / 2)^2 cables in each of n / k rows
            half = np.flatnonzero(np.unravel_index(t.ranks // hosts, dims)[axis] < k // 2)
            assert bisection(t, half) == min(n / k * k * k / 4, n * hosts / 2) * B


@pytest.mark.parametrize(
    ("a", "p", "h", "groups"),
    [(4, 2, 2, None), (2, 1, 1, None), (4, 2, 2, 5), (6, 3, 3, None), (3, 2, 1, None), (4, 1, 2, 3), (8, 2, 1, 9),
     (4, 2, 4, 2), (2, 2, 3, None), (4, 2, 2, 1)],
)  # fmt: skip
def test_dragonfly(a: int, p: int, h: int, groups: int | None) -> None:
    t = f.dragonfly(a, p, h, groups)
    g = a * h + 1 if groups is None else groups
    each = a * h // (g - 1) if g > 1 else 0
    assert (t.ranks.size, switches(t).size) == (a * p * g, a * g)
    assert between_switches(t) == g * comb(a, 2) + each * comb(g, 2)
    assert np.bincount(t.src)[switches(t)].max() <= p + a - 1 + h
    if g > 1:
        assert diameter(t, switches(t)) <= 3
    if groups is None:
        assert between_switches(t) == g * a * (a - 1) // 2 + g * a * h // 2
        assert diameter(t, switches(t)) == 3


@pytest.mark.parametrize(
    ("leaves", "spines", "p", "h", "groups"),
    [(2, 2, 2, 2, None), (4, 4, 4, 1, None), (2, 4, 2, 1, None), (4, 2, 2, 2, 3), (3, 3, 2, 2, 4), (3, 6, 5, 1, 7),
     (2, 2, 1, 3, 4), (1, 2, 2, 2, None)],
)  # fmt: skip
def test_dragonfly_plus(leaves: int, spines: int, p: int, h: int, groups: int | None) -> None:
    t = f.dragonfly_plus(leaves, spines, p, h, groups)
    g = spines * h + 1 if groups is None else groups
    each = spines * h // (g - 1)
    assert parts(t) == {
        "host": leaves * p * g, "leaf": leaves * g, "spine": spines * g, "host-leaf": leaves * p * g,
        "leaf-spine": leaves * spines * g, "spine-spine": each * comb(g, 2),
    }  # fmt: skip
    assert diameter(t, t.vertices("leaf")) == 3
    assert np.bincount(t.src)[t.vertices("spine")].max() <= leaves + h


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 8, 16, 33, 64])
def test_one_switch(hosts: int) -> None:
    t = f.single_switch(hosts)
    assert parts(t) == {"host": hosts, "leaf": 1, "host-leaf": hosts}
    assert diameter(t) == (2 if hosts > 1 else 0)
    if hosts > 1:
        assert bisection(t) == hosts // 2 * B


# --- Routes ---

SMALL = [
    f.fat_tree(4, 3), f.fat_tree(8, 3, (3, 1), 48), f.fat_tree(8, 2, hosts=12), f.clos((2, 3, 2), (2, 3), (3, 2)),
    f.torus((4, 5, 2)), f.torus((6, 4)), f.torus((4, 3), wrap=False), f.hyperx((4, 3), 2), f.single_switch(5),
    f.dragonfly(4, 2, 2), f.dragonfly(4, 2, 2, 4), f.dragonfly(2, 1, 3, 2), f.dragonfly_plus(2, 2, 2, 2),
    f.dragonfly_plus(3, 4, 2, 2, 4),
]  # fmt: skip


@pytest.mark.parametrize("t", SMALL, ids=lambda t: t.name)
@pytest.mark.parametrize("seed", [None, 0, 7])
def test_every_route_is_a_connected_path_and_as_short_as_the_family_claims(t: Topology, seed: int | None) -> None:
    src, dst = all_pairs(t)
    routes = t.routes(src, dst, seed)
    assert connected(t, src, dst, routes)
    hops = np.diff(routes.offsets)
    shortest = distances(t).ravel()
    if t.name.startswith("dragonfly("):
        # Minimal for a dragonfly: one global cable. Two can be shorter by a hop than local, global, local.
        assert (hops >= shortest).all() and hops.max() <= 5
    else:
        assert (hops == shortest).all()
    undirected = dict(nx.all_pairs_shortest_path_length(t.to_networkx()))
    assert shortest.tolist() == [undirected[t.names[a]][t.names[b]] for a, b in zip(src, dst, strict=True)]


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=3, max_size=3),
    st.integers(0, 2**40),
)
def test_any_clos_routes_by_shortest_paths(down: list[int], up: list[tuple[int, int]], seed: int) -> None:
    wide = up[: len(down) - 1]
    t = f.clos(down, [w for w, _ in wide], [p for _, p in wide])
    src, dst = all_pairs(t)
    routes = t.routes(src, dst, seed)
    assert connected(t, src, dst, routes)
    assert (np.diff(routes.offsets) == distances(t).ravel()).all()


@settings(deadline=None, max_examples=80)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.booleans())
def test_any_grid_routes_by_shortest_paths(dims: list[int], wrap: bool) -> None:
    if prod(dims) > 1:
        t = f.torus(dims, wrap)
        src, dst = all_pairs(t)
        routes = t.routes(src, dst)
        assert connected(t, src, dst, routes)
        assert (np.diff(routes.offsets) == distances(t).ravel()).all()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(1, 2), st.integers(1, 3), st.integers(0, 20), st.booleans(), st.integers(0, 99))
def test_any_dragonfly_takes_one_global_cable(a: int, p: int, h: int, fewer: int, plus: bool, seed: int) -> None:
    groups = max(2, a * h + 1 - fewer)
    t = f.dragonfly_plus(2, a, p, h, groups) if plus else f.dragonfly(a, p, h, groups)
    src, dst = all_pairs(t)
    routes = t.routes(src, dst, seed)
    assert connected(t, src, dst, routes)
    assert np.diff(routes.offsets).max() <= 5


def test_all_to_all_loads_every_link_of_a_torus_dimension_alike() -> None:
    for dims in ((5, 5), (4, 4), (8, 5), (4, 4, 4)):
        t = f.torus(dims)
        load = t.load(*all_pairs(t), 1.0)
        for axis, k in enumerate(dims):
            along = np.unravel_index(t.src, dims)[axis] != np.unravel_index(t.dst, dims)[axis]
            assert set(load[along]) == {t.ranks.size / k * (k * k // 4) / 2}


def test_static_routing_in_a_full_tree_spreads_a_shift_without_collision_and_a_hash_does_not() -> None:
    t = f.fat_tree(8, 3)
    moved = np.roll(t.ranks, 16)
    assert t.load(t.ranks, moved, 1.0, seed=None).max() == 1
    worst = [t.load(t.ranks, moved, 1.0, seed).max() for seed in range(8)]
    assert min(worst) > 1
    assert len({tuple(t.routes(t.ranks, moved, seed).links.tolist()) for seed in range(8)}) == 8
    again = t.routes(t.ranks, moved, 3).links
    assert (again == t.routes(t.ranks, moved, 3).links).all()


@pytest.mark.parametrize(("k", "levels", "hosts"), [(16, 2, 64), (8, 3, 32), (8, 3, 64), (64, 2, 256), (16, 3, 256)])
def test_static_routing_carries_every_shift_over_trunks_too(k: int, levels: int, hosts: int) -> None:
    t = f.fat_tree(k, levels, hosts=hosts)
    for by in range(1, hosts, 5):
        assert t.load(t.ranks, np.roll(t.ranks, by), 1.0, seed=None).max() == 1


def test_static_routing_counts_the_trunks_below() -> None:
    t = f.clos((4, 4, 4), (2, 8), (2, 1))
    for by in range(1, 64):
        assert t.load(t.ranks, np.roll(t.ranks, by), 1.0, seed=None).max() == 1


def test_each_level_hashes_by_itself_so_that_every_core_is_used() -> None:
    """One hash for all levels would send what came by uplink 3 up by uplink 3 again: a quarter of the cores."""
    t = f.fat_tree(8, 3)
    assert t.load(*all_pairs(t), 1.0).min() > 0


def test_a_switchs_hash_uses_as_many_uplinks_as_balls_in_bins() -> None:
    """Eight flows on eight uplinks: 1 - (1 - 1/8)^8 of them are used, 65.6 %, and the worst carries 2.597 flows."""
    t = f.fat_tree(16, 2)
    up = (t.src == t.vertices("leaf")[0]) & (t.kinds[t.dst] == "spine")
    loads = np.stack([t.load(np.arange(8), np.arange(8, 16), 1.0, seed)[up] for seed in range(4000)])
    assert (loads > 0).mean() == pytest.approx(1 - (7 / 8) ** 8, abs=0.005)
    assert loads.max(axis=1).mean() == pytest.approx(2.597233, abs=0.04)


# --- Refusals ---


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: f.fat_tree(8, 2, 2), "8 ports do not split 2:1; near are 6:2, 5:3"),
        (lambda: f.fat_tree(8, 2, hosts=10), "hosts is 10; it must be a multiple of 4, at most 32"),
        (lambda: f.fat_tree(8, 2, hosts=36), "hosts is 36"),
        (lambda: f.fat_tree(8, 0), "levels is 0"),
        (lambda: f.fat_tree(8, 2, 0), "do not split"),
        (lambda: f.torus((4, 0)), "dimension 1 is 0"),
        (lambda: f.hyperx((4, 2), 0), "hosts is 0"),
        (lambda: f.dragonfly(4, 2, 2, 10), "the 8 ports of a group reach 9 groups at most"),
        (lambda: f.dragonfly(4, 0, 2), "p is 0"),
        (lambda: f.dragonfly_plus(2, 2, 2, 1, 4), "reach 3 groups at most"),
        (lambda: f.clos((4, 4)), "2 levels of down need"),
        (lambda: f.clos((4, 4), (0,)), "leaf up is 0"),
        (lambda: f.single_switch(0), "leaf down is 0"),
        (lambda: f.single_switch(4, rate=-1.0), "-1.0 B/s"),
        (lambda: bisection(f.single_switch(4), [0, 4]), "must be some of the ranks' vertices"),
        (lambda: bisection(f.single_switch(4), []), "must be some of the ranks' vertices"),
    ],
)
def test_impossible_fabrics_are_refused_with_the_value_named(build: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build()  # type: ignore[operator]

"""An invalid graph cannot be built, and every route is a connected path."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dthw.topology import Topology, Walk
from tests.topology.checks import connected

PAIR = {"names": ["a", "b"], "kinds": "host", "src": [0], "dst": [1], "capacity": 1e9, "duplex": True}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"capacity": 0.0}, r"link 0 \(a, b, 0.0 B/s, 5e-07 s\): a capacity is a positive"),
        ({"capacity": -1e9}, "-1000000000.0 B/s"),
        ({"capacity": np.inf}, "inf B/s"),
        ({"capacity": np.nan}, "nan B/s"),
        ({"latency": -1.0}, "a latency is 0 or more"),
        ({"latency": np.nan}, "a latency is 0 or more"),
        ({"dst": [2]}, r"link 0 \(a, vertex 2, .*: an end is not one of the 2 vertices"),
        ({"dst": [-1]}, "vertex -1"),
        ({"dst": [0]}, "from a vertex to another one"),
        ({"dst": ["c"], "src": ["a"]}, "no vertex is called 'c'"),
        ({"names": ["a", "a"]}, "two vertices are called 'a'"),
        ({"kinds": "switch"}, "no vertex is of kind 'gpu' or 'host'"),
        ({"names": ["a", "b", "c"]}, "a cannot reach c"),
        ({"duplex": False}, "a cannot hear b"),
    ],
)
def test_an_invalid_graph_is_refused_with_the_value_named(change: dict[str, object], says: str) -> None:
    Topology("planted", **PAIR)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=says):
        Topology("planted", **{**PAIR, **change})  # type: ignore[arg-type]


def test_ranks_sit_on_gpus_and_on_hosts_where_there_are_none() -> None:
    star = {"src": [0, 1, 2], "dst": 3, "capacity": 1.0, "duplex": True, "names": list("abcs")}
    assert Topology("t", kinds=["host", "gpu", "gpu", "switch"], **star).ranks.tolist() == [1, 2]
    assert Topology("t", kinds=["host", "host", "host", "switch"], **star).ranks.tolist() == [0, 1, 2]


def test_search_takes_fewest_hops_then_the_widest_link_then_the_first() -> None:
    names = ["a", "s", "t", "u", "b"]
    kinds = ["host", "switch", "switch", "switch", "host"]
    src, dst = ["a", "a", "a", "s", "t", "u"], ["s", "t", "u", "b", "b", "b"]
    wide_t = Topology("w", names, kinds, src, dst, [1, 2, 1, 1, 2, 1], duplex=True)
    assert wide_t.walk("a", "b").vertices.tolist() == [[0, 2, 4]]
    same = Topology("w", names, kinds, src, dst, 1, duplex=True)
    assert same.walk("a", "b").vertices.tolist() == [[0, 1, 4]]
    assert len(list(same.paths("a", "b"))) == 3
    assert same.route("a", "a").tolist() == []


def test_others_do_not_pass_through_what_does_not_relay() -> None:
    """a - g - b is shortest, but g keeps its links to itself."""
    names, kinds = ["a", "g", "b", "s", "t"], ["gpu", "gpu", "gpu", "switch", "switch"]
    src, dst = ["a", "g", "a", "s", "t"], ["g", "b", "s", "t", "b"]
    relay = [k != "gpu" for k in kinds]
    t = Topology("relays", names, kinds, src, dst, 1.0, duplex=True, relay=relay)
    assert t.walk("a", "b").vertices.tolist() == [[0, 3, 4, 2]]
    assert [len(p) for p in t.paths("a", "b")] == [3]
    assert t.walk("g", "b").vertices.tolist() == [[1, 2]]
    # A wide link to a vertex that is nearer to b, but would have to relay.
    far = Topology("far", ["a", "g", "b", "s", "t", "x"], ["gpu", "gpu", "gpu", "sw", "sw", "sw"],
                   ["a", "g", "x", "a", "s", "t"], ["g", "x", "b", "s", "t", "b"], [9, 1, 1, 1, 1, 1], duplex=True,
                   relay=[False] * 3 + [True] * 3)  # fmt: skip
    assert far.walk("a", "b").vertices.tolist() == [[0, 3, 4, 2]]
    assert len(list(far.paths("a", "b"))) == 1
    cut = Topology("cut", [*names[:3], "n"], [*kinds[:3], "nic"], ["a", "g", "n"], ["g", "b", "a"], 1.0, duplex=True,
                   relay=[False, True, True, True])  # fmt: skip
    with pytest.raises(ValueError, match="b cannot reach n"):
        cut.route("b", "n")


def test_parallel_links_share_by_the_walks_cable() -> None:
    def straight(src: np.ndarray, dst: np.ndarray, seed: int | None) -> Walk:
        return Walk(np.stack([src, dst], axis=1), np.arange(src.size)[:, None])

    t = Topology("trunk", ["a", "b"], "host", [0, 0, 1, 0], [1, 1, 0, 1], 1.0, router=straight)
    links, offsets = t.routes([0] * 7, 1)
    assert links.tolist() == [0, 1, 3, 0, 1, 3, 0]
    assert offsets.tolist() == list(range(8))
    # Three flows on link 0: an assignment by fancy index would count one.
    assert t.load([0] * 7, 1, 10.0).tolist() == [30, 20, 0, 20]
    assert t.load([], [], 1.0).tolist() == [0, 0, 0, 0]
    assert len(list(t.paths("a", "b"))) == 3
    assert t.to_networkx().edges["a", "b"] == {"capacity": 3.0, "latency": 5e-7, "cables": 3}


@pytest.mark.parametrize(("src", "dst"), [(-1, 0), (0, 2), ([0, 5], 0)])
def test_flows_between_unknown_vertices_are_refused(src: int, dst: int) -> None:
    t = Topology("pair", **PAIR)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not one of the 2"):
        t.routes(src, dst)
    with pytest.raises(ValueError, match="no vertex is called 'c'"):
        t.route("a", "c")


def test_a_router_that_leaves_the_graph_is_refused() -> None:
    def jump(src: np.ndarray, dst: np.ndarray, seed: int | None) -> Walk:
        return Walk(np.stack([src, dst], axis=1), np.zeros((src.size, 1), int))

    t = Topology("jump", ["a", "s", "b"], ["host", "switch", "host"], [0, 1], [1, 2], 1.0, router=jump, duplex=True)
    with pytest.raises(ValueError, match="sends from a to b: there is no link"):
        t.route("a", "b")


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 12), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_search_on_any_graph_agrees_with_networkx(n: int, extra: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    src = np.concatenate([np.arange(1, n), rng.integers(0, n, extra)])
    dst = np.concatenate([rng.integers(0, np.arange(1, n)), rng.integers(0, n, extra)])
    keep = src != dst
    t = Topology("any", [f"v{i}" for i in range(n)], "host", src[keep], dst[keep], rng.uniform(1, 2, keep.sum()),
                 duplex=True)  # fmt: skip
    graph = t.to_networkx()
    a, b = (side.ravel() for side in np.divmod(np.arange(n * n), n))
    routes = t.routes(a, b)
    assert connected(t, a, b, routes)
    shortest = dict(nx.all_pairs_shortest_path_length(graph))
    assert np.diff(routes.offsets).tolist() == [shortest[f"v{s}"][f"v{d}"] for s, d in zip(a, b, strict=True)]
    assert t.load(a, b, 1.0).sum() == routes.links.size
    assert graph.size("capacity") == pytest.approx(t.capacity.sum())
    multi = nx.MultiDiGraph(list(zip(t.src.tolist(), t.dst.tolist(), strict=True)))
    ways = {tuple(t.dst[p].tolist()) for p in t.paths(0, n - 1)}
    assert ways == {tuple(p[1:]) for p in nx.all_shortest_paths(multi, 0, n - 1)}

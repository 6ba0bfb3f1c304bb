"""Servers and fabrics composed: every route is a path over the right NICs, at any size."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dthw.topology import Topology
from dthw.topology import clusters as c
from dthw.topology import servers as s
from dthw.topology.fabrics import clos, fat_tree, single_switch, torus
from dthw.topology.metrics import bisection, oversubscription
from tests.topology.checks import all_pairs, connected

LATE = Topology("late", ["switch", "host"], ["switch", "host"], [0], [1], 1e9, duplex=True)


def passed(t: Topology, src: str, dst: str, seed: int | None = 0) -> list[str]:
    return [t.names[v] for v in dict.fromkeys(t.walk(src, dst, seed).vertices[0].tolist())]


@pytest.mark.parametrize(
    "t",
    [
        c.rail_optimized(64), c.rail_optimized(128, radix=32), c.rail_optimized(64, radix=8, pxn=True),
        c.rail_only(32), c.rail_only(64, radix=4), c.rail_only(32, s.dgx1_v100), c.rail_only(64, s.dgx2),
        c.rail_optimized(64, s.mi300x, radix=16), c.rail_optimized(144, s.gb200_nvl72, radix=144),
        c.cluster(s.pcie_server(1, 2, 2, 4), torus((2, 4)), np.arange(8).reshape(2, 4), pxn=True),
    ],
    ids=lambda t: t.name,
)  # fmt: skip
@pytest.mark.parametrize("seed", [None, 3])
def test_every_pair_of_gpus_is_joined_by_a_path(t: Topology, seed: int | None) -> None:
    src, dst = all_pairs(t)
    assert connected(t, src, dst, t.routes(src, dst, seed))


def test_rails_share_leaves_and_other_rails_cross_spines() -> None:
    t = c.rail_optimized(512)
    assert Counter(t.kinds.tolist())["leaf"] == 16 and Counter(t.kinds.tolist())["spine"] == 8
    assert passed(t, "server0.gpu3", "server31.gpu3")[3] == "leaf3"
    assert [v.rstrip("0123456789") for v in passed(t, "server0.gpu3", "server32.gpu3")[3:6]] == [
        "leaf",
        "spine",
        "leaf",
    ]
    crossing = passed(t, "server0.gpu3", "server1.gpu5")
    assert crossing[2] == "server0.nic3" and crossing[3] == "leaf3" and crossing[5:7] == ["leaf5", "server1.nic5"]
    helped = passed(c.rail_optimized(512, pxn=True), "server0.gpu3", "server1.gpu5")
    assert helped[1:6] == ["server0.nvswitch0", "server0.gpu5", "server0.pcie5", "server0.nic5", "leaf5"]
    assert passed(t, "server7.gpu0", "server7.gpu6") == ["server7.gpu0", "server7.nvswitch0", "server7.gpu6"]


def test_the_order_of_ranks_decides_whether_a_nic_carries_one_flow_or_eight() -> None:
    t = c.rail_optimized(64)
    port = t.kinds[t.dst] == "leaf"
    ring = t.load(t.ranks, np.roll(t.ranks, -1), 1.0)
    assert ring[port].max() == 1 and ring[port].sum() == 8
    apart = np.roll(t.ranks, -8)
    assert t.load(t.ranks, apart, 1.0)[port].tolist() == [1.0] * 64
    one_nic = c.cluster(s.pcie_server(nics=1), single_switch(8), np.arange(8)[:, None])
    port = one_nic.kinds[one_nic.dst] == "leaf"
    assert one_nic.load(one_nic.ranks, np.roll(one_nic.ranks, -8), 1.0)[port].tolist() == [8.0] * 8


def test_a_rail_only_cluster_never_leaves_by_the_wrong_rail() -> None:
    t = c.rail_only(128, radix=8)
    src, dst = all_pairs(t)
    links, offsets = t.routes(src, dst)
    flow = np.repeat(np.arange(src.size), np.diff(offsets))
    enters = (t.kinds[t.src[links]] == "nic") & (t.kinds[t.dst[links]] == "leaf")
    rail = np.array([int(name.rsplit("nic", 1)[1]) if ".nic" in name else -1 for name in t.names])
    assert (rail[t.src[links[enters]]] == dst[flow[enters]] % len(s.dgx_h100().names)).all()


def test_bandwidth_between_servers_is_what_the_nics_give() -> None:
    assert bisection(c.rail_optimized(128, radix=32)) == 64 * 50e9
    assert bisection(c.rail_only(64)) == 32 * 50e9
    taper = c.cluster(s.dgx_h100(), fat_tree(16, 2, 3, hosts=96), np.arange(96).reshape(12, 8))
    assert bisection(taper) == 48 / 3 * 50e9


def test_the_llama_3_cluster_has_its_published_shape() -> None:
    t = c.llama3_cluster()
    assert t.ranks.size == 24576
    assert t.vertices("leaf").size == 1536
    taper = oversubscription(t)
    assert taper["leaf"] == 0.5  # twice the uplinks that the rack needs
    assert taper["leaf"] * taper["spine"] == pytest.approx(7)
    assert t.vertices("spine").size == 8 * 32
    shifted = np.roll(t.ranks, 3072)
    assert connected(t, t.ranks, shifted, t.routes(t.ranks, shifted))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.integers(0, 2**32 - 1))
def test_any_attachment_routes(servers: int, gpus: int, nics: int, pxn: bool, seed: int) -> None:
    attach = np.random.default_rng(seed).permutation(servers * nics).reshape(servers, nics)
    fabric = clos((nics, servers), (2,), (2,))
    t = c.cluster(s.pcie_server(1, 1, gpus, nics), fabric, attach, pxn=pxn)
    src, dst = all_pairs(t)
    assert connected(t, src, dst, t.routes(src, dst, seed))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: c.rail_optimized(12), "gpus is 12; DGX H100 has 8"),
        (lambda: c.rail_only(0), "gpus is 0"),
        (lambda: c.rail_optimized(8 * 33), "33 servers do not fill leaves of 32"),
        (lambda: c.cluster(s.dgx_h100(), single_switch(8), np.arange(8)), r"attach has shape \(servers, NICs\)"),
        (lambda: c.cluster(s.pcie_server(nics=0), single_switch(8), np.arange(8)[None]), "0 NICs"),
        (lambda: c.cluster(s.dgx_h100(), single_switch(9), np.arange(8)[None]), "each of the 9 hosts"),
        (lambda: c.cluster(s.dgx_h100(), single_switch(4), np.arange(8)[None], planes=2), "planes do not meet"),
        (lambda: c.cluster(s.dgx_h100(), LATE, np.arange(1)[None].repeat(8, 1)), "each of the 1 hosts"),
        (lambda: c.cluster(s.pcie_server(nics=1), LATE, [[0]]), "must come before its switches"),
        (lambda: c.rail_only(16).route("server0.gpu0", "plane0.leaf0"), "not at the fabric's switches"),
    ],
)
def test_impossible_clusters_and_flows_are_refused(build: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build()

"""Servers hold what their makers state: links per GPU, bandwidth per direction, and the bottleneck to a NIC."""

from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

from dthw.topology import Topology
from dthw.topology import servers as s

# GPUs, NICs, CPUs, NVSwitch planes; GB/s per direction: of all scale-up links of a GPU, between two GPUs, GPU to NIC.
STATED: list[tuple[Callable[[], Topology], tuple[int, ...], float, float, float]] = [
    (s.dgx1_v100, (8, 4, 2, 0), 150, 25, 12.5),
    (s.dgx2, (16, 8, 2, 1), 150, 150, 12.5),
    (s.dgx_a100, (8, 8, 2, 1), 300, 300, 25),
    (s.dgx_h100, (8, 8, 2, 1), 450, 450, 50),
    (s.dgx_b200, (8, 8, 2, 1), 900, 900, 50),
    (s.gb200_nvl72, (72, 72, 36, 1), 900, 900, 50),
    (s.mi300x, (8, 8, 2, 0), 448, 64, 50),
]


@pytest.mark.parametrize(("build", "counts", "scale_up", "pair", "to_nic"), STATED)
def test_a_server_is_what_its_maker_states(
    build: Callable[[], Topology], counts: tuple[int, ...], scale_up: float, pair: float, to_nic: float
) -> None:
    t = build()
    assert tuple(t.vertices(kind).size for kind in ("gpu", "nic", "cpu", "nvswitch")) == counts
    assert t.ranks.tolist() == t.vertices("gpu").tolist() == list(range(counts[0]))
    fast = np.isin(t.kinds[t.dst], ["gpu", "nvswitch"]) & (t.kinds[t.src] == "gpu")
    for gpu in t.ranks:
        assert t.capacity[fast & (t.src == gpu)].sum() == pytest.approx(scale_up * 1e9)
        nic = f"nic{gpu * counts[1] // counts[0]}"
        assert t.capacity[t.route(gpu, nic)].min() == t.capacity[t.route(nic, gpu)].min() == to_nic * 1e9
    assert t.capacity[t.route(0, 1)].min() == pair * 1e9
    a, b = np.divmod(np.arange(counts[0] ** 2), counts[0])
    offsets = t.routes(a, b).offsets
    assert (np.diff(offsets)[a == b] == 0).all() and (np.diff(offsets)[a != b] >= 1).all()
    assert nx.is_strongly_connected(t.to_networkx())


def test_the_cube_mesh_has_six_links_a_gpu_and_far_pairs_cross_pcie() -> None:
    t = s.dgx1_v100()
    mesh = t.to_networkx().subgraph([f"gpu{i}" for i in range(8)])
    assert {d for _, d in mesh.out_degree()} == {4}
    assert nx.diameter(mesh) == 2
    assert sum(d["capacity"] for *_, d in mesh.edges(data=True)) == 8 * 150e9
    # NCCL's rings on this machine go round all eight GPUs by direct links.
    ring = [0, 1, 2, 3, 7, 5, 6, 4]
    assert all(t.route(a, b).size == 1 for a, b in zip(ring, [*ring[1:], 0], strict=True))
    assert {str(t.kinds[v]) for v in t.walk("gpu0", "gpu7").vertices[0]} == {"gpu", "pcie", "cpu"}
    assert t.capacity[t.route("gpu0", "gpu7")].min() == s.PCIE[3]


@pytest.mark.parametrize(("pcie", "port", "bottleneck"), [(3, "HDR", 15.754), (3, "EDR", 12.5), (4, "NDR", 31.508),
                                                          (4, "HDR", 25.0), (5, "NDR", 50.0)])  # fmt: skip
def test_slot_and_port_bound_the_way_to_a_nic(pcie: int, port: str, bottleneck: float) -> None:
    t = s.pcie_server(2, 4, 8, 8, pcie=s.PCIE[pcie], nic=s.PORT[port])
    assert t.capacity[t.route("gpu5", "nic5")].min() == bottleneck * 1e9


def test_gpus_under_one_switch_share_its_way_up() -> None:
    t = s.pcie_server(sockets=1, switches=2, gpus=4, nics=0)
    load = t.load(["gpu0", "gpu1"], "cpu0", 1e9)
    assert load.max() == 2e9
    assert t.kinds[t.dst[load.argmax()]] == "cpu"


def test_a_rack_reaches_the_nics_of_its_own_tray_alone() -> None:
    t = s.gb200_nvl72()
    assert t.route("gpu0", "nic3").size == 3
    with pytest.raises(ValueError, match="gpu0 cannot reach nic4"):
        t.route("gpu0", "nic4")


@pytest.mark.parametrize("change", [{"sockets": 0}, {"gpus": 0}, {"switches": -1}, {"nics": -1}])
def test_an_empty_server_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="needs 1 CPU and 1 GPU"):
        s.pcie_server(**change)  # type: ignore[arg-type]

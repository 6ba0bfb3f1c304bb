"""Servers: GPUs and what joins them, NICs, and the PCIe tree under the CPUs.

Rates come from the catalog. Assumed, not sourced: how many PCIe switches a machine has and what hangs on each, which
pairs of the DGX-1 have two NVLinks, and every latency. A real machine's own ``nvidia-smi topo -m`` has the last word.
"""

import itertools
from collections.abc import Iterable

from dthw import catalog
from dthw.topology.graph import Topology


def _rate(link: str) -> float:
    return catalog.link(link).bandwidth.one_way


# Bytes per second in one direction.
PCIE = {generation: _rate(f"PCIe {generation}.0 x16") for generation in (3, 4, 5)}
NVLINK = {generation: _rate(f"NVLink {generation}") for generation in (2, 3, 4, 5)}  # all links of a GPU
PORT = {rate: _rate(f"InfiniBand {rate} 4x") for rate in ("EDR", "HDR", "NDR")}
C2C = _rate("NVLink-C2C (Grace)")
SOCKETS = 40e9  # between two CPUs: assumed, no vendor states what PCIe traffic gets there


def pcie_server(
    sockets: int = 2,
    switches: int = 4,
    gpus: int = 8,
    nics: int = 8,
    *,
    pcie: float = PCIE[5],
    nic: float = PORT["NDR"],
    host_link: float | None = None,
    board: int | None = None,
    nvswitch: float | None = None,
    mesh: Iterable[tuple[int, int, float]] = (),
    name: str = "PCIe server",
) -> Topology:
    """A server: ``gpus`` and ``nics`` spread in order over PCIe switches, and those over CPUs.

    Parameters
    ----------
    sockets, switches, gpus, nics : int
        Without switches, GPUs and NICs hang on the CPUs.
    pcie, nic, host_link : float
        B/s per direction of an x16 slot, of a NIC's port, and of a GPU's way to the host (default: ``pcie``). A NIC's
        own link carries the lesser of slot and port, so that a path to a NIC has the bottleneck of one through it.
    board : int, optional
        How many CPUs share a board, where each is linked to each (default: all).
    nvswitch : float, optional
        B/s per direction between a GPU and the NVSwitches. They are one vertex: every transfer spreads over all chips.
    mesh : iterable of (gpu, gpu, B/s)
        Direct links between GPUs.

    GPUs and NICs relay nothing: what has no direct link goes through PCIe, as it does without software's help.

    Raises
    ------
    ValueError
        Fewer than 1 CPU or GPU, or a negative number of the rest.

    >>> t = pcie_server(sockets=2, switches=2, gpus=4, nics=2, pcie=PCIE[4], nic=PORT["HDR"])
    >>> [t.names[v] for v in t.walk("gpu0", "nic1").vertices[0]]
    ['gpu0', 'pcie0', 'cpu0', 'cpu1', 'pcie1', 'nic1']
    >>> t.capacity[t.route("gpu0", "nic0")] / 1e9
    array([31.508, 25.   ])
    """
    if sockets < 1 or gpus < 1 or switches < 0 or nics < 0:
        given = f"sockets={sockets}, switches={switches}, gpus={gpus}, nics={nics}"
        raise ValueError(f"{name}: {given}: it needs 1 CPU and 1 GPU or more, and no negative number")
    counts = {"gpu": gpus, "nic": nics, "pcie": switches, "cpu": sockets, "nvswitch": int(nvswitch is not None)}
    names = [f"{kind}{i}" for kind, n in counts.items() for i in range(n)]
    kinds = [kind for kind, n in counts.items() for _ in range(n)]
    above, slots = ("pcie", switches) if switches else ("cpu", sockets)
    links = [(f"gpu{i}", f"{above}{i * slots // gpus}", host_link or pcie) for i in range(gpus)]
    links += [(f"nic{i}", f"{above}{i * slots // nics}", min(pcie, nic)) for i in range(nics)]
    links += [(f"pcie{i}", f"cpu{i * sockets // switches}", pcie) for i in range(switches)]
    shared = board or sockets
    pairs = itertools.combinations(range(sockets), 2)
    links += [(f"cpu{a}", f"cpu{b}", SOCKETS) for a, b in pairs if a // shared == b // shared]
    links += [(f"gpu{i}", "nvswitch0", nvswitch) for i in range(gpus) if nvswitch is not None]
    links += [(f"gpu{a}", f"gpu{b}", rate) for a, b, rate in mesh]
    src, dst, rates = [a for a, _, _ in links], [b for _, b, _ in links], [rate for *_, rate in links]
    relay = [kind not in ("gpu", "nic") for kind in kinds]
    return Topology(name, names, kinds, src, dst, rates, duplex=True, relay=relay)


def dgx1_v100() -> Topology:
    """Eight V100 in a hybrid cube mesh of single and double NVLinks, six a GPU, and four EDR ports.

    >>> t = dgx1_v100()
    >>> [float(t.capacity[t.route("gpu0", g)].min()) / 1e9 for g in ("gpu1", "gpu3", "gpu5")]
    [25.0, 50.0, 15.754]
    """
    single, double = "01 02 13 26 37 45 46 57", "03 04 12 15 23 47 56 67"
    mesh = [(int(p[0]), int(p[1]), n * NVLINK[2] / 6) for n, pairs in ((1, single), (2, double)) for p in pairs.split()]
    return pcie_server(2, 4, 8, 4, pcie=PCIE[3], nic=PORT["EDR"], mesh=mesh, name="DGX-1 (V100)")


def dgx2() -> Topology:
    """Sixteen V100, six NVLinks each into NVSwitches (12 chips), and eight EDR ports."""
    return pcie_server(2, 8, 16, 8, pcie=PCIE[3], nic=PORT["EDR"], nvswitch=NVLINK[2], name="DGX-2")


def dgx_a100() -> Topology:
    """Eight A100, twelve NVLinks each into NVSwitches (6 chips), and eight HDR ports."""
    return pcie_server(2, 4, 8, 8, pcie=PCIE[4], nic=PORT["HDR"], nvswitch=NVLINK[3], name="DGX A100")


def dgx_h100() -> Topology:
    """Eight H100, eighteen NVLinks each into NVSwitches (4 chips), and one NDR port behind each GPU's PCIe switch."""
    return pcie_server(2, 8, 8, 8, nvswitch=NVLINK[4], name="DGX H100")


def dgx_b200() -> Topology:
    """Eight B200, eighteen NVLinks each into NVSwitches, and one NDR port behind each GPU's PCIe switch."""
    return pcie_server(2, 8, 8, 8, nvswitch=NVLINK[5], name="DGX B200")


def gb200_nvl72() -> Topology:
    """A rack: 72 B200 on one NVLink domain (18 switch chips), each pair with a Grace CPU, and an NDR port per GPU.

    Two Graces share a tray; trays meet on NVLink alone, so that a GPU reaches the NICs of its own tray.
    """
    return pcie_server(36, 0, 72, 72, host_link=C2C, board=2, nvswitch=NVLINK[5], name="GB200 NVL72")


def mi300x() -> Topology:
    """Eight MI300X, each linked to each of the seven others, and one 400 Gb/s port behind each GPU's PCIe switch."""
    mesh = [(a, b, _rate("xGMI MI300X") / 7) for a, b in itertools.combinations(range(8), 2)]
    return pcie_server(2, 8, 8, 8, mesh=mesh, name="MI300X")

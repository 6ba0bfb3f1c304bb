"""Clusters: servers whose NICs are the hosts of a fabric."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dthw.topology.fabrics import NDR, clos, fat_tree
from dthw.topology.graph import LATENCY_S, Ints, Topology, Walk
from dthw.topology.servers import dgx_h100


def cluster(
    server: Topology, fabric: Topology, attach: ArrayLike, planes: int = 1, pxn: bool = False, name: str = "cluster"
) -> Topology:
    """Servers joined by a fabric, or by several copies of one.

    Vertices are those of server 0, of server 1, ..., then the switches. A GPU uses the NIC of its share (with as many
    NICs as GPUs: its own). Within a server flows go as they do in the server.

    Parameters
    ----------
    server, fabric : Topology
        With vertices of kind 'gpu' and 'nic'; with those of kind 'host' before all others.
    attach : array of int, shape (servers, NICs)
        The host of the fabric that each NIC becomes; host h of plane q is q * hosts + h. Each occurs once.
    pxn : bool
        Hand data to the GPU of the destination's rail first, over the server's own links, so that they leave by a NIC
        of the right rail (what NCCL calls PXN). Else they leave by the source's NIC and enter by the destination's.

    Raises
    ------
    ValueError
        A server without NICs, an attachment that is not one host per NIC, or planes that data could not change.

    >>> from dthw.topology.fabrics import single_switch
    >>> t = cluster(dgx_h100(), single_switch(16), np.arange(16).reshape(2, 8))
    >>> t.ranks.size, t.names[t.ranks[9]], float(t.capacity[t.route("server0.gpu0", "server1.gpu0")].min())
    (16, 'server1.gpu1', 50000000000.0)
    """
    gpus, nics, size = server.vertices("gpu"), server.vertices("nic"), len(server.names)
    hosts = fabric.vertices("host").size
    at = np.asarray(attach, np.int64)
    if not gpus.size or not nics.size or at.ndim != 2 or at.shape[1] != nics.size:
        given = f"{gpus.size} GPUs, {nics.size} NICs and attach of shape {at.shape}"
        raise ValueError(f"{name}: the server has {given}; it needs both, and attach has shape (servers, NICs)")
    if not np.array_equal(np.sort(at, axis=None), np.arange(planes * hosts)):
        raise ValueError(f"{name}: attach must name each of the {planes * hosts} hosts of the fabric once")
    if (fabric.kinds[:hosts] != "host").any():
        raise ValueError(f"{name}: the hosts of {fabric.name} must come before its switches")
    if planes > 1 and (not pxn or (at // hosts != at[0] // hosts).any()):
        raise ValueError(f"{name}: planes do not meet, so NICs of one number must share a plane, with pxn=True")
    servers, switches = len(at), len(fabric.names) - hosts
    # Where the fabric's vertices are now; shape (planes, vertices of the fabric).
    place = np.empty((planes, len(fabric.names)), np.int64)
    server_of, nic_of = (side.ravel()[np.argsort(at, axis=None)] for side in np.indices(at.shape))
    place[:, :hosts] = (server_of * size + nics[nic_of]).reshape(planes, hosts)
    place[:, hosts:] = servers * size + np.arange(planes * switches).reshape(planes, switches)
    slot = np.zeros(size, np.int64)  # the NIC that each vertex of a server uses
    slot[gpus], slot[nics] = np.arange(gpus.size) * nics.size // gpus.size, np.arange(nics.size)
    first = -(-np.arange(nics.size) * gpus.size // nics.size)
    helper = gpus[np.minimum(first, gpus.size - 1)]  # of each NIC: a GPU that uses it

    def router(src: Ints, dst: Ints, seed: int | None) -> Walk:
        (home, a), (away, b) = np.divmod(src, size), np.divmod(dst, size)
        if max(home.max(initial=0), away.max(initial=0)) >= servers:
            raise ValueError(f"{name}: flows start and end in servers, not at the fabric's switches")
        near, far = home == away, slot[b]
        via = np.where(pxn & (slot[a] != far), helper[far], a)
        leave = nics[slot[via]]
        plane, start = np.divmod(at[home, slot[via]], hosts)
        goal = at[away, far] % hosts
        stages = [
            (home, server.walk(a, np.where(near, b, via), seed)),
            (home, server.walk(np.where(near, b, via), np.where(near, b, leave), seed)),
            (None, fabric.walk(start, np.where(near, start, goal), seed)),
            (away, server.walk(np.where(near, b, nics[far]), b, seed)),
        ]
        seen, cables = [], []
        for owner, walk in stages:
            moved = place[plane[:, None], walk.vertices] if owner is None else owner[:, None] * size + walk.vertices
            seen.append(np.where(near[:, None], dst[:, None], moved) if owner is None else moved)
            cables += [walk.cables, np.zeros((src.size, 1), np.int64)]
        return Walk(np.concatenate(seen, axis=1), np.concatenate(cables[:-1], axis=1))

    shift = np.arange(servers)[:, None] * size
    src, dst = (
        np.concatenate([(shift + inner).ravel(), place[:, outer].ravel()])
        for inner, outer in ((server.src, fabric.src), (server.dst, fabric.dst))
    )
    rates, delays = (
        np.concatenate([np.tile(inner, servers), np.tile(outer, planes)])
        for inner, outer in ((server.capacity, fabric.capacity), (server.latency, fabric.latency))
    )
    plane_name = [f"plane{q}." if planes > 1 else "" for q in range(planes)]
    names = [f"server{i}.{vertex}" for i in range(servers) for vertex in server.names]
    names += [prefix + vertex for prefix in plane_name for vertex in fabric.names[hosts:]]
    kinds = np.concatenate([np.tile(server.kinds, servers), np.tile(fabric.kinds[hosts:], planes)])
    relay = np.concatenate([np.tile(server.relay | (server.kinds == "nic"), servers), np.ones(planes * switches, bool)])
    return Topology(name, names, kinds, src, dst, rates, delays, router, relay=relay)


def _tree(hosts: int, radix: int, rate: float, latency: float) -> Topology:
    """A fat tree of the fewest levels that holds them; up to ``radix`` hosts share one switch."""
    if hosts <= radix:
        return clos((hosts,), (), None, rate, latency)
    levels = next(n for n in range(2, 9) if 2 * (radix // 2) ** n >= hosts or n == 8)
    return fat_tree(radix, levels, hosts=hosts, rate=rate, latency=latency)


def _servers(gpus: int, server: Topology, name: str) -> int:
    if gpus < 1 or gpus % server.ranks.size:
        raise ValueError(f"{name}: gpus is {gpus}; {server.name} has {server.ranks.size}, so give a multiple of that")
    return gpus // server.ranks.size


def rail_optimized(
    gpus: int,
    server: Callable[[], Topology] = dgx_h100,
    radix: int = 64,
    pxn: bool = False,
    rate: float = NDR,
    latency: float = LATENCY_S,
) -> Topology:
    """A fat tree in which the NICs of one number (a rail) of radix/2 servers share a leaf, as in a DGX SuperPOD.

    It has the fewest levels that hold all NICs: with radix 64 one switch to 64, then two levels to 2,048, three to
    65,536. ``pxn`` as in `cluster`.

    Raises
    ------
    ValueError
        GPUs that do not fill whole servers, or (beyond one switch) servers that do not fill whole leaves.

    >>> t = rail_optimized(256)
    >>> [str(t.names[v]) for v in dict.fromkeys(t.walk("server0.gpu5", "server9.gpu5").vertices[0].tolist())]
    ['server0.gpu5', 'server0.pcie5', 'server0.nic5', 'leaf5', 'server9.nic5', 'server9.pcie5', 'server9.gpu5']
    """
    one, half = server(), radix // 2
    n, nics = _servers(gpus, one, "rail-optimized"), one.vertices("nic").size
    if n * nics > radix and n % half:
        raise ValueError(f"rail-optimized: {n} servers do not fill leaves of {half}; use a multiple, or another radix")
    i, rail = np.indices((n, nics))
    attach = i * nics + rail if n * nics <= radix else ((i // half) * nics + rail) * half + i % half
    fabric = _tree(n * nics, radix, rate, latency)
    return cluster(one, fabric, attach, pxn=pxn, name=f"rail-optimized, {gpus:,} GPUs in {one.name}")


def rail_only(
    gpus: int,
    server: Callable[[], Topology] = dgx_h100,
    radix: int = 64,
    rate: float = NDR,
    latency: float = LATENCY_S,
) -> Topology:
    """A fat tree per rail and none between them: data change rails inside a server (Wang et al., 2023).

    >>> t = rail_only(64)
    >>> t.vertices("leaf").size
    8
    >>> [str(t.names[v]) for v in dict.fromkeys(t.walk("server0.gpu0", "server7.gpu3").vertices[0].tolist())][1:4]
    ['server0.nvswitch0', 'server0.gpu3', 'server0.pcie3']
    """
    one = server()
    n, nics = _servers(gpus, one, "rail-only"), one.vertices("nic").size
    i, rail = np.indices((n, nics))
    plane = _tree(n, radix, rate, latency)
    return cluster(one, plane, rail * n + i, planes=nics, pxn=True, name=f"rail-only, {gpus:,} GPUs in {one.name}")


def llama3_cluster() -> Topology:
    """24,576 H100 as Llama 3 was trained on: racks of 16, pods of 3,072 with full bandwidth inside, 1:7 between pods.

    Racks have twice the uplinks they need. How many switches there are above the racks is not published: 32 a pod and
    8 above each are assumed, with the stated capacity shared out over their cables.

    Source: Llama Team (2024), section 3.3; Gangidi et al. (2024), RDMA over Ethernet for distributed training at Meta.
    """
    above_pods = 3072 * NDR / 7 / (32 * 8)
    fabric = clos((16, 192, 8), (32, 8), rates=(NDR, NDR, above_pods))
    return cluster(dgx_h100(), fabric, np.arange(24576).reshape(3072, 8), name="Llama 3 cluster")

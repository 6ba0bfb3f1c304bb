"""Networks as arrays: the graph, the servers and fabrics it comes in, and what can be measured on it."""

from dthw.topology.graph import Routes, Topology, Walk

__all__ = ["Routes", "Topology", "Walk"]

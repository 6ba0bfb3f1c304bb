"""How long clusters take to build and flows to route, and the memory that takes.

Run: nox -s bench -- topology
"""

import resource
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from dthw.topology import Topology
from dthw.topology.clusters import llama3_cluster, rail_only, rail_optimized
from dthw.topology.fabrics import dragonfly, fat_tree, torus

CASES: dict[str, Callable[[], Topology]] = {
    "rail-optimized, 1,024 GPUs": lambda: rail_optimized(1024),
    "rail-optimized, 16,384 GPUs": lambda: rail_optimized(16384),
    "rail-optimized, 24,576 GPUs": lambda: rail_optimized(24576),
    "rail-only, 16,384 GPUs": lambda: rail_only(16384),
    "Llama 3, 24,576 GPUs": llama3_cluster,
    "fat tree, 65,536 hosts": lambda: fat_tree(64, 3),
    "torus, 4,096 chips": lambda: torus((16, 16, 16)),
    "dragonfly, 262,656 hosts": lambda: dragonfly(32, 16, 16),
}


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The least of several: what the work takes when nothing else gets in the way."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def megabytes(build: Callable[[], Topology]) -> tuple[float, float]:
    """(kept, peak while building and routing one flow per rank)"""
    tracemalloc.start()
    t = build()
    kept, _ = tracemalloc.get_traced_memory()
    t.routes(t.ranks, np.roll(t.ranks, t.ranks.size // 2))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept / 1e6, peak / 1e6


def main() -> None:
    print("one flow per rank, to the rank half way round")
    print(f"{'':<30}{'build s':>9}{'route s':>9}{'MB kept':>9}{'MB peak':>9}{'vertices':>11}{'links':>12}")
    for name, build in CASES.items():
        t = build()
        far = np.roll(t.ranks, t.ranks.size // 2)
        took = seconds(build), seconds(lambda t=t, far=far: t.routes(t.ranks, far))
        kept, peak = megabytes(build)
        print(f"{name:<30}{took[0]:9.2f}{took[1]:9.3f}{kept:9.0f}{peak:9.0f}{len(t.names):11,}{t.src.size:12,}")
    print(f"most memory the process held: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


if __name__ == "__main__":
    main()

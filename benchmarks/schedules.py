"""How long schedules of thousands of ranks take to build, check and verify, and the memory they keep.

Run: nox -s bench -- schedules
"""

import time
import tracemalloc
from collections.abc import Callable
from statistics import median

from dthw.collectives import algorithms
from dthw.collectives.schedule import Schedule
from dthw.collectives.verify import verify


def milliseconds(call: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times) * 1e3


def megabytes(build: Callable[[], Schedule]) -> tuple[float, float]:
    """(kept, peak while building)"""
    tracemalloc.start()
    schedule = build()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert schedule.ranks
    return kept / 1e6, peak / 1e6


def main() -> None:
    p = 16384
    print(f"building for {p:,} ranks (sharded parameter server, whose messages are p squared: 1,024 ranks)")
    print(f"{'':<28}{'ms':>9}{'MB kept':>9}{'MB peak':>9}{'messages':>16}")
    for name, build in algorithms.ALL_REDUCE.items():
        ranks = 1024 if name == "sharded_parameter_server" else p
        kept, peak = megabytes(lambda b=build, r=ranks: b(r))
        took = milliseconds(lambda b=build, r=ranks: b(r))
        print(f"{name:<28}{took:9.1f}{kept:9.2f}{peak:9.2f}{build(ranks).n_messages:16,}")
    print("\nverifying 1,024 ranks")
    for name in ("recursive_doubling", "halving_doubling", "double_binary_tree", "hierarchical", "ring"):
        schedule = algorithms.ALL_REDUCE[name](1024)
        print(f"{name:<28}{milliseconds(lambda s=schedule: verify(s), repeats=3):9.0f} ms")


if __name__ == "__main__":
    main()

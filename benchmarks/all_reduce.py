"""dthw.all_reduce("auto") beside dist.all_reduce on gloo: the ratio of their times, larger is better for dthw.

Both alternate in one loop, the slowest rank counts, a repeat's median stands for the run, and each cell is the median
of three whole runs in fresh processes. Run: nox -s bench -- all_reduce [--save=docs/assets/data/bench-all-reduce.json]
"""

import argparse
import os
import shlex
import sys
from pathlib import Path
from statistics import geometric_mean, median

from dthw import launch
from dthw.measure import results
from dthw.measure.collectives import TORCH, sweep

KIB, MIB = 2**10, 2**20
SIZES = [KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
RANKS = [2, 4, 8]


def label(nbytes: int) -> str:
    return f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // KIB} KiB"


def run(ranks: int, sizes: list[int], algorithm: str) -> dict[int, tuple[float, float]]:
    """Median seconds of (torch, dthw) by size, one whole run."""
    records = launch(sweep, ranks, sizes, [algorithm], timeout=600)[0]
    seconds = {(r["bytes"], r["algorithm"]): median(r["seconds"]) for r in records}
    return {size: (seconds[size, TORCH], seconds[size, algorithm]) for size in sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    parser.add_argument("--max-bytes", type=int, default=SIZES[-1])
    parser.add_argument("--save", type=Path, help="write the cells, with their provenance, as a result file")
    asked = parser.parse_args()
    sizes = [s for s in SIZES if s <= asked.max_bytes]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    print(f"time of dist.all_reduce / time of dthw.all_reduce({asked.algorithm!r}), gloo, float32, {cores} cores")
    print(f"{'size':>8}" + "".join(f"{f'p={p}' + ('*' if p > cores else ''):>24}" for p in asked.ranks))
    cells: dict[tuple[int, int], float] = {}
    records: list[dict[str, object]] = []
    tables = {p: [run(p, sizes, asked.algorithm) for _ in range(asked.runs)] for p in asked.ranks}
    for size in sizes:
        row = f"{label(size):>8}"
        for p in asked.ranks:
            pairs = [t[size] for t in tables[p]]
            theirs, ours = (median(pair[k] for pair in pairs) for k in (0, 1))
            cells[p, size] = median(pair[0] / pair[1] for pair in pairs)
            records.append({"ranks": p, "bytes": size, "torch_s": theirs, "dthw_s": ours, "ratio": cells[p, size]})
            row += f"{theirs * 1e3:9.2f}{ours * 1e3:9.2f}{cells[p, size]:6.2f}"
        print(row)
    print("columns: ms of torch, ms of dthw, ratio; * more ranks than cores")
    for what, chosen in (("up to 256 KiB", lambda s: s <= 256 * KIB), ("above", lambda s: s > 256 * KIB)):
        ratios = [ratio for (_, size), ratio in cells.items() if chosen(size)]
        if ratios:
            print(f"{what}: geometric mean {geometric_mean(ratios):.2f}, worst {min(ratios):.2f}")
    if asked.save:
        results.write(asked.save, records, "benchmarks/all_reduce.py " + shlex.join(sys.argv[1:]))


if __name__ == "__main__":
    main()

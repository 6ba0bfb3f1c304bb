"""Race all-reduce algorithms against torch's own, on a laptop (gloo) or on GPUs (NCCL), from the same file.

One machine:    torchrun --nproc-per-node=4 snippets/all_reduce_race.py
Several nodes:  torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 \
                    snippets/all_reduce_race.py
Slurm:          sbatch snippets/all_reduce_race.sbatch
"""

import argparse
from statistics import median

from dthw.measure.collectives import sweep
from dthw.ranks import process_group

ALGORITHMS = ["ring", "recursive_doubling", "halving_doubling", "double_binary_tree", "hierarchical"]


def race(sizes: list[int], algorithms: list[str]) -> list[str]:
    """One line a size: median milliseconds of the slowest rank, the fastest algorithm starred."""
    lines = [f"{'bytes':>12}" + "".join(f"{name:>20}" for name in ["torch", *algorithms])]
    for size in sizes:
        ms = [median(record["seconds"]) * 1e3 for record in sweep([size], algorithms)]
        cells = (f"{t:.2f}{'*' if t == min(ms) else ' '}" for t in ms)
        lines.append(f"{size:12,}" + "".join(f"{cell:>20}" for cell in cells))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2**10, 2**14, 2**18, 2**22, 2**25], help="bytes")
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    asked = parser.parse_args()
    with process_group() as (rank, _):
        lines = race(asked.sizes, asked.algorithms)
        if rank == 0:
            print("\n".join(lines))


if __name__ == "__main__":
    main()

"""All-reduce on four ranks, in one file that runs unchanged on a laptop and on a GPU node.

    torchrun --nproc-per-node=4 snippets/four_ranks.py

With a GPU for each rank the sum travels over NCCL, otherwise over gloo.
"""

import torch
import torch.distributed as dist

from dthw.ranks import process_group


def main(elements: int = 8) -> list[float]:
    """Give every rank a tensor full of its own number (from 1), add them up, return what this rank holds."""
    with process_group() as (rank, ranks):  # joins a group that is there, or makes one and ends it
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        mine = torch.full((elements,), float(rank + 1), device=device)
        before = mine.tolist()
        dist.all_reduce(mine)
        after = mine.tolist()
        if rank == 0:
            print(f"rank 0 of {ranks} put in {before} and got back {after}")
    return after


if __name__ == "__main__":
    main()

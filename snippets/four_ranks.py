"""All-reduce on four ranks, in one file that runs unchanged on a laptop and on a GPU node.

    torchrun --nproc-per-node=4 snippets/four_ranks.py

With a GPU for each rank the sum travels over NCCL, otherwise over gloo.
"""

import os

import torch
import torch.distributed as dist


def main(elements: int = 8) -> list[float]:
    """Give every rank a tensor full of its own number (from 1), add them up, return what this rank holds."""
    started_here = not dist.is_initialized()
    if started_here:
        # NCCL refuses two ranks on one GPU, so a machine with too few of them uses its CPUs.
        enough_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
        if enough_gpus:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if enough_gpus else "gloo")
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"

    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = torch.full((elements,), float(rank + 1), device=device)
    before = mine.tolist()
    dist.all_reduce(mine)
    after = mine.tolist()
    if rank == 0:
        print(f"rank 0 of {ranks} put in {before} and got back {after}")

    if started_here:
        # A rank that leaves while another still talks to it can take that one down.
        dist.barrier()
        dist.destroy_process_group()
    return after


if __name__ == "__main__":
    main()

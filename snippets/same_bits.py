"""Does a sum depend on how the buffer is split? One all-reduce against two halves, compared bit by bit.

On a laptop: torchrun --nproc-per-node=4 snippets/same_bits.py
"""

import torch
import torch.distributed as dist

import dthw
from dthw.ranks import process_group


def main(elements: int = 1_000_003) -> tuple[float, float, bool]:
    """(share of elements that differ, largest difference, whether all ranks hold the same bits)."""
    draw = torch.Generator().manual_seed(dist.get_rank())
    gradient = torch.rand(elements, generator=draw)
    whole, halves = gradient.clone(), gradient.clone()
    dthw.all_reduce(whole, algorithm="ring")
    for half in halves.tensor_split(2):  # views of one buffer
        dthw.all_reduce(half, algorithm="ring")
    least, most = whole.clone(), whole.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    differs = whole != halves
    return differs.double().mean().item(), (whole - halves).abs().max().item(), torch.equal(least, most)


if __name__ == "__main__":
    with process_group() as (rank, ranks):
        share, worst, agree = main()
        if rank == 0:
            print(f"{ranks} ranks: {share:.1%} of the sums differ, by at most {worst:.1e}; all ranks agree: {agree}")

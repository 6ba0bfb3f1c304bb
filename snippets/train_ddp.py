"""Train a small model with DistributedDataParallel, its gradients reduced by torch or by a schedule of your choice.

On a laptop:          torchrun --nproc-per-node=4 snippets/train_ddp.py --algorithm ring
On two nodes (NCCL):  torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 \
                          snippets/train_ddp.py --algorithm halving_doubling
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dthw
from dthw.ranks import process_group


def train(algorithm: str | None = "auto", steps: int = 20, width: int = 64) -> list[float]:
    """Loss of every step, averaged over ranks. ``algorithm=None`` leaves the reduction to torch."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    torch.manual_seed(0)  # the same model on every rank
    model = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    ddp = DistributedDataParallel(model.to(device), bucket_cap_mb=0.01)  # several buckets even for so small a model
    if algorithm is not None:
        ddp.register_comm_hook(None, dthw.ddp_hook(algorithm))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(48, 16, generator=data)[rank::ranks].to(device)  # each rank takes its share of one global batch
        y = x.sin().sum(dim=1, keepdim=True)
        loss = nn.functional.mse_loss(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()  # gradients are reduced here, not in step()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        losses.append(mean.item() / ranks)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="auto", help="a schedule's name, or 'torch' for torch's own reduction")
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    with process_group() as (rank, ranks):
        losses = train(None if asked.algorithm == "torch" else asked.algorithm, asked.steps)
        if rank == 0:
            first, last = losses[0], losses[-1]
            print(f"{ranks} ranks, {asked.algorithm}: loss {first:.4f} at first, {last:.4f} after {asked.steps} steps")


if __name__ == "__main__":
    main()

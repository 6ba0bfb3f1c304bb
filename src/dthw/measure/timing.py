"""Timing collective calls on ranks: in turn, started together, the slowest rank counts."""

import time
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist


def group_device() -> torch.device:
    """Where the default group's tensors live: the current GPU under NCCL, else the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def in_turn(calls: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 2) -> dict[str, list[float]]:
    """Seconds of each repeat of each call, the maximum over ranks, the calls alternating within one loop.

    A barrier precedes every call, so that all ranks start together; alternating spreads the machine's moods evenly.
    Under NCCL the clock stops when the GPU has finished. Runs inside a rank; every rank gets the same lists.
    """
    device = group_device()

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    seconds = torch.zeros(len(calls), repeats, dtype=torch.float64)
    for repeat in range(-warm_up, repeats):
        for k, call in enumerate(calls.values()):
            dist.barrier()
            finish()
            start = time.perf_counter()
            call()
            finish()
            if repeat >= 0:
                seconds[k, repeat] = time.perf_counter() - start
    seconds = seconds.to(device)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return dict(zip(calls, seconds.tolist(), strict=True))


def repeats_for(nbytes: int, ranks: int) -> int:
    """Repeats that give a steady median without taking minutes: fewer for large buffers, never under 7."""
    return max(7, min(60, 256 * 2**20 // (max(nbytes, 1) * ranks)))

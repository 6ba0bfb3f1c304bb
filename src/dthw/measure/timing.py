"""Timing collective calls on ranks: in turn, started together, the slowest rank counts."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist


def in_turn(calls: dict[str, Callable[[], object]], repeats: int, warm_up: int = 2) -> dict[str, list[float]]:
    """Seconds of each repeat of each call, the maximum over ranks, the calls alternating within one loop.

    A barrier precedes every call, so that all ranks start together; alternating spreads the machine's moods evenly.
    Runs inside a rank; every rank gets the same lists.
    """
    seconds = torch.zeros(len(calls), repeats, dtype=torch.float64)
    for repeat in range(-warm_up, repeats):
        for k, call in enumerate(calls.values()):
            dist.barrier()
            start = time.perf_counter()
            call()
            if repeat >= 0:
                seconds[k, repeat] = time.perf_counter() - start
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return dict(zip(calls, seconds.tolist(), strict=True))


def repeats_for(nbytes: int, ranks: int) -> int:
    """Repeats that give a steady median without taking minutes: fewer for large buffers, never under 7."""
    return max(7, min(60, 256 * 2**20 // (max(nbytes, 1) * ranks)))

"""What the tests of `dthw.all_reduce` run on ranks."""

import os
import signal
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

import dthw
from dthw.collectives.algorithms import ALL_REDUCE
from dthw.collectives.schedule import Schedule, Step

OPS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG")


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def _same_on_all(tensor: torch.Tensor) -> bool:
    everybody: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, hash(_bits(tensor)))
    return len(set(everybody)) == 1


def _input(count: int, dtype: torch.dtype, op: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * dist.get_rank() + count)
    if dtype.is_floating_point:
        # Products of many factors near 1 neither overflow nor vanish.
        values = torch.rand(count, generator=generator, dtype=torch.float64) + 0.5
        return values.to(dtype)
    high = 3 if op == "PRODUCT" else 100
    return torch.randint(-high if dtype != torch.uint8 else 0, high, (count,), generator=generator).to(dtype)


def agree(
    counts: Iterable[int], dtypes: Iterable[torch.dtype], ops: Iterable[str], algorithms: Iterable[str]
) -> list[str]:
    """Compare with torch's own all-reduce for every combination; returns what is wrong."""
    p, wrong = dist.get_world_size(), []
    for count in counts:
        for dtype in dtypes:
            for op in ops:
                if op == "AVG" and not dtype.is_floating_point:
                    continue
                mine = _input(count, dtype, op)
                theirs = mine.clone()
                dist.all_reduce(theirs, op=getattr(dist.ReduceOp, op))
                for name in algorithms:
                    got = mine.clone()
                    before = dthw.counters()
                    dthw.all_reduce(got, op=getattr(dist.ReduceOp, op), algorithm=name)
                    moved = dthw.counters() - before
                    if dtype.is_floating_point:
                        tolerance = p * torch.finfo(dtype).eps
                        right = torch.allclose(got.double(), theirs.double(), rtol=tolerance, atol=0)
                    else:
                        right = torch.equal(got, theirs)
                    what = f"{name} {op} {dtype} count {count}"
                    if not right:
                        wrong.append(f"{what}: differs from dist.all_reduce on rank {dist.get_rank()}")
                    if not _same_on_all(got):
                        wrong.append(f"{what}: ranks end with different bits")
                    if fault := _miscounted(name, p, count, mine.element_size(), moved):
                        wrong.append(f"{what}: {fault}")
    return wrong


def _miscounted(name: str, p: int, count: int, itemsize: int, moved: Any) -> str:
    from dthw.collectives.cost import traffic

    want = traffic(ALL_REDUCE[name](p), count, itemsize)
    expected = tuple(int(column[dist.get_rank()]) for column in want)
    got = (moved.messages_sent, moved.messages_received, moved.bytes_sent, moved.bytes_received)
    return "" if got == expected else f"rank {dist.get_rank()} counted {got}, the formula says {expected}"

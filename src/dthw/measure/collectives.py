"""Real all-reduces, counted and timed; the functions here run inside a rank."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist

import dthw
from dthw.collectives.observe import Counters
from dthw.measure.timing import group_device, in_turn, repeats_for

TORCH = "dist.all_reduce"


def counted(algorithm: str, elements: int) -> Counters:
    """Messages and bytes that this rank moves in one all-reduce of ``elements`` float32 numbers.

    >>> from dthw import launch
    >>> [c.bytes_sent for c in launch("dthw.measure.collectives:counted", 3, "ring", 3000)]
    [16000, 16000, 16000]
    """
    before = dthw.counters()
    dthw.all_reduce(torch.ones(elements, device=group_device()), algorithm=algorithm)
    return dthw.counters() - before


def sweep(sizes: Sequence[int], algorithms: Sequence[str]) -> list[dict[str, object]]:
    """Time all-reduce of ``sizes`` bytes of float32, alternating between torch's own and ``algorithms`` of dthw.

    Returns one record a size and algorithm: seconds of every repeat, and the bytes and messages this rank counted for
    one call (None for torch's own, which does not tell).
    """
    records: list[dict[str, object]] = []
    for nbytes in sizes:
        tensor = torch.zeros(nbytes // 4, device=group_device())  # zeros stay zeros, however often they are summed
        calls: dict[str, Callable[[], object]] = {TORCH: partial(dist.all_reduce, tensor)}
        calls |= {name: partial(dthw.all_reduce, tensor, algorithm=name) for name in algorithms}
        moved = {name: counted(name, nbytes // 4) for name in algorithms}
        for name, seconds in in_turn(calls, repeats_for(nbytes, dist.get_world_size())).items():
            count = moved.get(name)
            records.append(
                {
                    "collective": "all_reduce",
                    "algorithm": name,
                    "ranks": dist.get_world_size(),
                    "bytes": nbytes,
                    "seconds": [round(s, 9) for s in seconds],
                    "bytes_sent": count and count.bytes_sent,
                    "messages_sent": count and count.messages_sent,
                }
            )
    return records

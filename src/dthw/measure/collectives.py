"""Sweeps of all-reduce over sizes; the functions here run inside a rank."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

import dthw
from dthw.measure.timing import in_turn, repeats_for

TORCH = "dist.all_reduce"


def sweep(sizes: Sequence[int], algorithms: Sequence[str]) -> list[dict[str, object]]:
    """Time all-reduce of ``sizes`` bytes of float32, alternating between torch's own and ``algorithms`` of dthw.

    Returns one record a size and algorithm: seconds of every repeat, and the bytes and messages this rank counted for
    one call (None for torch's own, which does not tell).
    """
    records: list[dict[str, object]] = []
    ranks = dist.get_world_size()
    for nbytes in sizes:
        tensor = torch.zeros(nbytes // 4)  # zeros stay zeros, however often they are summed
        calls = {TORCH: lambda t=tensor: dist.all_reduce(t)}
        calls |= {name: lambda t=tensor, a=name: dthw.all_reduce(t, algorithm=a) for name in algorithms}
        counted = {}
        for name in algorithms:
            before = dthw.counters()
            calls[name]()
            counted[name] = dthw.counters() - before
        for name, seconds in in_turn(calls, repeats_for(nbytes, ranks)).items():
            moved = counted.get(name)
            records.append(
                {
                    "collective": "all_reduce",
                    "algorithm": name,
                    "ranks": ranks,
                    "bytes": nbytes,
                    "seconds": seconds,
                    "bytes_sent": moved and moved.bytes_sent,
                    "messages_sent": moved and moved.messages_sent,
                }
            )
    return records

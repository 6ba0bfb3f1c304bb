"""A plan on backends that want a round's messages all at once, such as NCCL: one ``batch_isend_irecv`` a round."""

import time
from collections.abc import Callable
from itertools import groupby

import torch
import torch.distributed as dist

from dthw.collectives import observe
from dthw.collectives.plan import Plan, Turn

Reduction = Callable[..., torch.Tensor]


def run_batches(
    plan: Plan,
    flat: torch.Tensor,
    reduction: Reduction,
    group: dist.ProcessGroup,
    order: tuple[int, ...],
    tag: int,
    moved: list[int],
) -> None:
    """Carry out ``plan`` on ``flat`` in place; a RuntimeError that a round raises tells where, as ``where``."""
    rank = group.rank()
    place = order.index(rank)
    for turn in plan.turns:
        landing = [
            flat[m.lo : m.hi] if m.op == "=" and not turn.guarded else torch.empty_like(flat[m.lo : m.hi])
            for m in turn.receives
        ]
        outgoing = [flat[m.lo : m.hi] for m in turn.sends]
        operations = [dist.P2POp(dist.irecv, box, group=group, group_peer=order[m.peer], tag=tag)
                      for m, box in zip(turn.receives, landing, strict=True)]  # fmt: skip
        operations += [dist.P2POp(dist.isend, box, group=group, group_peer=order[m.peer], tag=tag)
                       for m, box in zip(turn.sends, outgoing, strict=True)]  # fmt: skip
        start = time.monotonic()
        try:
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        except RuntimeError as error:
            peers = sorted({order[m.peer] for m in turn.sends + turn.receives})
            error.where = (turn.number, f"exchanging with rank {', '.join(map(str, peers))}")  # type: ignore[attr-defined]
            raise
        end = time.monotonic()
        _take_in(turn, landing, flat, reduction, place)
        observe.add(
            moved, len(turn.sends), len(turn.receives), *(sum(b.nbytes for b in boxes) for boxes in (outgoing, landing))
        )
        for side, messages, boxes in (("send", turn.sends, outgoing), ("receive", turn.receives, landing)):
            for m, box in zip(messages, boxes, strict=True):
                observe.record(rank, side, turn.number, order[m.peer], m.chunk, m.n_chunks, start, end, box.nbytes)


def _take_in(turn: Turn, landing: list[torch.Tensor], flat: torch.Tensor, reduction: Reduction, place: int) -> None:
    """Add or copy what has arrived; operands by rank, one's own in its place, so that all ranks add in one order."""
    arrived = list(zip(turn.receives, landing, strict=True))
    sums = [(m, box) for m, box in arrived if m.op == "+"]
    for (lo, hi), _ in groupby(sorted((m.lo, m.hi) for m, _ in sums)):
        mine = flat[lo:hi]
        operands = [(m.peer, box) for m, box in sums if (m.lo, m.hi) == (lo, hi)]
        (_, total), *others = sorted([*operands, (place, mine)], key=lambda operand: operand[0])
        for _, operand in others:
            total = reduction(total, operand)
        mine.copy_(total)
    for m, box in arrived:
        if m.op == "=" and turn.guarded:
            flat[m.lo : m.hi].copy_(box)

"""What the tests of `dthw.all_reduce` run on ranks."""

import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import dthw
from dthw.collectives.algorithms import ALL_REDUCE
from dthw.collectives.batches import run_batches
from dthw.collectives.cost import traffic
from dthw.collectives.execute import CollectiveFailed, Engine
from dthw.collectives.plan import compile_plan
from dthw.collectives.run import find_schedule
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
    want = traffic(find_schedule(name, p, count * itemsize), count, itemsize)
    expected = tuple(int(column[dist.get_rank()]) for column in want)
    got = (moved.messages_sent, moved.messages_received, moved.bytes_sent, moved.bytes_received)
    return "" if got == expected else f"rank {dist.get_rank()} counted {got}, the formula says {expected}"


def views() -> list[str]:
    """Strided tensors get the right sums and leave their neighbours alone."""
    wrong, p = [], dist.get_world_size()
    factor = p * (p + 1) / 2
    for name in ("ring", "halving_doubling", "auto"):
        base = torch.arange(1.0, 13.0).view(4, 3)
        for what, pick in {
            "column": lambda m: m[:, 1],
            "transposed": lambda m: m.t(),
            "every other row": lambda m: m[::2],
            "0-dim": lambda m: m[2, 1],
        }.items():
            matrix = (dist.get_rank() + 1) * base
            inside = torch.zeros(4, 3, dtype=torch.bool)
            pick(inside)[...] = True
            expected = torch.where(inside, factor * base, matrix)
            dthw.all_reduce(pick(matrix), algorithm=name)
            if not torch.equal(matrix, expected):
                wrong.append(f"{name}, {what}: {matrix.tolist()}")
        leaf = torch.ones(3, requires_grad=True)
        dthw.all_reduce(leaf, algorithm=name)
        if leaf.tolist() != [p] * 3 or not leaf.requires_grad:
            wrong.append(f"{name}: a leaf that requires grad became {leaf}")
        z = torch.tensor([1 + 2j, 3j])
        dthw.all_reduce(z, algorithm=name)
        if z.tolist() != [p * (1 + 2j), p * 3j]:
            wrong.append(f"{name}: complex sum {z.tolist()}")
    return wrong


def same_bits() -> list[str]:
    """Values whose result depends on the order of the operands: every rank must still end with the same bits."""
    wrong = []
    awkward = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e30, 1.0, -1e30]
    rank = dist.get_rank()
    for name in ALL_REDUCE:
        for op in ("SUM", "MIN", "MAX", "PRODUCT"):
            mine = torch.tensor([awkward[(k * (rank + 1) + rank) % 8] for k in range(64)])
            dthw.all_reduce(mine, op=getattr(dist.ReduceOp, op), algorithm=name)
            if not _same_on_all(mine):
                wrong.append(f"{name} {op}")
    return wrong


def subgroups() -> list[str]:
    """Two groups of a world of five, with ranks that are not their global ranks, at work at the same time."""
    wrong, rank = [], dist.get_rank()
    members = [[4, 2, 0], [1, 3]]
    groups = [dist.new_group(members[0]), dist.new_group(members[1], backend="cpu:gloo")]
    for m, group in zip(members, groups, strict=True):
        if rank in m:
            for name in ("ring", "recursive_doubling", "parameter_server", "auto"):
                x = torch.full((7,), float(10**rank))
                dthw.all_reduce(x, group=group, algorithm=name)
                if x.tolist() != [float(sum(10**r for r in m))] * 7:
                    wrong.append(f"{name} in {m}: {x.tolist()}")
    stranger = groups[1 if rank in members[0] else 0]
    try:
        dthw.all_reduce(torch.ones(2), group=stranger)
        wrong.append(f"rank {rank} was let into a group it is not in")
    except ValueError as error:
        if "not in the group" not in str(error):
            wrong.append(str(error))
    return wrong


def asynchronous() -> list[str]:
    """Queued calls, in order, together with synchronous ones and the caller's own messages between the same ranks."""
    wrong, rank, p = [], dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((n,), float(rank + 1)) for n in (5, 100_000, 0, 3)]
    works = [dthw.all_reduce(t, async_op=True, algorithm="ring") for t in tensors]
    own, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    sending, receiving = dist.isend(own, (rank + 1) % p), dist.irecv(theirs, (rank - 1) % p)
    now = torch.ones(4)
    dthw.all_reduce(now, algorithm="halving_doubling")
    for work, tensor in zip(works, tensors, strict=True):
        if work is None or not work.wait() or not work.is_completed() or work.exception() is not None:
            wrong.append("a queued call did not complete")
        elif not torch.equal(tensor, torch.full_like(tensor, p * (p + 1) / 2)):
            wrong.append(f"queued call of {tensor.numel()} elements: {tensor[:3].tolist()}")
        elif work.get_future().wait() is not tensor and not torch.equal(work.get_future().wait(), tensor):
            wrong.append("the future holds another tensor")
    sending.wait(), receiving.wait()
    if theirs.item() != (rank - 1) % p or now.tolist() != [p] * 4:
        wrong.append(f"mixed up with other messages: {theirs.item()}, {now.tolist()}")
    return wrong


def in_batches() -> list[str]:
    """The code path of other backends (one batch_isend_irecv a round), which gloo can run too."""
    wrong, p, rank = [], dist.get_world_size(), dist.get_rank()
    engine = Engine.of(None)
    for name, build in ALL_REDUCE.items():
        for count in (0, 1, p + 1, 1000):
            x = _input(count, torch.int64, "SUM")
            expected = x.clone()
            dist.all_reduce(expected)
            schedule, order = build(p), tuple(range(p))
            before = dthw.counters()
            run_batches(
                compile_plan(schedule, order, rank, count, 8), x, torch.add, engine.group, order, 7, engine.moved
            )
            if not torch.equal(x, expected):
                wrong.append(f"{name} count {count}")
            if fault := _miscounted(name, p, count, 8, dthw.counters() - before):
                wrong.append(f"{name} count {count}: {fault}")
    return wrong


def renamed(order: list[int]) -> tuple[list[int], list[int]]:
    """(result, peers this rank sent to) of a ring in the given order."""
    x = torch.tensor([10 ** dist.get_rank()])
    with dthw.trace() as seen:
        dthw.all_reduce(torch.ones(100), algorithm="ring", order=order)
    dthw.all_reduce(x, algorithm="recursive_doubling", order=order)
    return x.tolist(), sorted({e.dst for e in seen.events if e.side == "send"})


def traced(algorithm: str, count: int) -> list[dict[str, Any]]:
    x = torch.ones(count)
    with dthw.trace() as seen:
        dthw.all_reduce(x, algorithm=algorithm)
    dthw.all_reduce(x, algorithm=algorithm)  # no longer recorded
    return seen.as_dicts()


def refusals() -> dict[str, str]:
    """What is refused, with which error; nothing is sent, so the group still works afterwards."""
    ones = torch.ones(4)
    attempts: dict[str, Any] = {
        "not a tensor": lambda: dthw.all_reduce([1.0]),
        "op": lambda: dthw.all_reduce(ones, op="sum"),
        "premul": lambda: dthw.all_reduce(ones, op=dist._make_nccl_premul_sum(2.0)),
        "algorithm": lambda: dthw.all_reduce(ones, algorithm="rign"),
        "other size": lambda: dthw.all_reduce(ones, algorithm=ALL_REDUCE["ring"](dist.get_world_size() + 1)),
        "other collective": lambda: dthw.all_reduce(
            ones, algorithm=Schedule(dist.get_world_size(), 1, [Step(0, 1, 0, op="=")], collective="broadcast")
        ),
        "not a schedule": lambda: dthw.all_reduce(ones, algorithm=lambda p: p),
        "sparse": lambda: dthw.all_reduce(torch.eye(2).to_sparse()),
        "meta": lambda: dthw.all_reduce(torch.empty(3, device="meta")),
        "expanded": lambda: dthw.all_reduce(torch.ones(1).expand(3)),
        "integer AVG": lambda: dthw.all_reduce(torch.ones(3, dtype=torch.int64), op=dist.ReduceOp.AVG),
        "BAND of floats": lambda: dthw.all_reduce(ones, op=dist.ReduceOp.BAND),
        "complex MAX": lambda: dthw.all_reduce(torch.ones(2, dtype=torch.complex64), op=dist.ReduceOp.MAX),
        "float8": lambda: dthw.all_reduce(ones.to(torch.float8_e4m3fn)),
        "order": lambda: dthw.all_reduce(ones, order=[0, 0]),
        "group": lambda: dthw.all_reduce(ones, group=3),
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            said[name] = "accepted"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    dthw.all_reduce(ones)
    said["afterwards"] = str(ones.tolist() == [dist.get_world_size()] * 4)
    return said


def disagree(what: str) -> str:
    """Rank 1 asks for something else, with debug=True; what each rank is told."""
    odd = dist.get_rank() == 1
    tensor = torch.ones(5 if odd and what == "shape" else 4, dtype=torch.float64 if odd and what == "dtype" else None)
    op = dist.ReduceOp.MAX if odd and what == "op" else dist.ReduceOp.SUM
    algorithm = "recursive_doubling" if odd and what == "schedule" else "ring"
    try:
        dthw.all_reduce(tensor, op=op, algorithm=algorithm, debug=True)
    except ValueError as error:
        agreed = torch.ones(3)
        dthw.all_reduce(agreed, algorithm="ring", debug=True)
        return str(error) if agreed.tolist() == [dist.get_world_size()] * 3 else "the group broke"
    return "nothing was said"


def mismatched() -> None:
    """Rank 1 sends more than the others expect, without debug."""
    dthw.all_reduce(torch.ones(4000 if dist.get_rank() == 1 else 4), algorithm="ring")


def bereaved(algorithm: str, how: str, count: int, notes: str, when: int = 5) -> None:
    """The last rank dies or stops in the middle of a run of all-reduces; the others write down what they see."""
    rank, p = dist.get_rank(), dist.get_world_size()
    bystander = torch.arange(50.0)
    x = torch.ones(count)
    for k in range(10_000):
        if rank == p - 1 and k == when:
            os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        x.fill_(1.0)
        try:
            dthw.all_reduce(x, algorithm=algorithm)
        except CollectiveFailed as error:
            again = ""
            try:
                dthw.all_reduce(torch.ones(2))
            except CollectiveFailed as second:
                again = str(second)
            seen = {"error": str(error), "again": again, "bystander": torch.equal(bystander, torch.arange(50.0))}
            Path(notes, f"{rank}.json").write_text(json.dumps(seen))
            raise


def on_gpus() -> list[str]:
    """NCCL: sums, averages, an asynchronous call and a DDP bucket's future, on the current GPU of each rank."""
    wrong, p, rank = [], dist.get_world_size(), dist.get_rank()
    for name in (*ALL_REDUCE, "auto"):
        for count in (0, 1, p + 1, 100_003):
            x = _input(count, torch.float32, "SUM").cuda()
            expected = x.clone()
            dist.all_reduce(expected)
            before = dthw.counters()
            work = dthw.all_reduce(x, algorithm=name, async_op=True)
            assert work is not None
            if not torch.allclose(work.get_future().wait(), expected, rtol=p * 1e-7, atol=0):
                wrong.append(f"{name} count {count}: differs on rank {rank}")
            if fault := _miscounted(name, p, count, 4, dthw.counters() - before):
                wrong.append(f"{name} count {count}: {fault}")
    return wrong

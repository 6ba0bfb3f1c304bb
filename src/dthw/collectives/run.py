"""All-reduce for real: a schedule carried out over ``torch.distributed`` point-to-point messages."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from typing import Any

import torch
import torch.distributed as dist

from dthw.collectives.algorithms import ALL_REDUCE
from dthw.collectives.auto import choose
from dthw.collectives.cost import Port
from dthw.collectives.execute import Call, CollectiveFailed, Engine, Work
from dthw.collectives.schedule import Schedule

__all__ = ["CollectiveFailed", "all_reduce", "find_schedule"]

Algorithm = str | Schedule | Callable[[int], Schedule]

_REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,  # divided by the number of ranks at the end
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def all_reduce(
    tensor: torch.Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    algorithm: Algorithm = "auto",
    topology: Port | None = None,
    order: Sequence[int] | None = None,
    debug: bool = False,
) -> Work | None:
    """Reduce ``tensor`` over all ranks of ``group``, in place; every rank ends with the same bits.

    A drop-in for `torch.distributed.all_reduce` that lets you choose, and count, what goes over the wire.

    Parameters
    ----------
    tensor : torch.Tensor
        Any shape and stride, the same number of elements and dtype on every rank. Strided views are right, and their
        neighbours are left alone; complex tensors can be summed and averaged.
    op : torch.distributed.ReduceOp
        SUM, PRODUCT, MIN, MAX, AVG (floating point; summed first, then divided), BAND, BOR, BXOR (integers).
    group : ProcessGroup, optional
        Default: the default group. Peers are the group's own ranks.
    async_op : bool
        True: return a `Work` at once. Calls on one group are carried out in the order in which they were made.
    algorithm : str, Schedule or callable
        A name of `dthw.collectives.algorithms.ALL_REDUCE`, "auto" (see `dthw.collectives.auto`), a schedule for this
        number of ranks, or a function from a number of ranks to one.
    topology : Port, optional
        What "auto" is to assume of the network; default: constants fitted on local gloo runs.
    order : sequence of int, optional
        order[i] is the group rank that plays rank i of the schedule; default: 0, 1, 2, ...
    debug : bool
        True: first compare shape, dtype, op and schedule on all ranks, and raise on all of them where they differ.
        Without it a mismatch is for the transport to find: gloo aborts the process that receives a message longer than
        it expects (`dthw.launch` then reports the signal) and silently accepts a shorter one.

    Returns
    -------
    None, or a `Work` when ``async_op``.

    Raises
    ------
    TypeError
        ``tensor`` is no tensor, ``op`` no ReduceOp.
    ValueError
        Unknown algorithm; schedule for another number of ranks; no process group; this rank is not in ``group``; sparse
        or meta tensor; an operation that complex tensors do not have; ``debug`` found the ranks to disagree.
    RuntimeError
        What torch refuses with one too (AVG of integers, bit operations on floats, PREMUL_SUM).
    CollectiveFailed
        A RuntimeError: a peer died or did not answer within the group's timeout. The group is unusable from then on.

    Notes
    -----
    Cost: as the schedule says. The plan is compiled once per (schedule, rank, count, size of an element) and cached.
    On gloo, receives are posted before sends and ahead of time; with any other backend each round is one
    ``batch_isend_irecv``.

    Floats are added in the order that the schedule gives: results may differ between algorithms in the last bits, never
    between ranks.

    Examples
    --------
    Inside a process of ``torchrun`` or `dthw.launch`::

        dthw.all_reduce(gradient, op=dist.ReduceOp.AVG, algorithm="halving_doubling")
    """
    engine = Engine.of(group)
    _check_tensor(tensor)
    key = (algorithm, op, tensor.dtype, tensor.numel(), topology, order if order is None else tuple(order))
    call = engine.calls.get(key)
    if call is None:
        name = _check_operation(op, tensor.dtype)
        places = _check_order(order, engine.size)
        schedule = find_schedule(algorithm, engine.size, tensor.numel() * tensor.element_size(), topology)
        call = Call(schedule, _REDUCTIONS[name], name, places)
        engine.remember(key, call)
    if debug:
        _compare(engine, tensor, call)
    return engine.submit(tensor, call, async_op)


def find_schedule(algorithm: Algorithm, ranks: int, nbytes: int, topology: Port | None = None) -> Schedule:
    """The schedule that ``algorithm`` stands for on ``ranks`` ranks and ``nbytes`` bytes.

    Raises ValueError where it is unknown, for another number of ranks, or not an all-reduce.
    """
    if isinstance(algorithm, str):
        key = algorithm.replace("-", "_").replace(" ", "_")
        if key == "auto":
            key = choose(ranks, nbytes, topology)
        if key not in ALL_REDUCE:
            near = get_close_matches(key, ALL_REDUCE, n=2, cutoff=0.4)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(f"algorithm is {algorithm!r}{hint} Known: auto, {', '.join(ALL_REDUCE)}")
        return _build(ALL_REDUCE[key], ranks)
    schedule = algorithm if isinstance(algorithm, Schedule) else _build(algorithm, ranks)
    if not isinstance(schedule, Schedule):
        raise TypeError(
            f"algorithm returned {type(schedule).__name__}; it must return a Schedule for a number of ranks"
        )
    if schedule.ranks != ranks:
        raise ValueError(
            f"{schedule.name} is for {schedule.ranks} ranks, but the group has {ranks}; build it for {ranks}"
        )
    if schedule.collective != "all_reduce":
        raise ValueError(
            f"{schedule.name} achieves {schedule.collective}; all_reduce needs a schedule that achieves all_reduce"
        )
    return schedule


@lru_cache(maxsize=256)
def _build(builder: Callable[[int], Schedule], ranks: int) -> Schedule:
    return builder(ranks)


def _check_tensor(tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"tensor is a {type(tensor).__name__}; all_reduce needs a torch.Tensor")
    if tensor.layout != torch.strided:
        raise ValueError(f"tensor has layout {tensor.layout}; all_reduce needs a dense one: call .to_dense() first")
    if tensor.is_meta:
        raise ValueError("tensor is on the meta device and holds no data; move it to a real device first")
    # Not to be asked of sparse or meta tensors, hence last.
    if not tensor.is_contiguous() and torch._debug_has_internal_overlap(tensor) == 1:
        raise RuntimeError(
            "tensor is expanded: several of its elements share one place in memory; call .contiguous() first"
        )


def _check_operation(op: Any, dtype: torch.dtype) -> str:
    """The name of the operation, once it is known to go with the dtype."""
    known = [name for name in _REDUCTIONS if op == getattr(dist.ReduceOp, name)]
    if not known:
        if isinstance(op, dist.ReduceOp | dist.ReduceOp.RedOpType):
            raise RuntimeError(f"op is {op}; all_reduce knows {', '.join(_REDUCTIONS)}")
        raise TypeError(f"op is {op!r}; it must be a torch.distributed.ReduceOp such as ReduceOp.SUM")
    name = known[0]
    if dtype.is_complex and name not in ("SUM", "AVG"):
        raise ValueError(f"all_reduce does not support {name} on complex tensors, only SUM and AVG")
    if name == "AVG" and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"AVG of {dtype} would not be a whole number; sum, or convert to a floating-point type")
    _check_reducible(name, dtype)
    return name


@lru_cache(maxsize=256)
def _check_reducible(name: str, dtype: torch.dtype) -> None:
    """Refuse an operation that this dtype lacks before any message is sent."""
    try:
        probe = torch.ones(1, dtype=dtype)
        _REDUCTIONS[name](probe, probe, out=probe)
    except RuntimeError as error:
        raise RuntimeError(f"cannot use ReduceOp.{name} with {dtype}: {str(error).splitlines()[0]}") from None


def _check_order(order: Sequence[int] | None, ranks: int) -> tuple[int, ...]:
    if order is None:
        return tuple(range(ranks))
    if sorted(order) != list(range(ranks)):
        raise ValueError(f"order is {list(order)}; it must name each of the ranks 0 to {ranks - 1} once")
    return tuple(order)


@lru_cache(maxsize=256)
def _digest(schedule: Schedule) -> str:
    digest = sha256(f"{schedule.ranks} {schedule.chunks}".encode())
    for row in schedule.rows:
        digest.update(f"{row.times} {row.wrap}".encode())
        for array in (row.src, row.dst, row.lo, row.n, row.op, row.shift, row.base, row.span):
            digest.update(array.tobytes())
    return digest.hexdigest()[:12]


def _compare(engine: Engine, tensor: torch.Tensor, call: Call) -> None:
    """Raise the same ValueError on every rank unless all ranks ask for the same thing."""
    mine = {"shape": tuple(tensor.shape), "dtype": str(tensor.dtype), "op": call.name,
            "schedule": f"{call.schedule.name} ({_digest(call.schedule)})", "order": call.order}  # fmt: skip
    theirs: list[Any] = [None] * engine.size
    dist.all_gather_object(theirs, mine, group=engine.group)
    odd = [key for key in mine if any(asked[key] != theirs[0][key] for asked in theirs)]
    if odd:
        lines = [f"  rank {r}: " + ", ".join(f"{key} {asked[key]}" for key in odd) for r, asked in enumerate(theirs)]
        raise ValueError(
            "\n".join([f"the ranks ask for different things ({', '.join(odd)}); nothing was sent:", *lines])
        )

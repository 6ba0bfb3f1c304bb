"""The engine under `dthw.all_reduce`: runs plans on one process group, one after the other."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from dthw.collectives import observe
from dthw.collectives.observe import Event
from dthw.collectives.plan import ADD, COPY, GOT, POST, SEND, Message, Plan, compile_plan
from dthw.collectives.schedule import Schedule

TAG = 0x64746877  # keeps these messages apart from the caller's own point-to-point traffic

Reduction = Callable[..., torch.Tensor]


class CollectiveFailed(RuntimeError):
    """A collective that could not be finished: a peer died, or did not answer within the group's timeout."""


class Work:
    """A handle like torch's: ``wait``, ``is_completed``, ``exception``, ``get_future``."""

    def __init__(self, done: "Future[torch.Tensor]") -> None:
        self._done = done

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Block until the tensor holds the result, or raise what went wrong; TimeoutError after ``timeout`` seconds."""
        self._done.result(timeout.total_seconds() if isinstance(timeout, timedelta) else timeout)
        return True

    def is_completed(self) -> bool:
        """Whether `wait` would return or raise at once."""
        return self._done.done()

    def exception(self) -> BaseException | None:
        """What went wrong, if the call has ended and anything did."""
        return self._done.exception() if self._done.done() else None

    def get_future(self) -> "torch.futures.Future[torch.Tensor]":
        """A torch future of the tensor, as communication hooks of DDP return it."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

        def hand_over(done: "Future[torch.Tensor]") -> None:
            error = done.exception()
            if error is not None:
                future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            else:
                future.set_result(done.result())

        self._done.add_done_callback(hand_over)
        return future


@dataclass(frozen=True, eq=False)
class Call:
    """What one kind of call comes down to; the plan follows from the tensor."""

    schedule: Schedule
    reduction: Reduction
    name: str  # of the operation
    order: tuple[int, ...]


class Engine:
    """What one process keeps for one process group: scratch memory, views of it, and the queue of asynchronous calls."""

    _all: "WeakKeyDictionary[dist.ProcessGroup, Engine]" = WeakKeyDictionary()

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = group.rank(), group.size()
        self.gloo = dist.get_backend(group) == "gloo"
        self.failure: str | None = None
        self.lock = threading.Lock()
        self.queue: ThreadPoolExecutor | None = None
        self.last: Future[torch.Tensor] | None = None
        self.calls: dict[Any, Call] = {}
        self.scratch: dict[torch.dtype, torch.Tensor] = {}
        self.scratch_boxes: dict[tuple[int, torch.dtype], tuple[Plan, list[list[torch.Tensor]]]] = {}
        self.graveyard: list[Any] = []

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> "Engine":
        """The engine of a group; raises ValueError where there is no group or this rank is not in it."""
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError("this rank is not in the group; only its members may call all_reduce on it")
        found = group if group is not None else dist.distributed_c10d._get_default_group()
        if not isinstance(found, dist.ProcessGroup):
            raise TypeError(f"group is a {type(found).__name__}; it must be a torch.distributed.ProcessGroup")
        if found not in dist.distributed_c10d._world.pg_map:
            raise ValueError("the process group has been destroyed; create a new one")
        engine = cls._all.get(found)
        if engine is None:
            engine = cls._all[found] = cls(found)
        return engine

    def remember(self, key: Any, call: Call) -> None:
        """Keep a call that has been checked; a program that makes new ones for ever keeps only the latest."""
        if len(self.calls) >= 1024:
            self.calls.clear()
        self.calls[key] = call

    def submit(self, tensor: torch.Tensor, call: Call, async_op: bool) -> Work | None:
        """Carry out one all-reduce now, or queue it; calls keep their order."""
        if self.failure:
            raise CollectiveFailed(self.failure)
        if async_op and tensor.device.type == "cpu":
            if self.queue is None:
                self.queue = ThreadPoolExecutor(1, thread_name_prefix="dthw-all-reduce")
            self.last = self.queue.submit(self._reduce, tensor, call)
            return Work(self.last)
        if self.last is not None:
            self.last.exception()  # a queued call comes first; its error, if any, is for its own handle
            self.last = None
        self._reduce(tensor, call)
        if not async_op:
            return None
        # A GPU's stream is a queue by its nature: what was put there is in order, and the caller's stream waits for it.
        done: Future[torch.Tensor] = Future()
        done.set_result(tensor)
        return Work(done)

    def _reduce(self, tensor: torch.Tensor, call: Call) -> torch.Tensor:
        with self.lock:
            if self.failure:
                raise CollectiveFailed(self.failure)
            real = tensor.detach()
            if real.is_complex():
                real = torch.view_as_real(real)
            flat = real.contiguous().view(-1)
            plan = compile_plan(call.schedule, call.order, self.rank, flat.numel(), flat.element_size())
            if self.gloo and flat.device.type == "cpu":
                self._stream(plan, flat, call)
            else:
                self._batches(plan, flat, call)
            if call.name == "AVG":
                flat.div_(self.size)
            if not real.is_contiguous():
                real.copy_(flat.view(real.shape))
        return tensor

    # -- gloo: the compiled program -----------------------------------------------------------------------------------

    def _boxes(self, plan: Plan, flat: torch.Tensor) -> list[list[torch.Tensor]]:
        """Every view of the plan in a list of its own, as ``send`` and ``recv`` take them."""
        count = flat.numel()
        mine = [[flat if hi - lo == count else flat[lo:hi]] for lo, hi in plan.buffer_views]
        if not plan.scratch_views:
            return mine
        scratch = self.scratch.get(flat.dtype)
        if scratch is None or scratch.numel() < plan.scratch_size:
            scratch = self.scratch[flat.dtype] = torch.empty(plan.scratch_size, dtype=flat.dtype)
            self.scratch_boxes.clear()
        kept = self.scratch_boxes.get((id(plan), flat.dtype))
        if kept is None:  # the plan is kept beside its views, so that its id stays its own
            kept = self.scratch_boxes[id(plan), flat.dtype] = (plan, [[scratch[lo:hi]] for lo, hi in plan.scratch_views])
        return mine + kept[1]

    def _stream(self, plan: Plan, flat: torch.Tensor, call: Call) -> None:
        reduction = call.reduction
        boxes = self._boxes(plan, flat)
        size = [box[0].nbytes for box in boxes]
        send, receive = self.group.send, self.group.recv
        recorder = None
        if observe.active_traces():
            recorder = Recorder(self.group, plan)
            send, receive = recorder.send, recorder.receive
        sent: list[Any] = [None] * len(plan.sends)
        got: list[Any] = [None] * len(plan.receives)
        out = into = out_bytes = into_bytes = 0
        code = a = 0
        try:
            for code, a, b, c in plan.program:
                if code == GOT:
                    got[a].wait()
                    into += plan.receives[a].first
                    into_bytes += size[b]
                elif code == ADD:
                    mine, theirs = boxes[a][0], boxes[b][0]
                    if c:
                        reduction(theirs, mine, out=mine)
                    else:
                        reduction(mine, theirs, out=mine)
                elif code == POST:
                    got[a] = receive(boxes[b], c, TAG)
                elif code == SEND:
                    sent[a] = send(boxes[b], c, TAG)
                    out += plan.sends[a].first
                    out_bytes += size[b]
                elif code == COPY:
                    boxes[a][0].copy_(boxes[b][0])
                else:
                    sent[a].wait()
        except RuntimeError as error:
            receiving = code in (POST, GOT)
            label = plan.receives[a] if receiving else plan.sends[a]
            # What is still posted may yet be written to: keep it alive.
            self.graveyard.append((boxes, sent, got))
            self._fail(error, call.schedule, label.round, f"{'receiving from' if receiving else 'sending to'} rank {label.peer}")
        finally:
            observe.count(out, into, out_bytes, into_bytes)
            if recorder:
                recorder.hand_over()

    # -- any other backend: one batch a round -------------------------------------------------------------------------

    def _batches(self, plan: Plan, flat: torch.Tensor, call: Call) -> None:
        order, place = call.order, call.order.index(self.rank)
        for turn in plan.turns:
            landing = [
                flat[m.lo : m.hi] if m.op == "=" and not turn.guarded else torch.empty_like(flat[m.lo : m.hi])
                for m in turn.receives
            ]
            operations = [dist.P2POp(dist.irecv, box, group=self.group, group_peer=order[m.peer], tag=TAG)
                          for m, box in zip(turn.receives, landing, strict=True)]  # fmt: skip
            operations += [dist.P2POp(dist.isend, flat[m.lo : m.hi], group=self.group, group_peer=order[m.peer], tag=TAG)
                           for m in turn.sends]  # fmt: skip
            start = time.monotonic()
            try:
                for work in dist.batch_isend_irecv(operations):
                    work.wait()
            except RuntimeError as error:
                self.graveyard.append((operations, flat))
                peers = sorted({order[m.peer] for m in turn.sends + turn.receives})
                self._fail(error, call.schedule, turn.number, f"exchanging with rank {', '.join(map(str, peers))}")
            end = time.monotonic()
            arrived = list(zip(turn.receives, landing, strict=True))
            sums = [(m, box) for m, box in arrived if m.op == "+"]
            for (lo, hi), _ in groupby(sorted((m.lo, m.hi) for m, _ in sums)):
                mine = flat[lo:hi]
                # By rank, this one's own operand in its place: all ranks add in the same order.
                operands = sorted([(m.peer, box) for m, box in sums if (m.lo, m.hi) == (lo, hi)] + [(place, mine)],
                                  key=lambda operand: operand[0])  # fmt: skip
                total = operands[0][1]
                for _, operand in operands[1:]:
                    total = call.reduction(total, operand)
                mine.copy_(total)
            for m, box in arrived:
                if m.op == "=" and turn.guarded:
                    flat[m.lo : m.hi].copy_(box)
            sent, got = (sum(m.hi - m.lo for m in ms) * flat.element_size() for ms in (turn.sends, turn.receives))
            observe.count(len(turn.sends), len(turn.receives), sent, got)
            for side, messages in (("send", turn.sends), ("receive", turn.receives)):
                for m in messages:
                    observe.record(_event(self.rank, side, turn.number, order[m.peer], m, start, end,
                                          (m.hi - m.lo) * flat.element_size()))  # fmt: skip

    def _fail(self, error: RuntimeError, schedule: Schedule, number: int, doing: str) -> None:
        self.failure = (
            f"all_reduce by {schedule.name} failed on rank {self.rank} of {self.size} in round {number} of "
            f"{schedule.n_rounds}, {doing}: {str(error).splitlines()[0]}. A peer has died or did not answer within the "
            "group's timeout; this process group is of no further use: destroy it and start again."
        )
        raise CollectiveFailed(self.failure) from error


def _event(rank: int, side: str, number: int, peer: int, m: Message, start: float, end: float, nbytes: int) -> Event:
    src, dst = (rank, peer) if side == "send" else (peer, rank)
    return Event(rank, side, number, start, end, src, dst, m.chunk, m.n_chunks, nbytes)


class Recorder:
    """Stands between the engine and the group while a trace is active, and notes when messages begin and end."""

    def __init__(self, group: dist.ProcessGroup, plan: Plan) -> None:
        self.group, self.plan = group, plan
        self.seen: dict[tuple[str, int], list[float]] = {}  # (side, number of the piece) -> [start, end, bytes]
        self.posted = {"send": 0, "receive": 0}

    def send(self, box: list[torch.Tensor], peer: int, tag: int) -> "_Timed":
        return self._timed("send", self.group.send, box, peer, tag)

    def receive(self, box: list[torch.Tensor], peer: int, tag: int) -> "_Timed":
        return self._timed("receive", self.group.recv, box, peer, tag)

    def _timed(self, side: str, post: Callable[..., Any], box: list[torch.Tensor], peer: int, tag: int) -> "_Timed":
        key = (side, self.posted[side])
        self.posted[side] += 1
        self.seen[key] = [time.monotonic(), float("nan"), box[0].nbytes]
        return _Timed(post(box, peer, tag), self.seen[key])

    def hand_over(self) -> None:
        """Join the pieces of each message and give the events to the active traces."""
        for side, labels in (("send", self.plan.sends), ("receive", self.plan.receives)):
            events: list[Event] = []
            for number, label in enumerate(labels):
                if (side, number) not in self.seen:
                    break
                start, end, nbytes = self.seen[side, number]
                if label.first:
                    events.append(_event(self.group.rank(), side, label.round, label.peer, label.message, start, end,
                                         int(nbytes)))  # fmt: skip
                else:
                    last = events.pop()
                    events.append(last._replace(end=end, bytes=last.bytes + int(nbytes)))
            for event in events:
                observe.record(event)


class _Timed:
    """A torch ``Work`` that notes the time at which waiting for it ended."""

    def __init__(self, work: Any, note: list[float]) -> None:
        self.work, self.note = work, note

    def wait(self) -> None:
        self.work.wait()
        self.note[1] = time.monotonic()

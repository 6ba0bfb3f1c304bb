"""The engine under `dthw.all_reduce`: runs plans on one process group, one after the other."""

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from dthw.collectives import observe
from dthw.collectives.batches import run_batches
from dthw.collectives.observe import Recorder
from dthw.collectives.plan import ADD, COPY, GOT, POST, SEND, Plan, compile_plan
from dthw.collectives.schedule import Schedule

TAG = 0x64746877  # keeps these messages apart from the caller's own point-to-point traffic

Reduction = Callable[..., torch.Tensor]


class CollectiveFailed(RuntimeError):
    """A collective that could not be finished: a peer died, or did not answer within the group's timeout."""


def _gloo_of(group: dist.ProcessGroup) -> Any:
    """The group's gloo backend for CPU tensors, None if it has another.

    Asking the backend itself finds gloo also in a group of several backends, and saves each message a pass through
    torch's dispatcher.
    """
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return None
    return backend if backend.name() == "gloo" else None


class Work:
    """A handle like torch's: ``wait``, ``is_completed``, ``exception``, ``get_future``."""

    def __init__(self, done: "Future[torch.Tensor]", device: torch.device) -> None:
        self._done, self._device = done, device

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
        # A future must be told of the GPU whose tensor it will hold.
        devices: list[int | str | torch.device] | None = [self._device] if self._device.type != "cpu" else None
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)

        def hand_over(done: "Future[torch.Tensor]") -> None:
            error = done.exception()
            if error is not None:
                future.set_exception(error)  # type: ignore[arg-type]  # its stub says the future's own type
            else:
                future.set_result(done.result())

        self._done.add_done_callback(hand_over)
        return future


@dataclass(eq=False)
class Call:
    """What one kind of call on one group comes down to: checked once, then bound to each tensor in few steps."""

    schedule: Schedule
    reduction: Reduction
    name: str  # of the operation
    order: tuple[int, ...]
    plan: Plan | None = None
    size: list[int] = field(default_factory=list)  # bytes of each view
    scratch: list[list[torch.Tensor]] = field(default_factory=list)
    scratch_of: torch.Tensor | None = None
    whole: bool = False  # the only view of the buffer is all of it


class Engine:
    """What one process keeps for one process group: scratch memory, checked calls, the queue of asynchronous ones."""

    _all: ClassVar[dict[dist.ProcessGroup, "Engine"]] = {}
    _default: ClassVar[tuple[dist.ProcessGroup | None, "Engine | None"]] = (None, None)

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = group.rank(), group.size()
        self.gloo = _gloo_of(group)
        self.failure: str | None = None
        self.lock = threading.Lock()
        self.queue: ThreadPoolExecutor | None = None
        self.last: Future[torch.Tensor] | None = None
        self.calls: dict[Any, Call] = {}
        self.scratch: dict[torch.dtype, torch.Tensor] = {}
        self.graveyard: list[Any] = []
        self.moved = observe.new_totals()

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> "Engine":
        """The engine of a group; raises ValueError where there is no group or this rank is not in it."""
        if group is None:
            world, engine = cls._default
            if engine is not None and world is dist.GroupMember.WORLD:
                return engine
            group = dist.distributed_c10d._get_default_group()
            engine = cls._find(group)
            cls._default = (group, engine)
            return engine
        if group is dist.GroupMember.NON_GROUP_MEMBER:  # type: ignore[comparison-overlap]
            raise ValueError("this rank is not in the group; only its members may call all_reduce on it")
        if not isinstance(group, dist.ProcessGroup):
            raise TypeError(f"group is a {type(group).__name__}; it must be a torch.distributed.ProcessGroup")
        if group not in dist.distributed_c10d._world.pg_map:
            raise ValueError("the process group has been destroyed; create a new one")
        return cls._find(group)

    @classmethod
    def _find(cls, group: dist.ProcessGroup) -> "Engine":
        engine = cls._all.get(group)
        if engine is None:
            cls.forget()
            engine = cls._all[group] = cls(group)
        return engine

    @classmethod
    def forget(cls, everything: bool = False) -> None:
        """Let go of groups that have been destroyed. One that is still held when the interpreter ends aborts it."""
        cls._default = (None, None)
        for group in list(cls._all):
            if everything or group not in dist.distributed_c10d._world.pg_map:
                del cls._all[group]

    def remember(self, key: Any, call: Call) -> None:
        """Keep a call that has been checked; a program that makes new ones for ever keeps only the latest."""
        if len(self.calls) >= 1024:
            self.calls.clear()
        self.calls[key] = call

    def submit(self, tensor: torch.Tensor, call: Call, async_op: bool) -> Work | None:
        """Carry out one all-reduce now, or queue it; calls keep their order."""
        if async_op and tensor.is_cpu:
            if self.failure:
                raise CollectiveFailed(self.failure)
            if self.queue is None:
                self.queue = ThreadPoolExecutor(1, thread_name_prefix="dthw-all-reduce")
            self.last = self.queue.submit(self._reduce, tensor, call)
            return Work(self.last, tensor.device)
        if self.last is not None:
            self.last.exception()  # a queued call comes first; its error, if any, is for its own handle
            self.last = None
        self._reduce(tensor, call)
        if not async_op:
            return None
        # A GPU's stream is a queue by its nature: what was put there is in order, and the caller's stream waits for it.
        done: Future[torch.Tensor] = Future()
        done.set_result(tensor)
        return Work(done, tensor.device)

    def _reduce(self, tensor: torch.Tensor, call: Call) -> torch.Tensor:
        with self.lock:
            if self.failure:
                raise CollectiveFailed(self.failure)
            # Each call into torch costs microseconds here, with the caches cold after a wait: most tensors need none.
            plain = (
                tensor.dim() == 1 and not tensor.requires_grad and tensor.is_contiguous() and not tensor.is_complex()
            )
            real = tensor if plain else tensor.detach()
            if real.is_complex():
                real = torch.view_as_real(real)
            flat = real if plain else real.contiguous().view(-1)
            plan = call.plan
            if plan is None:
                plan = compile_plan(call.schedule, call.order, self.rank, flat.numel(), flat.element_size())
                call.plan = plan
            if self.gloo is not None and flat.is_cpu:
                self._stream(self.gloo, plan, flat, call)
            else:
                try:
                    run_batches(plan, flat, call.reduction, self.group, call.order, TAG, self.moved)
                except RuntimeError as error:
                    self._fail(error, call.schedule, *getattr(error, "where", (0, "exchanging messages")))
            if call.name == "AVG":
                flat.div_(self.size)
            if not plain and not real.is_contiguous():
                real.copy_(flat.view(real.shape))
        return tensor

    def _bind(self, plan: Plan, flat: torch.Tensor, call: Call) -> list[list[torch.Tensor]]:
        """Every view of the plan in a list of its own, as ``send`` and ``recv`` take them."""
        if self.scratch.get(flat.dtype) is not call.scratch_of or call.scratch_of is None:
            scratch = self.scratch.get(flat.dtype)
            if scratch is None or scratch.numel() < plan.scratch_size:
                scratch = self.scratch[flat.dtype] = torch.empty(plan.scratch_size, dtype=flat.dtype)
            call.scratch_of, call.scratch = scratch, [[scratch[lo:hi]] for lo, hi in plan.scratch_views]
            views = [flat[lo:hi] for lo, hi in plan.buffer_views] + [box[0] for box in call.scratch]
            call.size = [view.nbytes for view in views]
            call.whole = plan.buffer_views == [(0, flat.numel())]
        if call.whole:
            return [[flat], *call.scratch]
        return [[flat[lo:hi]] for lo, hi in plan.buffer_views] + call.scratch

    def _stream(self, gloo: Any, plan: Plan, flat: torch.Tensor, call: Call) -> None:
        """On gloo: the compiled program. Little is done before the first receive is posted: peers wait for it."""
        boxes = self._bind(plan, flat, call)
        size, reduction = call.size, call.reduction
        recorder = Recorder(gloo, self.rank, plan.sends, plan.receives) if observe.TRACES else None
        send, receive = (recorder or gloo).send, (recorder or gloo).recv
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
                elif code == POST:
                    got[a] = receive(boxes[b], c, TAG)
                elif code == SEND:
                    sent[a] = send(boxes[b], c, TAG)
                    out += plan.sends[a].first
                    out_bytes += size[b]
                elif code == ADD:
                    mine, theirs = boxes[a][0], boxes[b][0]
                    if c:
                        reduction(theirs, mine, out=mine)
                    else:
                        reduction(mine, theirs, out=mine)
                elif code == COPY:
                    boxes[a][0].copy_(boxes[b][0])
                else:
                    sent[a].wait()
        except RuntimeError as error:
            receiving = code in (POST, GOT)
            label = plan.receives[a] if receiving else plan.sends[a]
            # What is still posted may yet be written to: keep it alive.
            self.graveyard.append((boxes, sent, got))
            self._fail(
                error,
                call.schedule,
                label.round,
                f"{'receiving from' if receiving else 'sending to'} rank {label.peer}",
            )
        except BaseException:  # Ctrl-C, say: messages are still under way, and peers wait for more
            self.graveyard.append((boxes, sent, got))
            self.failure = "an all_reduce on this process group was interrupted; destroy the group and start again"
            raise
        finally:
            moved = self.moved
            moved[0] += out
            moved[1] += into
            moved[2] += out_bytes
            moved[3] += into_bytes
            if recorder:
                recorder.hand_over()

    def _fail(self, error: RuntimeError, schedule: Schedule, number: int, doing: str) -> None:
        self.failure = (
            f"all_reduce by {schedule.name} failed on rank {self.rank} of {self.size} in round {number} of "
            f"{schedule.n_rounds}, {doing}: {str(error).splitlines()[0]}. A peer has died or did not answer within the "
            "group's timeout; this process group is of no further use: destroy it and start again."
        )
        raise CollectiveFailed(self.failure) from error


atexit.register(Engine.forget, everything=True)

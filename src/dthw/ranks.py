"""Run a function on several local ranks: real processes that form one ``torch.distributed`` group.

Importing torch costs more than a second a process; a fork of a process that has done so, 20 ms. Your own process is
never forked (it may hold threads or a GPU): a helper is started that imports torch and waits, and forks the ranks of
each launch. On two cores 8 ranks start, meet and end in 0.2 s, where 8 spawned ones took 6.3 s. ``multiprocessing``'s
fork server is as fast, but it imports the caller's ``__main__`` anew, keeps the environment of its first use, and
cannot show where a rank hangs.
"""

import atexit
import functools
import gc
import importlib.util
import operator
import os
import pickle
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dthw import _keeper

START_S = 120.0  # a cold disk may take long over torch's libraries


class RanksFailed(RuntimeError):
    """At least one rank did not return a value.

    The message says which rank failed first and what became of each. A rank that merely lost its connection to another
    counts as a consequence, never as the first cause, when there is another candidate.

    Attributes
    ----------
    outcomes : dict[int, str]
        What became of each rank, "finished" included.
    first : int
        The rank that failed first.
    tracebacks : dict[int, str]
        The traceback of each rank that raised, as text.
    """

    def __init__(self, headline: str, first: int, outcomes: dict[int, str], tracebacks: dict[int, str]) -> None:
        super().__init__(headline, first, outcomes, tracebacks)
        self.headline, self.first, self.outcomes, self.tracebacks = headline, first, outcomes, tracebacks

    def __str__(self) -> str:
        same: dict[str, list[str]] = {}
        for rank, outcome in sorted(self.outcomes.items()):
            same.setdefault(outcome, []).append(str(rank))
        each = (f"rank{'s'[: len(who) > 1]} {', '.join(who)}: {outcome}" for outcome, who in same.items())
        return "\n\n".join([self.headline, *each])


def launch(
    function: Callable[..., Any] | str,
    ranks: int,
    *args: Any,
    timeout: float = 60.0,
    group_timeout: float | None = None,
    backend: str = "gloo",
    threads: int | None = None,
    **kwargs: Any,
) -> list[Any]:
    """Call ``function(*args, **kwargs)`` on ``ranks`` local processes and return their values in rank order.

    Each rank runs in an initialised process group (a file store, the loopback interface: no port to choose), in the
    caller's directory, with its environment and module path, and ``RANK``, ``WORLD_SIZE`` and their ``LOCAL_`` twins.

    Parameters
    ----------
    function
        At the top level of a module or script; or its place, ``"module:function"`` or ``"dir/file.py:function"``.
    ranks
        Number of processes, at least 1. They may outnumber the cores; latencies then mean little.
    args, kwargs
        Passed to each rank by pickle.
    timeout
        Seconds from the start of the ranks until they must have finished.
    group_timeout
        Seconds a collective may wait; when None, longer than ``timeout``, so that a hang is shown with its stack.
    backend
        Of the process group. With NCCL rank r uses device r modulo the number of devices.
    threads
        Of torch in each rank; when None, an equal share of the cores.

    Raises
    ------
    RanksFailed
        A rank raised, died, returned what cannot be pickled, or was still running at the timeout.
    TypeError
        Another process cannot find the function, or an argument cannot be pickled.
    ValueError, FileNotFoundError
        A value out of its range; a path without a file.

    Notes
    -----
    On two cores the first launch of a process takes 1.2 s, most of it torch's import, later ones 0.06 s for 2 ranks and
    0.2 s for 8. Only the idle helper outlives the call, and it ends with the process. Linux, macOS or WSL. On Linux the
    ranks are scheduled as batch processes, which hand work to one another faster where they outnumber the cores.

    Examples
    --------
    >>> from dthw import launch
    >>> launch("torch.distributed:get_rank", 4)
    [0, 1, 2, 3]
    """
    ranks = _whole("ranks", ranks)
    timeout = _seconds("timeout", timeout)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if loading := os.environ.get("DTHW_LOADING"):
        raise RuntimeError(
            f"launch() was called while a rank was importing {loading}: a rank imports the file to find its function, "
            "so put the lines that launch under `if __name__ == '__main__':`"
        )
    target = _locate(function)
    if target["is_main"]:  # multiprocessing's name for a script loaded anew; values of its classes come back under it
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    if not hasattr(os, "fork"):
        raise OSError("launch() forks its ranks, which this system cannot: use Linux, macOS or, on Windows, WSL")
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("launch() needs torch: pip install 'dthw[run]'", name="torch")
    try:
        call = pickle.dumps((args, kwargs))
    except Exception as error:
        raise TypeError(f"an argument of {target['name']} cannot be pickled and sent to the ranks: {error}") from error
    request = _keeper.Request(
        **target,
        call=call,
        ranks=ranks,
        timeout=timeout,
        group_timeout=timeout + 60 if group_timeout is None else _seconds("group_timeout", group_timeout),
        backend=backend,
        threads=max(1, cores // ranks) if threads is None else _whole("threads", threads),
        directory=str(Path.cwd()),
        env=dict(os.environ),
        path=sys.path,
        argv=sys.argv,
    )
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()  # what the ranks print comes after
    kind, content = _ask(pickle.dumps(request), timeout + _keeper.GRACE_S + START_S)
    if kind == "error":
        raise RuntimeError(f"the ranks could not be started:\n{content}")
    if kind == "failed":
        raise RanksFailed(*content)
    return [_unpickle(rank, value, ranks) for rank, value in enumerate(content)]


@contextmanager
def process_group() -> Iterator[tuple[int, int]]:
    """Give (rank, world size) of a process group, whichever way the program was started.

    Inside `launch`, or wherever a group exists, that group is used and left alone. Under ``torchrun`` one is made from
    its environment: NCCL when the node has a GPU for each of its ranks (number ``LOCAL_RANK`` becomes current), gloo
    otherwise. A program started by itself gets a group of one. A group made here ends here, after a barrier; when the
    block raises on one rank of several, the group is left to the end of the process, since the others may never come.

    Examples
    --------
    >>> import torch
    >>> from dthw.ranks import process_group
    >>> with process_group() as (rank, world):
    ...     x = torch.tensor([rank + 1.0])
    ...     torch.distributed.all_reduce(x)
    ...     print(rank, world, x)
    0 1 tensor([1.])
    """
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        yield dist.get_rank(), dist.get_world_size()
        return
    env = os.environ
    alone = not ("RANK" in env and "WORLD_SIZE" in env and "MASTER_ADDR" in env)
    local, beside = (0, 1) if alone else (int(env.get("LOCAL_RANK", 0)), int(env.get("LOCAL_WORLD_SIZE", 1)))
    cuda = torch.cuda.device_count() >= beside  # NCCL refuses two ranks on one device
    if cuda:
        torch.cuda.set_device(local)
    backend = "nccl" if cuda else "gloo"
    if alone:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    else:
        dist.init_process_group(backend)
    try:
        yield dist.get_rank(), dist.get_world_size()
        dist.barrier()  # a destroy without it was seen to abort when a peer had already gone
    except BaseException:
        if alone:
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()
    gc.collect()  # a cycle, as DDP leaves it, would keep the group's threads to the end of the interpreter: it aborts


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 1:
        raise ValueError(f"{name}={value!r}: expected a whole number, 1 or more")
    return operator.index(value)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1e6:
        raise ValueError(f"{name}={value!r}: expected seconds, above 0 and at most a million")
    return float(value)


def _locate(function: Callable[..., Any] | str) -> _keeper.Target:
    if isinstance(function, str):
        where, _, name = function.rpartition(":")
        if not where or not name.isidentifier():
            raise ValueError(f"function={function!r}: expected 'module:function' or 'path/to/file.py:function'")
        if not where.endswith(".py"):
            return _keeper.Target(module=where, file="", name=name, is_main=False)
        if not Path(where).is_file():
            raise FileNotFoundError(f"function={function!r}: there is no file {where} in {Path.cwd()}")
        return _keeper.Target(module="", file=str(Path(where).resolve()), name=name, is_main=False)
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    home: Any = sys.modules.get(module)
    file = getattr(home, "__file__", None) or ""
    with suppress(AttributeError):
        if home and functools.reduce(getattr, name.split("."), home) is function:
            if module != "__main__":
                return _keeper.Target(module=module, file=file, name=name, is_main=False)
            # What was typed at a prompt is in no file, also when `python -i file` brought the prompt.
            path = Path(file).resolve()
            if path.is_file() and Path(function.__code__.co_filename).resolve() == path:
                spec = home.__spec__  # set by `python -m module`
                return _keeper.Target(module=spec.name if spec else "", file=str(path), name=name, is_main=True)
    raise TypeError(
        f"{name or repr(function)} cannot be run on ranks: each is a process that must find the function at "
        "the top level of a file. Put it under snippets/ or in a module; pass it or its place, 'snippets/mine.py:main'"
    )


def _unpickle(rank: int, value: bytes, ranks: int) -> Any:
    try:
        return pickle.loads(value)
    except Exception as error:
        text = f"returned a value of a type that this process cannot import: {error}"
        outcomes = {r: text if r == rank else "finished" for r in range(ranks)}
        raise RanksFailed(f"rank {rank} of {ranks} {text}", rank, outcomes, {rank: traceback.format_exc()}) from None


def _ask(request: bytes, timeout: float) -> tuple[str, Any]:
    """Send a request to a keeper of its own and wait for the answer; when interrupted, until it has cleared up."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            _call_nursery(theirs)
        ours.settimeout(timeout)
        try:
            _keeper.send(ours, request)
            answer = _keeper.receive(ours)
        except ConnectionError:
            answer = bytearray()
        except BaseException:
            with suppress(OSError):
                ours.shutdown(socket.SHUT_WR)
                ours.settimeout(10)
                while ours.recv(1 << 16):
                    pass
            raise
    if not answer:
        raise RuntimeError("the process that keeps the ranks ended without an answer; standard error may say why")
    kind, content = pickle.loads(answer)
    if kind == "returned":
        global _message
        content, dynamo = content
        _message = _keeper.WITH_DYNAMO if dynamo else _message
    return kind, content


_message = _keeper.PLAIN
_lock = threading.Lock()
_nursery: tuple[socket.socket, "subprocess.Popen[bytes]"] | None = None
# One BLAS thread: a process with threads must not fork. NVML: asking for GPUs must not initialise CUDA before a fork.
_NURSERY_ENV = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def _call_nursery(conn: socket.socket) -> None:
    """Hand ``conn``, standard output and standard error to the nursery, started when there is none."""
    global _nursery
    with _lock:
        for _ in range(2):
            if _nursery is None:
                ours, theirs = socket.socketpair()
                # By path and with -P: neither an installed dthw nor the current directory has a say.
                command = [sys.executable, "-P", _keeper.__file__, str(theirs.fileno())]
                with theirs:
                    process = subprocess.Popen(
                        command,
                        pass_fds=[theirs.fileno()],
                        env=os.environ | _NURSERY_ENV,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,  # Ctrl-C is for the caller
                    )
                _nursery = ours, process
            try:
                socket.send_fds(_nursery[0], [_message], [conn.fileno(), 1, 2])
                return
            except ConnectionError:  # it was killed: start another
                _leave_nursery()
    raise RuntimeError("the process that forks the ranks does not start; standard error may say why")


def _leave_nursery() -> None:
    global _nursery
    if _nursery:
        _nursery[0].close()
        with suppress(subprocess.TimeoutExpired):
            _nursery[1].wait(5)
    _nursery = None


def _forget_nursery() -> None:
    """In a forked child: the nursery must end with the parent, not with us."""
    global _nursery, _lock
    if _nursery:
        _nursery[0].close()
        _nursery[1].returncode = 0  # not our child: keep subprocess from warning and waiting
    _nursery, _lock = None, threading.Lock()


atexit.register(_leave_nursery)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_nursery)

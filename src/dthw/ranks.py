"""Run a function on several local ranks: real processes that form one ``torch.distributed`` group.

Importing torch costs more than a second a process; a fork of a process that has done so, 20 ms. Your own process is never
forked (it may hold threads or a GPU): a helper is started that imports torch and waits, and forks the ranks of each launch. On
two cores 8 ranks start, meet and end in 0.2 s, where 8 spawned ones took 6.3 s. ``multiprocessing``'s fork server is as fast,
but it imports the caller's ``__main__`` anew, keeps the environment of its first use, and cannot show where a rank hangs.
"""

import atexit
import functools
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

    The message says which rank failed first and what became of each. A rank that only lost its connection to another is taken
    for a consequence, never for the first cause, when there is another candidate.

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

    Each rank runs in an initialised process group (a file store, the loopback interface: no port to choose), in the caller's
    directory, with its environment and module path, and ``RANK``, ``WORLD_SIZE`` and their ``LOCAL_`` twins set.

    Parameters
    ----------
    function
        A function at the top level of a module or script, or its place: ``"module:function"``, ``"path/file.py:function"``.
    ranks
        Number of processes, at least 1. They may outnumber the cores; latencies then mean little.
    args, kwargs
        Passed to each rank by pickle.
    timeout
        Seconds from the start of the ranks until they must have finished.
    group_timeout
        Seconds a collective may wait; as long as ``timeout`` when None, so that a hang is shown with its stack.
    backend
        Of the process group. With NCCL rank r uses device r modulo the number of devices.
    threads
        Of torch in each rank; when None, an equal share of the cores.

    Raises
    ------
    RanksFailed
        A rank raised, died, returned what cannot be pickled, or was still running at the timeout.
    TypeError
        The function cannot be found by another process, or an argument cannot be pickled.
    ValueError, FileNotFoundError
        A value out of its range, a path without a file.

    Notes
    -----
    The first launch of a process takes 1.5 s, most of it torch's import; later ones 0.07 s for 2 ranks and 0.2 s for 8, on two
    cores. Nothing outlives the call but the waiting nursery, which ends with the process. Needs Linux, macOS or WSL.

    Examples
    --------
    >>> from dthw import launch
    >>> launch("torch.distributed:get_rank", 4)
    [0, 1, 2, 3]
    """
    _whole("ranks", ranks)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, cores // ranks) if threads is None else _whole("threads", threads)
    timeout = _seconds("timeout", timeout)
    group_timeout = timeout if group_timeout is None else _seconds("group_timeout", group_timeout)
    if loading := os.environ.get("DTHW_LOADING"):
        raise RuntimeError(
            f"launch() was called while a rank was importing {loading}: a rank imports the file to find its function, "
            "so put the lines that launch under `if __name__ == '__main__':`"
        )
    target = _locate(function)
    if not hasattr(os, "fork"):
        raise OSError("launch() forks its ranks, which this system cannot: use Linux, macOS or, on Windows, WSL")
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("launch() needs torch: pip install 'dthw[run]'", name="torch")
    try:
        call = pickle.dumps((args, kwargs))
    except Exception as error:
        raise TypeError(f"an argument for {target['name']} cannot be pickled, so no rank can receive it: {error}") from error
    env = {name: value for name, value in os.environ.items() if name != "DTHW_LOADING"}
    request: _keeper.Request = {
        **target,
        "call": call,
        "ranks": operator.index(ranks),
        "timeout": timeout,
        "group_timeout": group_timeout,
        "backend": backend,
        "threads": threads,
        "directory": os.getcwd(),
        "env": env,
        "path": sys.path,
        "argv": sys.argv,
    }
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            _ask_nursery(theirs)
        ours.settimeout(timeout + _keeper.GRACE_S + START_S)
        try:
            _keeper.send(ours, pickle.dumps(request))
            reply = _keeper.receive(ours)
        except BaseException:
            with suppress(OSError):  # Ctrl-C: the keeper takes this for our end; wait until it has cleared up
                ours.shutdown(socket.SHUT_WR)
                ours.settimeout(10)
                while ours.recv(1 << 16):
                    pass
            raise
    if not reply:
        raise RuntimeError("the process that keeps the ranks ended without an answer; see its message on standard error")
    kind, content = pickle.loads(reply)
    if kind == "error":
        raise RuntimeError(f"the ranks could not be started:\n{content}")
    if kind == "failed":
        raise RanksFailed(*content)
    return [_unpickle(rank, value, ranks) for rank, value in enumerate(content)]


@contextmanager
def process_group() -> Iterator[tuple[int, int]]:
    """Give (rank, world size) of a process group, whichever way the program was started.

    Inside `launch`, or wherever a group exists, that group is used and left alone. Under ``torchrun`` one is made from its
    environment: NCCL when the node has a GPU for each of its ranks (device ``LOCAL_RANK`` becomes current), gloo otherwise.
    A program started by itself gets a group of one. A group made here ends here, after a barrier; when the block raised on one
    rank of several, the group is left to the end of the process, since its other ranks may never answer.

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
    store = {"store": dist.HashStore(), "rank": 0, "world_size": 1} if alone else {}
    dist.init_process_group("nccl" if cuda else "gloo", **store)
    try:
        yield dist.get_rank(), dist.get_world_size()
        dist.barrier()  # a destroy without it was seen to abort when a peer had already gone
    except BaseException:
        if alone:
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 1:
        raise ValueError(f"{name}={value!r}: expected a whole number, 1 or more")
    return operator.index(value)


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1e6:
        raise ValueError(f"{name}={value!r}: expected seconds, above 0 and at most a million")
    return float(value)


def _locate(function: Callable[..., Any] | str) -> _keeper.Target:
    if isinstance(function, str):
        where, _, name = function.rpartition(":")
        if not where or not name.isidentifier():
            raise ValueError(f"function={function!r}: expected 'module:function' or 'path/to/file.py:function'")
        if not where.endswith(".py"):
            return {"module": where, "file": "", "name": name, "is_main": False}
        if not Path(where).is_file():
            raise FileNotFoundError(f"function={function!r}: there is no file {where} in {os.getcwd()}")
        return {"module": "", "file": str(Path(where).resolve()), "name": name, "is_main": False}
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    home = sys.modules.get(module)
    file = getattr(home, "__file__", None) or ""
    with suppress(AttributeError):
        if home and functools.reduce(getattr, name.split("."), home) is function:
            if module != "__main__":
                return {"module": module, "file": file, "name": name, "is_main": False}
            code = getattr(function, "__code__", None)  # a function typed at a prompt isn't in the file that prompt came from
            if file and code and os.path.abspath(code.co_filename) == os.path.abspath(file):
                spec = getattr(home, "__spec__", None)  # set by `python -m module`
                return {"module": spec.name if spec else "", "file": os.path.abspath(file), "name": name, "is_main": True}
    raise TypeError(
        f"{name or repr(function)} cannot be run on ranks: each is a process of its own that must find the function in a file, at "
        "its top level. Put it in a module or under snippets/, and pass it or its place: 'snippets/my_ranks.py:main'"
    )


def _unpickle(rank: int, value: bytes, ranks: int) -> Any:
    try:
        return pickle.loads(value)
    except Exception:
        text = f"returned a value that this process cannot read back:\n{traceback.format_exc()}"
        outcomes = {r: text if r == rank else "finished" for r in range(ranks)}
        raise RanksFailed(f"rank {rank} of {ranks} returned an unreadable value", rank, outcomes, {rank: text}) from None


_lock = threading.Lock()
_nursery: tuple[socket.socket, "subprocess.Popen[bytes]"] | None = None


def _ask_nursery(conn: socket.socket) -> None:
    """Hand ``conn``, standard output and standard error to the nursery, started when there is none."""
    global _nursery
    with _lock:
        for fresh in (_nursery is None, True):
            if fresh:
                _leave_nursery()
                ours, theirs = socket.socketpair()
                # by path and with -P: neither an installed dthw nor the current directory has a say; one BLAS thread, since a
                # process with threads must not fork; a session of its own, so that Ctrl-C reaches the caller alone
                command = [sys.executable, "-P", _keeper.__file__, str(theirs.fileno())]
                env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
                with theirs:
                    process = subprocess.Popen(
                        command, pass_fds=[theirs.fileno()], env=env, stdin=subprocess.DEVNULL, start_new_session=True
                    )
                _nursery = ours, process
            assert _nursery
            with suppress(BrokenPipeError, ConnectionResetError):  # it was killed: start another
                socket.send_fds(_nursery[0], [b"k"], [conn.fileno(), 1, 2])
                return
    raise RuntimeError("the process that forks the ranks does not start; see its message on standard error")


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

"""The processes behind `dthw.ranks.launch`; run by path, so that it needs the standard library and torch alone.

    caller ──control socket──> nursery, one for all launches ──fork──> keeper, one a launch ──fork──> rank 0 … rank n-1

The *nursery* imports torch once and forks. The *keeper* owns what a launch could leave behind (ranks, pipes, a
directory) and has a socket to the caller, whose end it takes, whatever the cause, as the order to clear up.
"""

import ctypes
import faulthandler
import functools
import gc
import importlib
import importlib.util
import os
import pickle
import re
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypedDict

GRACE_S = 3.0  # for healthy ranks after the first failure; gloo tells them of a lost peer within milliseconds
CONSEQUENCE = re.compile(r"gloo.*(Connection (closed|reset) by peer|Broken pipe|Connection refused)", re.DOTALL)
RECORD = struct.Struct("!cdQ")  # kind (R: returned, E: raised, D: has torch._dynamo), time, length of what follows
# Optimizers and compilers import torch._dynamo, 1-2 s in every rank: once a rank has, the next launches fork with it.
PLAIN, WITH_DYNAMO = b"p", b"d"


class Target(TypedDict):
    """Where a rank finds its function; a plain dict, since neither end can import the other's classes."""

    module: str  # by module, else by file
    file: str
    name: str
    is_main: bool  # in the caller's __main__: objects of its classes may be among the arguments


class Request(Target):
    """What the caller asks for."""

    call: bytes  # pickled (args, kwargs)
    ranks: int
    timeout: float
    group_timeout: float
    backend: str
    threads: int
    directory: str
    env: dict[str, str]
    path: list[str]
    argv: list[str]


def send(conn: socket.socket, message: bytes) -> None:
    """Send one message of any length."""
    conn.sendall(len(message).to_bytes(8, "big"))
    conn.sendall(message)


def receive(conn: socket.socket) -> bytearray:
    """Receive one message; empty when the other end closed before all of it came."""
    with conn.makefile("rb") as stream:
        message = bytearray(int.from_bytes(stream.read(8), "big"))
        return message if stream.readinto(message) == len(message) else bytearray()


def nursery(control: socket.socket) -> None:
    """Fork a keeper for each request until the caller's end of ``control`` closes."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1, 3)
        if not message:
            os._exit(0)
        if sys.platform == "linux":  # elsewhere system libraries may not survive a fork: each rank imports torch itself
            import torch.distributed

            if message == WITH_DYNAMO:
                import torch._dynamo  # noqa: F401
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave no zombies
        gc.freeze()  # else a collection in a rank copies every page it marks
        if os.fork() == 0:
            control.close()
            keep(socket.socket(fileno=fds[0]), *fds[1:])
        for fd in fds:
            os.close(fd)


def keep(conn: socket.socket, out: int, err: int) -> NoReturn:
    """Run one launch and answer ``(kind, content)``; the process ends here."""
    answer: tuple[str, Any] | None = None
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd, standard in ((out, 1), (err, 2)):
            os.dup2(fd, standard)
            os.close(fd)
        if message := receive(conn):
            answer = perform(pickle.loads(message), conn)
    except Exception:
        answer = "error", traceback.format_exc()
    finally:
        with suppress(OSError):  # the caller may have gone
            if answer:
                send(conn, pickle.dumps(answer))
        os._exit(0)


def perform(request: Request, conn: socket.socket) -> tuple[str, Any] | None:
    """Start the ranks, watch them, and leave nothing behind."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["directory"])
    sys.path[:], sys.argv[:] = request["path"], request["argv"]
    # Whole lines, under `python -u` too, and also of a rank that is killed.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    tempfile.tempdir = None  # settled under the nursery's environment, perhaps
    directory = Path(tempfile.mkdtemp(prefix="dthw-ranks-"))
    ranks: list[Rank] = []
    try:
        start(request, directory, ranks, conn)
        return watch(request, ranks, conn)
    finally:
        for rank in ranks:
            rank.kill()
        shutil.rmtree(directory, ignore_errors=True)


@dataclass
class Rank:
    """One rank as its keeper sees it."""

    pid: int
    pipe: int
    stack: Path  # written by faulthandler: where it crashed or hung
    data: bytearray = field(default_factory=bytearray)
    alive: bool = True
    ended: float = 0.0
    status: int = 0

    def read(self) -> bool:
        """Take what is in the pipe; True at its end."""
        with suppress(BlockingIOError):
            while data := os.read(self.pipe, 1 << 20):
                self.data += data
            return True
        return False

    def reap(self, flags: int = os.WNOHANG) -> bool:
        """Note the end of the process and end what it started; True when it ended just now."""
        pid, status = os.waitpid(self.pid, flags) if self.alive else (0, 0)
        if pid:
            self.alive, self.ended, self.status = False, time.monotonic(), os.waitstatus_to_exitcode(status)
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self.read()
            os.close(self.pipe)
        return bool(pid)

    def kill(self) -> None:
        """End it, also when it is stuck or stopped."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
            self.reap(0)

    def records(self) -> dict[bytes, tuple[float, bytes]]:
        """What it reported, by kind; a record cut short by its death is dropped."""
        found, at = {}, 0
        while len(self.data) >= at + RECORD.size:
            kind, when, size = RECORD.unpack_from(self.data, at)
            at += RECORD.size + size
            if len(self.data) >= at:
                found[kind] = when, bytes(self.data[at - size : at])
        return found

    def death(self) -> str:
        """Say how a process ended that left no exception; with the stack of a crash."""
        if self.status >= 0:
            return f"exited with code {self.status} without a result"
        name = next((getattr(s, "name", s) for s in signal.valid_signals() if s == -self.status), -self.status)
        return f"killed by signal {name}\n{self.stack_text()}".strip()

    def stack_text(self) -> str:
        """The stack of a crash or hang, as faulthandler wrote it."""
        lines = self.stack.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if __file__ not in line).strip()


def start(request: Request, directory: Path, ranks: list[Rank], conn: socket.socket) -> None:
    """Fork the ranks, adding each to ``ranks`` as it comes."""
    keeper = os.getpid()
    for number in range(request["ranks"]):
        read, write = os.pipe()
        os.set_blocking(read, False)
        stack = directory / f"stack-{number}"
        with stack.open("w") as file:
            faulthandler.enable(file)
            faulthandler.register(signal.SIGUSR1, file)  # inherited, so in force from the rank's first moment
            if (pid := os.fork()) == 0:
                conn.close()
                for fd in [read, *(other.pipe for other in ranks)]:
                    os.close(fd)
                run(request, number, directory / "store", write, keeper)
        os.close(write)
        ranks.append(Rank(pid, read, stack))
        with suppress(OSError):
            os.setpgid(pid, pid)  # in both processes, either may come first; what a rank starts is killed with it
    faulthandler.disable()
    faulthandler.unregister(signal.SIGUSR1)


def watch(request: Request, ranks: list[Rank], conn: socket.socket) -> tuple[str, Any] | None:
    """Read and wait until each rank has ended or has to be ended; None when the caller has gone."""
    wake, ring = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(ring, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ring)  # from here the end of a rank ends a select
    limit = time.monotonic() + request["timeout"]
    with selectors.DefaultSelector() as selector:
        selector.register(conn, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        for rank in ranks:
            selector.register(rank.pipe, selectors.EVENT_READ, rank)
        while True:
            for rank in ranks:
                if rank.reap():
                    with suppress(KeyError):  # gone already when its pipe had ended first
                        selector.unregister(rank.pipe)
                    if rank.status:
                        limit = min(limit, rank.ended + GRACE_S)
            left = limit - time.monotonic()
            if left <= 0 or not any(rank.alive for rank in ranks):
                break
            for key, _ in selector.select(left):
                if key.fileobj is conn:
                    return None
                if key.data is None:
                    os.read(wake, 4096)
                elif key.data.read():
                    selector.unregister(key.data.pipe)
    return judge(request, ranks)


def judge(request: Request, ranks: list[Rank]) -> tuple[str, Any]:
    """End what still runs and say what became of each rank."""
    judged = time.monotonic()  # what happens later is our doing: the others lose those we kill
    show_stacks([rank for rank in ranks if rank.alive])
    for rank in ranks:
        rank.kill()
    reports = [rank.records() for rank in ranks]
    returned = [b"R" in report for report in reports]
    if all(returned) and not any(rank.status for rank in ranks):
        return "returned", ([report[b"R"][1] for report in reports], any(b"D" in report for report in reports))
    outcomes, tracebacks, suspects = {}, {}, []
    for number, (rank, report) in enumerate(zip(ranks, reports, strict=True)):
        if returned[number] and (rank.status == 0 or not all(returned)):
            outcomes[number] = "finished"  # and then, perhaps, waited for a rank that could no longer come
            continue
        before = "finished, then " if returned[number] else ""
        if b"E" in report and report[b"E"][0] < judged:
            summary, tracebacks[number] = pickle.loads(report[b"E"][1])
            outcomes[number] = before + tracebacks[number]
            suspects.append((bool(CONSEQUENCE.search(tracebacks[number])), report[b"E"][0], number, summary))
        elif rank.ended < judged:
            outcomes[number] = before + rank.death()
            suspects.append((False, rank.ended, number, outcomes[number].splitlines()[0]))
    stuck = [number for number, rank in enumerate(ranks) if number not in outcomes]
    if suspects:
        _, _, first, summary = min(suspects)
        headline = f"rank {first} of {len(ranks)} failed first: {summary}"
        state = f"stopped {GRACE_S:g} s after rank {first} failed"
    else:
        first, state = stuck[0], f"still running after {request['timeout']:g} s"
        headline = f"rank{'s'[: len(stuck) > 1]} {', '.join(map(str, stuck))} of {len(ranks)} {state}"
    for number in stuck:
        doing = " in the closing barrier" if returned[number] else ""
        outcomes[number] = f"{state}{doing}\n{ranks[number].stack_text()}".strip()
    return "failed", (headline, first, outcomes, tracebacks)


def show_stacks(ranks: list[Rank]) -> None:
    """Have each rank write its stack; wait until all have, or for a second when one is stopped and cannot."""
    for rank in ranks:
        os.kill(rank.pid, signal.SIGUSR1)
    sizes, until = [-1], time.monotonic() + 1
    while ranks and (0 in sizes or sizes != [rank.stack.stat().st_size for rank in ranks]) and time.monotonic() < until:
        sizes = [rank.stack.stat().st_size for rank in ranks]
        time.sleep(0.02)


def run(request: Request, number: int, store: Path, pipe: int, keeper: int) -> NoReturn:
    """Be rank ``number``: join the group, call the function, report, leave the group."""
    code = 1
    try:
        os.setpgid(0, 0)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the keeper, should that be killed
            if os.getppid() != keeper:
                os._exit(1)
            # Ranks that outnumber the cores hand work to each other all the time; a rank that is woken shall not push
            # aside the one that woke it. Without this, 8 ranks on two cores took 20 ms for a small all-reduce, not 4.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        size = str(request["ranks"])
        os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        if loopback := [name for _, name in socket.if_nameindex() if name.startswith("lo")]:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])  # gloo's default needs a host name that resolves
        if reseed := getattr(sys.modules.get("numpy.random"), "seed", None):
            reseed()  # else all ranks of all launches draw the numbers of the nursery's seed

        import torch
        import torch.distributed as dist

        function = find(request)
        args, kwargs = pickle.loads(request["call"])
        torch.set_num_threads(request["threads"])
        if "nccl" in request["backend"]:
            torch.cuda.set_device(number % torch.cuda.device_count())
        wait = timedelta(seconds=request["group_timeout"])
        world = request["ranks"]
        shared = dist.FileStore(str(store), world)  # type: ignore[attr-defined]
        dist.init_process_group(request["backend"], store=shared, rank=number, world_size=world, timeout=wait)
        dist.barrier()  # else one that fails at once takes its peers down while they still connect
        value = function(*args, **kwargs)
        try:
            result = pickle.dumps(value)
        except Exception as error:
            what = f"rank {number} returned a {type(value).__name__}, which cannot be pickled and sent back: {error}"
            raise TypeError(what) from None
        report(pipe, b"R", result)
        del value, result
        if "torch._dynamo" in sys.modules:
            report(pipe, b"D", b"")
        if dist.is_initialized():
            dist.barrier()  # a destroy while peers still talk was seen to abort
            dist.destroy_process_group()
        code = 0
    except BaseException as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this function's own line
        summary = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
        report(pipe, b"E", pickle.dumps((summary, "".join(traceback.format_exception(error)).rstrip())))
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)  # at once: an exit in order would wait for gloo's threads, which may be stuck


def report(pipe: int, kind: bytes, body: bytes) -> None:
    """Write one record."""
    with os.fdopen(pipe, "wb", closefd=False) as file:
        file.write(RECORD.pack(kind, time.monotonic(), len(body)))
        file.write(body)


def find(request: Request) -> Any:
    """Import the function, by its module or from its file."""
    module, file = request["module"], request["file"]
    os.environ["DTHW_LOADING"] = file or module  # a launch() meanwhile would never end
    try:
        try:
            if not module:
                raise ModuleNotFoundError
            home = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not file or (module and error.name != module and not module.startswith(f"{error.name}.")):
                raise
            name = module or ("__mp_main__" if request["is_main"] else Path(file).stem)
            sys.path.insert(0, str(Path(file).parent))  # as `python file` does
            spec = importlib.util.spec_from_file_location(name, file)
            assert spec
            assert spec.loader
            home = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(home)
    finally:
        del os.environ["DTHW_LOADING"]
    if request["is_main"]:
        sys.modules["__main__"] = home
    return functools.reduce(getattr, request["name"].split("."), home)


if __name__ == "__main__":
    nursery(socket.socket(fileno=int(sys.argv[1])))

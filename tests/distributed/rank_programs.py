"""What the tests run on ranks; a function that a rank is to find must live in a file."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist


class Unpicklable(Exception):
    """An exception that pickle cannot rebuild: its constructor wants two arguments and passes one on."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.hook = lambda: two


def summed(count: int = 5) -> list[float]:
    x = torch.full((count,), float(dist.get_rank() + 1))
    dist.all_reduce(x)
    return x.tolist()


def surroundings() -> dict[str, object]:
    return {
        "directory": str(Path.cwd()),
        "mark": os.environ.get("DTHW_TEST_MARK"),
        "rank": (os.environ["RANK"], os.environ["LOCAL_RANK"]),
        "threads": torch.get_num_threads(),
        "argv": sys.argv,
    }


def numpy_draw() -> float:
    import numpy as np

    return float(np.random.random())  # noqa: NPY002  # the global generator is the one that forks would share


def optimise() -> bool:
    torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    return "torch._dynamo" in sys.modules


def had_dynamo() -> bool:
    return "torch._dynamo" in sys.modules


def blob(size: int) -> bytes:
    return bytes([dist.get_rank()]) * size


def same_tensor(x: torch.Tensor) -> torch.Tensor:
    return x + dist.get_rank()


def raises_on(rank: int) -> None:
    if dist.get_rank() == rank:
        raise Unpicklable("planted fault", "never seen")
    dist.all_reduce(torch.ones(3))


def killed_on(rank: int) -> None:
    dist.barrier()
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        dist.all_reduce(torch.ones(3))


def crashes_on(rank: int) -> None:
    if dist.get_rank() == rank:
        ctypes.string_at(0)
    dist.all_reduce(torch.ones(3))


def leaves_on(rank: int) -> None:
    if dist.get_rank() == rank:
        os._exit(3)
    dist.all_reduce(torch.ones(3))


def hangs_on(rank: int) -> None:
    while dist.get_rank() == rank:
        time.sleep(1)
    dist.all_reduce(torch.ones(3))


def stops_on(rank: int) -> None:
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(3))


def generator_from(rank: int) -> Iterator[int] | int:
    return iter([1]) if dist.get_rank() != rank else (i for i in range(3))


def note_pid_and_wait(directory: str, child: bool = False) -> NoReturn:
    """Leave this rank's process id as a file, and with ``child`` that of a child, then wait for the end."""
    pids = [os.getpid()]
    if child and (pid := os.fork()):
        pids.append(pid)
    for pid in pids:
        (Path(directory) / f"pid-{pid}").touch()
    while True:
        time.sleep(1)

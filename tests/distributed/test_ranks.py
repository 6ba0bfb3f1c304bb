"""What `dthw.ranks` promises: values in order, each rank's own fate, and nothing left behind."""

import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dthw import RanksFailed, launch, ranks  # noqa: E402
from tests.distributed import rank_programs as programs  # noqa: E402

ROOT = Path(__file__).parents[2]
PROGRAMS = "tests/distributed/rank_programs.py"


def wait_until(true: Callable[[], bool], what: str, limit: float = 30.0) -> None:
    until = time.monotonic() + limit
    while not true():
        assert time.monotonic() < until, f"after {limit:g} s still not: {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def left_over(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir() if entry.name.startswith("dthw-ranks-")]


def open_descriptors() -> list[str]:
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of temporary files that is ours alone; it must be empty again in the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert left_over(tmp_path) == []


@pytest.fixture(autouse=True)
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_values_come_in_rank_order(p: int) -> None:
    assert launch("torch.distributed:get_rank", p) == list(range(p))


@pytest.mark.parametrize("p", [1, 2, 5])
def test_ranks_form_one_group(p: int) -> None:
    assert launch(programs.summed, p, 3) == [[p * (p + 1) / 2] * 3] * p


@pytest.mark.parametrize(
    "place", [f"{PROGRAMS}:summed", f"{ROOT / PROGRAMS}:summed", "tests.distributed.rank_programs:summed"]
)
def test_a_function_is_found_by_its_place(place: str) -> None:
    assert launch(place, 2, count=1) == [[3.0], [3.0]]


def test_a_rank_has_the_callers_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(programs.summed, 1)  # what changes afterwards must reach the ranks too
    monkeypatch.setenv("DTHW_TEST_MARK", "seen")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["program", "argument"])
    for rank, found in enumerate(launch(programs.surroundings, 2, threads=3)):
        assert found == {
            "directory": str(tmp_path),
            "mark": "seen",
            "rank": (str(rank), str(rank)),
            "threads": 3,
            "argv": ["program", "argument"],
        }


def test_ranks_share_the_cores_unless_told() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert {found["threads"] for found in launch(programs.surroundings, 2)} == {max(1, cores // 2)}


def test_each_rank_and_launch_draws_its_own_random_numbers() -> None:
    draws = launch(programs.numpy_draw, 3) + launch(programs.numpy_draw, 3)
    assert len(set(draws)) == 6


def test_tens_of_megabytes_come_back() -> None:
    size = 50_000_000
    values = launch(programs.blob, 2, size)
    assert values == [bytes([rank]) * size for rank in range(2)]


def test_tensors_travel_both_ways() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for rank, y in enumerate(launch(programs.same_tensor, 2, x)):
        assert torch.equal(y, x + rank)


def test_threads_may_launch_at_the_same_time() -> None:
    with ThreadPoolExecutor(4) as pool:
        values = list(pool.map(lambda count: launch(programs.summed, 2, count), range(8)))
    assert values == [[[3.0] * count] * 2 for count in range(8)]


def test_what_ranks_import_slowly_is_imported_once() -> None:
    assert launch(programs.optimise, 2) == [True, True]
    assert launch(programs.had_dynamo, 1) == [True]


# ── bad requests ─────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("ranks", "options", "message"),
    [
        (0, {}, "ranks=0: expected a whole number, 1 or more"),
        (-1, {}, "ranks=-1"),
        (2.0, {}, "ranks=2.0"),
        (True, {}, "ranks=True"),
        ("2", {}, "ranks='2'"),
        (2, {"timeout": 0}, "timeout=0: expected seconds, above 0"),
        (2, {"timeout": -3}, "timeout=-3"),
        (2, {"timeout": float("nan")}, "timeout=nan"),
        (2, {"timeout": float("inf")}, "timeout=inf"),
        (2, {"timeout": "60"}, "timeout='60'"),
        (2, {"group_timeout": 0}, "group_timeout=0"),
        (2, {"threads": 0}, "threads=0"),
    ],
)
def test_a_value_out_of_range_is_named(ranks: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        launch(programs.summed, ranks, **options)


def nested() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


def from_a_page(name: str) -> Any:
    """A function as a block of a page defines it, in a namespace that is no module."""
    space: dict[str, Any] = {"__name__": name} if name else {}
    exec("def main(): return 1", space)
    return space["main"]


@pytest.mark.parametrize(
    "function",
    [lambda: 1, nested(), from_a_page(""), from_a_page("__main__"), programs.Unpicklable("a", "b").with_traceback, 3],
    ids=["lambda", "closure", "page", "page named __main__", "method", "number"],
)
def test_a_function_no_file_holds_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match=r"must find the function at the top level of a file"):
        launch(function, 2)


def test_wrong_places_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected 'module:function' or 'path/to/file.py:function'"):
        launch("no_colon", 2)
    with pytest.raises(FileNotFoundError, match=r"there is no file snippets/absent.py"):
        launch("snippets/absent.py:main", 2)
    with pytest.raises(RanksFailed, match="No module named 'dthw_absent'"):
        launch("dthw_absent:main", 2)
    with pytest.raises(RanksFailed, match="has no attribute 'absent'"):
        launch(f"{PROGRAMS}:absent", 2)


def test_an_argument_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(TypeError, match="an argument of summed cannot be pickled"):
        launch(programs.summed, 2, threading.Lock())


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def failure(function: Any, p: int, *args: Any, **options: Any) -> RanksFailed:
    with pytest.raises(RanksFailed) as caught:
        launch(function, p, *args, **options)
    assert sorted(caught.value.outcomes) == list(range(p))
    assert all(outcome in str(caught.value) for outcome in caught.value.outcomes.values())
    return caught.value


@pytest.mark.parametrize("rank", range(4))
def test_the_rank_that_raised_is_named_first_with_its_own_traceback(rank: int, temporary: Path) -> None:
    failed = failure(programs.raises_on, 4, rank)
    assert failed.first == rank
    assert str(failed).startswith(f"rank {rank} of 4 failed first: ")
    assert "Unpicklable: planted fault" in failed.headline
    assert "in raises_on" in failed.tracebacks[rank]
    assert "_keeper.py" not in failed.tracebacks[rank]
    for other in set(range(4)) - {rank}:
        assert "planted fault" not in failed.outcomes[other]


def test_a_killed_rank_is_named_first(temporary: Path) -> None:
    failed = failure(programs.killed_on, 4, 2)
    assert failed.first == 2
    assert failed.outcomes[2] == "killed by signal SIGKILL"
    assert failed.headline == "rank 2 of 4 failed first: killed by signal SIGKILL"
    assert 2 not in failed.tracebacks


def test_a_crash_shows_its_stack(temporary: Path) -> None:
    failed = failure(programs.crashes_on, 2, 1)
    assert failed.first == 1
    assert failed.outcomes[1].startswith("killed by signal SIGSEGV")
    assert "in crashes_on" in failed.outcomes[1]


def test_an_exit_without_a_result_gives_its_code(temporary: Path) -> None:
    failed = failure(programs.leaves_on, 2, 0)
    assert (failed.first, failed.outcomes[0]) == (0, "exited with code 3 without a result")


def test_a_hang_shows_where_each_rank_was(temporary: Path) -> None:
    failed = failure(programs.hangs_on, 3, 1, timeout=1)
    assert failed.headline == "ranks 0, 1, 2 of 3 still running after 1 s"
    assert "in hangs_on" in failed.outcomes[1]
    assert "all_reduce" not in failed.outcomes[1]
    assert "in all_reduce" in failed.outcomes[0]


def test_a_stopped_rank_ends_too(temporary: Path) -> None:
    failed = failure(programs.stops_on, 2, 1, timeout=1)
    assert failed.outcomes[1] == "still running after 1 s"  # a stopped process cannot show its stack


def test_ranks_that_returned_are_said_to_have_finished(temporary: Path) -> None:
    failed = failure("tests/distributed/rank_programs.py:generator_from", 2, 1)
    assert failed.first == 1
    assert "rank 1 returned a generator, which cannot be pickled" in failed.headline


def test_a_value_this_process_cannot_read_names_its_rank(tmp_path: Path) -> None:
    (tmp_path / "stranger.py").write_text("class Thing: pass\ndef main(): return Thing()\n")
    failed = failure(f"{tmp_path}/stranger.py:main", 1)
    assert "rank 0 of 1 returned a value of a type that this process cannot import" in failed.headline


def test_a_failure_can_be_pickled_and_reads_the_same() -> None:
    failed = RanksFailed("headline", 1, {0: "finished", 1: "killed", 2: "finished"}, {})
    assert (
        str(pickle.loads(pickle.dumps(failed))) == str(failed) == "headline\n\nranks 0, 2: finished\n\nrank 1: killed"
    )


# ── nothing stays ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_launches_leave_no_descriptor_process_or_file(proc: None, temporary: Path) -> None:
    launch(programs.summed, 2)
    descriptors = open_descriptors()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    for _ in range(5):
        launch(programs.summed, 3)
    failure(programs.raises_on, 2, 1)
    failure(programs.hangs_on, 2, 1, timeout=0.5)
    assert open_descriptors() == descriptors
    assert Path(f"/proc/self/task/{os.getpid()}/children").read_text() == children


def test_a_killed_nursery_is_replaced(proc: None) -> None:
    launch(programs.summed, 1)
    assert ranks._nursery
    pid = ranks._nursery[1].pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the nursery has gone")
    assert launch(programs.summed, 2, 1) == [[3.0], [3.0]]


WAITING = """
    import signal
    from dthw import launch
    if __name__ == "__main__":
        # What starts in the background of a shell inherits that Ctrl-C is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("launching", flush=True)
        launch("{programs}:note_pid_and_wait", 3, {directory!r}, child={child})
"""


def run_waiting(directory: Path, child: bool = False) -> tuple["subprocess.Popen[str]", list[int]]:
    """Start a program whose three ranks wait for ever; give it and the process ids below it."""
    script = directory / "waiting.py"
    script.write_text(textwrap.dedent(WAITING).format(programs=ROOT / PROGRAMS, directory=str(directory), child=child))
    parent = subprocess.Popen(
        [sys.executable, str(script)], env=os.environ | {"TMPDIR": str(directory)}, text=True, stderr=subprocess.PIPE
    )
    expected = 6 if child else 3
    wait_until(lambda: len(list(directory.glob("pid-*"))) >= expected or parent.poll() is not None, "all ranks run")
    assert parent.poll() is None, parent.stderr and parent.stderr.read()
    return parent, [int(path.name[4:]) for path in directory.glob("pid-*")]


@pytest.mark.parametrize("child", [False, True], ids=["ranks", "ranks and their children"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_ranks_end_with_their_caller(proc: None, tmp_path: Path, how: signal.Signals, child: bool) -> None:
    parent, pids = run_waiting(tmp_path, child)
    parent.send_signal(how)
    _, errors = parent.communicate(timeout=30)
    if how == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert not [pid for pid in pids if alive(pid)]  # by then, not soon after
    wait_until(lambda: not any(map(alive, pids)), "the ranks have ended")
    wait_until(lambda: left_over(tmp_path) == [], "the temporary directory has gone")


def test_ranks_end_with_their_keeper(proc: None, tmp_path: Path) -> None:
    parent, pids = run_waiting(tmp_path)
    keeper = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    _, errors = parent.communicate(timeout=30)
    assert "ended without an answer" in errors
    wait_until(lambda: not any(map(alive, pids)), "the ranks have ended")


# ── every kind of caller ─────────────────────────────────────────────────────────────────────────────────────────────
def python(*args: str, stdin: str | None = None, directory: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *args], input=stdin, capture_output=True, text=True, cwd=directory, timeout=120, check=False
    )


MAIN = """
    import dataclasses, os
    from dthw import launch

    @dataclasses.dataclass
    class Point:
        x: int

    def main(point):
        return Point(point.x + int(os.environ["RANK"]))

    {guard}print(launch(main, 2, Point(5)))
"""


@pytest.mark.parametrize("way", ["path", "module"])
def test_a_script_launches_its_own_function(tmp_path: Path, way: str) -> None:
    (tmp_path / "guarded.py").write_text(textwrap.dedent(MAIN).format(guard='if __name__ == "__main__": '))
    done = python(*(["-m", "guarded"] if way == "module" else ["guarded.py"]), directory=tmp_path)
    assert done.stdout == "[Point(x=5), Point(x=6)]\n", done.stderr
    assert done.stderr == ""


def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(textwrap.dedent(MAIN).format(guard=""))
    done = python("bare.py", directory=tmp_path)
    assert done.returncode == 1
    assert "put the lines that launch under `if __name__ == '__main__':`" in done.stderr


def test_a_script_without_a_guard_may_launch_what_lives_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("from dthw import launch\nprint(launch('torch.distributed:get_rank', 2))\n")
    assert python("bare.py", directory=tmp_path).stdout == "[0, 1]\n"


SESSION = """
from dthw import launch
print(launch("torch.distributed:get_rank", 2))

def mine():
    return 1

launch(mine, 2)
"""


@pytest.mark.parametrize("way", ["-c", "standard input", "prompt", "ipython"])
def test_a_session_launches_what_files_hold_and_nothing_else(way: str) -> None:
    if way == "ipython":
        pytest.importorskip("IPython")
    done = {
        "-c": lambda: python("-c", SESSION),
        "standard input": lambda: python("-", stdin=SESSION),
        "prompt": lambda: python("-i", "-q", stdin=SESSION),
        "ipython": lambda: python("-m", "IPython", "--no-banner", "--colors=NoColor", stdin=SESSION),
    }[way]()
    assert "[0, 1]" in done.stdout, done.stderr
    assert re.search(
        r"TypeError: mine cannot be run on ranks: .* Put it under snippets/", done.stdout + done.stderr, re.S
    )


def test_a_notebook_kernel_launches(tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(part) for part in SESSION.strip().split("\n\n")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client.NotebookClient(
        notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert "[0, 1]" in str(notebook.cells[0].outputs)
    assert "cannot be run on ranks" in str(notebook.cells[-1].outputs)


def test_a_fork_of_the_caller_has_a_nursery_of_its_own(tmp_path: Path) -> None:
    script = """
        import os
        from dthw import launch
        launch("torch.distributed:get_rank", 1)
        if (pid := os.fork()) == 0:
            print(launch("torch.distributed:get_rank", 2), flush=True)
        else:
            assert os.waitpid(pid, 0)[1] == 0
            print(launch("torch.distributed:get_rank", 3), flush=True)
    """
    assert python("-c", textwrap.dedent(script)).stdout == "[0, 1]\n[0, 1, 2]\n"


def test_what_ranks_print_arrives(capfd: pytest.CaptureFixture[str]) -> None:
    launch("builtins:print", 2, "a line")
    assert capfd.readouterr().out == "a line\na line\n"


def test_importing_needs_no_torch() -> None:
    script = "import sys; sys.modules['torch'] = None; import dthw.ranks; assert 'numpy' not in sys.modules"
    assert python("-c", script).returncode == 0


# ── one group, however started ───────────────────────────────────────────────────────────────────────────────────────
GROUP = """
    import sys
    import torch, torch.distributed as dist
    from dthw.ranks import process_group

    def main():
        with process_group() as (rank, world):
            x = torch.ones(1)
            dist.all_reduce(x.cuda() if dist.get_backend() == "nccl" else x)
        return rank, world, dist.is_initialized()

    if __name__ == "__main__":
        # torchrun's ranks write unbuffered to one pipe, where print would leave its end of line for later
        rank, world, left = main()
        sys.stdout.write(f"{rank} {world} {left}\\n")
"""


def test_process_group_alone_under_torchrun_and_inside_launch(tmp_path: Path) -> None:
    script = tmp_path / "group.py"
    script.write_text(textwrap.dedent(GROUP))
    assert python(str(script)).stdout == "0 1 False\n"
    torchrun = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script))
    assert sorted(torchrun.stdout.splitlines()) == ["0 2 False", "1 2 False"], torchrun.stderr
    assert launch(f"{script}:main", 2) == [(0, 2, True), (1, 2, True)]


def test_process_group_ends_its_own_group_after_an_error() -> None:
    with pytest.raises(KeyError), ranks.process_group():
        raise KeyError
    assert not torch.distributed.is_initialized()


def test_temporary_directory_is_the_callers(temporary: Path) -> None:
    assert launch(tempfile.gettempdir, 1) == [str(temporary)]

"""Each snippet runs as its page says: under torchrun, on two local gloo ranks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def torchrun(script: str, *arguments: str) -> str:
    """What the snippet prints; ``--standalone`` is a rendezvous of its own on a free port."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        ("snippets/four_ranks.py", (), "rank 0 of 2 put in"),
        ("snippets/all_reduce_race.py", ("--sizes", "1024", "65536"), "halving_doubling"),
        ("snippets/train_ddp.py", ("--steps", "3", "--algorithm", "ring"), "2 ranks, ring: loss"),
        ("snippets/train_ddp.py", ("--steps", "3", "--algorithm", "torch"), "2 ranks, torch: loss"),
        ("snippets/same_bits.py", (), "all ranks agree: True"),
    ],
)
def test_the_snippet_runs_under_torchrun(script: str, arguments: tuple[str, ...], says: str) -> None:
    assert says in torchrun(script, *arguments)


def test_the_batch_file_is_a_valid_script_that_starts_an_existing_program() -> None:
    batch = ROOT / "snippets" / "all_reduce_race.sbatch"
    subprocess.run(["bash", "-n", str(batch)], check=True, timeout=30)
    program = batch.read_text().split()[-1]
    assert (ROOT / program).is_file()


OWN_GROUP = """
import torch, torch.distributed as dist, dthw
dist.init_process_group("gloo")
x = torch.ones(1000)
for algorithm in ("ring", "auto"):
    dthw.all_reduce(x, algorithm=algorithm)
other = dist.new_group([0, 1])
dthw.all_reduce(x, group=other, async_op=True).wait()
dist.barrier()
dist.destroy_process_group()
"""


def test_a_program_that_destroys_its_group_itself_ends_without_an_abort(tmp_path: Path) -> None:
    """What dthw keeps for a group must be gone before the interpreter is."""
    script = tmp_path / "own_group.py"
    script.write_text(OWN_GROUP)
    for _ in range(3):
        assert "terminate" not in torchrun(str(script))


def test_training_through_a_schedule_gives_the_losses_of_plain_ddp() -> None:
    from dthw import launch

    for ranks in (2, 3, 4):
        plain = launch("snippets/train_ddp.py:train", ranks, None)
        for algorithm in ("auto", "ring", "recursive_doubling", "torus_2d"):
            hooked = launch("snippets/train_ddp.py:train", ranks, algorithm)
            assert all(losses == hooked[0] for losses in hooked), "all ranks see one loss"
            assert hooked[0] == pytest.approx(plain[0], rel=1e-5), f"{ranks} ranks, {algorithm}"
        assert plain[0][-1] < 0.5 * plain[0][0], "the model learns"

"""Long: kills at random moments, and plans for arbitrary schedules by the thousand. Run: nox -s soak"""

import json
import random
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dthw import RanksFailed, launch
from dthw.collectives.algorithms import ALL_REDUCE
from tests.collectives.test_plan import SEEDS, check

PROGRAMS = str(Path(__file__).with_name("collective_programs.py"))

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("seed", range(60))
def test_whenever_a_rank_is_killed_every_survivor_says_so(seed: int, tmp_path: Path) -> None:
    """In any algorithm, at any number of ranks and any size, in any call of a run."""
    chance = random.Random(seed)
    p, name = chance.randint(2, 7), chance.choice(sorted(ALL_REDUCE))
    count, when = chance.choice([1, 1000, 300_000, 4_000_000]), chance.randint(0, 20)
    arguments = (name, "killed", count, str(tmp_path), when)
    with pytest.raises(RanksFailed) as failed:
        launch(f"{PROGRAMS}:bereaved", p, *arguments, timeout=120, group_timeout=10)
    assert failed.value.first == p - 1 and "SIGKILL" in failed.value.outcomes[p - 1]
    for rank in range(p - 1):
        seen = json.loads((tmp_path / f"{rank}.json").read_text())
        assert f"failed on rank {rank} of {p}" in seen["error"] and seen["bystander"]


def test_ranks_agree_with_torch_over_and_over() -> None:
    for p in (2, 3, 5, 8):
        for _ in range(5):
            dtypes, algorithms = [torch.float32, torch.bfloat16], [*ALL_REDUCE, "auto"]
            arguments = ([0, 1, p, 17, 100_001], dtypes, ["SUM", "MAX"], algorithms)
            assert launch(f"{PROGRAMS}:agree", p, *arguments, timeout=600) == [[]] * p


@given(
    name=st.sampled_from(sorted(ALL_REDUCE)),
    p=st.integers(1, 12),
    count=st.integers(0, 80),
    piece=st.integers(1, 9),
    seed=SEEDS,
)
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
def test_programs_neither_deadlock_nor_go_wrong(name: str, p: int, count: int, piece: int, seed: int) -> None:
    check(ALL_REDUCE[name](p), count, piece, seed)

"""`dthw.all_reduce` on real gloo ranks: equal to torch's own, counted, refused or failed clearly, never hung."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from dthw import RanksFailed, launch
from dthw.collectives.algorithms import ALL_REDUCE, ring
from dthw.collectives.cost import traffic

PROGRAMS = str(Path(__file__).with_name("collective_programs.py"))


def program(name: str, ranks: int, *args: Any, **options: Any) -> list[Any]:
    return launch(f"{PROGRAMS}:{name}", ranks, *args, **{"timeout": 240, **options})


def faults(results: list[list[str]]) -> list[str]:
    return [fault for rank in results for fault in rank]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("p", range(1, 10))
def test_equals_torch_and_the_bytes_counted_equal_the_formula(p: int) -> None:
    """Every algorithm at every count that is awkward for p ranks; one process group for all."""
    counts = sorted({0, 1, p - 1, p, p + 1, 1000})
    assert faults(program("agree", p, counts, [torch.float32, torch.int64], ["SUM"], list(ALL_REDUCE))) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("p", range(1, 10))
def test_equals_torch_on_a_large_uneven_buffer(p: int) -> None:
    dtypes = [torch.float32, torch.int32] if p < 5 else [torch.float32]
    assert faults(program("agree", p, [1_000_003], dtypes, ["SUM"], list(ALL_REDUCE))) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("p", [2, 3, 4])
def test_every_operation_and_dtype(p: int) -> None:
    dtypes = [torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.int8, torch.int32, torch.int64]
    ops = ["SUM", "PRODUCT", "MIN", "MAX", "AVG"]
    assert (
        faults(program("agree", p, [13], dtypes, ops, ["ring", "recursive_doubling", "double_binary_tree", "auto"]))
        == []
    )


def test_strided_leaf_and_complex_tensors() -> None:
    assert faults(program("views", 3)) == []


def test_every_rank_ends_with_the_same_bits_even_for_awkward_values() -> None:
    assert faults(program("same_bits", 5)) == []


def test_subgroups_use_their_own_ranks_and_strangers_are_refused() -> None:
    assert faults(program("subgroups", 5)) == []


def test_asynchronous_calls_keep_their_order_and_stay_apart_from_other_messages() -> None:
    assert faults(program("asynchronous", 3)) == []


def test_the_batched_path_of_other_backends_gives_the_same() -> None:
    assert faults(program("in_batches", 5)) == []


@pytest.mark.gpu
def test_nccl_gives_the_same_on_the_gpus_that_are_there() -> None:
    assert faults(program("on_gpus", torch.cuda.device_count(), backend="nccl")) == []


def test_order_renames_ranks() -> None:
    results = program("renamed", 4, [2, 0, 3, 1])
    assert [r[0] for r in results] == [[1111]] * 4
    assert [r[1] for r in results] == [[3], [2], [0], [1]]  # the ring goes 2, 0, 3, 1, 2


@pytest.mark.parametrize(
    ("algorithm", "count"), [("ring", 10), ("double_binary_tree", 1000), ("recursive_doubling", 600_000)]
)
def test_a_trace_tells_every_message_once_from_both_sides(algorithm: str, count: int) -> None:
    p = 3
    events = [e for rank in program("traced", p, algorithm, count) for e in rank]
    schedule = ALL_REDUCE[algorithm](p)
    edges = schedule.bounds(count)
    expected = sorted(
        (k, int(s), int(d), int(lo), int(n), int(edges[lo + n] - edges[lo]) * 4)
        for k, r in enumerate(schedule.rounds(), start=1)
        for s, d, lo, n in zip(r.src, r.dst, r.lo, r.n, strict=True)
        if edges[lo + n] > edges[lo]
    )
    for side in ("send", "receive"):
        seen = [e for e in events if e["side"] == side]
        assert sorted((e["round"], e["src"], e["dst"], e["chunk"], e["n_chunks"], e["bytes"]) for e in seen) == expected
        assert all(e["rank"] == e["src" if side == "send" else "dst"] for e in seen)
        assert all(math.isfinite(e["end"]) and e["start"] <= e["end"] for e in seen)
    json.dumps(events)


def test_what_is_refused_and_how() -> None:
    for said in program("refusals", 2):
        assert said.pop("afterwards") == "True"
        expected = {
            "not a tensor": "TypeError: tensor is a list",
            "op": "TypeError: op is 'sum'",
            "premul": "RuntimeError: op is",
            "algorithm": "ValueError: algorithm is 'rign'; did you mean ring",
            "other size": "ValueError: ring is for 3 ranks, but the group has 2",
            "other collective": "ValueError: schedule achieves broadcast",
            "not a schedule": "TypeError: algorithm returned int",
            "sparse": "ValueError: tensor has layout torch.sparse_coo",
            "meta": "ValueError: tensor is on the meta device",
            "expanded": "RuntimeError: tensor is expanded",
            "integer AVG": "RuntimeError: AVG of torch.int64",
            "BAND of floats": "RuntimeError: cannot use ReduceOp.BAND with torch.float32",
            "complex MAX": "ValueError: all_reduce does not support MAX on complex tensors",
            "float8": "RuntimeError: cannot use ReduceOp.SUM with torch.float8_e4m3fn",
            "order": "ValueError: order is [0, 0]; it must name each of the ranks 0 to 1 once",
            "group": "TypeError: group is a int",
        }
        assert {name: said[name].startswith(start) for name, start in expected.items()} == dict.fromkeys(
            expected, True
        ), said


def test_without_a_process_group_torchs_own_error_is_raised() -> None:
    import dthw

    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        dthw.all_reduce(torch.ones(1))


@pytest.mark.parametrize("what", ["shape", "dtype", "op", "schedule"])
def test_debug_names_what_differs_on_every_rank(what: str) -> None:
    for text in program("disagree", 3, what):
        assert text.startswith("the ranks ask for different things") and what in text.splitlines()[0]
        assert [line.split(":")[0].strip() for line in text.splitlines()[1:]] == ["rank 0", "rank 1", "rank 2"]
        assert "nothing was sent" in text


def test_a_mismatch_without_debug_ends_in_a_report_and_not_in_a_hang() -> None:
    with pytest.raises(RanksFailed) as failed:
        program("mismatched", 2, timeout=30, group_timeout=5)
    assert failed.value.outcomes


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "double_binary_tree"])
@pytest.mark.parametrize(("how", "count"), [("killed", 10), ("killed", 3_000_000), ("stopped", 3_000_000)])
def test_a_dead_or_silent_peer_is_a_clear_error_on_every_survivor(
    algorithm: str, how: str, count: int, tmp_path: Path
) -> None:
    with pytest.raises(RanksFailed) as failed:
        program("bereaved", 4, algorithm, how, count, str(tmp_path), timeout=60, group_timeout=3)
    if how == "killed":
        assert failed.value.first == 3 and "SIGKILL" in failed.value.outcomes[3]
    for rank in range(3):
        seen = json.loads((tmp_path / f"{rank}.json").read_text())
        assert f"failed on rank {rank} of 4 in round" in seen["error"] and "A peer has died" in seen["error"]
        assert seen["again"] == seen["error"], "the group must not be used again"
        assert seen["bystander"]


def test_plans_of_one_size_are_compiled_once() -> None:
    from dthw.collectives.plan import compile_plan

    compile_plan.cache_clear()
    schedule = ring(4)
    for _ in range(5):
        compile_plan(schedule, (0, 1, 2, 3), 1, 100, 4)
    assert compile_plan.cache_info().misses == 1


def test_traffic_is_what_a_user_reads_in_the_lesson() -> None:
    assert traffic(ring(4), 25_000_000, itemsize=4).bytes_sent.tolist() == [150_000_000] * 4

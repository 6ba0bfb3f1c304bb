"""What is fitted is what was measured, and what "auto" assumes is what was fitted."""

from pathlib import Path

import pytest

from dthw.collectives.auto import CANDIDATES, LOCAL, choose
from dthw.collectives.cost import Port
from dthw.collectives.formulas import ALL_REDUCE
from dthw.measure import fit, results

DATA = Path(__file__).parents[2] / "docs" / "assets" / "data" / "gloo.json"


def test_known_constants_are_found_again() -> None:
    truth = Port(alpha_s=3e-6, beta_s=2e-10, gamma_s=5e-10)
    records = [
        {"ranks": 8, "algorithm": name, "bytes": n, "seconds": [ALL_REDUCE[name](8, n).seconds(3e-6, 2e-10, 5e-10)]}
        for name in CANDIDATES
        for n in (1000, 100_000, 10_000_000)
    ]
    found = fit.port(records, 8)
    for a, b in ((found.alpha_s, truth.alpha_s), (found.beta_s, truth.beta_s), (found.gamma_s, truth.gamma_s)):
        assert a == pytest.approx(b, rel=1e-9)


def test_auto_assumes_what_was_fitted_to_the_committed_measurements() -> None:
    found = fit.port(results.read(DATA)["records"], 4)
    assert found.alpha_s == pytest.approx(LOCAL.alpha_s, rel=0.15)
    assert found.beta_s == pytest.approx(LOCAL.beta_s, rel=0.15)
    assert found.gamma_s == pytest.approx(LOCAL.gamma_s, rel=0.25)


def test_auto_takes_the_cheapest_closed_form_for_the_network_it_is_told() -> None:
    slow_start, slow_bytes = Port(1.0, 1e-9), Port(1e-9, 1.0)
    for p in (2, 3, 6, 8, 100):
        for n in (4, 10_000, 10**9):
            for port in (slow_start, slow_bytes, LOCAL):
                costs = {a: ALL_REDUCE[a](p, n).seconds(port.alpha_s, port.beta_s, port.gamma_s) for a in CANDIDATES}
                assert costs[choose(p, n, port)] == min(costs.values())
    assert choose(6, 10**9, slow_bytes) == "ring" and choose(8, 1000, slow_start) == "recursive_doubling"


def test_a_result_file_is_written_whole_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.json"
    results.write(path, [{"bytes": 1, "seconds": [0.5]}], "a command")
    content = results.read(path)
    assert content["records"] == [{"bytes": 1, "seconds": [0.5]}]
    assert {"device", "cores", "system", "python", "torch", "command", "date"} <= set(content["provenance"])
    assert list(path.parent.iterdir()) == [path]
    path.write_text('{"schema": 99}')
    with pytest.raises(ValueError, match="schema 99"):
        results.read(path)

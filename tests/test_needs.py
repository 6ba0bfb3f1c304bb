"""Where everything a test needs is promised (DTHW_CI=1), a skip is a failure, except for want of a GPU."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

def test_skips():
    pytest.skip("no browser here")

@pytest.mark.skipif(True, reason="needs a CUDA GPU")
def test_wants_a_gpu():
    pass

@pytest.mark.gpu
def test_is_marked():
    pytest.skip("only one device")

@pytest.mark.xfail(strict=True)
def test_fails_as_expected():
    assert False

@pytest.mark.soak
def test_long():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "docs"))
    pytester.makeini("[pytest]\nmarkers =\n    gpu: x\n    soak: x\n")
    pytester.makeconftest((ROOT / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(test_some=TESTS, test_module="import pytest\npytest.importorskip('no_such_module')")
    return pytester


def test_a_skip_is_a_failure_where_needs_are_promised(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTHW_CI", "1")
    result = suite.runpytest_subprocess("-p", "no:xdist")
    # A module that skips itself counts as an error, which ends the run: taken apart here.
    result.assert_outcomes(errors=1, deselected=1)
    suite.path.joinpath("test_module.py").unlink()
    result = suite.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(failed=1, skipped=2, xfailed=1, deselected=1)
    result.stdout.fnmatch_lines(["*no browser here*"])


def test_a_skip_is_a_skip_elsewhere(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DTHW_CI", raising=False)
    suite.runpytest_subprocess("-p", "no:xdist").assert_outcomes(skipped=4, xfailed=1, deselected=1)


def test_long_tests_wait_to_be_asked_for(suite: pytest.Pytester) -> None:
    suite.path.joinpath("test_module.py").unlink()
    suite.runpytest_subprocess("-p", "no:xdist", "-m", "soak").assert_outcomes(passed=1, deselected=4)

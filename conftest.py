"""What holds for every test: pages are tests, long tests wait to be asked for, and needs are not optional."""

import os
import re
import shutil
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest
from page_blocks import PAGES

pytest_collect_file = PAGES.pytest()
# Scripts beside the pages draw figures; there is nothing in them to collect.
collect_ignore_glob = ["docs/*.py"]

CI = os.environ.get("DTHW_CI") == "1"


@cache
def has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None:  # spares the import of torch almost everywhere
        return False
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "soak" in config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("soak")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not has_gpu():
        pytest.skip("needs a CUDA GPU")


def refuse_skip(report: Any, allowed: bool = False) -> None:
    """Where everything a test needs is promised to be there, a skip hides a broken promise. GPUs are not promised."""
    if not CI or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not allowed and not re.search(r"\b(GPUs?|CUDA)\b", reason):
        report.outcome = "failed"
        report.longrepr = f"{reason}\nDTHW_CI=1 turns this skip into a failure: install what is missing."


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report, allowed=item.get_closest_marker("gpu") is not None)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report

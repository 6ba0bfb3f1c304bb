"""What tests with real ranks share."""

import os
import sys
from pathlib import Path

import pytest


def needs(there: bool, what: str) -> None:
    """Skip a test whose need is missing here; where ``DTHW_CI=1`` promises that everything is there, fail instead."""
    if not there:
        if os.environ.get("DTHW_CI") == "1":
            pytest.fail(f"DTHW_CI=1, but {what} is missing")
        pytest.skip(f"needs {what}")


@pytest.fixture
def proc() -> None:
    """Ask for Linux's /proc."""
    needs(sys.platform == "linux" and Path("/proc/self/fd").is_dir(), "Linux with /proc")

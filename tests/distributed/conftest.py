"""What tests with real ranks share."""

import sys
from pathlib import Path

import pytest


@pytest.fixture
def proc() -> None:
    """Ask for Linux's /proc; the root's conftest turns the skip into a failure where everything is promised."""
    if sys.platform != "linux" or not Path("/proc/self/fd").is_dir():
        pytest.skip("needs Linux with /proc")

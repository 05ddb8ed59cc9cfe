"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared: slowness is no failure. In CI the same examples are tried every time.
settings.register_profile(
    "shared",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("shared")

# Tests that are started in the background inherit that interrupts are ignored, and hand that down.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of public data sets; tests that need it are skipped where it is absent."""
    path = Path(os.environ.get("WATTSCHED_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"the public data sets are not at {path} (set WATTSCHED_DATA)")
    return path

"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
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


JITTER = 4e-15
"""Relative: by about as much do sums differ between processors."""
JITTERED = {
    "wattsched.formulations.sizing.data:Options": ("rate", "completion_s", "power_w"),
    "wattsched.formulations.shifting.data:Horizon": ("rate", "power_w", "extra_w", "per_joule"),
    "wattsched.formulations.sharing.data:Patterns": ("epoch_s", "power_w"),
}
"""The arrays that instances are expanded to, and their rates, watts and costs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--jitter SEED``."""
    parser.addoption(
        "--jitter",
        type=int,
        metavar="SEED",
        help=f"multiply every rate, watt and cost by 1 +- {JITTER:g} at random, as another processor might",
    )


@pytest.fixture(autouse=True)
def _jitter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the last digits of what instances are expanded to: equal instances in the same way."""
    if (seed := request.config.getoption("--jitter")) is not None:
        jitter(seed, monkeypatch.setattr)


def jitter(seed: int, replace: Callable[[type, str, Any], None] = setattr) -> None:
    """Jitter from now on, in this process."""
    for place, names in JITTERED.items():
        module, name = place.split(":")
        data = getattr(import_module(module), name)
        replace(data, "__init__", _jittered(data.__init__, names, seed))


def _jittered(made, names, seed):  # type: ignore[no-untyped-def]  # of any class
    def jittered(self, *values, **named):  # type: ignore[no-untyped-def]
        made(self, *values, **named)
        for name in names:
            exact = getattr(self, name)
            signs = np.random.default_rng([seed, crc32(exact.tobytes())]).choice([-1.0, 1.0], exact.shape)
            # The setter of a frozen class refuses.
            self.__dict__[name] = exact * (1 + JITTER * signs)

    return jittered

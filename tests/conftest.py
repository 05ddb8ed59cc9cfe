"""Fixtures that all tests share."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.strategies.browser import Browser, chromium
from tests.strategies.effort import CHECK, examples

# Machines are shared: slowness is no failure.
# `make test` tries the same examples every time, `make check` new ones.
settings.register_profile(
    "shared",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(100),
    derandomize=not CHECK,
    print_blob=True,
)
settings.load_profile("shared")

# Tests that are started in the background inherit that signals are ignored, and hand that down.
for ignored, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, usual)

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "tests" / "benchmarks"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of public data sets; tests that need it are skipped where it is absent."""
    path = Path(os.environ.get("WATTSCHED_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"the public data sets are not at {path} (set WATTSCHED_DATA)")
    return path


@pytest.fixture(scope="session")
def cases_dir(data_dir: Path) -> Path:
    """Folder of inputs in the shape of what users reported, beside the data; tests are skipped likewise."""
    path = data_dir.parent / "cases"
    if not path.is_dir():
        pytest.skip(f"the reported inputs are not at {path}, beside WATTSCHED_DATA")
    return path


CONTRADICTING_S = "wattsched.solving.conflicts.USUAL_S"


@pytest.fixture(scope="session", autouse=True)
def _unexplained() -> Iterator[None]:
    """Look for no limits that contradict each other: it takes longer than most infeasible instances do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CONTRADICTING_S, 0.0)
        yield


@pytest.fixture(scope="module")
def explained(_unexplained: None) -> Iterator[None]:
    """Look for them in the tests of a module, as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CONTRADICTING_S, 2.0)
        yield


@pytest.fixture
def as_root() -> None:
    """Root, who alone may act as another user, or give files away; its tests are skipped else."""
    if os.geteuid() != 0:
        pytest.skip("only root may act as another user")


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Debian's chromium; tests that need it are skipped where it is absent."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("needs Debian's chromium, which CI installs")
    with chromium(executable) as started:
        yield started


JITTER = 4e-15
"""Relative: by about as much do sums differ between processors."""
JITTERED = {
    "wattsched.formulations.sizing.data:Options": ("rate", "completion_s", "power_w"),
    "wattsched.formulations.shifting.data:Horizon": ("rate", "power_w", "extra_w", "per_joule"),
    "wattsched.formulations.sharing.data:Patterns": ("epoch_s", "power_w"),
    "wattsched.formulations.placement.data:Window": ("waiting",),
    "wattsched.replay.jobs.policies.rounds:RoundOptions": ("rate", "busy_w", "completion_s"),
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests on a real Slurm or Kubernetes, and as slow these and those of the benchmarks' scripts."""
    for item in items:
        real = {"root", "programs", "trial"} & set(getattr(item, "fixturenames", ()))
        if real:
            item.add_marker(pytest.mark.real)
        if real or item.path.is_relative_to(BENCHMARKS):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Compile what tests write each time: a formulation may change within a second, but for its size."""
    sys.dont_write_bytecode = True


@contextmanager
def changed_digits(seed: int) -> Iterator[None]:
    """Change the last digits of what instances are expanded to: equal instances in the same way."""
    with pytest.MonkeyPatch.context() as patch:
        for place, names in JITTERED.items():
            data = resolve_name(place)
            patch.setattr(data, "__init__", _jittering(data.__init__, names, seed))
        yield


def _jittering(made: Callable[..., None], names: Iterable[str], seed: int) -> Callable[..., None]:
    """Constructor of any class that changes the last digits of some of its arrays."""

    def jittering(self: Any, *values: Any, **named: Any) -> None:
        made(self, *values, **named)
        for name in names:
            exact = getattr(self, name)
            signs = np.random.default_rng([seed, crc32(exact.tobytes())]).choice([-1.0, 1.0], exact.shape)
            # The setter of a frozen class refuses.
            self.__dict__[name] = exact * (1 + JITTER * signs)

    return jittering


@pytest.fixture(scope="session")
def jittered() -> Callable[[int], AbstractContextManager[None]]:
    """Context in which instances are expanded to slightly other numbers, by a seed."""
    return changed_digits


@pytest.fixture(autouse=True)
def _jitter(request: pytest.FixtureRequest) -> Iterator[None]:
    """Do so in every test, where ``--jitter`` asks for it."""
    seed = request.config.getoption("--jitter")
    with nullcontext() if seed is None else changed_digits(seed):
        yield

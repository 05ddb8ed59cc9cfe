"""Real Slurms for tests, where they run as root: the installed one, and those of WATTSCHED_SLURM_ROOTS.

Without them these tests are skipped. Every test runs on each release.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.benchmarks.conftest import load_script
from tests.cli.conftest import run

__all__ = ["load_script", "run"]


ROOTS = [None, *(Path(name) for name in os.environ.get("WATTSCHED_SLURM_ROOTS", "").split(":") if name)]

CLOCKED = {
    "gpus": [2, 2],
    "pool": ["A100", "A100"],
    "rate": [1.0, 0.9],
    "power_w": [700.0, 400.0],
    "frequency_mhz": [1410, 1005],
}
"""Options of two GPUs at two clocks."""


@pytest.fixture(scope="session", params=ROOTS, ids=lambda root: root.name if root else "installed")
def root(request: pytest.FixtureRequest) -> Path | None:
    """Root folder of the Debian whose Slurm is tried; None is this machine's."""
    found: Path | None = request.param
    return found


@pytest.fixture(scope="session")
def emulated(load_script: Any, root: Path | None) -> Callable[..., Any]:
    """What starts clusters; skips where that does not work."""
    module: ModuleType = load_script("emulated_slurm")
    if why := module.missing(root):
        pytest.skip(why)
    return partial(module.emulated_slurm, root=root)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        yield Path(name)


@pytest.fixture
def cluster(emulated: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of eight GPUs that Slurm's commands find; the prolog notes the settings that it finds."""
    prolog = f"[ -f {folder}/settings/$SLURM_JOB_ID ] && cat {folder}/settings/$SLURM_JOB_ID >> {folder}/seen"
    with emulated(folder, 2, prolog=prolog) as running:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, running.environment[name])
        yield running

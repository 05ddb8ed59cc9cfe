"""A real Slurm for tests, where it is installed and they run as root; without it they are skipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmarks.conftest import load_script
from cli.conftest import run

__all__ = ["load_script", "run"]


@pytest.fixture(scope="session")
def emulated(load_script: Any) -> ModuleType:
    """The module that starts clusters; skips where that does not work."""
    module: ModuleType = load_script("emulated_slurm")
    if why := module.missing():
        pytest.skip(why)
    return module


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        yield Path(name)


@pytest.fixture
def cluster(emulated: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of eight GPUs that Slurm's commands find; the prolog notes the settings that it finds."""
    prolog = f"[ -f {folder}/settings/$SLURM_JOB_ID ] && cat {folder}/settings/$SLURM_JOB_ID >> {folder}/seen"
    with emulated.emulated_slurm(folder, 2, prolog=prolog) as running:
        monkeypatch.setenv("SLURM_CONF", running.environment["SLURM_CONF"])
        yield running

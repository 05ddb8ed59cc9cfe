"""Benchmarks as modules."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest


def load(name: str) -> ModuleType:
    """Load a benchmark by its name."""
    return import_module(f"benchmarks.{name}")


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """`load`."""
    return load

"""The script that makes the catalogue, as a module."""

from __future__ import annotations

from types import ModuleType

import pytest

from benchmarks import catalogue


@pytest.fixture(scope="session")
def catalogue_script() -> ModuleType:
    """Load the script."""
    return catalogue

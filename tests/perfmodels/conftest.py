"""The script that makes the catalogue, as a module."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "catalogue.py"


@pytest.fixture(scope="session")
def catalogue_script() -> ModuleType:
    """Load the script."""
    spec = importlib.util.spec_from_file_location("benchmark_catalogue", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return module

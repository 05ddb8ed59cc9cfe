"""Benchmarks write tables of the documentation, so their loader is wanted here, too."""

from tests.benchmarks.conftest import load_script

__all__ = ["load_script"]

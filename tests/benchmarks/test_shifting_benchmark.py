"""The tables of the shifting page come from this script."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_flat_forecasts_keep_the_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("shifting_benchmark", ROOT / "benchmarks" / "shifting.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shifting_benchmark", module)
    spec.loader.exec_module(module)
    instance = module.shifting_horizon(jobs=3, slots=6)
    values = module.flat(instance).carbon_g_per_kwh
    assert len(set(values)) == 1
    assert sum(values) == pytest.approx(sum(instance.carbon_g_per_kwh))

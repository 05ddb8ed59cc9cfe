"""The tables of the shifting page come from this script."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("shifting_benchmark", ROOT / "benchmarks" / "shifting.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shifting_benchmark", module)
    spec.loader.exec_module(module)
    return module


def test_flat_forecasts_keep_the_average(module: ModuleType) -> None:
    instance = module.shifting_horizon(jobs=3, slots=6)
    values = module.flat(instance).carbon_g_per_kwh
    assert len(set(values)) == 1
    assert sum(values) == pytest.approx(sum(instance.carbon_g_per_kwh))


def test_at_equal_grams_the_forecast_never_costs_time(module: ModuleType) -> None:
    found = module.within(module.shifting_horizon(jobs=3, gpus=8, slots=6), 1.0, 3.0)
    assert found is not None
    assert found.bound_s <= found.aware_s <= found.blind_s * (1 + 1e-9)

"""The comparison with and without a forecast is fair."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def module(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("shifting")


def test_flat_forecasts_keep_the_average(module: ModuleType) -> None:
    instance = module.shifting_horizon(jobs=3, slots=6)
    values = module.flat(instance).carbon_g_per_kwh
    assert len(set(values)) == 1
    assert sum(values) == pytest.approx(sum(instance.carbon_g_per_kwh))


def test_at_equal_grams_the_forecast_never_costs_time(module: ModuleType) -> None:
    found = module.within(module.shifting_horizon(jobs=3, gpus=8, slots=6), 1.0, 3.0)
    assert found is not None
    assert found.bound_s <= found.aware_s <= found.blind_s * (1 + 1e-9)

"""What single benchmarks state is true of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness, shifting, small_proofs
from benchmarks.studies import eaco
from wattsched.results.documents import instance_of
from wattsched.results.problems import problem


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_memory_bound_share_comes_back(share: float) -> None:
    clock = np.linspace(0.5, 1.0, 30)
    fitted = catalogue.fit_memory_bound_share(clock, pd.Series(share + (1 - share) / clock))
    assert fitted == pytest.approx(share, abs=1e-9)


def test_no_policy_saves_what_eaco_published_at_the_published_runs() -> None:
    written = (harness.FOLDER / "eaco.md").read_text(encoding="utf-8")
    assert "| measured sets, best of all mixes | 46.6 | 31.4 |" in written
    assert eaco.bounds() in written
    durations_s = eaco.durations_s(np.random.default_rng(0), 400_000)
    assert durations_s.mean() == pytest.approx(eaco.mean_duration_s(), rel=0.01)


def test_flat_forecasts_keep_the_average() -> None:
    instance = shifting.shifting_horizon(jobs=3, slots=6)
    values = shifting.flat(instance).carbon_g_per_kwh
    assert len(set(values)) == 1
    assert sum(values) == pytest.approx(sum(instance.carbon_g_per_kwh))


def test_at_equal_grams_the_forecast_never_costs_time() -> None:
    found = shifting.within(shifting.shifting_horizon(jobs=3, gpus=8, slots=6), 1.0, 3.0)
    assert found is not None
    assert found.bound_s <= found.aware_s <= found.blind_s * (1 + 1e-9)


def test_every_small_instance_is_valid_and_drawn_by_its_seed() -> None:
    for family in small_proofs.OPTIONS:
        made = [small_proofs.instance_of(family, seed) for seed in range(8)]
        assert made == [small_proofs.instance_of(family, seed) for seed in range(8)]
        for instance in made:
            assert instance_of(instance.model_dump(mode="json")) == instance
        assert len({instance.objective for instance in made}) > 1
        assert {instance.objective for instance in made} <= set(problem(made[0].problem).objectives)

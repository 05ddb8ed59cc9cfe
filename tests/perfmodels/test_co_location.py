"""EaCO's measurements, and how well the laws for unmeasured sets follow them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.perfmodels.co_location import (
    ALONE,
    EACO_SLOWDOWN,
    SHARED,
    SlowdownLaw,
    fit_slowdown,
    measured_slowdown,
    power_at,
)


def test_the_published_runs() -> None:
    """Their energy is power times time, but that of the set of four; slowdowns are of the time alone."""
    *runs, four = [*ALONE.values(), *SHARED.values()]
    for run in runs:
        assert run.power_w * run.jct_h / 1000 == pytest.approx(run.energy_kwh, rel=2e-3)
    assert (four.energy_kwh / four.power_w * 1000, four.jct_h) == (pytest.approx(48.18, abs=0.01), 44.21)
    factors = [round(measured_slowdown(members), 3) for members in SHARED]
    assert factors == [1.035, 1.030, 1.039, 1.084, 1.083, 1.245]


def test_laws_follow_the_measurements() -> None:
    for run in [*ALONE.values(), *SHARED.values()]:
        assert abs(float(power_at(run.utilisation_pct)) - run.power_w) < 66.5
    for members, run in SHARED.items():
        load = sum(ALONE[name].utilisation_pct for name in members)
        assert abs(load - run.utilisation_pct) < 6
        assert sum(ALONE[name].memory_pct for name in members) > run.memory_pct
        law = float(EACO_SLOWDOWN.of(len(members), load / 100))
        assert abs(law - measured_slowdown(members)) < 0.009


@given(st.floats(0.001, 0.1), st.floats(0.001, 0.2), st.sampled_from([1.0, 2.0, 4.0]))
def test_the_fit_finds_a_law_again(per_job: float, per_load: float, exponent: float) -> None:
    law = SlowdownLaw(per_job, per_load, exponent)
    jobs, load = [2, 2, 3, 3, 4, 4], [0.2, 0.6, 0.3, 0.9, 0.5, 1.0]
    found = fit_slowdown(jobs, load, law.of(np.array(jobs, dtype=float), np.array(load)).tolist())
    again = found.of(np.array(jobs, dtype=float), np.array(load))
    assert again == pytest.approx(law.of(np.array(jobs, dtype=float), np.array(load)), abs=1e-6)


def test_more_work_than_a_gpu_can_do_takes_longer() -> None:
    assert float(EACO_SLOWDOWN.of(3, 2.5)) >= 2.5
    with pytest.raises(ValueError, match="at least 2"):
        fit_slowdown([2], [0.5], [1.1])

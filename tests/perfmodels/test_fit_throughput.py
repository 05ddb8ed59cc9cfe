"""Known parameters come back from noisy steps, and the rule for what was not measured holds."""

from itertools import product

import numpy as np
import pytest

from wattsched.perfmodels.measurements import Measurements
from wattsched.perfmodels.throughput import Throughput, fit_throughput, held_out_error

TRUE = Throughput(
    alpha_c=0.02, beta_c=0.002, alpha_r=0.03, beta_r=0.002, alpha_n=0.08, beta_n=0.0004, gamma=1.6
)
SETTINGS = np.array(list(product([1, 2, 4, 8, 16, 32], [4, 16, 64, 128])), dtype=float)
GPUS, BATCH = SETTINGS.T
NODES = np.ceil(GPUS / 8)


def steps(scale: float = 1.0, stretch: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Exact step and synchronisation times, and 1 % of noise on the steps."""
    grad = TRUE.grad_time_s(BATCH, stretch)
    time = TRUE.iteration_time_s(grad, GPUS, NODES)
    noisy = time * np.random.default_rng(3).normal(1.0, 0.01, len(time))
    return scale * noisy, scale * np.maximum(noisy - grad, 0.0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_parameters_come_back_whatever_the_unit_of_time(scale):
    step_time, sync_time = steps(scale)
    fit = fit_throughput(Measurements(GPUS, NODES, BATCH, step_time, sync_time))
    assert fit.error.mean() < 0.015
    for name in ("alpha_c", "beta_c", "alpha_r", "alpha_n"):
        assert getattr(fit.throughput, name) == pytest.approx(scale * getattr(TRUE, name), rel=0.2), name
    assert fit.throughput.gamma == pytest.approx(TRUE.gamma, rel=0.15)
    np.testing.assert_allclose(fit.predicted_s, scale * steps()[0], rtol=0.06)


def test_without_synchronisation_times_the_steps_are_still_predicted():
    step_time, _ = steps()
    assert fit_throughput(Measurements(GPUS, NODES, BATCH, step_time)).error.mean() < 0.015
    assert held_out_error(Measurements(GPUS, NODES, BATCH, step_time)).mean() < 0.04


def test_the_memory_bound_share_comes_back():
    clock = np.tile([1400.0, 1000.0, 700.0], 8)
    step_time, sync_time = steps(stretch=0.3 + 0.7 * 1400.0 / clock)
    fit = fit_throughput(Measurements(GPUS, NODES, BATCH, step_time, sync_time, clock))
    assert fit.memory_bound_share == pytest.approx(0.3, abs=0.08)
    assert fit.error.mean() < 0.02


def test_what_was_not_measured_follows_the_rule():
    step_time, _ = steps()
    one_gpu, one_node = GPUS == 1, GPUS <= 8
    steps_on = Measurements(GPUS, NODES, BATCH, step_time).rows
    alone = fit_throughput(steps_on(one_gpu)).throughput
    assert (alone.alpha_r, alone.beta_r, alone.alpha_n, alone.beta_n, alone.gamma) == (0, 0, 0, 0, 1)
    near = fit_throughput(steps_on(one_node)).throughput
    assert near.alpha_n == pytest.approx(1.1 * near.alpha_r)
    assert near.beta_n == pytest.approx(1.1 * near.beta_r)


def test_a_floor_under_small_batches_is_found():
    batch = np.array([1, 4, 16, 64, 256, 1024], dtype=float)
    true = Throughput(alpha_c=0.04, beta_c=0.0002, gamma_c=6.0)
    one = np.ones(6)
    fit = fit_throughput(Measurements(one, one, batch, true.grad_time_s(batch)))
    assert fit.error.max() < 0.02
    assert fit.throughput.gamma_c > 3


def test_bad_values_are_named():
    one, batch = np.ones(2), np.array([8.0, 16.0])
    with pytest.raises(ValueError, match="at least 2 measurements"):
        fit_throughput(Measurements(one[:1], one[:1], batch[:1], one[:1]))
    with pytest.raises(ValueError, match=r"step_time_s has the value -0\.1; it must be finite and above 0"):
        Measurements(one, one, batch, np.array([0.1, -0.1]))
    with pytest.raises(ValueError, match="sync_time_s has the value nan; it must be finite and 0 or more"):
        Measurements(one, one, batch, one, np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match="nodes has 1 values, gpus has 2"):
        Measurements(one, one[:1], batch, one)
    with pytest.raises(ValueError, match="step_time_s has the value 1e-09 s; a step takes at least 1e-06 s"):
        fit_throughput(Measurements(one, one, batch, np.array([0.1, 1e-9])))
    with pytest.raises(ValueError, match="needs 8 measurements"):
        held_out_error(Measurements(one, one, batch, one))

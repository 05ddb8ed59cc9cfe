"""Iteration time and statistical efficiency: by hand, what must hold for any parameters, and fits."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.perfmodels.measurements import Measurements
from wattsched.perfmodels.throughput import (
    StatisticalEfficiency,
    Throughput,
    fit_noise_scale,
    fit_throughput,
    held_out_error,
    overlapped_time_s,
)

seconds = st.floats(0.0, 10.0)
models = st.builds(
    Throughput,
    alpha_c=seconds,
    beta_c=st.floats(1e-6, 1.0),
    alpha_r=seconds,
    beta_r=seconds,
    alpha_n=seconds,
    beta_n=seconds,
    gamma=st.floats(1.0, 10.0),
    gamma_c=st.floats(1.0, 10.0),
)


def test_the_three_regimes_by_hand():
    model = Throughput(
        alpha_c=0.1, beta_c=0.01, alpha_r=0.05, beta_r=0.002, alpha_n=0.3, beta_n=0.004, gamma=2.0
    )
    gpus, nodes = np.array([1, 2, 8, 2, 16]), np.array([1, 1, 1, 2, 2])
    sync = model.sync_time_s(gpus, nodes)
    np.testing.assert_allclose(sync, [0.0, 0.05, 0.05 + 6 * 0.002, 0.3, 0.3 + 14 * 0.004])
    grad = model.grad_time_s(20)
    assert grad == pytest.approx(0.3)
    np.testing.assert_allclose(model.iteration_time_s(grad, gpus, nodes), np.sqrt(0.3**2 + sync**2))


@given(st.floats(0, 1e-300), st.floats(0, 1e6), st.floats(1, 10))
def test_overlap_is_between_the_longer_phase_and_the_sum(one, other, gamma):
    joined = float(overlapped_time_s(one, other, gamma))
    assert max(one, other) <= joined <= (one + other) * (1 + 1e-12)


@settings(max_examples=examples(200))
@given(models, st.integers(1, 512), st.integers(1, 16), st.integers(1, 4))
def test_scaling_is_at_most_linear_and_only_the_samples_stretch(model, batch, gpus, nodes):
    alone = float(model.iteration_time_s(model.grad_time_s(batch), 1, 1))
    together = float(model.iteration_time_s(model.grad_time_s(batch / gpus), gpus, nodes))
    assert together * gpus >= alone * (1 - 1e-9)
    assert model.grad_time_s(batch, 1.5) <= 1.5 * model.grad_time_s(batch) * (1 + 1e-9)
    assert model.grad_time_s(batch, 1.5) >= model.grad_time_s(batch)


def test_an_iteration_takes_time():
    with pytest.raises(ValueError, match="must take time"):
        Throughput(alpha_c=0.0, beta_c=0.0)


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


@given(st.integers(1, 10_000), st.floats(0, 1e8), st.lists(st.integers(0, 1_000_000), min_size=2))
def test_efficiency_is_in_range_and_falls(reference, noise, extra):
    efficiency = StatisticalEfficiency(reference_batch=reference, noise_scale=noise)
    values = efficiency.of([reference, *sorted(reference + e for e in extra)])
    assert values[0] == 1.0
    assert (values > 0).all()
    assert (values <= 1).all()
    assert (values[1:] <= values[:-1]).all()


def test_pollux_gain():
    variance, squared_norm, scale = 6.0, 2.0, 4.0
    gain = (variance + squared_norm) / (variance / scale + squared_norm)
    efficiency = StatisticalEfficiency(reference_batch=32, noise_scale=32 * variance / squared_norm)
    assert efficiency.of(32 * scale) == pytest.approx(gain / scale)


@settings(max_examples=examples(40))
@given(st.floats(10.0, 1e5), st.floats(0.1, 1e6))
def test_the_noise_scale_comes_back(noise, scale):
    batch = np.array([16, 64, 256, 1024, 4096])
    fitted, error = fit_noise_scale(batch, scale * (1 + batch / noise))
    assert fitted == pytest.approx(noise, rel=1e-3)
    assert error < 1e-3


def test_batches_that_cost_nothing_have_a_huge_noise_scale():
    assert fit_noise_scale([8, 64, 128], [3.0, 3.0, 3.0])[0] > 1e6


def test_too_little_is_an_error():
    with pytest.raises(ValueError, match="two batches"):
        fit_noise_scale([8, 8], [3.0, 3.0])
    with pytest.raises(ValueError, match="samples_to_target"):
        fit_noise_scale([8, 16], [3.0, 0.0])


@pytest.mark.parametrize("app", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"])
def test_pollux_progress_follows_the_law(catalogue_script, data_dir, app):
    batches, samples = catalogue_script.read_validation(data_dir / "pollux-2021" / "traces" / app)
    noise, error = fit_noise_scale(batches, samples)
    assert error < 0.06
    efficiency = StatisticalEfficiency(reference_batch=batches[0], noise_scale=noise)
    np.testing.assert_allclose(efficiency.of(batches), samples[0] / np.array(samples), rtol=0.09)


def test_zeus_epochs_of_deepspeech2_follow_the_law(catalogue_script, data_dir):
    table = data_dir / "zeus-2023" / "summary_train.csv"
    batches, epochs = catalogue_script.read_epochs_to_target(table, "librispeech", "deepspeech2", 40.0)
    assert 512 not in batches, "no run with batch 512 reached the target"
    noise, error = fit_noise_scale(batches, epochs)
    assert 200 < noise < 500
    assert error < 0.12
    with pytest.raises(ValueError, match="reached 1"):
        catalogue_script.read_epochs_to_target(table, "librispeech", "deepspeech2", 1.0)

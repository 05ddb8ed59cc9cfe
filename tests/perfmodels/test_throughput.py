"""Iteration time: the formula by hand, and what must hold for any parameters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.perfmodels.throughput import Throughput, overlapped_time_s

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

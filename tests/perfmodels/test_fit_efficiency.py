"""The noise scale comes back, from numbers and from the public data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.perfmodels.throughput import StatisticalEfficiency, fit_noise_scale


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

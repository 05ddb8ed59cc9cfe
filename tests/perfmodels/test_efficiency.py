"""Statistical efficiency stays in (0, 1] above the reference batch and falls with the batch."""

from hypothesis import given
from hypothesis import strategies as st

from wattsched.perfmodels.throughput import StatisticalEfficiency


@given(st.integers(1, 10_000), st.floats(0, 1e8), st.lists(st.integers(0, 1_000_000), min_size=2))
def test_efficiency_is_in_range_and_falls(reference, noise, extra):
    efficiency = StatisticalEfficiency(reference_batch=reference, noise_scale=noise)
    values = efficiency.of([reference, *sorted(reference + e for e in extra)])
    assert values[0] == 1.0
    assert (values > 0).all()
    assert (values <= 1).all()
    assert (values[1:] <= values[:-1]).all()


def test_pollux_gain():
    variance, squared_norm, reference, batch = 6.0, 2.0, 32, 128
    scale = batch / reference
    gain = (variance + squared_norm) / (variance / scale + squared_norm)
    efficiency = StatisticalEfficiency(
        reference_batch=reference, noise_scale=reference * variance / squared_norm
    )
    assert abs(efficiency.of(batch) - gain / scale) < 1e-12

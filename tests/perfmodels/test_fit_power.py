"""Power curves and limit tables come back from noisy watts."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.perfmodels.power import PowerModel, fit_power_frequency, fit_power_limits

CLOCK = np.linspace(0.5, 1.0, 30)


def test_a_power_curve_comes_back():
    true = PowerModel(static_w=110.0, dynamic_w=280.0, exponent=2.7, sync_w=85.0)
    share = np.tile([1.0, 0.7, 0.4], 10)
    noise = np.random.default_rng(1).normal(1.0, 0.005, 30)
    watts = (share * true.computing_w(CLOCK) + (1 - share) * true.sync_w) * noise
    fit = fit_power_frequency(CLOCK, watts, share)
    np.testing.assert_allclose(fit.computing_w(CLOCK), true.computing_w(CLOCK), rtol=0.02)
    assert fit.sync_w == pytest.approx(true.sync_w, rel=0.1)


def test_what_cannot_be_seen_is_not_invented():
    fixed = fit_power_frequency(1.0, [200.0, 210.0])
    assert (fixed.dynamic_w, fixed.sync_w) == (0.0, fixed.static_w)
    assert fit_power_frequency(1.0, [200.0, 210.0], sync_w=50.0).sync_w == 50.0
    with pytest.raises(ValueError, match="power_w must be finite"):
        fit_power_frequency(1.0, [200.0, float("nan")])


def test_a_limit_table_comes_back_from_repeated_noisy_runs():
    limits, batches = [100.0, 150.0, 200.0, 250.0], [8, 16, 32, 64, 128, 256]
    rows = np.array(list(product(batches, limits, range(3))))
    slowdown = 1.0 + 0.4 * np.log2(rows[:, 0]) / 8 * (250.0 / rows[:, 1] - 1.0)
    watts = rows[:, 1] * 0.9
    random = np.random.default_rng(2)
    table = fit_power_limits(
        rows[:, 0],
        rows[:, 1],
        slowdown * (0.02 + 0.001 * rows[:, 0]) * random.normal(1, 0.005, len(rows)),
        watts * random.normal(1, 0.005, len(rows)),
        rows=3,
    )
    assert len(table.local_batch) == 3
    np.testing.assert_allclose(table.stretch(rows[:, 0], rows[:, 1]), slowdown, rtol=0.02)
    np.testing.assert_allclose(table.computing_w(rows[:, 0], rows[:, 1]), watts, rtol=0.02)


def test_a_gap_in_the_measurements_is_named():
    with pytest.raises(ValueError, match="power_limit_w 150 was not measured at local batch 16"):
        fit_power_limits([8, 8, 16], [100, 150, 100], [1, 1, 1], [90, 90, 90])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_watts_are_the_nearest_that_a_higher_limit_never_lowers(values):
    n = len(values)
    limits, one = np.arange(1.0, n + 1), np.ones(n)
    found = np.array(fit_power_limits(one, limits, one, np.array(values, dtype=float)).power_w[0])
    assert (np.diff(found) >= 0).all()
    distance = np.sum((found - values) ** 2)
    # Min-max formula of isotonic regression, written out.
    expected = [
        max(min(np.mean(values[a : b + 1]) for b in range(i, n)) for a in range(i + 1)) for i in range(n)
    ]
    assert distance == pytest.approx(np.sum((np.array(expected) - values) ** 2))


SHARES = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6)


@given(
    SHARES,
    st.lists(st.floats(0.3, 1.0), min_size=1, max_size=6),
    st.floats(300, 700),
    st.randoms(),
    st.booleans(),
)
def test_no_watts_are_stated_that_a_board_cannot_draw(shares, clocks, limit_w, random, limited):
    """However few measurements there are, and whatever they are made of."""
    rows = np.array(list(product(shares, clocks)))
    x, share = rows[:, 1] / rows[:, 1].max(), rows[:, 0]
    watts = np.array([random.uniform(50.0, limit_w) for _ in x])
    fit = fit_power_frequency(x, watts, share, max_power_w=limit_w if limited else None)
    most_w = limit_w if limited else max(watts / share / x**5)
    assert fit.computing_w(1.0) <= most_w * (1 + 1e-9)
    assert fit.sync_w <= fit.computing_w(1.0) * (1 + 1e-9)
    if len(np.unique(x)) < 4:
        assert fit.exponent == 3.0


@given(
    st.floats(0, 300), st.floats(0, 300), st.floats(1, 5), st.floats(0, 1), st.sampled_from([1.0, 1.5, None])
)
def test_a_limit_that_is_kept_changes_nothing(static, dynamic, exponent, waiting, room):
    true = PowerModel(static_w=static + 20, dynamic_w=dynamic, exponent=exponent, sync_w=0)
    true = true.model_copy(update={"sync_w": waiting * float(true.computing_w())})
    share = np.tile([1.0, 0.7, 0.4], 10)
    watts = share * true.computing_w(CLOCK) + (1 - share) * true.sync_w
    limit_w = None if room is None else room * float(true.computing_w())
    fit = fit_power_frequency(CLOCK, watts, share, max_power_w=limit_w)
    np.testing.assert_allclose(fit.computing_w(CLOCK), true.computing_w(CLOCK), rtol=1e-2)
    assert fit.sync_w == pytest.approx(true.sync_w, rel=1e-2, abs=2.0)

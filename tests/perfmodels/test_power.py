"""Clock and power limit: ends, interpolation, order and range; what comes back from noisy watts."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wattsched.perfmodels.power import (
    FrequencyModel,
    PowerLimitTable,
    PowerModel,
    fit_power_frequency,
    fit_power_limits,
)

CLOCK = FrequencyModel(max_mhz=1410, choices_mhz=[900, 1410], memory_bound_share=0.25)
TABLE = PowerLimitTable(
    limit_w=[100.0, 150.0, 250.0],
    local_batch=[8, 32],
    slowdown=[[1.2, 1.1, 1.0], [2.0, 1.4, 1.0]],
    power_w=[[80.0, 90.0, 95.0], [99.0, 145.0, 220.0]],
)


@given(st.floats(1.0, 1410.0), st.floats(1.0, 1410.0))
def test_a_higher_clock_is_faster_and_draws_more(one, other):
    low, high = sorted((one, other))
    power = PowerModel(static_w=100.0, dynamic_w=300.0, exponent=2.5, sync_w=80.0)
    assert CLOCK.stretch(low) >= CLOCK.stretch(high) >= 1.0
    assert power.computing_w(CLOCK.relative(low)) <= power.computing_w(CLOCK.relative(high)) <= 400.0


def test_the_table_is_met_at_its_knots_and_linear_between():
    batch, limit = np.meshgrid([8, 32], TABLE.limit_w, indexing="ij")
    np.testing.assert_allclose(TABLE.stretch(batch, limit), TABLE.slowdown)
    np.testing.assert_allclose(TABLE.computing_w(batch, limit), TABLE.power_w)
    assert TABLE.computing_w(8, 200.0) == pytest.approx(92.5)
    assert TABLE.stretch(16, 100.0) == pytest.approx(1.6), "half way in the logarithm"
    assert TABLE.stretch([1, 1000], [100.0, 100.0]).tolist() == pytest.approx([1.2, 2.0])
    assert TABLE.computing_w(32, np.nan) == pytest.approx(220.0), "no limit is the highest limit"


@given(st.floats(1.0, 100.0), st.floats(100.0, 250.0), st.floats(100.0, 250.0))
def test_a_higher_limit_is_faster_and_draws_more(batch, one, other):
    low, high = sorted((one, other))
    assert TABLE.stretch(batch, low) >= TABLE.stretch(batch, high) - 1e-12
    assert TABLE.computing_w(batch, low) <= TABLE.computing_w(batch, high) + 1e-9


def test_settings_out_of_range_are_named():
    for mhz in (0.0, -5.0, 1411.0):
        with pytest.raises(ValueError, match=f"frequency_mhz {mhz:g} is not between"):
            CLOCK.stretch([900.0, mhz])
    for limit in (99.0, 250.5):
        with pytest.raises(ValueError, match=f"power_limit_w {limit:g} is outside the measured 100 to 250 W"):
            TABLE.stretch(8, limit)


@given(st.lists(st.floats(1.0, 3.0), min_size=2, max_size=5))
def test_a_slowdown_that_rises_with_the_limit_is_refused_but_for_noise(slowdown):
    limits = [100.0 + 10.0 * n for n in range(len(slowdown))]
    rises = [b / min(slowdown[: n + 1]) for n, b in enumerate(slowdown)]
    assume(all(abs(rise - 1.05) > 1e-6 for rise in rises))
    table = {"limit_w": limits, "local_batch": [8], "slowdown": [slowdown], "power_w": [limits]}
    if max(rises) < 1.05:
        assert PowerLimitTable(**table).slowdown == [slowdown]
        return
    first = limits[next(n for n, rise in enumerate(rises) if rise > 1.05)]
    with pytest.raises(
        ValueError, match=f"slowdown of local_batch 8 rises from .* at limit_w {first:g}: more"
    ):
        PowerLimitTable(**table)


def test_tables_with_wrong_shapes_or_order_are_refused():
    with pytest.raises(ValueError, match="2 rows"):
        PowerLimitTable(limit_w=[100.0], local_batch=[1, 2], slowdown=[[1.0]], power_w=[[90.0], [95.0]])
    with pytest.raises(ValueError, match="limit_w must be increasing"):
        PowerLimitTable(
            limit_w=[200.0, 100.0], local_batch=[1], slowdown=[[1.0, 1.0]], power_w=[[90.0, 95.0]]
        )
    with pytest.raises(ValueError, match="above max_mhz"):
        FrequencyModel(max_mhz=1000, choices_mhz=[900, 1100])


CLOCKS = np.linspace(0.5, 1.0, 30)


def test_a_power_curve_comes_back():
    true = PowerModel(static_w=110.0, dynamic_w=280.0, exponent=2.7, sync_w=85.0)
    share = np.tile([1.0, 0.7, 0.4], 10)
    noise = np.random.default_rng(1).normal(1.0, 0.005, 30)
    watts = (share * true.computing_w(CLOCKS) + (1 - share) * true.sync_w) * noise
    fit = fit_power_frequency(CLOCKS, watts, share)
    np.testing.assert_allclose(fit.computing_w(CLOCKS), true.computing_w(CLOCKS), rtol=0.02)
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
    watts = share * true.computing_w(CLOCKS) + (1 - share) * true.sync_w
    limit_w = None if room is None else room * float(true.computing_w())
    fit = fit_power_frequency(CLOCKS, watts, share, max_power_w=limit_w)
    np.testing.assert_allclose(fit.computing_w(CLOCKS), true.computing_w(CLOCKS), rtol=1e-2)
    assert fit.sync_w == pytest.approx(true.sync_w, rel=1e-2, abs=2.0)

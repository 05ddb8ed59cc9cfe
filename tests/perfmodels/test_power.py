"""Timer and power limit: ends, interpolation, order and range."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wattsched.perfmodels.power import FrequencyModel, PowerLimitTable, PowerModel

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


def test_half_the_clock_by_hand():
    assert CLOCK.stretch(705.0) == pytest.approx(0.25 + 0.75 * 2)
    assert CLOCK.stretch(np.nan) == 1.0


@pytest.mark.parametrize("mhz", [0.0, -5.0, 1411.0])
def test_a_clock_out_of_range_is_named(mhz):
    with pytest.raises(ValueError, match=f"frequency_mhz {mhz:g} is not between"):
        CLOCK.stretch([900.0, mhz])


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


@pytest.mark.parametrize("limit", [99.0, 250.5])
def test_a_limit_out_of_range_is_named(limit):
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

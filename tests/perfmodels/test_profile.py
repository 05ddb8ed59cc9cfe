"""Configurations against a plain loop; rate and watts; knobs."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import profiles
from wattsched.perfmodels.power import FrequencyModel, PowerLimitTable
from wattsched.perfmodels.profile import Profile
from wattsched.perfmodels.throughput import StatisticalEfficiency

CLOCKED = profiles.CLOCKED.model_copy(
    update={
        "frequency": FrequencyModel(max_mhz=1410, choices_mhz=[900, 1200, 1410], memory_bound_share=0.2),
        "efficiency": StatisticalEfficiency(reference_batch=32, noise_scale=1000.0),
        "batch_sizes": [2, 32, 64, 256],
        "max_local_batch": 64,
        "gpu_counts": [1, 2, 3, 4, 8, 16],
    }
)
LIMITED = CLOCKED.model_copy(
    update={
        "frequency": None,
        "power_limits": PowerLimitTable(
            limit_w=[100.0, 250.0], local_batch=[8], slowdown=[[1.5, 1.0]], power_w=[[98.0, 220.0]]
        ),
    }
)
PLAIN = CLOCKED.model_copy(update={"frequency": None})


def by_hand(gpus: int, batch: int, mhz: float, gpus_per_node: int) -> tuple[float, float]:
    """Rate and watts of `CLOCKED` with scalars only."""
    t = CLOCKED.throughput
    grad = t.alpha_c + t.beta_c * batch / gpus * (0.2 + 0.8 * 1410 / mhz)
    sync = 0.0
    if gpus > 1:
        one_node = math.ceil(gpus / gpus_per_node) == 1
        alpha, beta = (t.alpha_r, t.beta_r) if one_node else (t.alpha_n, t.beta_n)
        sync = alpha + beta * (gpus - 2)
    time = (grad**t.gamma + sync**t.gamma) ** (1 / t.gamma)
    watts = 100 + 300 * (mhz / 1410) ** 3
    efficiency = 1032 / (1000 + batch)
    return batch * efficiency / time, gpus * (watts * grad / time + 80 * (1 - grad / time))


def test_configurations_equal_a_plain_loop():
    found = CLOCKED.configurations(4)
    expected = [
        (gpus, batch, mhz, *by_hand(gpus, batch, mhz, 4))
        for gpus, batch, mhz in product([1, 2, 4, 8, 16], [2, 32, 64, 256], [900, 1200, 1410])
        if gpus <= batch <= 64 * gpus
    ]
    table = zip(found.gpus, found.batch_size, found.frequency_mhz, found.rate, found.power_w, strict=True)
    np.testing.assert_allclose(list(table), expected)
    assert np.isnan(found.power_limit_w).all()
    assert found.gpus.dtype == found.batch_size.dtype == np.int64
    assert len(found) == len(expected)


def test_choices_given_replace_the_profiles_own():
    own = {"gpu_counts": [3], "batch_sizes": [96], "frequencies_mhz": [1000.0], "power_limits_w": [1.0]}
    found = CLOCKED.configurations(8, **own)
    assert (found.gpus[0], found.batch_size[0], found.frequency_mhz[0], len(found)) == (3, 96, 1000, 1)
    assert len(CLOCKED.configurations(8, batch_sizes=[100_000])) == 0


def test_power_limits_are_the_knob_where_there_is_no_clock():
    found = LIMITED.configurations(8, gpu_counts=[1], batch_sizes=[64])
    assert found.power_limit_w.tolist() == [100.0, 250.0]
    np.testing.assert_allclose(found.power_w, [98.0, 220.0])
    assert found.rate[1] / found.rate[0] == pytest.approx(1.5)
    assert np.isnan(PLAIN.configurations(8).frequency_mhz).all()


@given(st.sampled_from([CLOCKED, LIMITED, PLAIN]), st.floats(20.0, 500.0))
def test_no_board_draws_more_than_its_limit(profile, most_w):
    free, held = profile.configurations(4), profile.configurations(4, max_power_w=most_w)
    settings = [(c.gpus, c.batch_size, c.frequency_mhz, c.power_limit_w) for c in (free, held)]
    keys = [[tuple(row) for row in np.nan_to_num(np.transpose(columns)).tolist()] for columns in settings]
    # A board's own limit may be a setting that a free GPU does not have.
    there = np.array([key in keys[0] for key in keys[1]], dtype=bool)
    same = np.array([keys[0].index(key) for key in keys[1] if key in keys[0]], dtype=int)
    assert (held.power_w <= held.gpus * most_w * (1 + 1e-12)).all()
    assert (held.rate[there] <= free.rate[same] * (1 + 1e-12)).all()
    assert set(held.power_limit_w[~there]) <= {most_w}
    # What drew less than the limit, and was set no higher, is as it was; what is missing drew more.
    peak_w = free.power_w / free.gpus
    within = (free.gpus == 1)[same] & (peak_w[same] <= most_w) & ~(held.power_limit_w[there] > most_w)
    np.testing.assert_allclose(held.rate[there][within], free.rate[same][within], rtol=1e-12)
    missing = np.setdiff1d(np.arange(len(free)), same)
    missing = missing[(free.gpus[missing] == 1) & ~(free.power_limit_w[missing] > most_w)]
    assert (peak_w[missing] > most_w).all()


def test_a_gpu_clocks_down_to_its_board_limit():
    # 100 + 300 x^3 = 250 W at x = .794 of 1,410 MHz, and a fifth of the work does not slow down.
    rate = CLOCKED.rate(1, 32, None, None, 8, 250.0)
    clock = 0.5 ** (1 / 3)
    assert CLOCKED.power_w(1, 32, None, None, 8, 250.0) == pytest.approx(250.0)
    assert rate == pytest.approx(CLOCKED.rate(1, 32, clock * 1410, None, 8))
    # 900 MHz draw 178 W: below them nothing was measured, so that a board of 170 W runs only lower clocks.
    assert np.isnan(CLOCKED.rate(1, 32, 900, None, 8, 170.0))
    assert not np.isnan(CLOCKED.rate(1, 32, 800, None, 8, 170.0))
    # A table of limits is read at the board's own; a limit that the board cannot hold is none.
    assert LIMITED.power_w(1, 8, None, None, 8, 175.0) == pytest.approx(159.0)
    assert np.isnan(LIMITED.rate(1, 8, None, None, 8, 97.0))
    assert set(LIMITED.configurations(8, max_power_w=175.0).power_limit_w) == {100.0, 175.0}
    with pytest.raises(ValueError, match="max_power_w must be above 0, got -5"):
        LIMITED.configurations(8, max_power_w=-5.0)
    assert PLAIN.rate(1, 1000, None, None, 8, 250.0) < PLAIN.rate(1, 1000, None, None, 8)


def test_arguments_broadcast():
    rate = CLOCKED.rate(np.array([1, 2])[:, None], [32, 64, 128], np.nan, None, 8)
    assert rate.shape == (2, 3)
    np.testing.assert_allclose(rate[1], CLOCKED.rate(2, [32, 64, 128], 1410.0, None, 8))


def test_a_knob_that_is_absent_or_out_of_range_is_an_error():
    with pytest.raises(ValueError, match=r"frequency_mhz 900 given, but the profile of net on A has no such"):
        PLAIN.rate(1, 32, 900.0, None, 8)
    with pytest.raises(ValueError, match="power_limit_w 150 given"):
        CLOCKED.power_w(1, 32, None, 150.0, 8)
    with pytest.raises(ValueError, match="power_limit_w 300 is outside"):
        LIMITED.configurations(8, power_limits_w=[300.0])


def test_two_knobs_or_unordered_choices_are_refused():
    document = {**dict(CLOCKED), "power_limits": LIMITED.power_limits}
    with pytest.raises(ValueError, match="not both"):
        Profile.model_validate(document)
    with pytest.raises(ValueError, match="batch_sizes must be increasing"):
        Profile.model_validate({**dict(CLOCKED), "batch_sizes": [64, 32]})

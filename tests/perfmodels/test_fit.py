"""A profile comes back from a table of its own predictions."""

import csv
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.profiles import CLOCKED, LIMITED
from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.measurements import Measurements
from wattsched.perfmodels.power import PowerModel
from wattsched.perfmodels.profile import Profile
from wattsched.perfmodels.throughput import StatisticalEfficiency


def write(path, profile, noise=0.0):
    """Write the profile's configurations with their step times and watts of a GPU as a CSV file."""
    c = profile.configurations(8)
    random = np.random.default_rng(5)
    knob = "frequency_mhz" if profile.frequency is not None else "power_limit_w"
    rows = zip(
        c.gpus,
        c.batch_size,
        c.batch_size / c.rate * random.normal(1, noise, len(c)),
        c.power_w / c.gpus * random.normal(1, noise, len(c)),
        getattr(c, knob),
        strict=True,
    )
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["gpus", "batch_size", "step_time_s", "power_w", knob])
        writer.writerows(rows)
    return c


@pytest.mark.parametrize("profile", [CLOCKED, LIMITED], ids=["clock", "power limit"])
def test_a_profile_comes_back_from_noisy_measurements(tmp_path, profile):
    true = write(tmp_path / "steps.csv", profile, noise=0.01)
    efficiency = StatisticalEfficiency(reference_batch=32, noise_scale=1e9)
    report = fit_profile(tmp_path / "steps.csv", "net", "A", efficiency=efficiency)
    fitted = report.profile
    assert fitted.batch_sizes == profile.batch_sizes
    assert fitted.gpu_counts == profile.gpu_counts
    assert fitted.max_local_batch == profile.max_local_batch
    found = fitted.configurations(8)
    np.testing.assert_array_equal(found.gpus, true.gpus)
    np.testing.assert_allclose(found.rate, true.rate, rtol=0.05)
    np.testing.assert_allclose(found.power_w, true.power_w, rtol=0.05)
    assert fitted.fit_error.time_mean < 0.02
    assert fitted.fit_error.power_mean < 0.02
    assert len(report.table()) == len(true)
    worst = max(abs(row["time_error"]) for row in report.table())
    assert worst == pytest.approx(fitted.fit_error.time_max)
    if profile is CLOCKED:
        assert report.held_out_mean < 0.03
        assert report.held_out_max < 0.2
    assert Profile.model_validate_json(fitted.model_dump_json()) == fitted


@pytest.mark.parametrize("n", [2, 3, 7, 8, 12])
def test_a_few_measurements_that_are_met_exactly_do_not_make_the_watts_exact(tmp_path, n):
    rows = [f"1,{32 * b},{0.01 + 0.02 * b},{300 + (b % 2 if n > 2 else 0)}" for b in range(1, n + 1)]
    (tmp_path / "steps.csv").write_text("gpus,batch_size,step_time_s,power_w\n" + "\n".join(rows))
    profile = fit_profile(tmp_path / "steps.csv", "net", "A").profile
    assert profile.fit_error.power_mean < 0.01
    assert profile.power_error == (0.15 if n < 8 else profile.fit_error.power_mean)


def test_watts_must_be_measured_or_given(tmp_path):
    path = tmp_path / "steps.csv"
    rows = [f"{k},{b},{0.01 * b / k + 0.05 * (k > 1)}" for k, b in product([1, 2, 4], [32, 64])]
    path.write_text("gpus,batch_size,step_time_s\n" + "\n".join(rows))
    with pytest.raises(ValueError, match="lack power_w: give the watts"):
        fit_profile(path, "net", "A")
    watts = PowerModel(static_w=10.0, dynamic_w=60.0, sync_w=15.0)
    report = fit_profile(path, "net", "A", power=watts)
    assert report.profile.power == watts
    assert report.profile.fit_error.power_mean is None
    assert report.held_out_mean is None, "six steps are too few for a held-out check"


def test_knobs_that_a_profile_cannot_have_are_refused(tmp_path):
    path = tmp_path / "steps.csv"
    header = "gpus,batch_size,step_time_s,power_w,power_limit_w"
    path.write_text(f"{header},frequency_mhz\n1,8,1,90,100,900\n1,8,2,90,100,800\n")
    with pytest.raises(ValueError, match="one knob"):
        fit_profile(path, "net", "A")
    path.write_text(f"{header}\n1,8,2,90,100\n1,8,1,90,150\n")
    with pytest.raises(ValueError, match="one measurement at the highest power limit, 150 W; a fit needs 2"):
        fit_profile(path, "net", "A")
    path.write_text(f"{header}\n2,8,1,90,100\n2,8,2,90,150\n2,16,2,90,150\n")
    with pytest.raises(ValueError, match="on one GPU"):
        fit_profile(path, "net", "A")


def limits(cells):
    """Measurements on one GPU at local batches and power limits."""
    batch, limit = np.array(sorted(cells), dtype=float).T
    time_s = 0.001 * batch * (2 - limit / 300)
    return Measurements(np.ones(len(batch)), np.ones(len(batch)), batch, time_s, None, None, limit, limit - 9)


def test_incomplete_batches_are_left_out_with_a_note():
    whole = set(product([8, 16, 32, 64], [100, 200, 300]))
    report = fit_profile(limits(whole - {(16, 200)} | {(64, 150)}), "net", "A")
    assert report.notes == (
        "left out: the power limit 150 W, which 1 of 4 local batches were measured at",
        "left out: local batches not measured at every power limit (16 lacks 200 W)",
    )
    kept = fit_profile(limits(whole - {(16, w) for w in (100, 200, 300)}), "net", "A")
    assert kept.notes == ()
    assert report.profile == kept.profile
    assert len(report.measurements) == 9
    with pytest.raises(ValueError, match=r"no local batch was .* \(8 lacks 200 W, 16 lacks 100 W\)"):
        fit_profile(limits({(8, 100), (8, 300), (16, 200), (16, 300)}), "net", "A")


@pytest.mark.parametrize(("counts", "kept"), [((4, 8, 1, 2), 200), ((1, 2, 4, 8), 400)])
def test_power_limits_without_a_measurement_on_one_gpu_are_left_out_with_their_number(tmp_path, counts, kept):
    file, limits_w = tmp_path / "steps.csv", (400, 400, 200, 200)
    rows = [f"{k},64,{w},{0.2 / k},{w - 9}" for k, w in zip(counts, limits_w, strict=True)]
    file.write_text("gpus,batch_size,power_cap_w,step_time_s,power_w\n" + "\n".join(rows) + "\n")
    report = fit_profile(file, "net", "A")
    assert report.profile.power_limits.limit_w == [kept]
    told = f"left out: the power limit {600 - kept} W, 2 of 4 measurements, none of them on one GPU"
    assert told in report.notes


def test_one_clock_is_told_not_to_be_used():
    m = on_one_count(1, (1410, 1410), (300.0, 310.0))
    assert "not used: one clock, 1410 MHz, which tells nothing of others" in fit_profile(m, "net", "A").notes


def test_it_is_always_said_what_is_known_of_unseen_data(tmp_path):
    few = fit_profile(limits(product([8, 16, 32], [100, 300])), "net", "A")
    assert few.held_out_note == "too few measurements at 300 W (3) for an error on unseen data, 8 are enough"
    write(tmp_path / "steps.csv", CLOCKED)
    assert fit_profile(tmp_path / "steps.csv", "net", "A").held_out_note == ""
    none = fit_profile(tmp_path / "steps.csv", "net", "A", folds=0)
    assert none.held_out_note == "no error on unseen data was asked for"


def on_one_count(gpus, clocks, watts):
    """Steps on one GPU count at some clocks, with watts of a GPU."""
    n = len(clocks)
    times = 0.2 + 0.3 * max(clocks) / np.array(clocks)
    counts = np.full(n, float(gpus))
    frequency = np.array(clocks, dtype=float)
    return Measurements(
        counts, np.ceil(counts / 8), np.full(n, 64.0), times, None, frequency, None, np.array(watts)
    )


@given(
    st.sampled_from([2, 8, 16]),
    st.lists(st.integers(900, 1980), min_size=2, max_size=3, unique=True),
    st.floats(60, 300),
    st.floats(10, 400),
    st.floats(1, 5),
    st.randoms(),
)
def test_one_gpu_count_does_not_tell_what_waiting_draws(gpus, clocks, static_w, dynamic_w, exponent, random):
    x = np.array(clocks) / max(clocks)
    noise = np.array([random.uniform(0.97, 1.03) for _ in clocks])
    watts = (static_w + dynamic_w * x**exponent) * noise
    report = fit_profile(on_one_count(gpus, clocks, watts), "net", "A")
    power, throughput = report.profile.power, report.profile.throughput
    assert power.exponent == 3.0
    assert power.sync_w == power.static_w
    assert (throughput.alpha_r, throughput.beta_r, throughput.alpha_n, throughput.beta_n) == (0, 0, 0, 0)
    assert report.profile.fit_error.power_max < 0.2
    # On every GPU count, and with every batch.
    drawn = report.profile.iteration([[1], [2], [8], [64]], [[1], [1], [1], [8]], [1, 64, 1e6], None, None)
    assert (drawn.gpu_power_w <= 1.2 * watts.max()).all()
    counted, exponent_note = report.notes
    assert counted.startswith(f"all measurements are of {gpus} GPUs, which do not tell synchronisation")
    assert (
        exponent_note
        == f"{len(clocks)} clocks do not tell the exponent of the watts, which is taken as 3; 4 are enough"
    )


def test_watts_that_no_measurement_is_near_are_pointed_at(tmp_path):
    file = tmp_path / "weak.csv"
    rows = "2,32,0.182,350\n4,32,0.195,320\n8,32,0.231,280\n"
    file.write_text(f"gpus,local_batch,step_time_s,power_w\n{rows}")
    notes = fit_profile(file, "weak", "A100").notes
    assert any(note.startswith("doubtful: by the fit a GPU that only computes draws") for note in notes)

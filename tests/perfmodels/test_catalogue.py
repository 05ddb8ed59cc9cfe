"""The packaged profiles against the public data that they were fitted to."""

import re
from functools import cache

import numpy as np
import pytest

from benchmarks import emerald_models
from wattsched.instances.clusters import GPU_TYPES
from wattsched.perfmodels.measurements import Measurements, read_measurements
from wattsched.perfmodels.profile import CATALOGUE, catalogue, find, models

PROFILES = catalogue()
EMERALD = set(emerald_models.MODELS.values())
TODAY = {"H100", "H200", "B200", "MI300X", "L40S"}
BY_NAME = pytest.mark.parametrize("profile", PROFILES, ids=lambda p: f"{p.model}-{p.gpu_type}")


def test_names_are_unique_sorted_and_found(catalogue_script):
    names = [(p.model, p.gpu_type) for p in PROFILES]
    assert names == sorted(set(names))
    assert all(find(*name) is profile for name, profile in zip(names, PROFILES, strict=True))
    assert find("bert", "H100") is None
    today = catalogue_script.today
    assert set(models()) == {*catalogue_script.MODELS, *today.MODELS, *today.SERVED, *EMERALD}
    served = {*today.SERVED, emerald_models.SERVING}
    assert set(models("serving")) == served == set(models()) - set(models("training"))
    assert set(CATALOGUE.training) == {*catalogue_script.MODELS, *today.MODELS}
    assert {p.gpu_type for p in PROFILES} == {"A100", "A40", "P100", "T4", "V100", *TODAY} == set(GPU_TYPES)


def test_a_sample_counts_the_same_on_every_gpu_type():
    for model in models():
        assert len({p.efficiency for p in PROFILES if p.model == model}) == 1, model


@BY_NAME
def test_defaults_are_configurations(profile):
    c = profile.configurations(8)
    assert len(c) > 0
    least = profile.gpu_counts[0]
    wanted = {1, 8, 64} if profile.gpu_type not in TODAY else {least, 64}
    if profile.model in EMERALD:
        wanted = {profile.gpu_counts[-1]}
    assert wanted <= set(c.gpus.tolist()) or profile.model in ("gpt2", "stable-diffusion")
    assert profile.default_batch in c.batch_size
    assert (c.rate > 0).all()
    assert (c.power_w > 0).all()
    assert np.isfinite(c.rate).all()
    assert profile.source
    assert profile.fit_error is not None or re.search("assumed|scaled|a published rate", profile.source)


@BY_NAME
def test_more_clock_or_power_is_faster_and_draws_more(profile):
    c = profile.configurations(8)
    knob = c.frequency_mhz if profile.frequency is not None else c.power_limit_w
    same = (np.diff(c.gpus) == 0) & (np.diff(c.batch_size) == 0) & (np.diff(knob) > 0)
    assert (np.diff(c.rate)[same] >= -1e-9 * c.rate[1:][same]).all()
    if profile.frequency is not None:
        assert (np.diff(c.power_w)[same] > 0).all()


@BY_NAME
def test_no_option_is_above_the_limit_of_its_board_or_below_idle(profile):
    most_w, counts = GPU_TYPES[profile.gpu_type].max_power_w, profile.gpu_counts
    free = profile.configurations(8, gpu_counts=counts)
    held = profile.configurations(8, gpu_counts=counts, max_power_w=most_w)
    assert (free.power_w <= free.gpus * most_w).all()
    if profile.gpu_type in TODAY:
        assert (free.power_w <= free.gpus * free.power_limit_w * (1 + 1e-12)).all()
        assert (free.power_w >= free.gpus * GPU_TYPES[profile.gpu_type].idle_power_w).all()
    np.testing.assert_array_equal(held.rate, free.rate)
    assert profile.power_error is not None
    # Watts are either measured on this GPU, or their uncertainty is stated.
    measured = profile.fit_error is not None and profile.fit_error.power_mean is not None
    assert measured == (profile.power_uncertainty is None)


@cache
def rows_today(script) -> dict[tuple[str, str], list]:
    """Rows that today's models are fitted to, which takes seconds."""
    return script.today.Fitted().rows


def source_measurements(script, data, profile) -> Measurements:
    if profile.gpu_type in TODAY:
        rows = rows_today(script).get((profile.model, profile.gpu_type), [])
        if rows:
            return script.today.measurements(rows)
        gpus = np.array(profile.gpu_counts, dtype=float)
        return Measurements(gpus, np.ceil(gpus / 8), profile.default_batch / gpus, np.ones(len(gpus)))
    if profile.model in EMERALD:
        name = next(name for name, model in emerald_models.MODELS.items() if model == profile.model)
        return emerald_models.sweep(data / "emerald-2025" / "dvfs_sweep.csv", name)
    model = script.MODELS[profile.model]
    if profile.gpu_type == "A100":
        return read_measurements(data / "elasticflow-profiles/throughputs_A100" / f"{profile.model}.csv")
    if profile.gpu_type == "T4":
        return read_measurements(data / "pollux-2021/traces" / str(model.t4) / "placements.csv")
    path = data / "zeus-2023" / f"summary_power_{profile.gpu_type.lower()}.csv"
    return read_measurements(path, where=dict(zip(("dataset", "network"), model.zeus, strict=True)))


@pytest.mark.slow
@BY_NAME
def test_predictions_are_within_the_stated_error_of_the_data(catalogue_script, data_dir, profile):
    if profile.fit_error is None or profile.task == "serving":
        return
    m, error = source_measurements(catalogue_script, data_dir, profile), profile.fit_error
    iteration = profile.iteration(m.gpus, m.nodes, m.local_batch, None, m.power_limit_w)
    time = np.abs(iteration.time_s / m.step_time_s - 1)
    assert time.max() <= error.time_max + 1e-4
    assert error.time_mean < 0.1 or (profile.model, profile.gpu_type) == ("deepspeech2", "A40")
    if m.power_w is not None:
        power = np.abs(iteration.gpu_power_w / m.power_w - 1)
        assert power.max() <= error.power_max + 1e-4
        assert power.mean() <= error.power_mean + 1e-4 < 0.06


def test_the_zeus_trade_off_of_resnet50_on_v100():
    # Seconds and kJ of an ImageNet epoch with batch 256, as published.
    limit_w = np.array([100, 125, 150, 175, 200, 225, 250], dtype=float)
    time_s = np.array([6781, 5065, 4149, 3852, 3701, 3584, 3515])
    energy_kj = np.array([667, 618, 600, 641, 685, 736, 774])
    profile = find("resnet50", "V100")
    epoch_s = 1_281_167 / profile.rate(1, 256, None, limit_w, 8)
    np.testing.assert_allclose(epoch_s, time_s, rtol=0.025)
    found_kj = profile.power_w(1, 256, None, limit_w, 8) * epoch_s / 1e3
    np.testing.assert_allclose(found_kj, energy_kj, rtol=0.03)
    assert limit_w[found_kj.argmin()] == 150


def test_the_zeus_trade_off_of_deepspeech2_on_v100():
    # Published: default (192, 250 W), least energy (32, 100 W), fastest (48, 250 W).
    profile = find("deepspeech2", "V100")
    batch, limit_w = np.array([192, 32, 48]), np.array([250.0, 100.0, 250.0])
    rate = profile.rate(1, batch, None, limit_w, 8)
    power = profile.power_w(1, batch, None, limit_w, 8)
    hours, megajoules = rate[0] / rate * 16.5, power / rate * rate[0] / power[0] * 9.5
    np.testing.assert_allclose(hours, [16.5, 16.0, 11.1], rtol=0.25)
    np.testing.assert_allclose(megajoules, [9.5, 5.5, 7.8], rtol=0.25)
    c = profile.configurations(8, gpu_counts=[1], batch_sizes=[8, 16, 32, 48, 64, 96, 128, 192])
    fastest, leanest = c.rate.argmax(), (c.power_w / c.rate).argmin()
    assert c.power_limit_w[fastest] == 250
    assert 32 <= c.batch_size[fastest] <= 96
    assert c.power_limit_w[leanest] == 100
    assert 16 <= c.batch_size[leanest] <= 48


@pytest.mark.slow
def test_the_catalogue_is_what_its_script_makes(catalogue_script, data_dir):
    """Fits are held against each other where they were measured: elsewhere their parameters are free."""
    again = {(p.model, p.gpu_type): p for p in catalogue_script.fit_catalogue(data_dir)}
    assert list(again) == [(p.model, p.gpu_type) for p in PROFILES]
    for profile in PROFILES:
        fitted = again[profile.model, profile.gpu_type]
        m = source_measurements(catalogue_script, data_dir, profile)
        kept, new = (
            p.iteration(m.gpus, m.nodes, m.local_batch, None, m.power_limit_w) for p in (profile, fitted)
        )
        np.testing.assert_allclose(new.time_s, kept.time_s, rtol=1e-2)
        if m.power_w is not None:
            np.testing.assert_allclose(new.gpu_power_w, kept.gpu_power_w, rtol=1e-2)
        assert (fitted.fit_error is None) == (profile.fit_error is None)
        if profile.fit_error is not None:
            assert fitted.fit_error.time_mean == pytest.approx(profile.fit_error.time_mean, abs=1e-3)
        assert fitted.source == profile.source
        if profile.efficiency is not None:
            batch = np.array(profile.batch_sizes, dtype=float)
            np.testing.assert_allclose(fitted.efficiency.of(batch), profile.efficiency.of(batch), rtol=1e-2)
        c, d = profile.configurations(8), fitted.configurations(8)
        for offered in ("gpus", "batch_size", "frequency_mhz", "power_limit_w"):
            np.testing.assert_array_equal(getattr(c, offered), getattr(d, offered))

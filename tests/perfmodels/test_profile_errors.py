"""Errors of performance models: drawn by the seed, as large as stated, and profiles all the same."""

from __future__ import annotations

import numpy as np
import pytest

from wattsched.perfmodels.profile import CATALOGUE, Profile, Profiles, catalogue, find
from wattsched.perfmodels.profile_errors import with_error, with_errors


@pytest.mark.parametrize("seed", range(5))
def test_profiles_with_errors_are_profiles_and_draw_no_more_than_their_limits(seed: int) -> None:
    known = with_errors(CATALOGUE, seed)
    assert known.training == CATALOGUE.training
    assert known == with_errors(CATALOGUE, seed) != with_errors(CATALOGUE, seed + 1)
    for one in known.given:
        Profile.model_validate(one.model_dump())
        of, rows = find(one.model, one.gpu_type), one.configurations(8)
        assert of is not None
        assert len(rows) == len(of.configurations(8))
        if one.power_limits is not None:
            each_w, most_w = np.array(one.power_limits.power_w), np.array(of.power_limits.power_w)
            assert np.all(each_w <= np.maximum(most_w, one.power_limits.limit_w))


def test_watts_err_as_much_as_profiles_state() -> None:
    profile = find("bert", "A100")
    assert profile is not None
    ratios = [with_error(profile, seed).power.sync_w / profile.power.sync_w for seed in range(400)]
    assert np.std(np.log(ratios)) == pytest.approx(profile.power_error, rel=0.15)
    assert abs(np.mean(np.log(ratios))) < 0.03


def test_models_have_one_noise_scale_and_profiles_of_users_err_too() -> None:
    known = with_errors(CATALOGUE, 3)
    scales = {one.efficiency.noise_scale for one in known.given if one.model == "bert" and one.efficiency}
    assert len(scales) == 1
    own = catalogue()[0].model_copy(update={"model": "mine"})
    (mine, *_) = with_errors(Profiles((own,)), 3).given
    assert mine.model == "mine"
    assert mine.power != own.power

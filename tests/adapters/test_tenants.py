"""Quotas of which jobs that cannot be stopped have used a part: every row of them has that much less."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters.options import StatedOptions
from wattsched.adapters.plan import Kept, left_for
from wattsched.instances.errors import InputError, validated
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.sizing.tenants import quotas_of

INSTANCE = {
    "cluster": {
        "gpu_types": {"A": {"idle_power_w": 50.0}},
        "nodes": [{"name": "n", "gpu_type": "A", "gpus": 8}],
    },
    "carbon_g_per_kwh": 400.0,
    "jobs": [],
}
PER_W = {"share": 0.0, "draw": 1.0, "energy": 60.0, "carbon": 60.0 * 400.0 / 3.6e6}
"""What a watt is of what quotas count, in a round of a minute."""


@st.composite
def tenants(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    limits = st.none() | st.floats(1.0, 2_000.0)
    found = {}
    for name in "abcd":
        tenant = {"power_w": draw(limits), "energy_j": draw(limits), "carbon_g": draw(limits)}
        if draw(st.booleans()):
            tenant |= {"gpus": draw(st.integers(0, 8)), "cohort": draw(st.sampled_from([None, "c", "d"]))}
            if tenant["cohort"]:
                tenant["borrow_gpus"] = draw(st.none() | st.integers(0, 4))
        found[name] = tenant
    return found


KEPT = st.builds(Kept, st.sampled_from("abcd"), st.integers(1, 8), st.floats(0.0, 1e3))


@given(tenants(), st.lists(KEPT, max_size=6))
def test_every_row_has_less_by_what_is_kept(stated: dict[str, Any], kept: list[Kept]) -> None:
    before = Instance.model_validate({**INSTANCE, "tenants": stated})
    left = Instance.model_validate(
        {**INSTANCE, "tenants": left_for(before.tenants, kept, 60.0, 400.0)},
    )
    now = {quota.name: quota.limit for quota in quotas_of(left)}
    assert now.keys() == {quota.name for quota in quotas_of(before)}
    for quota in quotas_of(before):
        mine = [one for one in kept if one.tenant in quota.tenants]
        gpus = sum(one.gpus for one in mine) if quota.counts == "share" else 0
        used = gpus + PER_W[quota.counts] * sum(one.power_w for one in mine)
        least = 0.0 if quota.counts == "share" else 1e-3
        assert now[quota.name] == pytest.approx(max(least, quota.limit - used))


def test_a_quota_of_grams_needs_the_carbon_of_energy() -> None:
    with pytest.raises(InputError, match="a carbon quota needs 'carbon_g_per_kwh'"):
        validated(StatedOptions, {"tenants": {"a": {"carbon_g": 1.0}}})

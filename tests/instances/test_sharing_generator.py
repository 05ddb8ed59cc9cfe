"""The `sharing` family: equal arguments, equal instances; every instance can be decided."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from wattsched.documents import instance_of
from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.timer import Timer
from wattsched.instances.generators.sharing import sharing_round
from wattsched.instances.io import document_text
from wattsched.problems import problem
from wattsched.verification.sharing.checker import check


@pytest.mark.parametrize("units", ["nodes", "gpus"])
def test_instances_are_valid_and_equal_for_equal_seeds(units: Literal["nodes", "gpus"]) -> None:
    made = sharing_round(jobs=60, seed=3, units=units)
    text = document_text(made)
    assert document_text(sharing_round(jobs=60, seed=3, units=units)) == text
    assert document_text(sharing_round(jobs=60, seed=4, units=units)) != text
    assert instance_of(json.loads(text)) == made
    for name, rule in problem("sharing").heuristics.items():
        decision = rule(patterns_of(made), made.objective, Timer())
        # First come, first served misses deadlines when the queue stops.
        assert decision is not None or name != "eaco"
        if decision is not None:
            assert check(made, decision).faults == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"units": "racks"}, "units: must be nodes or gpus, got 'racks'"),
        ({"jobs_per_set": 9}, "jobs_per_set: must be from 1 to 8, got 9"),
        ({"deadlines": 1.5}, "deadlines: must be from 0 to 1, got 1.5"),
        ({"power_fraction": 0.0}, "power_fraction: must be above 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        sharing_round(jobs=3, **options)

"""Shifting instances and decisions in words."""

from __future__ import annotations

import io

from rich.console import Console

from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.heuristics import greedy
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.report.shifting import curve, print_decision, print_instance
from wattsched.verification.shifting.checker import check


def test_instance_and_decision_are_told() -> None:
    instance = shifting_horizon(jobs=5, slots=12, seed=3, carbon_fraction=0.9)
    decision = greedy(horizon_of(instance), "mean-completion")
    assert decision is not None
    written = io.StringIO()
    out = Console(file=written, width=200)
    print_instance(out, instance)
    print_decision(out, decision, instance)
    text = written.getvalue()
    assert all(schedule.job in text for schedule in decision.jobs)
    assert all(word in text for word in ("A100", "Carbon intensity", "carbon budget", "5 jobs"))
    assert not check(instance, decision).faults


def test_curves_span_from_least_to_most() -> None:
    assert curve([1.0, 8.0]) == "▁█"
    assert curve([2.0, 2.0]) == "▁▁"

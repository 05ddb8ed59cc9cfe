"""Sets of classes, against the arrays that formulations read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from wattsched.formulations.sharing.data import patterns_of
from wattsched.replay.sharing.stream import Sets


def test_sets_are_the_patterns_of_the_instance(bound: Any, eaco_stream: Any) -> None:
    instance, _ = eaco_stream(5, 0)
    sets, patterns = Sets(instance), patterns_of(instance)
    numbers = {classes: p for (_, classes), p in patterns.numbers.items()}
    assert set(bound.admitted(sets)) == set(numbers)
    for classes, p in numbers.items():
        together = sets.of(classes)
        slots = slice(int(patterns.start[p]), int(patterns.start[p + 1]))
        assert together.power_w == pytest.approx(patterns.power_w[p])
        assert together.utilisation_pct == pytest.approx(patterns.utilisation_pct[p])
        found = [together.epoch_s[c] for c in patterns.job_class[slots].tolist()]
        assert found == pytest.approx(patterns.epoch_s[slots].tolist())
        assert together.slowdown >= 1


def test_what_is_left_of_sets_is_reachable(bound: Any, eaco_stream: Any) -> None:
    sets = Sets(eaco_stream(5, 0)[0])
    reachable = set(bound.reachable(sets))
    assert (1, 2, 3) in reachable
    assert not sets.of((1, 2, 3)).admitted
    for classes in reachable:
        for c in Counter(classes):
            rest = list(classes)
            rest.remove(c)
            assert not rest or tuple(rest) in reachable

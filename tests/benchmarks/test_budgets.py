"""The comparison within budgets: energy is equal where it says so, and no day takes more than its budget."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("budgets")


@pytest.mark.parametrize("enough_at", [3e-5, 1e-3, 5.0])
def test_the_price_of_equal_energy(script: ModuleType, enough_at: float) -> None:
    def replay(price: float) -> tuple[object, float]:
        used = 1.0 - 0.1 * np.tanh(np.log(price / enough_at))
        return script.Run(jct_h=2.0 - used, end_s=0.0, used=used, most=0.0), used

    _, used = script.equal(replay, script.Case(script.GROUNDS[0], 300.0))
    assert script.ENOUGH <= used <= 1.0
    wasteful, used = script.equal(
        lambda price: (replay(price)[0], 0.5 * replay(price)[1]), script.Case(script.GROUNDS[0], 300.0)
    )
    assert wasteful.used > 1.0, "a rule that takes twice as much leaves the fastest to ours"


def test_a_case_of_real_jobs(script: ModuleType, data_dir: Path) -> None:
    ground = replace(script.GROUNDS[1], days=(2, 2.1), nodes=2)
    case = script.Case(ground, 220.0)
    script.DATA = data_dir
    found = script.compare(case, "powerflow", ["fifo"], seed=0)
    assert list(found) == ["powerflow", "fifo", "sizing", script.EQUAL, script.FREE]
    assert found[script.EQUAL][1] <= 1.0
    assert all(run.most <= 1 + 1e-9 for run, _ in found.values())
    rows = list(script.rows_of(case, "powerflow", [found]))
    assert rows[0][2:5] == ("1", "", "1")


def test_new_grounds_by_hand(load_script: Callable[[str], ModuleType]) -> None:
    """Geometric means of the ratios over two seeds, and means of the preemptions."""
    grounds = load_script("grounds")
    rule = grounds.Figures(mean_h=4.0, p95_h=8.0, p99_h=9.0, heavy_h=6.0, slowdown=3.0, preemptions=0.25)
    ours = replace(rule, mean_h=1.0, p99_h=18.0, preemptions=0.75)
    line = grounds.row("a", "9", [grounds.Pair(rule, ours, 1.0), grounds.Pair(rule, rule, 0.25)])
    shown = ["0.500", "1.000", "1.00", "1.41", "1.00", "1.00", "0.50"]
    assert list(line) == ["a", "9", "4.00", *shown, "0.50", "0.25"]


def test_a_new_ground_of_real_jobs(load_script: Callable[[str], ModuleType], data_dir: Path) -> None:
    grounds = load_script("grounds")
    sys.modules[grounds.Case.__module__].DATA = data_dir
    few = replace(grounds.GROUNDS[0], days=(15, 15.2), nodes=2)
    first, second, both = grounds.rows(1, [few])
    assert len(grounds.HEADER) == len(first) == len(both)
    assert min(float(first[3]), float(second[3])) <= float(both[3]) <= max(float(first[3]), float(second[3]))
    assert 0 < float(both[3]) < 1.1


def test_a_month_of_real_jobs(load_script: Callable[[str], ModuleType], data_dir: Path) -> None:
    """No budget is overspent, and hindsight takes no more than the price that was learned."""
    month = load_script("online_price")
    sys.modules[month.Case.__module__].DATA = data_dir
    few = replace(month.GROUNDS[0], days=(0, 1), nodes=2)
    found = month.compared(month.Case(few, 220.0), 0)
    assert set(found) == set(month.NAMES)
    assert max(found[name].used for name in ("even", "learned")) <= 1 + 1e-9
    assert found["hindsight"].energy <= found["learned"].energy * 1.01
    assert found["hindsight"].times.mean_h < found["learned"].times.mean_h

"""The comparison within budgets: energy is equal where it says so, and no day takes more than its budget."""

from __future__ import annotations

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

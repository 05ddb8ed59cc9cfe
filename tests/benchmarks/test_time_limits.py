"""The commands with a time limit run, and the table has what became of each."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

import wattsched


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("time_limits")


def test_a_round_in_which_all_must_run_has_a_decision_from_the_least_power_on(script: ModuleType) -> None:
    for fraction, reasons in ((0.999, {"infeasible"}), (1.001, {"optimal", "feasible"})):
        assert wattsched.solve(script.none_may_wait(30, fraction)).termination.reason in reasons


def test_every_command_says_how_it_ended(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["time_limits.py", "--quick"])
    script.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    ended = [row[5] for row in rows[2:]]
    assert ended[:2] == ["infeasible", "2 points"]
    assert "time" in ended[2]

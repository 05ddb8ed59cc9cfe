"""What a call says while it runs: what is done, better decisions, and the solver's own words."""

from __future__ import annotations

import re

import pytest

import wattsched
from wattsched.solving import steps

SAID = {"highs": "Running HiGHS", "cpsat": "Starting CP-SAT", "pyomo:highs": "Running HiGHS"}
DECISION = re.compile(r"^ *[\d.]+ s  decision of (-?[\d.e+]+)(?:, bound (-?[\d.e+]+), gap ([\d.e+-]+))?$")


@pytest.fixture(scope="module")
def round_of_jobs():
    return wattsched.generate("hetero", jobs=16, seed=3)


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("solver", ["highs", "cpsat", "pyomo:highs", "price", "auto"])
def test_steps_and_the_solver_speak_and_decisions_get_better(
    round_of_jobs, monkeypatch, solver, in_process
) -> None:
    monkeypatch.setattr(steps, "SMALL", 0 if in_process else steps.SMALL)
    lines: list[str] = []
    limits = {"time_limit": 60.0} if in_process else {}
    result = wattsched.solve(round_of_jobs, solver=solver, gap=1e-6, log=lines.append, **limits)
    assert result.checked
    assert any(re.fullmatch(r" *[\d.]+ s  mckp: [\d,]+ columns, \d+ rows", line) for line in lines)
    assert any(line.endswith(f"  solver '{solver}'") for line in lines)
    assert not any("\n" in line for line in lines)
    if solver in SAID:
        assert any(line.startswith(SAID[solver]) for line in lines)
    told = [float(found[1]) for line in lines if (found := DECISION.match(line))]
    assert told == sorted(told, reverse=True)
    assert lines[-1].endswith(f", checked: {result.objective:.9g}")
    assert not told or told[-1] >= result.objective * (1 - 1e-6)


def test_to_listen_changes_no_answer_and_nobody_listens_unless_asked(round_of_jobs, capfd) -> None:
    heard, quiet = (wattsched.solve(round_of_jobs, solver="highs", log=log) for log in ([].append, None))
    assert heard.decision == quiet.decision
    assert heard.bound == quiet.bound
    assert capfd.readouterr() == ("", "")

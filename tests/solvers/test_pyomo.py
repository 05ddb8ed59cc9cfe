"""Programs that Pyomo starts: what they are told about time and gap, what they leave behind."""

import shutil
import tempfile
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from wattsched.formulations.program import Block, ProgramBuilder
from wattsched.solvers import highs, pyomo
from wattsched.solvers.solution import Limits, Termination, listening
from wattsched.solvers.worker import Worker

from .programs import knapsack, truth

COMMANDS = {"cbc": "cbc", "glpk": "glpsol"}


@pytest.fixture(params=sorted(COMMANDS))
def name(request):
    if shutil.which(COMMANDS[request.param]) is None:
        pytest.skip(f"runs {COMMANDS[request.param]} itself, which CI installs")
    return request.param


def test_solver_is_told_to_stop_well_before_the_limit(name, monkeypatch):
    told = []
    run = pyomo._Interface._run

    def noting(self, written, options, time_s):
        told.append(time_s)
        return run(self, written, options, time_s)

    monkeypatch.setattr(pyomo._Interface, "_run", noting)
    pyomo.solve(knapsack(6, 4, seed=1), Limits(time_s=30.0), name=name)
    assert all(time_s <= 30.0 - pyomo._SPARE_S for time_s in told)
    assert told


@pytest.mark.parametrize("late_run", [1, 2])
def test_infeasible_is_no_proof_when_time_is_up(monkeypatch, late_run):
    """CBC says so of what it had no time for, in its first run or in the one without preprocessing."""
    from pyomo.environ import SolverFactory

    runs = []

    def guarded(self, written, options, time_s):
        runs.append(time_s)
        return pyomo._Ran("infeasible", late=len(runs) == late_run)

    monkeypatch.setattr(pyomo, "_find", lambda name: pyomo._Interface(name, SolverFactory(name)))
    monkeypatch.setattr(pyomo._Interface, "_guarded", guarded)
    solution = pyomo.solve(knapsack(6, 4, seed=1), Limits(time_s=30.0), name="cbc")
    assert solution.termination.reason == "no_solution"
    assert solution.termination.limit == "time"
    assert len(runs) == late_run


@pytest.mark.parametrize(("most", "reason"), [(np.inf, "no_solution"), (10.0, "infeasible")])
def test_infeasible_or_unbounded_is_infeasible_where_nothing_is_unbounded(monkeypatch, most, reason):
    builder = ProgramBuilder()
    columns = builder.columns(Block("x", 2), cost=np.array([-1.0, 0.0]), upper=most)
    builder.row("difference", columns, np.array([1.0, -1.0]), lower=0.0, upper=0.5)
    monkeypatch.setattr(pyomo._Interface, "run", lambda *_: pyomo._Ran("infeasibleOrUnbounded"))
    ended = pyomo.solve(builder.program(), Limits(), name="highs").termination
    assert ended.reason == reason
    assert ended.detail


def test_a_gap_that_nobody_was_asked_for_implies_no_bound(monkeypatch):
    """COPT and MOSEK stop at gaps of their own."""
    builder = ProgramBuilder()
    columns = builder.columns(Block("x", 12), cost=-np.array([10.0, 10.001] * 6))
    builder.row("room", columns, np.full(12, 2.0), upper=13.0)
    program = builder.program()
    nearly = np.isin(np.arange(12), [0, 1, 3, 5, 7, 9]).astype(float)

    class Another(pyomo._Interface):
        def __init__(self, name):
            self._family, self.states_bound = "", False

        def run(self, *_):
            return pyomo._Ran("optimal", nearly)

    monkeypatch.setattr(pyomo, "_find", Another)
    answer = pyomo.solve(program, Limits(gap=1e-6), name="copt")
    assert answer.termination.reason == "feasible"
    assert answer.bound <= program.objective(np.tile([0.0, 1.0], 6))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_costs_that_differ_in_the_sixth_digit_are_told_apart(name, seed):
    """CBC leaves out what is not better by 1e-5, unless it is told."""
    rng = np.random.default_rng(seed)
    builder = ProgramBuilder()
    columns = builder.columns(Block("x", 25), cost=-(1.0 + 1e-6 * rng.integers(0, 9, 25)))
    for row in range(4):
        use = rng.integers(10, 60, 25).astype(float)
        builder.row(f"row {row}", columns, use, upper=float(use.sum() // 2))
    program = builder.program()
    best = highs.solve(program, Limits(gap=0.0)).objective
    answer = pyomo.solve(program, Limits(gap=1e-8), name=name)
    assert answer.bound <= best + 1e-9 * abs(best)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 6, 9))])
@pytest.mark.parametrize("share", [0.0, 0.9, 1.0, 1.2])
def test_a_gap_that_is_reached_is_one_of_the_objective(name, seed, share):
    """Some solvers measure it without the offset, others with it: then they are asked for a smaller one.

    In many of these programs prices alone do not prove the gap.
    """
    program = knapsack(5, 4, seed=seed)
    program = replace(program, offset=-share * truth(program))
    best = truth(program)
    for gap in (0.1, 0.02):
        solution = pyomo.solve(program, Limits(gap=gap, time_s=60.0), name=name)
        # No absolute tolerance, such as GLPK's, is small enough for an optimum of 0.
        reasons = ("optimal", "feasible") if (name, share) == ("glpk", 1.0) else ("optimal",)
        assert solution.termination in [Termination(reason) for reason in reasons]
        rounding = 1e-9 * max(abs(best), abs(program.offset))
        assert solution.bound <= best + rounding
        assert solution.objective == pytest.approx(best, rel=gap, abs=rounding)


@pytest.mark.parametrize("name", ["cbc"], indirect=True)
def test_the_second_run_is_asked_for_what_is_missing(name, monkeypatch):
    """A second run that is out of time takes nothing from the first."""
    program = knapsack(5, 4, seed=0)
    program = replace(program, offset=-0.99 * program.objective(highs.solve(program, Limits(gap=0.0)).x))
    gaps, run = [], pyomo._Interface.run

    def once(self, model, limits, timer):
        gaps.append(limits.gap)
        return run(self, model, limits, timer) if len(gaps) == 1 else pyomo._Ran("error", late=True)

    monkeypatch.setattr(pyomo._Interface, "run", once)
    told = []
    with listening(told.append):
        solution = pyomo.solve(program, Limits(gap=0.02, time_s=60.0), name=name)
    assert [known.objective for known in told if known.x is not None] == [solution.objective]
    assert gaps[0] == 0.01
    assert gaps[1] == pytest.approx(0.01 * solution.objective / (solution.objective - program.offset))
    assert len(gaps) == 2
    assert solution.termination == Termination("feasible", "time", "cbc stopped: out of time")


@pytest.mark.slow
def test_temporary_files_go_with_the_killed_solver(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    worker = Worker()
    program = knapsack(400, 30, pools=3, seed=1)
    answers = []
    solving = threading.Thread(
        target=lambda: answers.append(worker.solve(f"pyomo:{name}", program, Limits(gap=0.0)))
    )
    solving.start()
    end = time.monotonic() + 60.0
    while not (written := list(tmp_path.rglob("*.lp"))) and time.monotonic() < end and solving.is_alive():
        time.sleep(0.005)
    worker.close()
    solving.join()
    assert written
    assert list(tmp_path.iterdir()) == []
    assert answers[0].termination.reason == "no_solution"

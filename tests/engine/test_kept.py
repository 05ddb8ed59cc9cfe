"""What a call has found is in its answer, whatever ends it: memory, a stop, a process that cannot start."""

from __future__ import annotations

import threading
import time
from errno import EAGAIN, ENOSPC
from typing import Any

import pytest

import wattsched
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.program import Program
from wattsched.instances.generators import generate
from wattsched.instances.units import S_PER_H
from wattsched.results.result import TerminationReport
from wattsched.solvers import highs
from wattsched.solvers.solution import Limits, announce, infeasible
from wattsched.topology.buddy import Occupancy

SOON_S, LONG_S = 20.0, 60.0
INSTANCE = generate("uniform", jobs=30, seed=1)
highs_solve = highs.solve


@pytest.fixture(scope="module")
def best() -> wattsched.Result:
    return wattsched.solve(INSTANCE, solver="highs", gap=1e-9)


def find_and_announce(program: Program, limits: Limits) -> None:
    """Announce what HiGHS finds."""
    found = highs_solve(program, limits)
    announce(found.bound, found.prices, found.x, found.objective)


@pytest.mark.parametrize("time_limit", [None, LONG_S])
def test_a_stop_leaves_what_the_solver_had_announced(
    best: wattsched.Result, monkeypatch: pytest.MonkeyPatch, time_limit: float | None
) -> None:
    stop, enough = threading.Event(), threading.Event()

    def solve(program: Program, limits: Limits, *_: object) -> None:
        find_and_announce(program, limits)
        stop.set()
        enough.wait(LONG_S)

    monkeypatch.setattr("wattsched.solvers.highs.solve", solve)
    monkeypatch.setattr("wattsched.solving.engine._STOPPING_S", SOON_S)  # busy machines check slowly
    begin = time.monotonic()
    result = wattsched.solve(INSTANCE, solver="highs", gap=1e-9, stop=stop, time_limit=time_limit)
    assert time.monotonic() - begin < SOON_S
    assert result.objective == pytest.approx(best.objective)
    assert result.decided_by == ""
    enough.set()


def test_a_solver_that_looks_at_the_time_ends_by_itself_when_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = threading.Event()
    hard = generate("uniform", jobs=60, seed=1)

    def solve(*asked: Any) -> Any:
        stop.set()
        return highs_solve(*asked)

    monkeypatch.setattr("wattsched.solvers.highs.solve", solve)
    result = wattsched.solve(hard, solver="highs", gap=0.0, stop=stop)
    assert result.termination.reason == "optimal" or result.termination.limit == "stopped"
    assert result.decision is not None
    assert not wattsched.check(hard, result).faults


def test_a_solver_that_lacks_memory_in_the_end_leaves_what_it_had_announced(
    best: wattsched.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solve(program: Program, limits: Limits, *_: object) -> None:
        find_and_announce(program, limits)
        raise MemoryError

    monkeypatch.setattr("wattsched.solvers.highs.solve", solve)
    result = wattsched.solve(INSTANCE, solver="highs", gap=1e-9, time_limit=LONG_S)
    assert result.objective == pytest.approx(best.objective)
    assert result.decided_by == ""


@pytest.mark.parametrize("time_limit", [None, LONG_S])
def test_a_build_that_lacks_memory_leaves_the_best_decision_in_hand(
    best: wattsched.Result, monkeypatch: pytest.MonkeyPatch, time_limit: float | None
) -> None:
    def build(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("wattsched.formulations.sizing.mckp.written_out", build)
    result = wattsched.solve(INSTANCE, initial_solution=best, time_limit=time_limit)
    assert result.objective == pytest.approx(best.objective)
    assert result.termination.detail == "out of memory; this is the decision of 'initial_solution'"


@pytest.mark.parametrize("number", [EAGAIN, ENOSPC])
def test_a_process_that_cannot_start_leaves_the_quick_decision(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def borrowed() -> None:
        raise OSError(number, "no room")

    monkeypatch.setattr("wattsched.solvers.worker.borrowed", borrowed)
    monkeypatch.setattr("wattsched.solving.steps._LONG_S", 0.0)
    monkeypatch.setattr("wattsched.solving.steps.SMALL", 0)
    result = wattsched.solve(INSTANCE, solver="highs", gap=1e-9, time_limit=LONG_S)
    assert result.decision is not None
    assert "no process for the solver could be started: " in result.termination.detail


def test_a_verdict_is_not_lost_while_it_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = threading.Event()

    def short_rows(*_: object) -> list[object]:
        enough.wait(LONG_S)
        return []

    monkeypatch.setattr("wattsched.solvers.highs.solve", lambda *_: infeasible())
    monkeypatch.setattr("wattsched.solving.steps._by_heuristic", lambda *_: [])
    monkeypatch.setattr("wattsched.solvers.infeasibility.short_rows", short_rows)
    ended = wattsched.solve(INSTANCE, solver="highs", time_limit=3.0).termination
    assert (ended.reason, ended.detail) == ("infeasible", "highs proved that no decision exists")
    enough.set()


def test_no_formulation_is_believed_against_a_decision(
    best: wattsched.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object) -> None:
        raise InfeasibleError("there is none")

    monkeypatch.setattr("wattsched.formulations.sizing.mckp.written_out", build)
    result = wattsched.solve(INSTANCE, initial_solution=best)
    assert result.termination.reason == "feasible"
    assert result.decision is not None
    assert result.faults == [f"a decision of {result.objective:g} exists, but infeasibility was proved"]


def test_nothing_is_claimed_where_a_decision_is_better_than_what_was_proven(
    best: wattsched.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that know of half of the GPUs, against the checker, which knows all."""
    whole = Occupancy.free_gpus.fget
    monkeypatch.setattr(Occupancy, "free_gpus", property(lambda blocks: whole(blocks) // 2))
    again = generate("uniform", jobs=30, seed=1)  # of which nothing is known yet
    for solver in ("auto", "highs", "price"):
        result = wattsched.solve(again, solver=solver, initial_solution=best.decision, gap=1e-9)
        assert result.objective == pytest.approx(best.objective)
        assert result.termination.reason == "feasible"
        assert (result.bound, result.gap, result.certificate) == (None, None, None)
        (told,) = result.faults
        assert told.startswith(f"a decision of {result.objective:g} exists, but the bound found is ")


class Slices:
    """A solver of frontiers that gets nothing done below some seconds, and takes a while."""

    def __init__(self, least_s: float, takes_s: float = 0.0) -> None:
        self.least_s, self.takes_s = least_s, takes_s
        self.limits: list[float] = []

    def __call__(self, instance: object, *, time_limit: float) -> wattsched.Result:
        self.limits.append(time_limit)
        time.sleep(self.takes_s)
        found = wattsched.solve(instance, time_limit=LONG_S)
        if time_limit >= self.least_s:
            return found
        late = TerminationReport(reason="no_solution", limit="time", detail="")
        return found.model_copy(update={"termination": late, "decision": None, "objective": None})


def test_ends_of_a_frontier_may_take_longer_than_their_share() -> None:
    instance, slices = generate("shifting", jobs=1, slots=8, seed=1), Slices(least_s=S_PER_H / 4)
    found = wattsched.pareto(instance, 6, time_limit=S_PER_H, solve=slices)
    assert len(found.points) >= 2
    assert found.missing > 0
    assert slices.limits[0] < slices.least_s <= slices.limits[1]


def test_points_of_a_frontier_that_are_too_late_are_not_begun() -> None:
    instance, slices = generate("shifting", jobs=1, seed=1), Slices(least_s=0.0, takes_s=0.2)
    found = wattsched.pareto(instance, 50, time_limit=0.5, solve=slices)
    assert len(slices.limits) < 10
    assert found.missing >= 40


@pytest.mark.parametrize("time_limit", [None, LONG_S])
def test_a_solver_that_forgets_to_return_its_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, time_limit: float | None
) -> None:
    monkeypatch.setattr("wattsched.solvers.powerflow.solve", lambda *_: None)
    ended = wattsched.solve(INSTANCE, solver="powerflow", time_limit=time_limit).termination
    assert ended.detail == "solver 'powerflow' returned NoneType, not a Solution"

"""What solvers announce on their way counts, whatever becomes of them, and for no more than it is."""

import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from wattsched.formulations.timer import Timer
from wattsched.solvers import auto, highs
from wattsched.solvers.points import Answer, solve_as_written
from wattsched.solvers.solution import (
    Limits,
    Solution,
    Termination,
    announce,
    has_listener,
    infeasible,
    listening,
    unsupported,
    with_announced,
)

from .programs import knapsack

NOTHING = Solution(Termination("no_solution", "time", "the time was over"))


@pytest.fixture
def program():
    return knapsack(5, 4)


@pytest.fixture
def best(program):
    return highs.solve(program, Limits(gap=0.0))


def waiting(program) -> Solution:
    """The point in which nothing is done, without a bound."""
    x = np.zeros(program.n_columns)
    x[program.group_start[:-1]] = 1.0
    return Solution(Termination("feasible"), x=x, objective=program.objective(x))


@pytest.mark.parametrize("last", [NOTHING, unsupported("it broke"), None])
def test_a_last_word_without_the_best_point_does_not_lose_it(program, best, last):
    final = waiting(program) if last is None else last
    answer = with_announced(program, Limits(), final, [waiting(program), best])
    assert (answer.objective, answer.termination.reason) == (best.objective, "optimal")


def test_a_last_word_stands_where_nothing_better_was_announced(program, best):
    assert with_announced(program, Limits(), best, [waiting(program)]) is best
    assert with_announced(program, Limits(), unsupported("it broke"), []).termination.detail == "it broke"
    refuted = infeasible(detail="no point")
    assert with_announced(program, Limits(), refuted, [NOTHING]) is refuted
    bounded = with_announced(program, Limits(), NOTHING, [replace(NOTHING, bound=best.bound)])
    assert (bounded.bound, bounded.termination) == (best.bound, NOTHING.termination)


def test_bounds_of_tighter_rows_are_not_announced_as_the_programs(program, best):
    """The second run is about rows that were tightened, which may cost more."""
    heard: list[Solution] = []
    runs: list[bool] = []
    too_much = np.zeros(program.n_columns)
    too_much[program.group_start[1:] - 1] = 1.0
    assert program.violation(too_much) > 0

    def ask(current: object) -> Answer:
        runs.append(has_listener())
        announce(-5.0 if current is program else 1e9, x=best.x, objective=best.objective)
        return Answer(x=too_much if current is program else best.x, bound=-5.0)

    with listening(heard.append):
        relaxed = Solution(Termination("no_solution"), bound=-7.0)
        answer = solve_as_written(program, Limits(), ask, Timer(), relaxed=relaxed)
    assert runs == [True, True]
    assert [one.bound for one in heard] == [-5.0, -5.0]
    assert all(np.array_equal(one.x, best.x) for one in heard)
    assert (answer.objective, answer.bound) == (best.objective, -5.0)


class Rival:
    """A worker whose solver ends with an answer, or has announced it when it is killed."""

    def __init__(self, answer: Solution, *, slow: bool) -> None:
        self.answer, self.slow, self.killed = answer, slow, threading.Event()

    def solve(self, *_: object) -> Solution:
        announce(self.answer.bound, x=self.answer.x, objective=self.answer.objective)
        if self.slow:
            assert self.killed.wait(60.0)
        return self.answer


@pytest.mark.parametrize("time_s", [None, 0.01])
def test_a_race_keeps_what_every_rival_has_found(program, best, monkeypatch, time_s):
    """One proves the bound, with a point that is far from it; the other had the point."""
    proven = replace(waiting(program), bound=best.bound, termination=Termination("optimal"))
    pointed = replace(best, bound=-1e9, termination=Termination("feasible", None, "killed"))
    rivals = [Rival(proven, slow=False), Rival(pointed, slow=True)]
    left = iter(rivals)

    @contextmanager
    def borrowed():
        rival = next(left)
        yield rival
        rival.killed.set()

    heard: list[Solution] = []
    monkeypatch.setattr(auto, "borrowed", borrowed)
    with listening(heard.append):
        answer = auto._race(["price", "highs"], program, Limits(time_s=time_s), None)
    assert (answer.objective, answer.bound) == (best.objective, pytest.approx(best.bound))
    assert (answer.termination.reason, answer.termination.detail) == ("optimal", "")
    assert best.objective in [one.objective for one in heard]


def test_a_rival_that_finds_no_point_where_another_has_one_is_not_believed(program, best):
    failed = unsupported("broken")
    assert auto._merged(program, Limits(), [failed]).termination.detail == "broken"
    answer = auto._merged(program, Limits(), [failed, infeasible(), best])
    assert (answer.objective, answer.termination.reason) == (best.objective, "feasible")
    assert "contradicts" in answer.termination.detail

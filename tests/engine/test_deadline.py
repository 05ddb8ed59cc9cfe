"""Calls that end on time, whatever their parts do."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import time
from pathlib import Path

import pytest

import wattsched
from wattsched.formulations.timer import Timer
from wattsched.instances.generators import generate
from wattsched.instances.io import write_json
from wattsched.solvers.solution import Solution, Termination
from wattsched.solving.certificates import Priced
from wattsched.solving.deadline import Uncollected, nothing, on_time
from wattsched.solving.engine import CALM_S

LONG_S = 60.0
# Far below what hangs, far above what a busy machine adds.
SOON_S = 20.0


def spin(ended: threading.Event) -> None:
    """Hang in Python code."""
    end = time.monotonic() + LONG_S
    try:
        while time.monotonic() < end:
            pass
    finally:
        ended.set()


def test_what_the_work_returns_or_raises_is_the_callers() -> None:
    assert on_time(lambda: 3, 10.0, nothing) == 3
    with pytest.raises(KeyError, match="lost"):
        on_time(lambda: {}["lost"], None, nothing, threading.Event())


def test_a_work_that_hangs_is_given_up_and_told_so() -> None:
    ended, begin = threading.Event(), time.monotonic()
    assert on_time(lambda: spin(ended), 0.1, nothing) is None
    assert ended.wait(SOON_S)
    assert time.monotonic() - begin < SOON_S


def test_a_work_that_starts_others_is_told_so_itself() -> None:
    ended, tries = [], 200

    def start_others() -> None:
        try:
            while True:
                on_time(int, 1.0, nothing)
        finally:
            ended.append(True)

    often, usual_s = 1e-5, sys.getswitchinterval()
    sys.setswitchinterval(often)
    try:
        for number in range(tries):
            assert on_time(start_others, 1e-3 + number % 10 * 1e-4, nothing) is None
    finally:
        sys.setswitchinterval(usual_s)
    end = time.monotonic() + SOON_S
    while len(ended) < tries and time.monotonic() < end:
        time.sleep(0.01)
    # In one try of thousands it ends between the start of another and its beginning.
    assert len(ended) >= 0.95 * tries


def test_a_model_that_takes_too_long_to_build_is_not_begun() -> None:
    round_ = generate("uniform", jobs=1_000, seed=1)
    result = wattsched.solve(round_, formulation="assignment", time_limit=CALM_S)
    assert (result.solved, result.decided_by, result.termination.limit) == (True, "greedy", "time")
    assert result.termination.detail.startswith("the formulation could not be built in time; ")
    assert result.time_s["build"] < CALM_S / 2


SLOW_MODULE = """
import time
end = time.monotonic() + 0.5
while time.monotonic() < end:
    pass
whole = True
"""


def test_what_is_imported_is_imported_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    ended = threading.Event()

    def work() -> None:
        importlib.import_module("slow_to_import")
        spin(ended)

    begin = time.monotonic()
    assert on_time(work, 0.1, nothing) is None
    assert ended.wait(SOON_S)
    assert time.monotonic() - begin < SOON_S
    assert sys.modules["slow_to_import"].whole


def test_another_thread_can_stop_it() -> None:
    stop, ended = threading.Event(), threading.Event()
    threading.Timer(0.1, stop.set).start()
    assert on_time(lambda: spin(ended), None, nothing, stop) is None
    assert ended.wait(SOON_S)


def test_a_stopped_timer_stops_those_that_came_from_it() -> None:
    timer = Timer()
    others = [timer.share(0.5), timer.until(0.5)]
    assert not any(one.over() for one in [timer, *others])
    timer.stop()
    assert all(one.over() for one in [timer, *others])


def test_what_is_set_aside_is_left_when_a_timer_is_over() -> None:
    timer = Timer(1000.0)
    timer.set_aside(400.0)
    assert 599.0 < (timer.remaining_s() or 0.0) <= 600.0
    assert 299.0 < (timer.until(0.5).remaining_s() or 0.0) <= 300.0
    timer.set_aside(2000.0)
    assert timer.over()


def test_nobody_looks_for_garbage_in_a_call_with_a_short_limit() -> None:
    instance = generate("uniform", jobs=400, seed=1)
    collected: list[str] = []

    def watch(phase: str, _: object) -> None:
        collected.append(phase)

    gc.callbacks.append(watch)
    try:
        result = wattsched.solve(instance, time_limit=CALM_S / 2)
        assert not collected
        assert result.solved
        kept = [[number] for number in range(2 * gc.get_threshold()[0])]
        assert len(collected) * len(kept) > 0
    finally:
        gc.callbacks.remove(watch)


def test_garbage_is_collected_again_when_the_last_one_leaves() -> None:
    for usual in (True, False):
        gc.enable() if usual else gc.disable()
        try:
            with Uncollected():
                with Uncollected():
                    assert not gc.isenabled()
                assert not gc.isenabled()
            assert gc.isenabled() == usual
        finally:
            gc.enable()


HANGING = """
import time
def build(round):
    time.sleep({0}) if {1} else [None for _ in iter(lambda: time.monotonic() > {2}, True)]
"""


@pytest.mark.parametrize("asleep", [True, False])
def test_a_users_formulation_that_hangs_does_not_hold_the_call(asleep: bool, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(HANGING.format(5.0, asleep, time.monotonic() + LONG_S))
    begin = time.monotonic()
    instance = generate("uniform", jobs=5, seed=1)
    result = wattsched.solve(instance, formulation=f"{file}:build", time_limit=1.0)
    assert time.monotonic() - begin < SOON_S
    # The rule has decided before it was asked, and its prices prove how good that is.
    assert (result.solved, result.decided_by, result.formulation) == (True, "greedy", f"{file}:build")
    assert result.certificate is not None
    assert not result.claimed
    assert not wattsched.check(instance, result).faults


@pytest.mark.parametrize(
    ("family", "capacity", "solver"), [("hetero", None, "highs"), ("uniform", "nodes", "price")]
)
def test_a_call_without_a_limit_can_be_stopped_with_what_it_has(
    family: str, capacity: str | None, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nodes are cut up the heuristic has to come before the solver: afterwards it is too late."""
    stop, enough = threading.Event(), threading.Event()
    first = generate(family, jobs=30, seed=1)
    cluster = first.cluster.model_copy(update={"capacity": capacity} if capacity else {})
    instance = first.model_copy(update={"cluster": cluster})
    greedy = wattsched.solve(instance, solver="greedy")

    def solve(*_: object, **__: object) -> None:
        stop.set()
        enough.wait(LONG_S)

    monkeypatch.setattr(f"wattsched.solvers.{solver}.solve", solve)
    begin = time.monotonic()
    result = wattsched.solve(instance, solver=solver, stop=stop)
    assert time.monotonic() - begin < SOON_S
    assert (result.termination.reason, result.termination.limit) == ("feasible", "stopped")
    assert "(stopped by the caller)" in str(result)
    if capacity:
        assert result.objective == pytest.approx(greedy.objective, rel=1e-3)
    enough.set()


def test_what_is_stopped_is_not_said_to_have_reached_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS says so."""
    stop = threading.Event()

    def solve(*_: object, **__: object) -> Solution:
        stop.set()
        return Solution(Termination("no_solution", "time", "time limit reached"))

    monkeypatch.setattr("wattsched.solvers.highs.solve", solve)
    result = wattsched.solve(generate("uniform", jobs=5, seed=1), solver="highs", stop=stop)
    assert result.termination.limit == "stopped"
    assert "time" not in result.termination.detail


def test_what_is_known_before_a_proof_is_kept_when_the_proof_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was `feasible`, without the solver's bound."""
    stop, enough = threading.Event(), threading.Event()
    instance = generate("uniform", jobs=30, seed=1)

    def prove(priced: Priced, *_: object) -> None:
        if priced.call.instance is instance:  # and not one that an earlier test gave up
            stop.set()
            enough.wait(LONG_S)

    monkeypatch.setattr("wattsched.solving.certificates.Priced.proven_further", prove)
    begin = time.monotonic()
    result = wattsched.solve(instance, solver="highs", gap=1e-6, stop=stop)
    assert time.monotonic() - begin < SOON_S
    assert (result.termination.reason, result.termination.limit) == ("optimal", None)
    assert result.claimed
    assert result.certificate is not None
    assert not wattsched.check(instance, result).faults
    enough.set()


@pytest.mark.parametrize("time_limit", [None, 60.0])
@pytest.mark.parametrize("read", [True, False])
def test_what_is_stopped_before_it_begins_says_so(
    read: bool, time_limit: float | None, tmp_path: Path
) -> None:
    instance, stop = generate("uniform", jobs=300, seed=1), threading.Event()
    write_json(tmp_path / "round.json", instance)
    stop.set()
    given = tmp_path / "round.json" if read else instance
    result = wattsched.solve(given, objective="goodput", stop=stop, time_limit=time_limit)
    assert result.sense == "max"
    ended = result.termination
    assert (ended.reason, ended.limit) == ("no_solution", "stopped")
    assert ended.detail.endswith(" before the call was stopped")
    assert read or "read" not in ended.detail


@pytest.mark.parametrize("time_limit", [None, 30.0])
def test_a_solver_that_lacks_memory_leaves_the_quick_decision(
    time_limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solve(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("wattsched.solvers.highs.solve", solve)
    result = wattsched.solve(generate("uniform", jobs=5, seed=1), solver="highs", time_limit=time_limit)
    assert result.termination.reason in ("feasible", "optimal")
    assert "out of memory: can't start new thread" in result.termination.detail


def test_what_a_formulation_raises_besides_is_not_taken_for_a_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("wattsched.formulations.sizing.mckp.written_out", build)
    with pytest.raises(RuntimeError, match="broken"):
        wattsched.solve(generate("uniform", jobs=5, seed=1))

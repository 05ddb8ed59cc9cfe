"""Sessions and threads: who decides, who ends it, and what of the host is left as it is."""

from __future__ import annotations

import signal
import threading
import time
import warnings

import numpy as np
import pytest

import wattsched
from tests.strategies.sessions import TABLE, options_of, session
from wattsched import Session
from wattsched.instances.generators import generate
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.report import Report


def test_another_thread_ends_a_decision_and_changes_jobs_meanwhile() -> None:
    own = Session(generate("uniform", jobs=300, seed=1).cluster, solver="highs", tables={"t": {
        **TABLE, "pool": ["A100"] * 3}})  # fmt: skip
    own.upsert([f"j{i}" for i in range(300)], options=["t"] * 300, weight=np.linspace(1.0, 2.0, 300) ** 3)
    own.update(power_w=0.6 * float(wattsched.solve(own.to_instance()).totals["power_w"]))

    def meddle() -> None:
        time.sleep(0.3)
        own.upsert(["late"], options=["t"])
        own.cancel()

    other = threading.Thread(target=meddle)
    other.start()
    begin = time.monotonic()
    decision = own.solve(gap=0.0)
    other.join()
    assert time.monotonic() - begin < 5.0
    assert decision.result.termination.reason in ("feasible", "optimal")
    assert "late" not in decision.ids
    assert "late" in own.solve(gap=1e-3).ids


def test_a_small_round_is_ended_while_its_solver_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is decided in the thread of who asks."""
    own, enough, asked_in = session(solver="highs"), threading.Event(), list[str]()
    own.upsert(["a", "b"], **options_of(2))

    def hang(*_: object, **__: object) -> None:
        own.cancel()
        enough.wait(60.0)

    def check(instance: Instance, decision: Decision) -> Report:
        asked_in.append(threading.current_thread().name)
        return checked(instance, decision)

    checked = wattsched.results.problems.problem("sizing").check
    with monkeypatch.context() as patched:
        patched.setattr("wattsched.solvers.highs.solve", hang)
        patched.setitem(vars(wattsched.results.problems.problem("sizing")), "check", check)
        begin = time.monotonic()
        ended = own.solve()
        assert time.monotonic() - begin < 5.0
    enough.set()
    assert {*asked_in} == {threading.current_thread().name}
    assert (ended.result.termination.reason, ended.result.termination.limit) == ("feasible", "stopped")
    assert own.solve().result.termination.reason == "optimal"


def test_many_threads_ask_for_decisions_of_one_session() -> None:
    own, found = session(), list[float]()

    def ask(number: int) -> None:
        own.upsert([f"j{number}"], options=["t"])
        found.append(float(own.solve().objective or 0.0))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert max(found) == pytest.approx(own.solve().objective)


def test_the_host_is_left_as_it_is() -> None:
    before = signal.getsignal(signal.SIGINT), list(warnings.filters), np.geterr()
    own = session()
    own.upsert(["a"], options=["t"])
    own.solve(deadline_s=1.0)
    assert (signal.getsignal(signal.SIGINT), list(warnings.filters), np.geterr()) == before

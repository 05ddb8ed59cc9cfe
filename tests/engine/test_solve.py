"""`wattsched.solve` end to end: limits, fallbacks, infeasibility, determinism, warm starts."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from wattsched.formulations.model import Model
from wattsched.formulations.program import Program
from wattsched.formulations.shifting import schedules
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.errors import InputError
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import instance_of
from wattsched.results.problems import problem
from wattsched.solvers import worker as worker_module
from wattsched.solving import engine, steps
from wattsched.verification.sizing.bound import prove
from wattsched.verification.sizing.checker import check

NODE = {"name": "n", "gpu_type": "A", "gpus": 4, "base_power_w": 100.0}
ROW = {"gpus": [1, 4], "pool": ["A", "A"], "completion_s": [1000.0, 400.0], "power_w": [200.0, 800.0]}


def small(**values: object) -> Instance:
    """Two equal jobs on one node of four GPUs that draw 50 W each when idle."""
    cluster = {"gpu_types": {"A": {"idle_power_w": 50.0}}, "nodes": [NODE]}
    jobs = [{"name": "a", "options": ROW}, {"name": "b", "options": ROW}]
    asked = {"objective": "total-completion", **values}
    return Instance.model_validate({"cluster": cluster, "jobs": jobs, **asked})


@settings(max_examples=examples(60))
@given(
    instance=small_instances(max_jobs=3),
    objective=st.sampled_from(sorted({*OBJECTIVES} - {"makespan", "max-min"})),
    share=st.sampled_from([0.001, 0.05, 0.5, 4.0]),
)
def test_more_of_budgets_brings_at_most_what_their_prices_say(
    instance: Instance, objective: str, share: float
) -> None:
    """Beyond the bound that the prices prove, as `solve` prints and the docs explain."""
    names = ("power_w", "energy_j", "carbon_g", "least_goodput")
    given = {name: value for name in names if (value := getattr(instance.budgets, name)) is not None}
    assume(given)
    result = wattsched.solve(instance, objective=objective, gap=0.0)
    assume(result.certificate is not None and result.decision is not None)
    more = {name: share * value for name, value in given.items()}
    budgets = instance.budgets.model_copy(update={name: given[name] + by for name, by in more.items()})
    richer = instance.model_copy(update={"budgets": budgets, "objective": objective})
    sign = 1 if OBJECTIVES[objective].sense == "min" else -1
    proof, most = result.certificate, sum(result.prices.get(name, 0.0) * by for name, by in more.items())
    proven = sign * (proof.bound if proof.price_bound is None else proof.price_bound)
    found = prove(richer, proof.prices)
    assert found.faults == []
    assert found.bound is not None
    assert sign * found.bound == pytest.approx(proven - most, rel=1e-6, abs=1e-6 * max(0.1, abs(most)))
    truth = optimum(richer, objective)
    assert truth is None or sign * truth >= proven - most - 1e-6 * max(0.1, abs(truth), abs(most))


def test_what_others_draw_is_not_ours_to_spend() -> None:
    """600 W are there for jobs; others draw 150 W on the node, and a switch 60 W through its feed."""
    instance = small(budgets={"power_w": 900.0})
    (node,) = instance.cluster.nodes
    feed = {"name": "feed", "members": [node.name], "power_cap_w": 840.0, "reserved_w": 60.0}
    content = instance.model_dump(mode="json")
    content["cluster"]["nodes"][0]["reserved_w"] = 150.0
    content["cluster"]["power_domains"] = [feed]
    shared = type(instance).model_validate(content)
    before, after = (wattsched.solve(one, solver="highs") for one in (instance, shared))
    assert after.totals["power_w"] <= 840.0 - 60.0 < before.totals["power_w"]
    assert wattsched.check(shared, before).faults != []
    content["cluster"]["power_domains"][0]["power_cap_w"] = 500.0
    none = wattsched.solve(type(instance).model_validate(content))
    # 4 x 50 W idle, 100 W of the server, 150 W and 60 W of others
    assert "idle GPUs, nodes and others' load use 510 W" in none.termination.detail


def test_an_empty_round_has_the_empty_decision() -> None:
    empty = small(jobs=[], carbon_g_per_kwh=400.0, price_per_kwh=0.25)
    for objective in OBJECTIVES:
        result = wattsched.solve(empty, objective=objective)
        assert result.termination.reason == "optimal"
        assert result.objective == 0.0
        assert result.decision.jobs == []


def test_prices_say_what_one_more_unit_is_worth() -> None:
    jobs = [{"name": f"j{i}", "options": ROW} for i in range(6)]
    result = wattsched.solve(small(jobs=jobs))
    # One job takes all four GPUs (400 s), five wait (300 s + 400 s): four GPUs save 300 s.
    assert result.objective == pytest.approx(400 + 5 * 700)
    assert result.bound == pytest.approx(400 + 5 * 700)
    assert result.prices == {"gpus:A": pytest.approx(75.0)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"solver": "oracle"}, "unknown solver 'oracle'"),
        ({"solver": "gandiva"}, "'gandiva' is a heuristic of problem 'sharing'"),
        ({"formulation": "magic"}, "unknown formulation 'magic'"),
        ({"objective": "joy"}, "unknown objective 'joy'"),
    ],
)
def test_unknown_names_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wattsched.solve(small(), **values)


@pytest.mark.parametrize("entry", ["solve", "model_of"])
def test_an_instance_made_in_python_is_refused_for_all_that_a_file_is(entry: str) -> None:
    """Sets beyond jobs' bounds, jobs without an option, parted jobs that share; and what a copy broke."""
    pair = {"name": "pair", "pool": "A", "gpus": 2, "power_w": 300.0, "rates": {"a": 1.0, "b": 1.0}}
    held = [{"gpus": 1, "pool": "A", "set": "now", "nodes": {"n": [gpu]}} for gpu in (0, 1)]
    made = small(
        jobs=[
            {"name": "a", "options": ROW, "max_gpus": 1, "current": held[0]},
            {"name": "b", "options": ROW, "current": held[1]},
            {"name": "c", "options": ROW, "min_gpus": 64, "can_wait": False},
        ],
        sets=[pair],
    )
    ask = {"solve": wattsched.solve, "model_of": engine.model_of}[entry]
    with pytest.raises(InputError) as told:
        ask(made)
    with pytest.raises(InputError) as of_file:
        instance_of(made.model_dump(mode="json"))
    assert told.value.faults == of_file.value.faults
    assert len(told.value.faults) == 3
    assert "set 'pair': 2 GPUs are above the max_gpus 1 of 'a'" in told.value.faults
    with pytest.raises(InputError, match="job name 'b'"):
        ask(made.model_copy(update={"jobs": [made.jobs[1], made.jobs[1]], "sets": []}))


@pytest.mark.parametrize("solver", ["highs", "cpsat", "greedy", "powerflow"])
def test_same_seed_same_answer(solver: str) -> None:
    instance = generate("hetero", jobs=12, seed=3)
    first, second = (wattsched.solve(instance, solver=solver, seed=7) for _ in range(2))
    assert first.model_dump(exclude={"time_s"}) == second.model_dump(exclude={"time_s"})


@pytest.mark.parametrize("time_limit", [3e6, 1e8, float("inf")])
def test_years_are_limits_too(time_limit: float) -> None:
    result = wattsched.solve(generate("uniform", jobs=5, seed=1), time_limit=time_limit)
    assert result.termination.reason == "optimal"


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is given up, however slow the machine: every part has to notice by itself that time is over."""
    monkeypatch.setattr(engine, "SLACK_S", 600.0)


@pytest.mark.usefixtures("unhurried")
def test_a_hopeless_time_limit_still_returns_a_decision_with_a_bound() -> None:
    instance = generate("uniform", jobs=300, seed=1)
    result = wattsched.solve(instance, gap=0.0, time_limit=0.05)
    assert result.checked
    assert result.bound <= result.objective
    assert check(instance, result.decision).faults == []


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("formulation", ["patterns", "assignment"])
@pytest.mark.parametrize("solver", ["auto", "highs"])
def test_a_formulation_that_is_out_of_time_says_so(formulation: str, solver: str) -> None:
    """Whatever the solver makes of the little that it is given."""
    instance = generate("placement", jobs=40, seed=4)
    result = wattsched.solve(instance, formulation=formulation, solver=solver, time_limit=1e-3)
    assert result.termination.reason == "feasible"
    assert result.termination.limit == "time"
    assert result.decision is not None


def test_a_killed_solver_process_leaves_the_greedy_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill -9 in the middle of a solve; the process is stopped first so that it cannot finish before."""
    started = worker_module.Worker

    def stopped_worker() -> worker_module.Worker:
        worker = started()
        os.kill(worker.pid, signal.SIGSTOP)
        threading.Timer(1.0, os.kill, (worker.pid, signal.SIGKILL)).start()
        return worker

    monkeypatch.setattr(worker_module, "Worker", stopped_worker)
    monkeypatch.setattr(worker_module, "_standing", [])
    monkeypatch.setattr(steps, "SMALL", 0)
    instance = generate("hetero", jobs=30, seed=2)
    begin = time.perf_counter()
    result = wattsched.solve(instance, solver="price", gap=0.0, time_limit=60.0)
    assert time.perf_counter() - begin < 30.0
    greedy = wattsched.solve(instance, solver="greedy")
    assert result.checked
    assert result.objective == greedy.objective
    assert result.bound == pytest.approx(greedy.bound, rel=1e-6)
    assert "signal 9" in result.termination.detail


@pytest.mark.parametrize("end", ["error", "no_solution", "infeasible", "wrong point"])
def test_whatever_becomes_of_the_solver_the_greedy_decision_is_in_hand(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a small round without a time limit the rule comes after the solver, but it comes."""
    from wattsched.solvers import highs
    from wattsched.solvers.solution import Solution, Termination

    def failing(program: Program, *_: object) -> Solution:
        if end == "infeasible":
            return Solution(Termination("infeasible"), bound=np.inf)
        if end != "wrong point":
            return Solution(Termination(end, detail="lost"))
        x = np.zeros(program.n_columns)
        x[program.group_start[:-1]] = 1.0  # as many GPUs as there are, for everybody
        return Solution(Termination("optimal"), x=x, objective=-np.inf)

    instance = small(jobs=[{"name": f"j{i}", "options": ROW} for i in range(6)])
    greedy = wattsched.solve(instance, solver="greedy")
    monkeypatch.setattr(highs, "solve", failing)
    for solver in ("highs", "auto", "price"):
        result = wattsched.solve(instance, solver=solver)
        assert result.checked
        assert result.objective == greedy.objective
        assert result.bound == pytest.approx(greedy.bound)


def test_results_convert_to_pandas() -> None:
    instance = generate("hetero", jobs=12, seed=1)
    result = wattsched.solve(instance)
    frame = result.to_frame()
    assert set(frame.index) == {job.name for job in instance.jobs}
    assert frame["gpus"].sum() == result.totals["gpus_used"]
    assert not np.isnan(result.prices_frame()["price"]).any()


def test_a_job_that_must_keep_what_no_option_has_is_named() -> None:
    held = {"gpus": 2, "pool": "A", "nodes": {"n": [0, 1]}}
    jobs = [{"name": "fixed", "options": ROW, "preemptible": False, "current": held}]
    result = wattsched.solve(small(jobs=jobs))
    assert result.termination.reason == "infeasible"
    assert "'fixed' has the GPU count, pool and batch size" in result.termination.detail


def test_last_rounds_prices_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from wattsched.solvers import dual

    instance = generate("uniform", jobs=600, seed=3)
    first = wattsched.solve(instance, solver="greedy")
    calls: list[int] = []
    oracle = dual._KindOracle.__call__

    def counted(self: dual._KindOracle, y: np.ndarray) -> object:
        calls.append(1)
        return oracle(self, y)

    monkeypatch.setattr(dual._KindOracle, "__call__", counted)
    cold = wattsched.solve(instance, solver="greedy")
    evaluations = len(calls)
    warm = wattsched.solve(instance, solver="greedy", initial_solution=first)
    assert len(calls) - evaluations < evaluations
    assert warm.bound == pytest.approx(cold.bound, rel=1e-5)


def test_no_gap_at_all_is_optimal_up_to_the_last_digits() -> None:
    for seed in range(3):
        instance = generate("hetero", jobs=10, seed=seed)
        result = wattsched.solve(instance, objective="proportional", gap=0.0)
        assert result.termination.reason == "optimal"


def test_all_decisions_are_tried_where_generated_columns_hold_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of columns that do not fit together says nothing: the one of all decisions does."""
    instance, build = generate("shifting", jobs=3, slots=6, seed=1, carbon_fraction=None), schedules.build

    def without_columns(*given: Any) -> Model[Any]:
        model = build(*given)
        program = replace(model.program, upper=np.zeros(model.program.n_columns))
        return replace(model, program=program, start=None, outside=-np.inf)

    shifting = problem("shifting")
    formulations = {**shifting.formulations, "schedules": without_columns}
    changed = replace(shifting, formulations=formulations, heuristics={"greedy": lambda *_: None})
    best = wattsched.solve(instance)
    monkeypatch.setattr(engine, "find_problem", lambda _: changed)
    found = wattsched.solve(instance, prove=0)
    assert (best.formulation, found.formulation) == ("schedules", "time-indexed")
    assert found.objective == pytest.approx(best.objective, rel=2e-4)

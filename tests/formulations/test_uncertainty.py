"""Uncertain watts and rates: against all decisions of small rounds, and what their certificates prove.

UNCERTAIN_CASES=500 UNCERTAIN_SEED=7 pytest tests/formulations/test_uncertainty.py is a campaign.
"""

from __future__ import annotations

import copy
import math
import os
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wattsched
from tests.brute_force import sizing_uncertain as brute
from tests.strategies.effort import examples
from wattsched.formulations.sizing.uncertainty import parameter, understated
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.uncertainty import Uncertainty
from wattsched.verification.sizing.bound import Prover
from wattsched.verification.sizing.uncertainty import worst_case

CASES = int(os.environ.get("UNCERTAIN_CASES", examples(60)))
SEED = int(os.environ.get("UNCERTAIN_SEED", "0"))
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"solver": "highs"},
    {"solver": "price"},
    {"solver": "cpsat"},
    {"solver": "pyomo:highs"},
    {"formulation": "assignment", "solver": "highs"},
    {"formulation": "intervals", "solver": "cpsat"},
)


@pytest.mark.parametrize("number", range(CASES))
def test_against_all_decisions(number: int) -> None:
    """Optimum, infeasibility and certificate of a round that a random way decides."""
    seed = SEED * 1_000_003 + number
    document = brute.random_round(random.Random(seed))
    instance, truth = Instance.model_validate(document), brute.least_cost(document)
    found = wattsched.solve(instance, gap=1e-6, **WAYS[seed % len(WAYS)])
    assert wattsched.check(instance, found).faults == []
    assert found.certificate is not None
    if truth is None:
        assert found.termination.reason == "infeasible"
        return
    assert found.termination.reason == "optimal"
    sign = 1.0 if found.sense == "min" else -1.0
    assert found.objective is not None
    assert sign * found.objective == pytest.approx(truth, rel=2e-6, abs=1e-9)
    assert found.proven_gap is not None
    assert found.proven_gap <= 2e-6
    assert sign * found.certificate.bound <= truth + 1e-6 * abs(truth)


@pytest.mark.parametrize("number", range(CASES // 4))
def test_any_prices_and_splits_prove_no_more_than_the_optimum(number: int) -> None:
    """What random prices prove beside random splits of thresholds holds for the better side of the two."""
    r = random.Random(SEED * 1_000_003 + number)
    document = brute.random_round(r)
    truth = brute.least_cost(document)
    prove = Prover(Instance.model_validate(document))
    sign = 1.0 if prove.sense == "min" else -1.0
    names = [name for name in prove.rows if name.startswith("power_w")]
    tops = {name: 400.0 for name in names} | {"objective": 10.0 ** r.uniform(-2, 4)}
    uncertain = [name for name in tops if name in prove.thresholds.pieces(())]
    for _ in range(5):
        splits = (
            [{"threshold": n, "at_most": r.uniform(0, tops[n])} for n in r.choices(uncertain, k=2)]
            if uncertain
            else []
        )
        bounds = []
        for sides in range(2 ** len(splits)):
            taken = [(split, bool(sides >> k & 1), k) for k, split in enumerate(splits)]
            prices = {name: -sign * r.choice((0.0, 0.1, 3.0)) * r.random() for name in names}
            proof = prove(prices, _taken(taken))
            assert proof.faults == []
            assert proof.bound is not None
            bounds.append(sign * proof.bound - proof.leeway)
        assert truth is None or min(bounds) <= truth + 1e-9 * max(1.0, abs(truth))


def _taken(sides: list[tuple[dict[str, Any], bool, int]]) -> Any:
    from wattsched.verification.tree import Taken

    return [Taken(*side) for side in sides]


@given(
    st.lists(st.integers(0, 8).map(float), min_size=1, max_size=7),
    st.one_of(
        st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 9.0]).map(lambda g: {"gamma": g}),
        st.just({"confidence": 0.9}),
    ),
    st.floats(0.0, 9.0),
    st.floats(0.0, 9.0),
)
def test_what_boxes_understate(
    deviations: list[float], kind: dict[str, float], one: float, other: float
) -> None:
    """Around the parameter of some deviations no box overstates their worst case, and a point states it."""
    uncertainty, found = Uncertainty(**kind), np.array(deviations)
    truth = brute.worst_case(kind, deviations)
    exact = parameter(uncertainty, found)
    assert worst_case(uncertainty, found) == pytest.approx(truth, abs=1e-12)
    for low, high in ((exact, exact), (min(one, exact), max(other, exact))):
        terms, besides = understated(uncertainty, (low, high), found)
        assert terms.sum() + besides <= truth + 1e-9
        assert low < high or terms.sum() + besides == pytest.approx(truth, abs=1e-9)


def a_round(**fields: Any) -> Instance:
    """Three equal jobs that draw 100 W on one GPU each, under a cap of 330 W; idle GPUs draw nothing."""
    table = {"gpus": [1], "pool": ["A"], "rate": [1.0], "power_w": [100.0]}
    cluster = {"gpu_types": {"A": {"idle_power_w": 0}}, "nodes": [{"name": "n", "gpu_type": "A", "gpus": 4}]}
    jobs = [{"name": name, "options": "t", "remaining_work": 3600.0} for name in "abc"]
    known = {"cluster": cluster, "tables": {"t": table}, "jobs": jobs, "budgets": {"power_w": 330.0}}
    return Instance.model_validate({"objective": "goodput", **known, **fields})


@pytest.mark.parametrize(
    ("uncertainty", "runs", "worst_w"),
    [
        ({"power_deviation": 0.3, "gamma": 1}, 3, 330.0),
        ({"power_deviation": 0.3, "gamma": 1.1}, 2, 233.0),
        ({"power_deviation": 0.3, "gamma": 3}, 2, 260.0),
        ({"power_deviation": 0.1, "confidence": 0.95}, 3, 300.0 + 1.6448536269514722 * 10 * math.sqrt(3)),
        ({"power_deviation": 0.2, "confidence": 0.95}, 2, 200.0 + 1.6448536269514722 * 20 * math.sqrt(2)),
        ({"power_deviation": 0.9, "gamma": 0}, 3, 300.0),
    ],
)
def test_by_hand(uncertainty: dict[str, float], runs: int, worst_w: float) -> None:
    found = wattsched.solve(a_round(uncertainty=uncertainty), gap=0.0)
    assert found.objective == pytest.approx(runs)
    assert found.totals["worst_power_w"] == pytest.approx(worst_w)
    assert found.totals["power_w"] == pytest.approx(100.0 * runs)


def test_a_certain_decision_is_refused_in_the_worst_case() -> None:
    certain = wattsched.solve(a_round())
    uncertain = a_round(uncertainty={"power_deviation": 0.3, "gamma": 2})
    faults = wattsched.check(uncertain, certain.decision).faults
    assert faults == ["budgets.power_w: the decision needs 360 W, the budget is 330 W"]


def test_a_job_has_deviations_of_its_own() -> None:
    jobs = [job.model_copy(update={"power_deviation": 0.0}) for job in a_round().jobs]
    steady = a_round(uncertainty={"power_deviation": 0.3, "gamma": 3}).model_copy(update={"jobs": jobs})
    assert wattsched.solve(steady).objective == pytest.approx(3.0)


def test_sleeping_nodes_restarts_and_a_bottleneck() -> None:
    """Other parts of rounds go with uncertain watts."""
    nodes = [{"name": n, "gpu_type": "A", "gpus": 1, "base_power_w": 20.0, "sleeps": True} for n in "xyz"]
    cluster = {"gpu_types": {"A": {"idle_power_w": 5}}, "nodes": nodes}
    uncertainty = {"power_deviation": 0.2, "gamma": 1}
    known = a_round(cluster=cluster, budgets={"power_w": 380.0}, uncertainty=uncertainty)
    for objective in ("goodput", "makespan", "energy"):
        found = wattsched.solve(known, objective=objective, gap=0.0)
        assert found.termination.reason == "optimal"
        assert wattsched.check(known, found).faults == []
    running = wattsched.solve(known, gap=0.0)
    assert running.objective == pytest.approx(3.0)
    assert running.totals["worst_power_w"] == pytest.approx(380.0)


FORGED = {
    "a threshold that nothing has": {"threshold": "energy_j", "at_most": 1.0},
    "a negative threshold": {"threshold": "power_w", "at_most": -1.0},
    "a threshold that is no number": {"threshold": "power_w", "at_most": "much"},
}


def test_forged_certificates_are_refused() -> None:
    """The bound cannot be raised, nor a side of a split left out, nor a threshold be made up."""
    random_round = next(
        document
        for seed in range(100)
        if "gamma" in (document := brute.random_round(random.Random(seed)))["uncertainty"]
        and len(_honest(document).get("certificate", {}).get("tree", [])) > 4
        and document["objective"] == "total-completion"
    )
    instance, honest = Instance.model_validate(random_round), _honest(random_round)
    assert _refusals(instance, honest) == []
    tree = honest["certificate"]["tree"]
    split = next(k for k, node in enumerate(tree) if "threshold" in (node["split"] or {}))
    for forged in FORGED.values():
        document = copy.deepcopy(honest)
        document["certificate"]["tree"][split]["split"] = forged
        assert _refusals(instance, document)
    for better in ({"bound": honest["certificate"]["bound"] * 1.01}, {"tree": [tree[-1]]}):
        document = copy.deepcopy(honest)
        document["certificate"] |= better
        assert _refusals(instance, document)
    certain = instance.model_copy(update={"uncertainty": None})
    assert "nothing uncertain" in str(Prover(certain)({}, _taken([(tree[split]["split"], True, 0)])).faults)


def _honest(document: dict[str, Any]) -> dict[str, Any]:
    found = wattsched.solve(Instance.model_validate(document), gap=1e-6)
    return {} if found.decision is None else found.model_dump(mode="json")


def _refusals(instance: Instance, document: dict[str, Any]) -> list[str]:
    from wattsched.results.problems import problem
    from wattsched.verification.verdict import check_result

    return check_result(problem("sizing"), instance, document).faults


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"uncertainty": {"gamma": 1, "confidence": 0.9}}, "exactly one of 'gamma' and 'confidence'"),
        ({"uncertainty": {"power_deviation": 1.5, "gamma": 1}}, "power_deviation"),
        (
            {"uncertainty": {"rate_deviation": 0.1, "gamma": 1}, "objective": "makespan"},
            "uncertain rates need",
        ),
        ({"jobs": [{"name": "a", "options": "t", "rate_deviation": 0.1}]}, "which needs 'uncertainty'"),
    ],
)
def test_errors(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        a_round(**fields)
    if "objective" in fields:
        with pytest.raises(InputError, match=message):
            wattsched.solve(a_round(uncertainty=fields["uncertainty"]), objective=fields["objective"])


def test_solvers_are_compared() -> None:
    known = a_round(uncertainty={"power_deviation": 0.3, "gamma": 2})
    compared = wattsched.compare(known, formulations=["mckp", "assignment"], solvers=["highs", "auto"])
    assert [run.solver_objective for run in compared.runs] == [pytest.approx(2.0)] * 4


def test_no_single_program_is_exported() -> None:
    from wattsched.solving.engine import model_of

    with pytest.raises(ValueError, match="family of programs"):
        model_of(a_round(uncertainty={"power_deviation": 0.3, "gamma": 1}))


def test_large_rounds_are_written_out_and_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are still wide are split by prices alone in rounds that are taken for large."""
    monkeypatch.setattr("wattsched.solving.families.SMALL", 10)
    instance = wattsched.generate("uniform", jobs=12, seed=3)
    uncertainty = Uncertainty(power_deviation=0.1, gamma=3.0)
    found = wattsched.solve(instance.model_copy(update={"uncertainty": uncertainty}), gap=1e-3)
    monkeypatch.undo()
    other = wattsched.solve(instance.model_copy(update={"uncertainty": uncertainty}), gap=1e-3)
    assert found.proven_gap is not None
    assert found.proven_gap <= 1e-3
    assert found.objective == pytest.approx(other.objective, rel=1e-3)


def test_a_limit_of_time_leaves_a_bound() -> None:
    instance = wattsched.generate("uniform", jobs=10, seed=1)
    uncertain = instance.model_copy(
        update={"uncertainty": Uncertainty(power_deviation=0.2, rate_deviation=0.2, gamma=2.0)}
    )
    found = wattsched.solve(uncertain, gap=0.0, time_limit=1.5)
    assert found.decision is not None
    assert found.bound is not None
    assert found.time_s["total"] < 1.05 * 1.5 + 0.5
    assert wattsched.check(uncertain, found).faults == []

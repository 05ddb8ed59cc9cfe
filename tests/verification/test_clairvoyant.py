"""Bounds on the schedules of a trace are proven from their prices alone; what goes beyond that is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import clairvoyant, cluster_of, linear, trace_by_hand
from wattsched.instances.clairvoyant import ClairvoyantBound
from wattsched.instances.errors import InputError, validated
from wattsched.replay.jobs.budget import Budget
from wattsched.verification.clairvoyant import Prover, faults_of, proven_again

JOBS = (0.0, 900.0, 2, linear(4)), (50.0, 500.0, 1, {1: 1.0, 2: 1.5}), (60.0, 300.0, 4, linear(2))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    trace = trace_by_hand(cluster_of(4), *JOBS)
    watts = Budget.of_energy(450.0 * 600.0, 600.0)
    return json.loads(clairvoyant(trace, watts, None, [900.0]).model_dump_json())


def read(document: dict[str, Any]) -> ClairvoyantBound:
    return validated(ClairvoyantBound, json.loads(json.dumps(document)))


def test_a_file_proves_itself(document: dict[str, Any]) -> None:
    bound = read(document)
    assert faults_of(bound) == []
    assert len(bound.proofs) > 1
    assert bound.mean_completion_s > 0


@pytest.mark.parametrize("proof", [0, -1])
def test_more_than_the_prices_prove_is_refused(document: dict[str, Any], proof: int) -> None:
    forged = json.loads(json.dumps(document))
    forged["proofs"][proof]["bound_s"] *= 1.001
    (fault,) = faults_of(read(forged))
    assert "bound_s: claims" in fault
    assert fault.startswith(f"proofs[{proof % len(forged['proofs'])}].")


@pytest.mark.parametrize("beyond", [1e-10, 2e-9, 5e-9, 9e-9])
@pytest.mark.parametrize("joule_price", [1e-3, 1e-9, 1e-20, 5e-324])
def test_no_energy_follows_from_what_a_claim_is_above_its_proof(beyond: float, joule_price: float) -> None:
    """A single job, whose least energy is known; a price of joules divides what is claimed."""
    trace = trace_by_hand(cluster_of(2), (100.0, 1_000.0, 2, linear(2)))
    bound = clairvoyant(trace, completion_s=[500.0])
    first = bound.proofs[0]
    forged = {"joule_price": joule_price, "bound_s": first.bound_s * (1.0 + beyond)}
    claims = [first, *bound.proofs[1:], first.model_copy(update=forged)]
    proven, _ = proven_again(bound.model_copy(update={"proofs": claims}))
    assert proven.energy_j(500.0) <= bound.energy_j(500.0) * (1.0 + 1e-9)
    assert proven.mean_completion_s <= 500.0


@given(data=st.data())
@settings(max_examples=examples(60))
def test_whatever_the_prices_are_the_bound_is_true(document: dict[str, Any], data: st.DataObject) -> None:
    """Prices and worths of anybody prove something, and never more than what a schedule reaches."""
    forged = json.loads(json.dumps(document))
    first, scale = forged["proofs"][0], st.floats(0.0, 1e3)
    first["gpus"]["G"] = [price * data.draw(scale) for price in first["gpus"]["G"]]
    first["budget"] = [price * data.draw(scale) for price in first["budget"]]
    first["worth"] = {name: [w * data.draw(scale) for w in worth] for name, worth in first["worth"].items()}
    bound = read(forged)
    reached_s = sum(work / max(rates.values()) for _, work, _, rates in JOBS) * len(JOBS)
    assert Prover(bound)(bound.proofs[0]) <= reached_s


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda d: d["proofs"][0].update(joule_price=1.0), "proofs[0].joule_price: must be 0, got 1"),
        (lambda d: d["proofs"][0]["gpus"]["G"].pop(), "proofs[0].gpus.G: has"),
        (lambda d: d["proofs"][0]["gpus"].update(H=[]), "proofs[0].gpus names the unknown pool 'H'"),
        (lambda d: d["proofs"][0]["worth"].pop("kind 0"), "proofs[0].worth: lacks 'kind 0'"),
        (lambda d: d["proofs"][0]["worth"].update(x=[1.0]), "proofs[0].worth names the unknown options 'x'"),
        (lambda d: d["proofs"][0]["gpus"]["G"].__setitem__(0, -1.0), "G[0]: must be greater than or equal"),
        (lambda d: d["proofs"][0]["gpus"]["G"].__setitem__(0, float("nan")), "gpus.G[0]"),
        (lambda d: d.update(budget=None), "proofs[0].budget: has prices, but there is no budget"),
        (lambda d: d["jobs"]["work"].pop(), "work: is of length 2, 'name' of 3"),
        (lambda d: d["jobs"]["name"].__setitem__(0, d["jobs"]["name"][1]), "jobs: duplicate name"),
        (lambda d: d["jobs"]["options"].__setitem__(0, "x"), "jobs names the unknown options 'x'"),
        (lambda d: d["options"]["kind 0"]["pool"].__setitem__(0, "x"), "names the unknown pool 'x'"),
        (lambda d: d["slot_edges_s"].__setitem__(1, -5.0), "slot_edges_s: -5 does not come after 0"),
        (lambda d: d["slot_edges_s"].__setitem__(0, 1e-3), "slot_edges_s: begins at 0.001"),
        (lambda d: d["jobs"]["arrival_s"].__setitem__(2, 1e9), "before the last arrival"),
        (lambda d: d["jobs"].update(name=[], arrival_s=[], work=[], options=[]), "name: has no rows"),
        (lambda d: d["budget"].update(time_s=[5.0, 1.0], per_kwh=[1.0, 1.0]), "1 does not come after 5"),
        (lambda d: d.update(proofs=[]), "proofs"),
        (lambda d: d["budget"].update(begin_s=9.0), "budget.begin_s: is 9, after the first slot at 0"),
        (lambda d: d["proofs"][0].update(worth={"kind 0": [1.0] * 10**6}), "makes more than 20,000,000"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_named(document: dict[str, Any], change: Any, fault: str) -> None:
    forged = json.loads(json.dumps(document))
    change(forged)
    with pytest.raises(InputError) as error:
        validated(ClairvoyantBound, forged)
    assert fault in str(error.value)


def one_job(budget: dict[str, Any], slots: list[float], prices: list[float]) -> ClairvoyantBound:
    """One job that runs for 100 s from 0 s on, on its only GPU, above the idle draw of 1 W."""
    zero = [0.0] * (len(slots) - 1)
    proof = {"joule_price": 0.0, "gpus": {"G": zero}, "budget": prices, "worth": {"t": [0.5, 1.0, 60.0]}}
    return read(
        {
            "pools": {"G": 1},
            "options": {"t": {"pool": ["G"], "gpus": [1], "rate": [1.0], "power_w": [100.0]}},
            "jobs": {"name": ["a"], "arrival_s": [0.0], "work": [100.0], "options": ["t"]},
            "standing_w": 1.0,
            "budget": {"quantity": "energy_j", "time_s": [0.0], "per_kwh": [3.6e6]} | budget,
            "slot_edges_s": slots,
            "proofs": [proof | {"bound_s": 0.0}],
        }
    )


def test_a_period_that_the_idle_cluster_overspends_proves_nothing() -> None:
    """What is short then cannot be charged: no job needs to run in it."""
    dear = {
        "amount": 2e4,
        "begin_s": 0.0,
        "period_s": 3_600.0,
        "time_s": [0.0, 3_600.0],
        "per_kwh": [3.6e6, 9e9],
    }
    bound = one_job(dear, [0.0, 200.0, 7_200.0], [0.0, 1e3])
    assert Prover(bound)(bound.proofs[0]) <= 100.0


@pytest.mark.parametrize("border_s", [30.0, 1e-3, 70.0])
def test_work_before_a_border_is_charged_the_price_of_its_period(border_s: float) -> None:
    """However long periods are: 100 s of work with 7 kJ before the border, and 3 kJ after it."""
    long_s = 1e12
    halves = {"amount": 1e12 + 7e3, "begin_s": border_s - long_s, "period_s": long_s}
    bound = one_job(halves, [-70.0 + border_s - 1.0, 5_000.0], [0.0, 0.5])
    assert Prover(bound)(bound.proofs[0]) <= 100.0


@pytest.mark.parametrize("mean_s", [0.0, -1.0, float("nan"), float("inf")])
def test_energy_at_no_mean_is_refused(document: dict[str, Any], mean_s: float) -> None:
    with pytest.raises(ValueError, match="mean_completion_s: must be above 0 and finite"):
        read(document).energy_j(mean_s)

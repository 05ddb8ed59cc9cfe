"""``wattsched check`` and what ``show`` says of the same: claims that hold, are taken on trust, or do not."""

from __future__ import annotations

import json

import pytest

import wattsched
from tests.strategies.forgeries import restated
from wattsched.cli.failures import ON_TRUST

from .conftest import refused

WEAK = {"prices": {"gpus:G": -200.0}, "bound": 100.0}
"""At 200 s per GPU both jobs wait, which takes 400 + 500 s; four GPUs are worth 800 s."""


@pytest.fixture
def checked(run, instance, write):
    """Check an answer, which ends with a code, and give what is printed."""

    def check(document, *options, code=0):
        return run("check", instance, write(document, "answer.json"), *options, code=code).stdout

    return check


def test_verdicts_and_what_is_shown_are_json_too(run, instance, answer, write, checked):
    told = json.loads(checked(answer, "--json"))
    assert (told["valid"], told["on_trust"], told["faults"]) == (True, False, [])
    assert told["objective"] == told["proven_bound"] == 300.0
    assert told["totals"] == answer["totals"]
    forged = json.loads(checked(answer | {"objective": 1.0}, "--json", code=1))
    assert (forged["valid"], forged["proven_gap"]) == (False, None)
    assert any("objective" in fault for fault in forged["faults"])
    unproven = restated(answer, prices={}, certificate=None)
    assert json.loads(checked(unproven, "--json", code=ON_TRUST))["on_trust"]

    assert json.loads(run("show", "--json", write(answer, "result.json")).stdout) == answer
    about = json.loads(run("show", "--json", instance).stdout)
    assert about["capacities"] == {"gpus:G": 4.0}
    assert (about["jobs"], about["digest"]) == (2, answer["digest"])
    compared = json.loads(run("compare", "--json", instance, "--solvers", "highs,price").stdout)
    assert [run["objective"] for run in compared["runs"]] == [300.0, 300.0]


def test_bare_decisions_are_checked_and_shown(run, answer, write, checked):
    assert checked(answer["decision"]).startswith("valid")
    decision = write(answer["decision"], "decision.json")
    assert "n1:0-1" in run("show", decision).stdout
    shown = json.loads(run("show", "--json", decision).stdout)
    assert {row["job"] for row in shown["decision"]} == {"a", "b"}


def test_each_broken_rule_is_a_line(answer, checked):
    answer["decision"]["jobs"][0]["nodes"] = {"n1": [0, 9]}
    answer["totals"] |= {"power_w": 1.0, "gpus_used": 0, "gpus_available": 5, "energy_j": 0.5}
    answer["totals"] |= {"restarts": 5, "migrations": 5}
    told = checked(answer | {"objective": 1.0}, code=1)
    assert told.startswith("not valid")
    for fault in ("GPU 9", "objective", *(f"totals.{name}" for name in answer["totals"])):
        assert fault in told, fault


def test_absurd_prices_are_a_fault_and_no_crash(answer, checked):
    answer["certificate"]["prices"] = dict.fromkeys(answer["certificate"]["prices"] or ["gpus:A"], -1e308)
    assert "certificate" in checked(answer, code=1)


def test_the_proof_is_a_line_and_claims_beyond_it_are_told(run, answer, write, checked):
    proof = "prices prove that no decision can have less than 300 s (gap below 0.0001 %)"
    assert proof in checked(answer)
    priced = answer | {"prices": {"gpus:G": 200.0}}
    weaker = restated(priced, certificate=WEAK)
    told = checked(weaker, code=ON_TRUST)
    assert told.startswith("valid, but on the solver's word\n")
    assert "bound 300 s claimed, prices prove 100 s" in told
    assert "the solver's word: it is taken on trust, and so is 'optimal'" in told
    said = run("show", write(weaker, "weaker.json")).stdout
    assert "optimal, gap below 0.0001 % claimed, 66.7 % proven" in said
    assert "no decision can have less than 100 s (proven), 300 s (the solver's word)" in said
    forged = priced | {"certificate": WEAK | {"bound": 300.0}}
    assert "certificate: claims the bound 300, its prices prove 100" in checked(forged, code=1)
    told = checked(restated(answer, prices={}, certificate=None), code=ON_TRUST)
    assert "bound 300 s claimed, no certificate proves it: it is taken on trust" in told


def test_a_required_gap_has_to_be_proven(run, tiny, instance, answer, write, checked):
    checked(answer, "--require-gap", 1e-9)
    half = restated(answer | {"prices": {"gpus:G": 200.0}}, certificate=WEAK)
    for gap in (0.7, 2 / 3 - 1e-13, 2 / 3 - 1e-10):
        checked(half, "--require-gap", gap)
    short = "gap: 0.667 is proven, 0.5 is required"
    assert checked(half, "--require-gap", 0.5, code=1).splitlines() == ["not valid: 1 fault", f"  {short}"]
    told = checked(half, "--require-gap", 2 / 3 - 1e-8, code=1)
    assert "gap: 0.666666667 is proven, 0.666666657 is required" in told
    assert "gap: nothing is proven" in checked(answer["decision"], "--require-gap", 0.9, code=1)
    for gap in (-0.1, 1, "nan", "much"):
        refused(run("check", instance, instance, "--require-gap", gap), "--require-gap")
    file = write(half, "half.json")
    assert wattsched.check(instance, file, require_gap=0.5).faults == [short]
    with pytest.raises(ValueError, match="require_gap: must be at least 0 and below 1, got 1"):
        wattsched.check(instance, file, require_gap=1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"checked": False}, "checked: the result says that nobody checked its decision"),
        (
            {"termination": {"reason": "optimal", "limit": "time"}},
            "termination: 'optimal' is proven, yet the limit 'time' is said to have cut it short",
        ),
        ({"prices": {}}, "prices: 'gpus:G' is missing, the certificate has 200"),
        ({"prices": ...}, "prices: 'gpus:G' is missing, the certificate has 200"),
        ({"time_s": {"total": 1.0, "solve": 2.0}}, "time_s.total: 1.0 is less than the seconds of 'solve'"),
        (
            {"termination": {"reason": "feasible"}, "bound": 100.0, "gap": 2 / 3, "claimed": False}
            | {"gap_asked": 0.7},
            "termination: 'feasible' at a gap of 0.666666667, the one asked for is 0.7",
        ),
        (
            {"bound": 100.0, "gap": 2 / 3, "gap_asked": 0.7},
            "claimed: the result says that the bound goes beyond the certificate, and it does not",
        ),
        ({"prices": {"gpus:G": 200.0, "power_w": 0.0}}, "prices: the certificate has no price of 'power_w'"),
        (
            {"claimed": False},
            "claimed: the bound goes beyond the certificate, and the result does not say so",
        ),
        ({"gap_asked": None}, "gap_asked: must be from 0 to below 1, the result has None"),
        ({"proven_gap": 0.5}, "proven_gap: the result says 0.5, by its certificate it is 0.666667"),
        (
            {"certificate": None, "proven_gap": None},
            "prices: there is no certificate that they could come from",
        ),
        (
            {"bound": 60.0, "gap": 0.8, "gap_asked": 0.9, "claimed": False},
            "bound: 60 is weaker than the 100 of the certificate",
        ),
        (
            {"bound": 100.0, "gap": 2 / 3, "claimed": False, "gap_asked": 0.5},
            "termination: 'optimal' at a gap of 0.666666667, the one asked for is 0.5",
        ),
    ],
)
def test_what_contradicts_itself_is_one_line(answer, checked, changes, said):
    document = restated(answer, prices={"gpus:G": 200.0}, certificate=WEAK)
    checked(document, code=ON_TRUST)
    tampered = {name: value for name, value in (document | changes).items() if value is not Ellipsis}
    assert checked(tampered, code=1).splitlines() == ["not valid: 1 fault", f"  {said}"]


def test_infeasible_results_pass_when_they_claim_nothing_else(run, tiny, write):
    instance = write({**tiny, "budgets": {"power_w": 1.0}})
    none = json.loads(run("solve", instance, "--json", code=3).stdout)
    bare = none | {"certificate": None, "claimed": True}
    for document, options, code, told in (
        (none, (), 0, "prices prove that there is none"),
        (none, ("--require-gap", 0.0), 0, ""),
        (bare, (), ON_TRUST, "the result says 'infeasible', and nothing here proves that"),
        (bare, ("--require-gap", 0.9), 1, "gap: nothing is proven"),
        (
            bare | {"claimed": False},
            (),
            1,
            "claimed: 'infeasible' goes beyond the certificate, and the result",
        ),
        (none | {"objective": 5.0}, (), 1, "objective"),
    ):
        assert told in run("check", instance, write(document, "none.json"), *options, code=code).stdout


def test_files_that_are_no_result_are_bad_input(run, instance, write):
    for content in ({"jobs": []}, [], {"format": "wattsched-result/1"}, {"jobs": "all", "waiting": []}):
        assert run("check", instance, write(content, "odd.json"), code=2).stderr.startswith("error: ")


@pytest.mark.parametrize("changes", [{"solver": "\ud800"}, {"totals": {"\ud800": 1.0}}], ids=str)
def test_texts_that_are_no_unicode_are_bad_input(run, instance, answer, write, changes):
    forged = write(answer | changes, "forged.json")
    for command in (("check", instance, forged), ("show", forged, "--json")):
        refused(run(*command), "holds a character that is not valid Unicode")

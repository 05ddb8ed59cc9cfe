"""Prices of jobs: blocks choose among the jobs under rows of their own, and no decision beats the bound."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from tests.strategies.priced import Priced, better, priced, require_no_better
from tests.verification.sizing.test_trees import trees
from wattsched import solve
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.arithmetic import RATIONALS
from wattsched.verification.report import TOLERANCE
from wattsched.verification.sizing import plans
from wattsched.verification.sizing.blocks import Block, blocks_of
from wattsched.verification.sizing.bound import Prover, prove
from wattsched.verification.sizing.least_cost import ends_by_part
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import BOTTLENECK, OBJECTIVES
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.rows import prices_of
from wattsched.verification.tree import prove_tree

MANY = settings(max_examples=examples(80), deadline=None)
PRICED = priced(small_instances(max_jobs=3))


def least_costs(prover: Prover, prices: dict[str, float]) -> np.ndarray:
    """What every job costs at least at prices of rows, in the sense of a minimum, shape (n_jobs,)."""
    sign = 1.0 if prover.sense == "min" else -1.0
    paid = prices_of(prover.rows, {name: -sign * price for name, price in prices.items()})
    found = np.zeros(len(prover.configurations.jobs))
    for listed, (low, *_), (wait, *_) in ends_by_part(prover.near, paid, {}):
        found[listed.jobs] = np.minimum(np.minimum.reduceat(low, listed.start), wait)
    return found


@st.composite
def with_jobs(draw: st.DrawFn, cases: st.SearchStrategy[Priced] = PRICED) -> Priced:
    """A round with prices of some rows and of jobs, most of them about what the jobs cost."""
    instance, prices = draw(cases)
    assume(len(decided(instance).instance.jobs))
    prover = Prover(instance)
    sign = 1.0 if prover.sense == "min" else -1.0
    least = least_costs(prover, prices)
    assume(np.isfinite(least).all())
    names = prover.configurations.jobs.names
    jobs = {
        f"job:{name}": sign * (float(cost) * draw(st.sampled_from([0.5, 0.9, 1.0, 1.0, 1.2, 3.0])) + more)
        for name, cost in zip(names, least, strict=True)
        if draw(st.sampled_from([True, True, True, False]))
        for more in [draw(st.sampled_from([0.0, 0.0, -50.0, 10.0, 200.0]))]
    }
    # Smaller ones are refused: see `test_prices_of_jobs_that_are_none`.
    prices = {name: price for name, price in prices.items() if abs(price) > 1e-30}
    kept = {n: p for n, p in prices.items() if not n.startswith(("gpus", "buddy", "power_w:"))}
    return instance, {**(kept if draw(st.booleans()) else prices), **jobs, f"job:{names[0]}": sign * 100.0}


# --- any prices of jobs prove a bound ----------------------------------------------------------------


@MANY
@given(
    case=with_jobs(),
    core=st.sampled_from([1, 128]),
    states=st.sampled_from([1, 4, 600]),
    cells=st.sampled_from([1, 1 << 31]),
    table=st.sampled_from([1, 64, 1 << 25]),
    tries=st.sampled_from([((4, (1,)),), ((2, (1, 2)), (8, (3,))), plans.TRIES]),
)
def test_no_decision_beats_the_bound(
    case: Priced, core: int, states: int, cells: int, table: int, tries: tuple[Any, ...]
) -> None:
    instance, prices = case
    limits = {"CORE": core, "MOST_STATES": states, "MOST_CELLS": cells, "MOST_KEPT": table, "TRIES": tries}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(plans, name, value)
        plans._moves.cache_clear()
        proof = prove(instance, prices)
    plans._moves.cache_clear()
    if instance.objective in BOTTLENECK:
        assert proof.faults == ["certificate: prices of jobs need an objective that is a sum over the jobs"]
        return
    best = optimum(instance, instance.objective)
    require_no_better(proof, best, instance.objective)


@MANY
@given(data=st.data(), case=with_jobs())
def test_no_decision_beats_the_bound_of_a_tree(data: st.DataObject, case: Priced) -> None:
    instance, _ = case
    assume(instance.objective not in BOTTLENECK)
    proof = prove_tree(Prover(instance), data.draw(trees(case)), OBJECTIVES[instance.objective])
    best = optimum(instance, instance.objective)
    if best is not None:
        assert not proof.faults
        assert proof.bound is not None
        assert not better(best, proof.bound, instance.objective)


# --- it is that of all plans -------------------------------------------------------------------------


def formula(prover: Prover, prices: dict[str, float], wider: Fraction) -> Fraction | None:
    """The bound by trying all plans, under caps so much wider; None if idle GPUs draw too much."""
    sign = 1 if prover.sense == "min" else -1
    jobs = {n.removeprefix("job:"): sign * Fraction(p) for n, p in prices.items() if n.startswith("job:")}
    charged = {n: -sign * p for n, p in prices.items() if not n.startswith("job:") and p}
    owed = [jobs.get(name, Fraction(0)) for name in prover.configurations.jobs.names]
    options = Options(prover.instance, prover.configurations, RATIONALS)
    ((listed, (low, *_), (wait, *_)),) = ends_by_part(options, prices_of(prover.rows, charged), {})
    total = sum(owed, Fraction(0)) + sum(min(Fraction(0), w - u) for w, u in zip(wait, owed, strict=True))
    for name, charge in charged.items():
        total -= Fraction(charge) * (prover.rows[name].limit - prover.rows[name].standing)
    use_of = {number: use for use, number in options.uses.items()}
    of_job = np.repeat(listed.jobs, listed.counts).tolist()
    for block in blocks_of(prover.rows, list(prover.configurations.pools), charged):
        choices: list[list[Any]] = [[None] for _ in owed]
        for n, j in enumerate(of_job):
            if low[n] < np.inf and use_of[listed.running.watt[n]][1] in block.pools:
                room = use_of.get(listed.running.room[n])
                assume(listed.running.watts[n] >= 0)
                choices[j].append((low[n] - owed[j], room, listed.running.watts[n]))
        if block.cap_w is not None and block.cap_w < 0:
            return None
        total += min(sum((c[0] for c in plan), Fraction(0)) for plan in fitting(block, choices, wider))
    return total


def fitting(block: Block, choices: list[list[Any]], wider: Fraction) -> Iterator[list[Any]]:
    """Plans that keep the rows of a block."""
    rows = [row for rows in block.rooms for row in rows]
    for combination in product(*choices):
        plan = [one for one in combination if one is not None]
        room = all(sum(row.uses.get(use, 0) for _, use, _ in plan) <= row.limit for row in rows)
        if room and (block.cap_w is None or sum(w for *_, w in plan) <= block.cap_w * wider):
            yield plan


@MANY
@given(case=with_jobs(), core=st.sampled_from([1, 64]), levels=st.sampled_from([1, 4, 1024]))
def test_the_bound_is_that_of_all_plans(case: Priced, core: int, levels: int) -> None:
    instance, prices = case
    assume(instance.objective not in BOTTLENECK)
    # What nodes can be cut up into is not a matter of blocks.
    prices = {name: price for name, price in prices.items() if not name.startswith(("pieces:", "cuts:"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "CORE", core)
        patch.setattr(plans, "TRIES", ((levels, (1,)), (2 * levels, (2, 20_000))))
        proof, prover = prove(instance, prices), Prover(instance)
    assume(np.isfinite(proof.bound))
    found, wider = (formula(prover, prices, part) for part in (Fraction(1), 1 + Fraction(1, 1 << 40)))
    assert found is not None
    assert wider is not None
    bound = Fraction(proof.bound) * (1 if prover.sense == "min" else -1)
    size = sum(abs(price) for price in prices.values()) + float(abs(found)) + 1e4
    assert float(wider) - 1e-9 * size <= bound <= float(found) + 1e-9 * size


@pytest.mark.parametrize(
    ("jobs", "racks", "cap", "seed"), [(4, 3, 0.5, 1), (6, 3, 0.4, 2), (12, 4, 0.6, 3), (12, 9, 0.45, 4)]
)
def test_prices_of_jobs_prove_what_prices_of_rows_do(jobs: int, racks: int, cap: float, seed: int) -> None:
    """The least costs at prices of rows, without these, prove as much: no plan gains more than its room."""
    instance = generate("hetero", jobs=jobs, racks=racks, rack_power_fraction=cap, seed=seed)
    result, prover = solve(instance, prove=0), Prover(instance)
    prices = result.certificate.prices
    by_rows = prover(prices)
    least = least_costs(prover, prices)
    kept = {n: p for n, p in prices.items() if not n.startswith(("gpus", "buddy", "power_w:"))}
    names = prover.configurations.jobs.names
    of_jobs = {f"job:{name}": float(cost) for name, cost in zip(names, least, strict=True)}
    by_blocks = prover({**kept, **of_jobs})
    # A plan's watts may be beyond the cap by the tolerance.
    watts = sum(-p * float(prover.rows[n].limit) for n, p in prices.items() if n.startswith("power_w:"))
    assert by_blocks.bound >= by_rows.bound - watts * TOLERANCE - 1e-9 * by_rows.bound
    assert by_blocks.bound <= result.objective * (1 + 1e-12)
    assert by_blocks.bound <= by_blocks.reach <= by_blocks.bound * (1 + 1e-8)
    # All rows charged, the blocks have none left.
    both = prover({**prices, **of_jobs})
    assert both.bound <= by_rows.bound * (1 + 1e-9)


# --- what is refused ---------------------------------------------------------------------------------


HETERO = generate("hetero", jobs=5, racks=3, gpus=12, rack_power_fraction=0.5, seed=7)


def test_forged_prices_prove_no_more_than_the_optimum() -> None:
    choice, prover = Random(1), Prover(HETERO)
    result = solve(HETERO, gap=0.0)
    prices = dict(result.certificate.prices)
    names = [f"job:{name}" for name in prover.configurations.jobs.names]
    honest = dict(zip(names, least_costs(prover, prices).tolist(), strict=True))
    best = 0.0
    for _ in range(examples(500)):
        forged = honest | {n: p for n, p in prices.items() if choice.random() < 0.3}
        for name in choice.sample(sorted(forged), choice.randrange(1, len(forged))):
            forged[name] *= choice.choice([1.01, 1.001, 0.99, 1.1, 2.0, 0.0, 1e3, 1e9, 1e-9])
            if name in honest and choice.random() < 0.1:
                forged[name] = choice.choice([-1, 1]) * 10.0 ** choice.uniform(-30, 30)
        proof = prover(forged)
        assert proof.faults == []
        assert proof.excess <= 0
        assert proof.bound <= result.objective * (1 + 1e-12)
        assert proof.reach <= result.objective * (1 + 1e-6)
        best = max(best, proof.bound)
    assert best > 0.9 * result.objective


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ({"job:nobody": 1.0}, "the price 1.0 of row 'job:nobody' proves nothing"),
        ({"job:": 1.0}, "no row of that name"),
        ({"job:j0": float("nan")}, "not a finite number"),
        ({"job:j0": "1"}, "not a finite number"),
        ({"job:j0": 1e101}, "beyond 1e+100"),
        ({"job:j0": 1e90}, "prices of jobs need numbers of the instance from 1e-40 to 1e+40"),
        (
            {"job:j0": 1.0, "power_w": -1e50},
            "prices of jobs need numbers of the instance from 1e-40 to 1e+40",
        ),
    ],
)
def test_prices_of_jobs_that_are_none(prices: dict[str, Any], said: str) -> None:
    name = HETERO.jobs[0].name
    proof = prove(HETERO, {n.replace("j0", name): price for n, price in prices.items()})
    assert said in proof.faults[0]
    assert proof.bound is None


@settings(max_examples=examples(20), deadline=None)
@given(instance=instances_with_sets() | sleeping(small_instances(max_jobs=3)))
def test_rounds_without_blocks_are_refused(instance: Instance) -> None:
    instance = instance.model_copy(update={"objective": "total-completion"})
    prover = Prover(instance)
    sets = any(row.kind == "share" for row in prover.rows.values())
    assume((sets or prover.nodes) and len(prover.instance.jobs))
    proof = prover({f"job:{prover.configurations.jobs.names[0]}": 1.0})
    said = "jobs that share no GPUs" if sets else "nodes that do not sleep"
    assert proof.faults == [f"certificate: prices of jobs need {said}"]

"""Marginal prices: what one more of every capacity brings, against instances that have one more."""

import math
import os

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wattsched
from tests.solvers.programs import relaxed_cost
from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from wattsched.instances.sizing.instance import Instance
from wattsched.report.marginal import MarginalPrice, marginal_rows
from wattsched.report.wording import Goal
from wattsched.solving.engine import model_of
from wattsched.solving.marginal import NoPricesError
from wattsched.verification.claims import INTERNAL

CASES = int(os.environ.get("PARAMETRIC_CASES", examples(150)))
SUMS = ("work-value", "total-completion", "goodput", "progress")


def one_pool(nodes: int = 1, **more: object) -> Instance:
    """A round of three jobs in one pool of nodes of four GPUs, in blocks."""
    table = {"gpus": [1, 2, 4], "pool": ["A100"] * 3, "power_w": [300, 600, 1200], "rate": [1.0, 1.8, 3.0]}
    cluster = {
        "gpu_types": {"A100": {"idle_power_w": 50}},
        "nodes": [{"name": f"n{i}", "gpu_type": "A100", "gpus": 4} for i in range(nodes)],
    }
    jobs = [{"name": f"job{j}", "options": table, "weight": 1.0 + j} for j in range(3)]
    return Instance.model_validate({"cluster": cluster, "jobs": jobs, "objective": "goodput", **more})


@settings(max_examples=CASES)
@given(small_instances(), st.sampled_from(SUMS))
def test_every_capacity_and_budget(instance: Instance, objective: str) -> None:
    """A little more or less of each changes the relaxation as told; of those left out, not at all."""
    assume(wattsched.solve(instance, objective=objective).solved)
    found = wattsched.marginal_prices(instance, objective=objective)
    program = model_of(instance, objective=objective).listed
    assume(program.n_columns > 0)
    names = program.row_names()
    here = relaxed_cost(program, np.zeros(len(names)))
    size = max(1.0, abs(here), program.largest_cost())
    for row, name in enumerate(names):
        if name.startswith((*INTERNAL, "buddy:", "parts:")):
            continue
        if name == "least_goodput" and name not in found:
            continue  # more is asked for, up to what is done anyway
        one = np.eye(len(names))[row]
        price = found.get(name, MarginalPrice(0.0, math.inf, 0.0, 0.0))
        limit = program.row_upper[row] if np.isfinite(program.row_upper[row]) else program.row_lower[row]
        if math.isinf(price.more):
            assert math.isinf(relaxed_cost(program, 1e-3 * one))
        else:
            step = min(price.more_until, max(1.0, limit))
            there = relaxed_cost(program, step * one)
            assert there == pytest.approx(here - step * price.more, rel=1e-6, abs=1e-6 * size)
        if math.isinf(price.less):
            assert math.isinf(relaxed_cost(program, -1e-3 * one)) or limit == 0.0
            continue
        step = min(price.less_until, max(1.0, limit))
        less = relaxed_cost(program, -step * one)
        assert less == pytest.approx(here + step * price.less, rel=1e-6, abs=1e-6 * size)


def test_one_more_is_what_an_instance_with_one_more_gains() -> None:
    """The decision with one more GPU, quota or watt is in the range that is told."""
    tenants = {"all": {"gpus": 3}}
    table = one_pool().model_dump(mode="json", exclude_defaults=True)
    for job in table["jobs"]:
        job["tenant"] = "all"
    table["tenants"] = tenants
    now = wattsched.solve(Instance.model_validate(table), gap=0.0)
    told = wattsched.marginal_prices(Instance.model_validate(table), solved=True)["tenant_gpus:all"]
    table["tenants"] = {"all": {"gpus": 4}}
    then = wattsched.solve(Instance.model_validate(table), gap=0.0)
    assert now.objective is not None
    assert then.objective is not None
    assert told.decided is not None
    least, most = told.decided
    assert least - 1e-9 <= then.objective - now.objective <= most + 1e-9
    assert told.more_until >= 1.0


def test_one_more_block_is_one_more_node() -> None:
    """A block counts in the rows of all smaller ones, as a node does that has as many GPUs."""
    gains = []
    for nodes in (2, 3):
        content = one_pool(nodes, objective="work-value").model_dump(mode="json", exclude_defaults=True)
        content["cluster"]["nodes"][0]["unavailable"] = [0]
        for job in content["jobs"]:
            job["options"] = {"gpus": [4], "pool": ["A100"], "power_w": [1200], "rate": [3.0]}
        instance = Instance.model_validate(content)
        gains.append(wattsched.solve(instance, gap=0.0).objective)
        if nodes == 2:
            told = wattsched.marginal_prices(instance, solved=True)["buddy:A100:4"]
    assert told.decided == pytest.approx((gains[1] - gains[0],) * 2, rel=1e-5)
    assert told.more == pytest.approx(gains[1] - gains[0])


def test_a_bottleneck_has_none() -> None:
    with pytest.raises(NoPricesError, match="max-min"):
        wattsched.marginal_prices(one_pool(objective="max-min"))
    with pytest.raises(ValueError, match="unknown"):
        wattsched.marginal_prices(one_pool(), formulation="nothing")


def test_no_time_is_told() -> None:
    with pytest.raises(NoPricesError, match="time limit"):
        wattsched.marginal_prices(wattsched.generate("hetero", jobs=40, seed=1), time_limit=1e-9)


def test_words() -> None:
    """Amounts are told for the unit that can be read, and how far they hold in it."""
    instance = one_pool(budgets={"power_w": 900})
    cells = marginal_rows(wattsched.marginal_prices(instance, solved=True), Goal("goodput", verb="gain"))
    (power,) = [row for row in cells if row[0] == "power cap"]
    assert power[1] in ("W", "kW")
    assert power[3].endswith("W")
    assert power[6]

"""Settings that are chosen together under a cap are the best of all combinations that keep it."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from tests.strategies.effort import examples
from wattsched.formulations.shifting.columns import Prices, fits, follow
from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.settings import resettled
from wattsched.instances.shifting.instance import ShiftingInstance


def one_slot(seed: int) -> ShiftingInstance:
    """A slot in which three jobs of four settings run, none of which ends."""
    rng = random.Random(seed)
    jobs = []
    for number in range(3):
        rate = sorted(rng.uniform(0.2, 1.0) for _ in range(4))
        options = {"gpus": [1] * 4, "pool": ["p"] * 4, "frequency_mhz": [800, 1000, 1200, 1400], "rate": rate}
        options["power_w"] = sorted(rng.uniform(60.0, 400.0) for _ in range(4))
        job = {
            "name": f"j{number}",
            "options": options,
            "remaining_work": 1e4,
            "weight": rng.uniform(0.1, 3.0),
        }
        jobs.append(job | {"restart_s": 10.0})
    pools = {"p": {"gpus": 4, "idle_power_w": 50.0}}
    cap_w = rng.uniform(250.0, 1200.0)
    return ShiftingInstance.model_validate(
        {"problem": "shifting", "slots": 1, "slot_s": 60.0, "pools": pools, "jobs": jobs, "power_w": cap_w}
    )


@pytest.mark.parametrize("seed", range(examples(30)))
def test_the_best_combination_within_the_cap_is_found(seed: int) -> None:
    horizon = horizon_of(one_slot(seed))
    prices = Prices(np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(horizon.n_cells))
    everyone = np.arange(3)
    combinations = [
        follow(horizon, everyone, np.array(rows)[:, None] + horizon.option_start[:-1][:, None])
        for rows in product(range(4), repeat=3)
    ]
    found = resettled(horizon, combinations[-1], prices)
    within = [float(one.criteria[:, 0].sum()) for one in combinations if fits(horizon, one)]
    assert (found is None) == (not within)
    if found is not None:
        assert fits(horizon, found)
        assert float(found.criteria[:, 0].sum()) == pytest.approx(min(within), rel=1e-5)

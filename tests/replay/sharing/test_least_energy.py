"""The bound on any policy: below every replay, and known where sets are few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattsched.replay.sharing.policies import Eaco, Gandiva, LeastCost, fifo, fifo_packed
from wattsched.replay.sharing.stream import Sets, replay


@pytest.mark.parametrize("nodes", [4, 20])
@pytest.mark.parametrize("seed", range(3))
def test_no_policy_is_below_it(bound: Any, eaco_stream: Any, nodes: int, seed: int) -> None:
    instance, arrival_s = eaco_stream(nodes, seed)
    sets = Sets(instance)
    names = [job_class.name for job_class in instance.classes]
    alone = replay(instance, arrival_s, fifo)
    work = np.bincount(
        [names.index(job.job_class) for job in instance.jobs], weights=alone.alone_s, minlength=4
    )
    for policy in (fifo_packed, Gandiva(seed), Eaco(0.05), Eaco(1.0), LeastCost(0.0), LeastCost(2000.0)):
        done = replay(instance, arrival_s, policy)
        longer = float(done.run_s.sum() / done.alone_s.sum()) - 1
        least = bound.least_energy(sets, bound.reachable(sets), work.tolist(), longer=longer + 1e-9)
        assert done.energy_j >= alone.energy_j * least * (1 - 1e-9)


def test_pairs_by_hand(bound: Any, eaco_stream: Any) -> None:
    """AlexNet with VGG-16: 1,506 W for 36.51 h instead of 712 W for 34.76 h and 1,533 W for 36.13 h."""
    sets = Sets(eaco_stream(1, 0)[0])
    of, work = [(0,), (3,), (0, 3)], [1.0, 0.0, 0.0, 1.0]
    slowdown = 36.51 / ((34.76 + 36.13) / 2)
    paired = 1506 * slowdown / (712 + 1533)
    assert bound.least_energy(sets, of, work) == pytest.approx(paired)
    assert bound.least_energy(sets, of, work, longer=0.0) == pytest.approx(1.0)
    # Half the way to the pairs' runs, half of the jobs are in pairs.
    half = bound.least_energy(sets, of, work, longer=(slowdown - 1) / 2)
    assert half == pytest.approx((1 + paired) / 2)
    assert bound.least_energy(sets, of, work, active=1.0) == pytest.approx(1.0)
    with pytest.raises(RuntimeError, match="no policy keeps these limits"):
        bound.least_energy(sets, of, work, active=1.5)


def test_the_best_mix_is_no_worse_than_any(bound: Any, eaco_stream: Any) -> None:
    sets = Sets(eaco_stream(1, 0)[0])
    of = bound.reachable(sets)
    best = bound.least_energy(sets, of, longer=0.0323)
    assert best == pytest.approx(0.64, abs=0.005)
    rng = np.random.default_rng(0)
    assert all(
        bound.least_energy(sets, of, rng.dirichlet(np.ones(4)).tolist(), longer=0.0323) >= best - 1e-9
        for _ in range(50)
    )

"""Proofs in shards: the same as in one process, however many there are."""

from __future__ import annotations

import numpy as np
import pytest

import wattsched
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.uncertainty import Uncertainty
from wattsched.running.executors import SerialExecutor
from wattsched.verification.sizing import shards
from wattsched.verification.sizing.bound import Prover
from wattsched.verification.sizing.shards import ShardedProver
from wattsched.verification.tree import Taken


class Several(SerialExecutor):
    """As many workers as somebody says, all of them here."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def workers(self) -> int:
        """As many."""
        return self._workers


def large(objective: str = "total-completion") -> Instance:
    instance: Instance = wattsched.generate("uniform", jobs=400, seed=5)
    return instance.model_copy(update={"objective": objective})


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["total-completion", "progress", "proportional", "goodput"])
def test_the_proof_is_the_same(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "BLOCK", 30)
    instance = large(objective)
    here = Prover(instance)
    rng = np.random.default_rng(2)
    for scale in (0.0, 1e-6, 1e-2):
        prices = {name: -here_sign(here) * scale * rng.exponential() for name in here.rows}
        proofs = [ShardedProver(Several(n), instance)(prices) for n in (1, 2, 3, 7)]
        assert all(proof == proofs[0] for proof in proofs)
        known, found = here(prices), proofs[0]
        assert not found.faults
        assert not found.exact
        assert not known.exact
        assert (found.bound, found.excess) == pytest.approx((known.bound, known.excess), rel=1e-12)


def test_uncertain_rounds_are_proven_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards number what options use in another way than the whole round."""
    monkeypatch.setattr(shards, "BLOCK", 30)
    uncertainty = Uncertainty(power_deviation=0.1, rate_deviation=0.1, gamma=5.0)
    instance = wattsched.generate("hetero", jobs=150, seed=5).model_copy(update={"uncertainty": uncertainty})
    here, sharded = Prover(instance), ShardedProver(Several(2), instance)
    prices = {name: -0.05 * here_sign(here) for name in here.rows if name.startswith("power_w")}
    taken = [Taken({"threshold": name, "at_most": 20.0}, k % 2 == 0, k) for k, name in enumerate(prices)]
    known, found = here(prices, taken), sharded(prices, taken)
    assert known.faults == found.faults == []
    assert (found.bound, found.excess) == pytest.approx((known.bound, known.excess), rel=1e-12)


def here_sign(prover: Prover) -> float:
    return 1.0 if prover.sense == "min" else -1.0


def test_few_options_are_proven_in_rational_numbers_here() -> None:
    instance = wattsched.generate("uniform", jobs=3, seed=5)
    assert ShardedProver(Several(2), instance)({}).exact


@pytest.mark.parametrize("objective", ["work-value", "max-min"])
def test_what_cannot_be_divided(objective: str) -> None:
    with pytest.raises(ValueError, match="only rounds without sets of jobs under an objective that is a sum"):
        ShardedProver(Several(2), large(objective))

"""Prices that make no sense are refused; the bound does not fall with more levels."""

from __future__ import annotations

import pytest

from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting import certificate


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        ({"gpus:A100@99": -1.0}, "is no row"),
        ({"energy_j": -1.0}, "is no row"),
        ({"carbon_g": 1.0}, "is positive"),
        ({"carbon_g": float("nan")}, "is not a finite number"),
    ],
)
def test_prices_are_refused(prices: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        certificate.prove(shifting_horizon(jobs=3, slots=4), prices)


def test_more_levels_prove_more(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = shifting_horizon(jobs=8, slots=12, seed=2)
    prices = {f"gpus:A100@{slot}": -50.0 for slot in range(6)} | {"carbon_g": -0.5}
    bounds = []
    for levels in (50, 400, 3200):
        monkeypatch.setattr(certificate, "LEVELS", (levels, levels))
        bounds.append(certificate.prove(instance, prices))
    assert bounds[0] < bounds[2]
    assert bounds[1] == pytest.approx(bounds[2], rel=0.02)

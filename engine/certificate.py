"""Certificates: named row prices, of whichever formulation names its rows, and the bound that they prove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.call import Call, Candidate
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.model import Model, UnsuitableError
from wattsched.result import Certificate

if TYPE_CHECKING:
    from wattsched.solvers.solution import Solution
    from wattsched.topology.arrays import FloatArray


def certificate_of(
    call: Call, model: Model[Any], asked: Solution, known: list[Candidate]
) -> Certificate | None:
    """Best bound that named row prices prove: those of the asked formulation, else of the default one.

    Parameters
    ----------
    asked : Solution
        The solver's answer to the model's program.
    known : list of Candidate
        Other solutions, perhaps of the default formulation.
    """
    try:
        named = model if _has_names(model) else call.model(call.problem.default)
    except (InfeasibleError, UnsuitableError):
        return None
    if named.prices is not None:
        return _proven(call, named.prices)
    if named.named_prices is None:
        return None
    priced = [y for y in _row_prices(named, model, asked, known) if y is not None]
    if not priced:
        from wattsched.solvers.dual import dual_prices

        with call.timer.phase("prove"):
            priced = [dual_prices(named.program, time_s=call.timer.remaining_s())[0]]
    if not named.lagrangian:
        return _proven(call, named.named_prices(priced[-1]))
    bounds = [named.program.lagrangian_bound(y) for y in priced]
    best = int(np.argmax(bounds))
    if not np.isfinite(bounds[best]):
        return None
    return Certificate(prices=named.named_prices(priced[best]), bound=named.program.reported(bounds[best]))


def _has_names(model: Model[Any]) -> bool:
    return model.named_prices is not None or model.prices is not None


def _row_prices(
    named: Model[Any], model: Model[Any], asked: Solution, known: list[Candidate]
) -> Iterator[FloatArray | None]:
    """Row prices of the named model's program, the solver's last."""
    for candidate in known:
        if candidate.model is named and candidate.solution is not None:
            yield candidate.solution.prices
    if model is named:
        yield asked.prices


def _proven(call: Call, prices: Mapping[str, float]) -> Certificate | None:
    """Certificate of prices, with the bound that the independent proof finds."""
    with call.timer.phase("prove"):
        proof = call.problem.prove(call.instance, prices)
    if proof.bound is None or not np.isfinite(proof.bound):
        return None
    return Certificate(prices={name: y for name, y in prices.items() if y != 0.0}, bound=proof.bound)

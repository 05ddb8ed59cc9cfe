"""What the engine needs to know of a problem with decisions of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wattsched.formulations.plan import Plan
from wattsched.verification.report import PlanReport

Build = Callable[[Any, str, float | None], Plan]
Rule = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Impossible:
    """Proof that an instance has no decision: prices, the bound that they prove, and what is short."""

    prices: Mapping[str, float]
    bound: float
    detail: str


@dataclass(frozen=True)
class Problem:
    """A problem: its formulations, objectives, rules, and how its decisions are checked.

    Attributes
    ----------
    name : str
    formulations : mapping of str to callable
        Name to a builder of the `Plan` from instance, objective and seconds allowed; the default comes first.
    objectives : mapping of str to {"min", "max"}
        Name to its sense.
    rules : mapping of str to callable
        Quick rules from instance and objective to a decision or None, published ones among them. The first is
        the one that has a decision in hand before anything else is tried.
    check : callable
        Instance and decision to a report; it shares no code with the rest.
    prove : callable
        Instance and certificate prices to the bound that they prove, in the objective's sense.
    shortage : callable
        Instance to sentences that say why it has no decision, where a quick look can tell; else none.
    impossible : callable
        Instance and certificate prices to the proof that it has no decision, or None where they prove none.

    Notes
    -----
    The objective of an instance is in its field ``objective``; builders and rules are given it besides.
    """

    name: str
    formulations: Mapping[str, Build]
    objectives: Mapping[str, Literal["min", "max"]]
    rules: Mapping[str, Rule]
    check: Callable[[Any, Any], PlanReport]
    prove: Callable[[Any, Mapping[str, float]], float]
    shortage: Callable[[Any], list[str]] = lambda instance: []
    impossible: Callable[[Any, Mapping[str, float]], Impossible | None] = lambda instance, prices: None

"""Placement policies by name: the published ones, their combinations, and ours (`bid`)."""

from __future__ import annotations

import re
from functools import partial

from wattsched.formulations.placement.heuristics import RULES, Random, Scoring
from wattsched.formulations.placement.state import Factory
from wattsched.inputs import meant
from wattsched.replay.placement.bid import Bid

_OTHERS: dict[str, Factory] = {
    "random": Random,
    "bid": Bid,
    "bid-reserve": partial(Bid, within_pwr=False),
}
"""Name to how to make a policy that does not only score."""
WEIGHTS = 1000
"""Sum of the weights of a combination."""


def names() -> list[str]:
    """Names of the policies; two of the scoring ones can also be combined."""
    return [*RULES, *_OTHERS]


def policy_factory(name: str) -> Factory:
    """Find how to make a policy by its name, or by two names and weights such as ``pwr+fgd:100/900``.

    Raises
    ------
    ValueError
        If there is no such policy, or the weights do not sum to `WEIGHTS`.
    """
    if name in _OTHERS:
        return _OTHERS[name]
    if name in RULES:
        return lambda context: Scoring([RULES[name](context)])
    found = re.fullmatch(r"([a-z-]+)\+([a-z-]+):(\d{1,4})/(\d{1,4})", name, flags=re.ASCII)
    if found is None:
        known = names()
        told = meant(name, known) or f"; there are {', '.join(known)}, and combinations like pwr+fgd:100/900"
        raise ValueError(f"there is no policy '{name}'{told}")
    parts, weights = found.groups()[:2], [int(weight) for weight in found.groups()[2:]]
    for part in parts:
        if part not in RULES:
            told = meant(part, RULES) or f"; those that do are {', '.join(RULES)}"
            raise ValueError(f"'{part}' in '{name}' does not score{told}")
    if sum(weights) != WEIGHTS:
        raise ValueError(f"the weights of '{name}' must sum to {WEIGHTS}, got {sum(weights)}")
    return lambda context: Scoring([RULES[part](context) for part in parts], weights)

"""Placement policies by name, one file each."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from wattsched.replay.placement.policies.best_fit import BestFit
from wattsched.replay.placement.policies.bid import Bid
from wattsched.replay.placement.policies.dot_product import DotProduct
from wattsched.replay.placement.policies.fgd import Fgd
from wattsched.replay.placement.policies.gpu_clustering import GpuClustering
from wattsched.replay.placement.policies.gpu_packing import GpuPacking
from wattsched.replay.placement.policies.pwr import Pwr
from wattsched.replay.placement.policies.random import Random
from wattsched.replay.placement.policy import Factory, Policy, Setting
from wattsched.replay.placement.scoring import Rule, Scoring

# Name -> how to make the rule. Rules can be combined: ``pwr+fgd:100/900``.
_RULES: dict[str, Callable[[Setting], Rule]] = {
    "fgd": Fgd,
    "pwr": Pwr,
    "best-fit": lambda setting: BestFit(),
    "dot-product": lambda setting: DotProduct(),
    "gpu-packing": lambda setting: GpuPacking(),
    "gpu-clustering": GpuClustering,
}
# Name -> how to make a policy that does not only score.
_OTHERS: dict[str, Factory] = {
    "random": Random,
    "bid": Bid,
    "bid-reserve": partial(Bid, reserving=True),
}
WEIGHTS = 1000
"""Sum of the weights of a combination."""


def names() -> list[str]:
    """Names of the policies; two of the scoring ones can also be combined."""
    return [*_RULES, *_OTHERS]


def policy_factory(name: str) -> Factory:
    """Find how to make a policy by its name, or by two names and weights such as ``pwr+fgd:100/900``.

    Raises
    ------
    ValueError
        If there is no such policy, or the weights do not sum to `WEIGHTS`.
    """
    if name in _OTHERS:
        return _OTHERS[name]
    if name in _RULES:
        return lambda setting: Scoring([_RULES[name](setting)])
    if combination := re.fullmatch(r"([a-z-]+)\+([a-z-]+):(\d{1,4})/(\d{1,4})", name, flags=re.ASCII):
        return _combined(name, combination)
    raise ValueError(
        f"there is no policy '{name}'; there are {', '.join(names())}, and combinations like pwr+fgd:100/900"
    )


def _combined(name: str, combination: re.Match[str]) -> Factory:
    parts, weights = combination.groups()[:2], [int(weight) for weight in combination.groups()[2:]]
    for part in parts:
        if part not in _RULES:
            raise ValueError(f"'{part}' in '{name}' does not score; those that do are {', '.join(_RULES)}")
    if sum(weights) != WEIGHTS:
        raise ValueError(f"the weights of '{name}' must sum to {WEIGHTS}, got {sum(weights)}")

    def combined(setting: Setting) -> Policy:
        return Scoring([_RULES[part](setting) for part in parts], weights)

    return combined

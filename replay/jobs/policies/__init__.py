"""Policies of the replay by name. Adding one is one file, or a class beside its like, and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.replay.jobs.policies.budgeted import Capped, GreenFlow, PowerFlow, Sizing
from wattsched.replay.jobs.policies.elastic import Elastic
from wattsched.replay.jobs.policies.gavel import Gavel
from wattsched.replay.jobs.policies.growth import elasticflow, optimus, sidecar, termination
from wattsched.replay.jobs.policies.packing import Eaco, Gandiva
from wattsched.replay.jobs.policies.requests import Fifo, Srtf, Tiresias
from wattsched.replay.jobs.policies.rollout import Rollout
from wattsched.replay.jobs.policies.sia import Sia
from wattsched.replay.jobs.policies.zeus import SUFFIX, Tuned, tuned
from wattsched.replay.jobs.policy import Policy, PolicyContext

POLICIES: dict[str, Callable[[PolicyContext], Policy]] = {
    "sizing": Sizing,
    "elastic": Elastic,
    "elastic-makespan": Rollout,
    "elastic-progress": partial(Elastic, cost=OBJECTIVES["progress"].cost),
    "elastic-completion": partial(Elastic, cost=OBJECTIVES["total-completion"].cost),
    "fifo": Fifo,
    "sidecar": sidecar,
    "termination": termination,
    "srtf": Srtf,
    "tiresias-2dlas": Tiresias,
    "optimus": optimus,
    "elasticflow": elasticflow,
    "gavel-max-min": Gavel,
    "sia": Sia,
    "gandiva": Gandiva,
    "eaco": Eaco,
    "powerflow": PowerFlow,
    "greenflow": GreenFlow,
}

SPENDERS = ("sizing", "powerflow", "greenflow")
"""Policies that keep to a budget by themselves."""


def names() -> list[str]:
    """Names of the policies."""
    return list(POLICIES)


def is_policy(name: str) -> bool:
    """Whether there is a policy of that name, `+zeus` behind it or not."""
    return name.removesuffix(SUFFIX) in POLICIES


def policy_of(name: str, context: PolicyContext) -> Policy:
    """Make a policy; with `+zeus` behind its name it has its jobs tuned.

    Under a budget, one that knows of none is kept within it (`capped`).

    Raises
    ------
    ValueError
        If there is none of that name, or it does not take the cluster.
    """
    if not is_policy(name):
        raise ValueError(f"there is no policy '{name}'; there are {', '.join(POLICIES)}")
    plain = name.removesuffix(SUFFIX)
    trace = tuned(context.trace) if name.endswith(SUFFIX) else context.trace
    policy = POLICIES[plain](replace(context, trace=trace))
    if context.budget is not None and plain not in SPENDERS:
        policy = Capped(policy, context)
    return policy if trace is context.trace else Tuned(policy, trace)

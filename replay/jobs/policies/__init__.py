"""Policies of the replay by name, one file each. Adding one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from wattsched.replay.jobs.policies.capped import Capped
from wattsched.replay.jobs.policies.eaco import Eaco
from wattsched.replay.jobs.policies.elastic import Elastic
from wattsched.replay.jobs.policies.elasticflow import ElasticFlow
from wattsched.replay.jobs.policies.fifo import Fifo
from wattsched.replay.jobs.policies.gandiva import Gandiva
from wattsched.replay.jobs.policies.gavel import Gavel
from wattsched.replay.jobs.policies.optimus import Optimus
from wattsched.replay.jobs.policies.powerflow import GreenFlow, PowerFlow
from wattsched.replay.jobs.policies.rollout import Rollout
from wattsched.replay.jobs.policies.sia import Sia
from wattsched.replay.jobs.policies.sidecar import sidecar, termination
from wattsched.replay.jobs.policies.sizing import Sizing
from wattsched.replay.jobs.policies.srtf import Srtf
from wattsched.replay.jobs.policies.tiresias import Tiresias
from wattsched.replay.jobs.policies.worth import completion, progress
from wattsched.replay.jobs.policies.zeus import SUFFIX, Tuned, tuned
from wattsched.replay.jobs.policy import Policy, Setting

POLICIES: dict[str, Callable[[Setting], Policy]] = {
    "sizing": Sizing,
    "elastic": Elastic,
    "elastic-makespan": Rollout,
    "elastic-progress": partial(Elastic, worth=progress),
    "elastic-completion": partial(Elastic, worth=completion),
    "fifo": Fifo,
    "sidecar": sidecar,
    "termination": termination,
    "srtf": Srtf,
    "tiresias-2dlas": Tiresias,
    "optimus": Optimus,
    "elasticflow": ElasticFlow,
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


def policy_of(name: str, setting: Setting) -> Policy:
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
    trace = tuned(setting.trace) if name.endswith(SUFFIX) else setting.trace
    policy = POLICIES[plain](replace(setting, trace=trace))
    if setting.budget is not None and plain not in SPENDERS:
        policy = Capped(policy, setting)
    return policy if trace is setting.trace else Tuned(policy, trace)

"""Policies of the replay by name, one file each. Adding one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from wattsched.replay.jobs.policies.elastic import Elastic
from wattsched.replay.jobs.policies.elasticflow import ElasticFlow
from wattsched.replay.jobs.policies.fifo import Fifo
from wattsched.replay.jobs.policies.optimus import Optimus
from wattsched.replay.jobs.policies.powerflow import PowerFlow
from wattsched.replay.jobs.policies.sidecar import sidecar, termination
from wattsched.replay.jobs.policies.srtf import Srtf
from wattsched.replay.jobs.policies.tiresias import Tiresias
from wattsched.replay.jobs.policies.worth import SLACK, completion, in_time, progress, rank
from wattsched.replay.jobs.policies.zeus import SUFFIX, Tuned, tuned
from wattsched.replay.jobs.policy import Policy, Setting

POLICIES: dict[str, Callable[[Setting], Policy]] = {
    "elastic": Elastic,
    "elastic-makespan": partial(Elastic, worth=in_time(rank, SLACK)),
    "elastic-progress": partial(Elastic, worth=progress),
    "elastic-completion": partial(Elastic, worth=completion),
    "fifo": Fifo,
    "sidecar": sidecar,
    "termination": termination,
    "srtf": Srtf,
    "tiresias-2dlas": Tiresias,
    "optimus": Optimus,
    "elasticflow": ElasticFlow,
    "powerflow": PowerFlow,
}


def names() -> list[str]:
    """Names of the policies."""
    return list(POLICIES)


def is_policy(name: str) -> bool:
    """Whether there is a policy of that name, `+zeus` behind it or not."""
    return name.removesuffix(SUFFIX) in POLICIES


def policy_of(name: str, setting: Setting) -> Policy:
    """Make a policy; with `+zeus` behind its name it has its jobs tuned.

    Raises
    ------
    ValueError
        If there is none of that name, or it does not take the cluster.
    """
    if not is_policy(name):
        raise ValueError(f"there is no policy '{name}'; there are {', '.join(POLICIES)}")
    plain = POLICIES[name.removesuffix(SUFFIX)]
    if not name.endswith(SUFFIX):
        return plain(setting)
    trace = tuned(setting.trace)
    return Tuned(plain(replace(setting, trace=trace)), trace)

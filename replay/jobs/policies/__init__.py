"""Policies of the replay by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name

from wattsched.reading.inputs import meant
from wattsched.replay.jobs.policies.wrappers import SUFFIX, Capped, Tuned, tuned
from wattsched.replay.jobs.policy import Policy, PolicyContext
from wattsched.report.replays import EXACT

POLICIES = {
    "sizing": "sizing:Sizing",
    "clairvoyant": "sizing:Clairvoyant",
    "elastic": "elastic:Elastic",
    "elastic-makespan": "rollout:Rollout",
    "elastic-progress": "elastic:progress",
    "elastic-completion": "elastic:completion",
    "fifo": "requests:fifo",
    "backfill": "requests:backfill",
    "sidecar": "growth:sidecar",
    "termination": "growth:termination",
    "srtf": "requests:srtf",
    "tiresias-2dlas": "requests:tiresias",
    "optimus": "growth:optimus",
    "elasticflow": "growth:elasticflow",
    "gavel-max-min": "fixed_rounds:Gavel",
    "sia": "fixed_rounds:Sia",
    "gandiva": "packing:Gandiva",
    "eaco": "packing:Eaco",
    "powerflow": "sizing:PowerFlow",
    "greenflow": "sizing:greenflow",
}
"""Name to what makes the policy from a `PolicyContext`: ``file:callable`` in this folder.

It is imported when the policy is asked for. Adding a policy is one file, or a callable beside its like, and
one line here.
"""

SPENDERS = ("sizing", "clairvoyant", "powerflow", "greenflow")
"""Policies that keep to a budget by themselves; any other is kept within it."""

PRICED = ("sizing", "clairvoyant")
"""Policies that read what a joule is worth (`PolicyContext.least_price`)."""

SHARERS = ("gandiva", "eaco")
"""Policies under which jobs share GPUs."""

COUNTS = ("elastic", "sidecar", "termination", "optimus", "elasticflow")
"""Policies that choose GPU counts alone, at the default batch size and clock; `elastic` with its variants."""

REQUESTED = ("fifo", "backfill", "srtf", "tiresias-2dlas", "gavel-max-min", "gandiva", "eaco")
"""Policies that run jobs in the configurations asked for alone."""


def base_of(name: str) -> str:
    """Name of a policy without `+zeus` and `+exact` behind it."""
    return name.removesuffix(EXACT).removesuffix(SUFFIX).removesuffix(EXACT)


def shares(name: str) -> bool:
    """True if jobs share GPUs under a policy, with or without `+zeus` behind its name."""
    return base_of(name) in SHARERS


def names() -> list[str]:
    """Names of the policies."""
    return list(POLICIES)


def require_policy(name: str) -> None:
    """Refuse a name of no policy: a ValueError names the nearest, or lists all."""
    if base_of(name) not in POLICIES:
        plus = [known + suffix for known in POLICIES for suffix in (SUFFIX, EXACT, SUFFIX + EXACT)]
        told = meant(name, [*POLICIES, *plus]) or f"; there are {', '.join(POLICIES)}"
        raise ValueError(f"there is no policy '{name}'{told}")


def policy_of(name: str, context: PolicyContext) -> Policy:
    """Make a policy; with `+zeus` behind its name it has its jobs tuned.

    What it knows is its replay's: `+exact` makes no other policy.

    Under a budget, one that knows of none is kept within it (`wrappers.Capped`).

    Raises
    ------
    ValueError
        If there is none of that name, or it does not take the cluster; a `CapError` if a job could not even
        run alone within a power cap.
    """
    require_policy(name)
    plain = base_of(name)
    trace = tuned(context.trace) if SUFFIX in name else context.trace
    counts = trace.standard if plain.startswith(COUNTS) else trace.comparable
    context.caps.require_room(trace, name, None if plain in REQUESTED else counts)
    make: Callable[[PolicyContext], Policy] = resolve_name(f"{__name__}.{POLICIES[plain]}")
    policy = make(replace(context, trace=trace))
    if context.budget is not None and plain not in SPENDERS:
        policy = Capped(policy, context)
    return policy if trace is context.trace else Tuned(policy, trace)

"""Inputs of savings that are not known for sure, each with the two ends between which it may lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.topology.cluster import Cluster


@dataclass(frozen=True)
class Input:
    """Something that is not known for sure, and between which values it may lie.

    Attributes
    ----------
    name, low, high : str
        What it is, and its two ends in words.
    vary : callable
        Cluster, settings and -1 or 1 to the cluster and settings at that end.
    """

    name: str
    low: str
    high: str
    vary: Callable[[Cluster, ReplaySettings, int], tuple[Cluster, ReplaySettings]]


def _with_types(cluster: Cluster, **factors: float) -> Cluster:
    """A cluster in which fields of its GPU types are multiplied."""
    types = {
        name: kind.model_copy(update={f: getattr(kind, f) * factor for f, factor in factors.items()})
        for name, kind in cluster.gpu_types.items()
    }
    return cluster.model_copy(update={"gpu_types": types})


def _with_base(cluster: Cluster, factor: float) -> Cluster:
    nodes = [n.model_copy(update={"base_power_w": n.base_power_w * factor}) for n in cluster.nodes]
    return cluster.model_copy(update={"nodes": nodes})


INPUTS = (
    Input(
        "watts of busy GPUs",
        "-15 %",
        "+15 %",
        lambda cluster, settings, end: (_with_types(cluster, power_factor=1 + 0.15 * end), settings),
    ),
    Input(
        "watts of idle GPUs",
        "-30 %",
        "+30 %",
        lambda cluster, settings, end: (_with_types(cluster, idle_power_w=1 + 0.3 * end), settings),
    ),
    Input(
        "watts of nodes",
        "-50 %",
        "+50 %",
        lambda cluster, settings, end: (_with_base(cluster, 1 + 0.5 * end), settings),
    ),
    Input(
        "seconds of a restart",
        "half",
        "twice",
        lambda cluster, settings, end: (
            cluster,
            replace(
                settings,
                process_restart_s=settings.process_restart_s * 2.0**end,
                pod_restart_s=settings.pod_restart_s * 2.0**end,
            ),
        ),
    ),
)
"""Inputs that replays rest on. Watts of busy GPUs by as much as the share of the board's limit that a model
draws differs between boards (`power_uncertainty` of the catalogue); the ends of the others are ours, by what
differs between sites."""

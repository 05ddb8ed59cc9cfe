"""What ``wattsched replay`` reads: the cluster, the jobs, and carbon intensity over time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from wattsched.cli import files
from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.parameters import option_name
from wattsched.cli.replay_options import LIST

if TYPE_CHECKING:
    from wattsched.instances.traces import TraceJob
    from wattsched.replay.jobs.accounts import Carbon
    from wattsched.replay.jobs.budget import Budget
    from wattsched.replay.jobs.trace import Trace
    from wattsched.topology.cluster import Cluster

DAY_S = 86_400.0


def cluster_of(file: str | None, nodes: int, gpus_per_node: int, gpu_type: str) -> Cluster:
    """Read the cluster of an instance, or make one of equal nodes."""
    from wattsched.instances.clusters import homogeneous_cluster

    if file is not None:
        return files.cluster_of(files.read_instance(file), files.shown(file))
    with refusing(options={"gpu_type": "--gpu-type"}):
        return homogeneous_cluster(nodes, gpus_per_node, gpu_type)


def carbon_of(asked: float | str, begin_s: float) -> Carbon:
    """Read carbon intensity over time, or take the same all the time."""
    from wattsched.instances.traces.carbon import read_carbon
    from wattsched.replay.jobs.accounts import Carbon

    if isinstance(asked, float):
        return Carbon.constant(asked)
    with refusing(asked):
        return Carbon.of(read_carbon(asked), begin_s)


def budget_of(
    asked: tuple[str, float] | None,
    period_s: float,
    carbon: Carbon,
    tariff: float | str | None,
    begin_s: float,
) -> Budget | None:
    """Make the budget of every period."""
    from wattsched.replay.jobs.budget import Budget

    if asked is None:
        return None
    quantity, amount = asked
    if quantity == "energy_j":
        return Budget.of_energy(amount, period_s)
    if quantity == "carbon_g":
        return Budget("carbon_g", amount, period_s, carbon)
    assert tariff is not None
    return Budget("money", amount, period_s, carbon_of(tariff, begin_s))


def trace_from(
    file: str,
    form: str,
    tables: str | None,
    cluster: Cluster,
    seed: int,
    days: tuple[float, float | None],
    reading: Mapping[str, str],
) -> Trace:
    """Read the jobs of a file that arrive within some days; `reading` are options of the format."""
    read = _reader(form)
    known = [] if read is None else list(inspect.signature(read).parameters)[1:]
    for name in reading:
        if name not in known:
            raise BadInput(f"{option_name(name)} does not go with the format {form}")
    if read is None:
        if days != (0.0, None):
            raise BadInput("--from and --to do not go with the format csv; leave the lines out of the file")
        return _listed(file, tables, cluster)
    if tables is not None:
        raise BadInput(
            f"--tables does not go with the format {form}, whose jobs train models of the catalogue"
        )
    with refusing(file, {name: option_name(name) for name in known}):
        return _recorded(read(file, **reading), cluster, seed, days)


def _reader(form: str) -> Callable[..., list[TraceJob]] | None:
    """Reader of a public trace; None for a list."""
    from wattsched.instances.traces import formats

    return None if form == LIST else formats()[form].read


def _listed(file: str, tables: str | None, cluster: Cluster) -> Trace:
    from wattsched.replay.jobs.listing import read_listing, read_tables

    known = {} if tables is None else read_tables(tables)
    with refusing(file):
        return read_listing(file, cluster, known)


def _recorded(jobs: list[TraceJob], cluster: Cluster, seed: int, days: tuple[float, float | None]) -> Trace:
    from wattsched.replay.jobs.trace import trace_of_durations

    first = min((job.submitted_s for job in jobs), default=0.0)
    begin, end = first + days[0] * DAY_S, float("inf") if days[1] is None else first + days[1] * DAY_S
    within = [job for job in jobs if begin <= job.submitted_s < end]
    if jobs and not within:
        last = max(job.submitted_s for job in jobs) - first
        raise ValueError(f"no job between --from and --to; the last one arrives on day {last / DAY_S:.4g}")
    return trace_of_durations(cluster, within, seed=seed)

"""Differences between the file of the site and the cluster now: they are told, and rounds go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from wattsched.adapters.names import Stated
from wattsched.adapters.options import some
from wattsched.adapters.slurm.inventory import SlurmNode
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.reading import Site
from wattsched.topology.cluster import PowerDomain


def usable(site: Site, options: SiteOptions) -> Site:
    """The site as rounds can use it, with notes on the rest.

    Nodes with GPUs whose watts are not known, or of several types, get no jobs; they count as
    `SiteOptions.gpu_type` says.
    """
    strange: dict[str, list[str]] = defaultdict(list)
    nodes = dict[str, SlurmNode]()
    for name, node in site.nodes.items():
        known = options.knows(node.gpu_type)
        nodes[name] = node if known else replace(node, takes_jobs=False)
        if not known:
            strange[node.gpu_type].append(name)
    notes = [_unknown(kind, names, options) for kind, names in strange.items()]
    notes += options.absent({*site.nodes, *site.switches}, "switch")
    return replace(site, nodes=nodes, notes=[*site.notes, *notes])


def stated_names(
    site: Site, options: SiteOptions, ours: Ours, known: Mapping[str, Collection[str]] | None
) -> list[Stated]:
    """Names of the site's file and of options, and those that Slurm has.

    Parameters
    ----------
    known : mapping, optional
        All accounts and QOS; without them only those of the queue are known.
    """
    hosts = {*site.nodes, *site.switches}.union(*site.partitions.values())
    members = {name for domain in options.power_domains for name in domain.members}
    sure = known is not None
    accounts, qos = ({getattr(job, kind) for job in site.jobs.values()} for kind in ("account", "qos"))
    known = known or {"account": accounts, "qos": qos}
    return [
        Stated("power_domains of the site's file", members, hosts),
        Stated("--partition", ours.partitions, site.partitions, sure=True),
        Stated("--account", ours.accounts, known["account"], sure, sure),
        Stated("accounts of the site's file", options.accounts, known["account"], sure, sure),
        Stated("tenants of the site's file", options.tenants, known["account"], sure, sure),
        Stated("--qos", ours.qos, known["qos"], sure, sure),
        Stated("qos of the site's file", options.qos, known["qos"], sure, sure),
    ]


def behind(site: Site, domain: PowerDomain) -> list[str]:
    """Nodes that draw through a power domain."""
    members = set(domain.members)
    return [node for node in site.nodes if {node, *site.switches_above(node)} & members]


def _unknown(kind: str, names: list[str], options: SiteOptions) -> str:
    idle_w, most_w = options.gpu_type(kind).idle_power_w, options.max_power_w(kind)
    why = (
        f"has GPUs of several types ({kind})"
        if "+" in kind
        else f"the watts of '{kind}' are not known; state them as gpu_types of the site's file"
    )
    counted = f"a GPU counts at {idle_w:g} W, or {most_w:g} W where a job has it"
    return f"{some(names)} gets no jobs: {why}. Until then {counted}"

"""Differences between the file of the site and the cluster now: they are told, and rounds go on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from wattsched.adapters.kubernetes.options import KubernetesOptions, groups_above
from wattsched.adapters.kubernetes.reading import UNLABELLED, KubeNode, KubePod, Site
from wattsched.adapters.names import Stated
from wattsched.adapters.options import first_of, some


def usable(site: Site, options: KubernetesOptions) -> Site:
    """The site as rounds can use it, with notes on the rest.

    Nodes with GPUs whose watts are not known get no pods; they count as `KubernetesOptions.gpu_type` says.
    """
    strange: dict[str, list[str]] = defaultdict(list)
    nodes = dict[str, KubeNode]()
    for name, node in site.nodes.items():
        known = options.knows(options.gpu_type_named(node.product))
        nodes[name] = node if known else replace(node, ready=False)
        if not known:
            strange[node.product].append(name)
    pods, told = _seated(site)
    notes = told + [_unknown_watts(product, names, options) for product, names in strange.items()]
    labels = " and ".join(options.rack_labels) or "rack_labels"
    notes += options.absent(_there(site, options), f"value of {labels}")
    return replace(site, nodes=nodes, pods=pods, notes=[*site.notes, *notes])


def _seated(site: Site) -> tuple[dict[str, KubePod], list[str]]:
    """Pods with no more GPUs than their nodes can have given them, and what is to be noted.

    A user may name a node and ask for anything. Kubelet refuses what is more than is left, so those that run
    come first; what is more than a whole node has was never there. Of a pod that cannot be read, all that is
    left is taken.
    """
    left = {name: node.gpus for name, node in site.nodes.items()}
    pods, notes = dict(site.pods), list[str]()
    present = [pod for pod in site.pods.values() if pod.present and pod.node in left]
    for pod in sorted(present, key=lambda one: (one.phase != "Running", one.begun_s, one.key)):
        most = site.nodes[pod.node].gpus
        asked = pod.gpus if pod.legible else most
        had = 0 if asked > most and pod.phase != "Running" else min(asked, left[pod.node])
        left[pod.node] -= had
        if had != pod.gpus:
            pods[pod.uid] = replace(pod, gpus=had)
            why = pod.odd if not pod.legible else f"asks for {pod.gpus:,} GPUs of {pod.node}"
            notes.append(f"{pod.key} {why}: counts as {had}")
    return pods, first_of(notes)


def stated_names(site: Site, options: KubernetesOptions) -> list[Stated]:
    """Names of the site's file, and those that the cluster has; of namespaces those with pods."""
    members = {name for domain in options.power_domains for name in domain.members}
    seen = {pod.namespace for pod in site.pods.values()}
    tenants = options.tenants if options.tenant_label is None else ()
    return [
        Stated("power_domains of the site's file", members, _there(site, options)),
        Stated("namespaces of the site's file", options.namespaces, seen, fault=False),
        Stated("tenants of the site's file", tenants, seen, fault=False),
    ]


def _there(site: Site, options: KubernetesOptions) -> set[str]:
    return set(site.nodes).union(*(groups_above(node, options) for node in site.nodes.values()))


def _unknown_watts(product: str, names: list[str], options: KubernetesOptions) -> str:
    kind = options.gpu_type_named(product)
    label = f"no label {options.gpu_label}" if product == UNLABELLED else f"{options.gpu_label}: {product}"
    idle_w, most_w = options.gpu_type(kind).idle_power_w, options.max_power_w(kind)
    return (
        f"{some(names)} ({label}) gets no pods: the watts of '{kind}' are not known; state them as "
        "gpu_types of the site's file, or its type as products. Until then a GPU counts at "
        f"{idle_w:g} W, or {most_w:g} W where a pod has it"
    )

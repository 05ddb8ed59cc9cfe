"""What the file of the site and the cluster do not know of each other, now: it is told, and rounds go on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from wattsched.adapters.kubernetes.options import KubernetesOptions, groups_above
from wattsched.adapters.kubernetes.reading import UNLABELLED, KubeNode, Site
from wattsched.adapters.options import some


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
    notes = [_unknown_watts(product, names, options) for product, names in strange.items()]
    for domain, members in options.absent(_there(site, options)).items():
        labels = " and ".join(options.rack_labels) or "rack_labels"
        notes.append(
            f"power_domains of the site's file: the members {some(members)} of '{domain}' are no node with "
            f"GPUs and no value of {labels} now, and count as nothing"
        )
    return replace(site, nodes=nodes, notes=[*site.notes, *notes])


def domains_there(site: Site, options: KubernetesOptions) -> list[dict[str, Any]]:
    """Power domains as clusters have them, with the members that are there."""
    return options.domains_there(_there(site, options))


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

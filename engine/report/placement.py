"""Instances and decisions of `placement` as tables: what is free, what is asked for, who goes where."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from wattsched.report.terminal import heading, line, rest_in, table
from wattsched.report.views import View
from wattsched.report.wording import Goal, count, listed, number

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.instances.placement.decision import PlacementDecision
    from wattsched.instances.placement.instance import PlacementInstance, Request

MOST_ROWS = 20
MOST_TASKS = 4
"""Names in a row."""

NODE_COLUMNS = ("GPU type", ">nodes", ">GPUs", ">free", ">whole", ">free vCPUs")
REQUEST_COLUMNS = ("task", ">tasks", ">vCPUs", ">GPUs", "types")
COLUMNS = ("node", "GPU type", ">tasks", "GPUs", "names")


def print_instance(out: Console, instance: PlacementInstance) -> None:
    """Print what is free by GPU type, and how often each request comes."""
    line(out, (instance.name, "bold"), f": {instance.problem}, {about(instance)}")
    if instance.objective != "power":
        watts = number(instance.fragmentation_w_per_gpu)
        line(out, (f"a GPU that is of no use to the usual tasks counts as {watts} W", "dim"))
    heading(out, "Nodes")
    by_type: dict[str, list[Any]] = {}
    for node in instance.nodes:
        by_type.setdefault(node.gpu_type or "none", []).append(node)
    rows: list[tuple[str, ...]] = []
    for name, nodes in by_type.items():
        free = [milli for node in nodes for milli in node.free_gpu_milli]
        vcpus = sum(node.cpu_milli - node.used_cpu_milli for node in nodes) / 1000
        gpus = f"{len(free):,}", number(sum(free) / 1000), f"{free.count(1000):,}"
        rows.append((name, f"{len(nodes):,}", *gpus, number(vcpus)))
    table(out, NODE_COLUMNS, rows)
    heading(out, "Tasks")
    requests = Counter(_request(task) for task in instance.tasks)
    names: dict[tuple[str, ...], str] = {}
    for task in instance.tasks:
        names.setdefault(_request(task), task.name)
    asked = [(names[key], f"{often:,}", *key) for key, often in requests.most_common()]
    table(out, REQUEST_COLUMNS, asked, most=MOST_ROWS)


def _request(task: Request) -> tuple[str, ...]:
    return number(task.cpu_milli / 1000), number(task.demand_gpus), "|".join(task.gpu_types)


def print_decision(
    out: Console, decision: PlacementDecision, instance: PlacementInstance | None = None
) -> None:
    """Print the nodes that take tasks, in the order in which they take the first, and who waits."""
    on: dict[str, list[Any]] = {}
    for placed in decision.placed:
        on.setdefault(placed.node, []).append(placed)
    text = f"{len(decision.placed):,} tasks on {count(len(on), 'node')}, {len(decision.waiting):,} wait"
    heading(out, "Decision", text)
    types = {} if instance is None else {node.name: node.gpu_type or "" for node in instance.nodes}
    rows = []
    for node, tasks in on.items():
        gpus = sorted({gpu for placed in tasks for gpu in placed.gpus})
        names = listed([placed.task for placed in tasks], most=MOST_TASKS)
        rows.append((node, types.get(node, ""), f"{len(tasks):,}", ",".join(map(str, gpus)), names))
    table(out, COLUMNS, rows, most=MOST_ROWS, hint=rest_in(instance))
    if decision.waiting:
        line(out, f"waiting: {listed(decision.waiting)}", indent=2)


def about(instance: PlacementInstance) -> str:
    """Size in words."""
    gpus = count(sum(node.gpus for node in instance.nodes), "GPU")
    return f"{count(len(instance.tasks), 'task')} on {count(len(instance.nodes), 'node')} with {gpus}"


def rows_of(decision: PlacementDecision) -> list[dict[str, Any]]:
    """A row for every task; waiting ones have no node."""
    placed = [
        {"task": one.task, "waiting": False, "node": one.node, "gpus": list(one.gpus)}
        for one in decision.placed
    ]
    return placed + [{"task": task, "waiting": True} for task in decision.waiting]


VIEW = View(
    goals={
        "power-fragmentation": Goal("added power and fragmentation", "W", near_zero=True),
        "power": Goal("added power", "W", near_zero=True),
        "fragmentation": Goal("added fragmentation", "GPUs", near_zero=True),
    },
    about=about,
    print_instance=print_instance,
    print_decision=print_decision,
    rows=rows_of,
)

"""Cluster maps: who has which GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wattsched.instances.errors import require_known, require_range
from wattsched.instances.placement.decision import PlacementDecision
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.plot.blocks import LEAST_PT, TEXT_PT, Blocks, Colouring, points_per_unit
from wattsched.plot.style import FAINT, LIMIT, NEUTRAL, Axes, axes_for, legend, literal
from wattsched.reading.arguments import require_types
from wattsched.results.documents import answer_of, read_document, read_instance
from wattsched.results.result import Result

SIZE_IN = (7.2, 4.6)
MARGIN = 0.06
"""Above and below a row of cells, in heights of rows."""
ASPECT = 2.2
"""Height of a cell over its width, about."""
MOST_CHARACTERS = 12
CHARACTER_PT = 4.2
"""Points that a character of a node's name takes; a name has at most `MOST_CHARACTERS`."""


@dataclass(frozen=True)
class Held:
    """GPUs of a node, from the first one on, that a job has; `settings` are nan where not stated."""

    job: str
    node: str
    first: int
    gpus: int
    total: int
    settings: Mapping[str, float]


def cluster_map(
    instance: Instance | PlacementInstance | str | Path,
    answer: Result | Decision | PlacementDecision | str | Path,
    *,
    colour: Literal["gpus", "frequency_mhz", "power_limit_w", "batch_size", "job"]
    | Mapping[str, str] = "gpus",
    ax: Axes | None = None,
) -> Axes:
    """Draw which job or task has which GPUs of which node.

    Parameters
    ----------
    instance : Instance, PlacementInstance, str or Path
        Of `sizing` or `placement`, or its file.
    answer : Result, Decision, PlacementDecision, str or Path
        A decision for it, or a file of one.
    colour : {"gpus", "frequency_mhz", "power_limit_w", "batch_size", "job"}, or mapping of str to str
        By how many GPUs the job has, by its clock (MHz), power limit (W), batch size or name, or by what the
        mapping says of it, such as its user. Numbers that have more values than there are colours are put
        into ranges.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        A row for each node, a cell for each GPU, in as many columns of nodes as fit. Those who share a GPU
        divide its cell; hatched GPUs are unavailable. Names stand where they fit.

    Raises
    ------
    ValueError, TypeError
        For other problems, results without a decision, decisions on nodes or GPUs that there are not, and
        arguments of another type.
    wattsched.InputError
        For files that cannot be used.
    """
    require_types(cluster_map, locals())
    if not isinstance(colour, Mapping):
        require_known("colour", colour, ("gpus", "frequency_mhz", "power_limit_w", "batch_size", "job"))
    axes = axes_for(ax, SIZE_IN)
    if isinstance(instance, str | Path):
        instance = read_instance(instance)
    if not isinstance(instance, Instance | PlacementInstance):
        message = getattr(instance, "problem", type(instance).__name__)
        raise ValueError(f"instance: must be of the problem sizing or placement, got {message}")
    decision = _decision(answer, instance.problem)
    nodes, broken = _nodes(instance)
    held = list(_held(decision))
    for one in held:
        gpus = nodes.get(one.node)
        require_range(gpus is not None, f"answer: the node of '{one.job}'", "in the instance", one.node)
        last, whose = one.first + one.gpus - 1, f"answer: GPUs of '{one.job}' on '{one.node}'"
        require_range(last < (gpus or 0), whose, f"below {gpus}", last)
    _draw(axes, nodes, broken, held, colour)
    return axes


def _decision(answer: Any, problem: str) -> Decision | PlacementDecision:
    """Decision that an argument `answer` has, for an instance of the problem."""
    if isinstance(answer, str | Path):
        answer = answer_of(read_document(answer), problem, str(answer))
    if isinstance(answer, Result):
        require_range(answer.problem == problem, "answer", f"of the problem {problem}", answer.problem)
        require_range(answer.decision is not None, "answer", "with a decision", answer.termination.reason)
        answer = answer.decision
    if problem == "sizing" and isinstance(answer, Decision):
        return answer
    if problem == "placement" and isinstance(answer, PlacementDecision):
        return answer
    raise ValueError(f"answer: must be a decision of {problem}, got {type(answer).__name__}")


def _nodes(instance: Instance | PlacementInstance) -> tuple[dict[str, int], set[tuple[str, int]]]:
    """GPU count of each node that has any, and the GPUs, by node and number, that are unavailable."""
    if isinstance(instance, PlacementInstance):
        nodes = {node.name: node.gpus for node in instance.nodes if node.gpus}
        return nodes, set()
    columns = instance.cluster.node_columns()
    names = columns.names
    node, gpu = columns.broken
    broken = {(names[n], g) for n, g in zip(node.tolist(), gpu.tolist(), strict=True)}
    return dict(zip(names, columns.counts("gpus").tolist(), strict=True)), broken


def _held(decision: Decision | PlacementDecision) -> Iterator[Held]:
    """Yield what each job or task of a decision has of each node."""
    if isinstance(decision, PlacementDecision):
        for task in decision.placed:
            yield from _runs(task.task, {task.node: task.gpus}, {})
        return
    for job in decision.jobs:
        settings = {
            name: math.nan if (value := getattr(job, name)) is None else float(value)
            for name in ("frequency_mhz", "power_limit_w", "batch_size")
        }
        yield from _runs(job.job, job.nodes, settings)


def _runs(job: str, nodes: Mapping[str, list[int]], settings: Mapping[str, float]) -> Iterator[Held]:
    """Yield what a job has of nodes, with neighbouring GPUs together."""
    total = sum(map(len, nodes.values()))
    for node, gpus in nodes.items():
        ordered = sorted(gpus)
        ends = [i + 1 for i, (a, b) in enumerate(pairwise(ordered)) if b != a + 1]
        for begin, end in pairwise([0, *ends, len(ordered)]):
            if begin < end:
                yield Held(job, node, ordered[begin], end - begin, total, settings)


def _draw(
    axes: Axes, nodes: Mapping[str, int], broken: set[tuple[str, int]], held: list[Held], colour: Any
) -> None:
    """Draw nodes, their broken GPUs and what jobs have of them, with a legend and names."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.patches import Patch

    corner = _corners(axes, nodes)
    frames, lines, gone = [], [], []
    for name, gpus in nodes.items():
        left, top = corner[name]
        frames.append(_cells(left, top, gpus))
        lines += [[(left + gpu, top + MARGIN), (left + gpu, top + 1 - MARGIN)] for gpu in range(1, gpus)]
        gone += [_cells(left + gpu, top, 1) for gpu in range(gpus) if (name, gpu) in broken]
    outline: dict[str, Any] = {"edgecolor": LIMIT, "linewidth": 0.6}
    looks: dict[str, dict[str, Any]] = {
        "free": {"facecolor": "white"},
        "unavailable": {"facecolor": NEUTRAL, "hatch": "xxxx"},
    }
    axes.add_collection(PolyCollection(frames, **looks["free"], **outline), autolim=False)
    axes.add_collection(LineCollection(lines, color=FAINT, linewidth=0.5, zorder=1), autolim=False)
    shown, handles, title = ["free"], [], None
    if gone:
        axes.add_collection(PolyCollection(gone, **looks["unavailable"], **outline), autolim=False)
        shown.append("unavailable")
    if held:
        values = {"gpus": np.array([one.total for one in held], dtype=float)}
        for name in ("frequency_mhz", "power_limit_w", "batch_size"):
            values[name] = np.array([one.settings.get(name, math.nan) for one in held])
        colouring = Colouring.of([one.job for one in held], values, colour)
        blocks = _blocks(held, corner)
        blocks.draw(axes, colouring)
        handles, title = colouring.handles(), colouring.title or None
    legend(axes, handles + [Patch(**looks[name], **outline, label=name) for name in shown], title=title)
    _name_nodes(axes, corner)
    if held:
        blocks.name(axes, colouring)


def _corners(axes: Axes, nodes: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Set the limits of the axes, and say where the first GPU of each node is in them."""
    require_range(bool(nodes), "instance", "with a node that has GPUs", "none")
    axes.set_axis_off()
    axes.set(xlim=(0.0, 1.0), ylim=(1.0, 0.0))
    wide_pt, high_pt = points_per_unit(axes)
    widest, names_pt = max(nodes.values()), CHARACTER_PT * min(max(map(len, nodes)), MOST_CHARACTERS) + 8.0
    # Columns in which cells are about as high as wide, and leave room for the names of nodes.
    columns = max(1, round(math.sqrt(len(nodes) * wide_pt / (high_pt * ASPECT * widest))))
    columns = min(columns, len(nodes), max(1, int(wide_pt / (2.0 * names_pt))))
    per_column = math.ceil(len(nodes) / columns)
    columns = math.ceil(len(nodes) / per_column)
    room_pt = max(wide_pt / columns - names_pt, names_pt)
    gutter = names_pt * widest / room_pt
    axes.set(xlim=(0.0, columns * (widest + gutter) + 0.1), ylim=(float(per_column), 0.0))
    return {
        name: ((i // per_column) * (widest + gutter) + gutter, float(i % per_column))
        for i, name in enumerate(nodes)
    }


def _cells(left: float, top: float, gpus: int) -> list[tuple[float, float]]:
    """Corners of neighbouring cells."""
    right, top, bottom = left + gpus, top + MARGIN, top + 1 - MARGIN
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _blocks(held: list[Held], corner: Mapping[str, tuple[float, float]]) -> Blocks:
    """Rectangles of what jobs have; `corner` is of nodes. Those who have a GPU together divide the height."""
    users: dict[tuple[str, int], list[int]] = {}
    for i, one in enumerate(held):
        for gpu in range(one.first, one.first + one.gpus):
            users.setdefault((one.node, gpu), []).append(i)
    left, right, top, bottom = (np.empty(len(held)) for _ in range(4))
    for i, one in enumerate(held):
        sharing = max((users[one.node, gpu] for gpu in range(one.first, one.first + one.gpus)), key=len)
        x, y = corner[one.node]
        left[i], right[i] = x + one.first, x + one.first + one.gpus
        top[i] = y + MARGIN + (1 - 2 * MARGIN) * sharing.index(i) / len(sharing)
        bottom[i] = y + MARGIN + (1 - 2 * MARGIN) * (sharing.index(i) + 1) / len(sharing)
    return Blocks([one.job for one in held], left, right, top, bottom)


def _name_nodes(axes: Axes, corner: Mapping[str, tuple[float, float]]) -> None:
    """Write the names of nodes on their left, the end of long ones, and not all where rows are too low."""
    pt_per_x, pt_per_y = points_per_unit(axes, settled=True)
    every = math.ceil(LEAST_PT / (0.9 * pt_per_y))
    size_pt = min(TEXT_PT, 0.9 * pt_per_y * every)
    for name, (left, top) in corner.items():
        if top % every == 0:
            shown = name if len(name) <= MOST_CHARACTERS else "\u2026" + name[1 - MOST_CHARACTERS :]
            x, y = left - 2.0 / pt_per_x, top + 0.5
            axes.text(x, y, literal(shown), fontsize=size_pt, ha="right", va="center")

r"""`patterns`: a window of tasks on the nodes' current state, with power and fragmentation exact.

Neither is linear in what a node hosts, so a column is an *outcome* of a node: the multiset of the window's
task profiles that it hosts, at the exact change of both (`outcomes`). Nodes in the same state are one class,
tasks with the same request one profile:

.. math::
    \min\ \sum_p w_p d_p + \sum_k \Bigl(c_k - \sum_p w_p a_{kp}\Bigr) \lambda_k \quad\text{s.t.}\quad
    \sum_k a_{kp} \lambda_k \le d_p\ \forall p, \quad
    \sum_{k\ \text{of class}\ c} \lambda_k \le n_c\ \forall c

with a_kp tasks of profile p in outcome k of cost c_k, d_p tasks, of which each that waits costs w_p (an
outcome saves that), and n_c nodes.

Where a window has few outcomes, all are listed, and only those left out that are in no better decision than
one already known: the program's optimum is the window's. Otherwise outcomes are searched (`outcome_search`),
and a solver's bound is one on decisions that are made of the ones found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wattsched.formulations.counts import Counting, Counts
from wattsched.formulations.model import Model, UnsuitableError
from wattsched.formulations.placement.data import Window
from wattsched.formulations.placement.outcome_search import search_outcomes
from wattsched.formulations.placement.outcomes import (
    Outcomes,
    decide,
    every_outcome,
    relaxed_prices,
    used_by,
)
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.timer import Timer
from wattsched.instances.placement.decision import PlacementDecision
from wattsched.topology.arrays import FloatArray

MOST_OUTCOMES = 100_000
"""Ways to host tasks that are looked at to list all outcomes; where there are more, outcomes are searched."""

MOST_COUNTED = 20_000
"""Outcomes, up to which certificate trees can be grown."""

_PROVING = 0.5
"""Share of the time for the certificate tree: solvers mostly find their last decision early."""


def build(window: Window, objective: str = "", timer: Timer | None = None) -> Model[PlacementDecision]:
    """Build the program of a window, which holds what its objective counts; the timer limits the search."""
    timer = timer or Timer()
    if window.limited:
        return _limited(window, timer)
    found = search_outcomes(window, timer)
    outcomes, prices = found.outcomes, named_prices(window, found.prices.task_worth, found.prices.node_cost)
    fixed = {"beyond": found.room, "prices": prices}

    def encode(decision: PlacementDecision) -> FloatArray | None:
        times = used_by(window, outcomes, decision)
        return None if times is None else times.astype(float)

    return Model(
        program=program_of(window, outcomes),
        decode=lambda x, starts: decide(window, outcomes, np.rint(x).astype(np.int64)),
        encode=encode,
        counts=partial(counts_of, window, outcomes, fixed) if len(outcomes) <= MOST_COUNTED else None,
        prices=prices,
        start=found.nodes.astype(float),
        outside=found.outside,
        cut=found.outside < math.inf and timer.over(),
        proving=_PROVING,
        options=len(outcomes),
    )


def _limited(window: Window, timer: Timer) -> Model[PlacementDecision]:
    """Build the program of a window under limits on other objectives, over all outcomes.

    Raises
    ------
    UnsuitableError
        Where there are too many.
    """
    outcomes = every_outcome(window, MOST_OUTCOMES, timer)
    if outcomes is None:
        few = f"windows with no more than {MOST_OUTCOMES:,} ways to host tasks"
        raise UnsuitableError(f"limits on other objectives are for {few}")
    prices = relaxed_prices(window, outcomes)
    return Model(
        program=program_of(window, outcomes),
        decode=lambda x, starts: decide(window, outcomes, np.rint(x).astype(np.int64)),
        counts=partial(counts_of, window, outcomes) if len(outcomes) <= MOST_COUNTED else None,
        prices=None if prices is None else _names_of(window, *prices),
        options=len(outcomes),
    )


def program_of(window: Window, outcomes: Outcomes) -> Program:
    """Program over some outcomes, a column each."""
    demand, worth, count = window.demand, window.worth, window.classes.count
    names, build, hosted = _Names(window, outcomes), ProgramBuilder(), outcomes.hosted
    classes, row = np.unique(outcomes.cls, return_inverse=True)
    # An outcome is used no more often than there are tasks and nodes for it.
    often = np.where(hosted > 0, demand // np.maximum(hosted, 1), len(window.tasks))
    often = np.minimum(often.min(axis=1, initial=len(window.tasks)), count[outcomes.cls])
    columns = build.columns(
        Block("hosts", len(outcomes), names.outcome), cost=outcomes.cost - hosted @ worth, upper=often
    )
    tasks = build.rows(Block("tasks", len(demand), lambda p: f"tasks:{names.request(p)}"), upper=demand)
    nodes = build.rows(
        Block("nodes", len(classes), lambda c: f"nodes:{names.node(int(classes[c]))}"), upper=count[classes]
    )
    outcome, profile = np.nonzero(hosted)
    build.add(tasks[profile], outcome, hosted[outcome, profile])
    build.add(nodes[row], columns)
    for number, (name, (limit, of)) in enumerate(window.limited.items()):
        left = limit - float(demand @ of.worth)
        build.row(f"objective:{name}", columns, outcomes.others[:, number] - hosted @ of.worth, upper=left)
    return build.program(offset=float(demand @ worth))


@dataclass(frozen=True)
class _Names:
    """Names of classes of nodes, requests and outcomes."""

    window: Window
    outcomes: Outcomes

    def node(self, cls: int) -> str:
        """First node of a class."""
        return self.window.nodes.names[int(self.window.classes.members[cls][0])]

    def request(self, profile: int) -> str:
        """Name of a request by its CPU, memory, GPUs and models: ``4000c,8192m,1x500g,T4``."""
        tasks, _ = self.window.tasks.profiles
        gpu = f"{tasks.gpus[profile]}x{tasks.gpu_milli[profile]}g"
        spec = "|".join(sorted(tasks.specs[tasks.spec[profile]]))
        return f"{tasks.cpu_milli[profile]}c,{tasks.memory_mib[profile]}m,{gpu}{',' * bool(spec)}{spec}"

    def outcome(self, k: int) -> str:
        """Node and what it hosts."""
        hosted = self.outcomes.hosted[k]
        tasks = "+".join(f"{hosted[p]}x{self.request(int(p))}" for p in np.flatnonzero(hosted))
        return f"{self.node(int(self.outcomes.cls[k]))}:{tasks}"


_NO_PRICE = 1e-9


class _Key(NamedTuple):
    """What is counted: nodes of a class, or all, that have at least the tasks `hosts`; or tasks there."""

    cls: int | None = None
    profile: int | None = None
    hosts: tuple[tuple[int, int], ...] = ()


def counts_of(window: Window, outcomes: Outcomes, fixed: dict[str, Any] | None = None) -> Counts:
    """Counts of the program over outcomes, from those of everything to those of single outcomes.

    The outcomes are all but those that are `fixed`.
    """
    counting, hosted, repeated = Counting(), outcomes.hosted, window.demand > 1
    for column, (cls, tasks) in enumerate(zip(outcomes.cls.tolist(), hosted.tolist(), strict=True)):
        counting.add(0, _Key(), column)
        counting.add(1, _Key(cls), column)
        for profile in np.flatnonzero(tasks).tolist():
            counting.add(2, _Key(None, profile), column, tasks[profile])
            counting.add(3, _Key(cls, profile), column, tasks[profile])
            for times in range(1, tasks[profile] + 1 if repeated[profile] else 1):
                counting.add(4, _Key(cls, None, ((profile, times),)), column)
        if np.count_nonzero(tasks) > 1:
            here = np.flatnonzero(outcomes.cls == cls)
            whole = _Key(cls, None, tuple((p, tasks[p]) for p in np.flatnonzero(tasks).tolist()))
            for larger in here[(hosted[here] >= tasks).all(axis=1)].tolist():
                counting.add(5, whole, larger)
    nodes, names = window.nodes.names, [task.name for task in window.instance.tasks]
    first = {int(profile): names[task] for task, profile in reversed(list(enumerate(window.profile)))}

    def named(key: _Key) -> dict[str, Any]:
        """Describe a count by the names of nodes, and of the first task of each profile."""
        count: dict[str, Any] = {}
        if key.cls is not None:
            count["nodes"] = [nodes[node] for node in window.classes.members[key.cls]]
        if key.profile is not None:
            count["task"] = first[key.profile]
        return count | ({"hosts": {first[p]: times for p, times in key.hosts}} if key.hosts else {})

    # What prices prove counts on every node of a class hosting what is best at these.
    upper = np.asarray(window.classes.count[outcomes.cls] + 1, dtype=float)
    classes = np.unique(outcomes.cls)

    def prices(y: FloatArray) -> dict[str, float]:
        n_tasks = len(window.demand)
        of_tasks, of_nodes, of_limits = np.split(y, [n_tasks, n_tasks + len(classes)])
        node_cost = np.zeros(len(window.classes.count))
        node_cost[classes] = -of_nodes
        return _names_of(window, of_tasks, -node_cost, of_limits)

    counts = counting.counts(replace(program_of(window, outcomes), upper=upper), prices, named)
    return replace(counts, fixed=fixed)


def _names_of(
    window: Window, of_tasks: FloatArray, of_nodes: FloatArray, of_limits: FloatArray
) -> dict[str, float]:
    """Prices by name, from those of the rows of profiles, of classes and of limits on objectives."""
    worth, named = window.worth + of_tasks, dict[str, float]()
    for price, (name, (_, of)) in zip(of_limits.tolist(), window.limited.items(), strict=True):
        worth, named = worth - price * of.worth, named | {f"objective:{name}": price}
    return named_prices(window, worth, -of_nodes) | named


def named_prices(window: Window, task_worth: FloatArray, node_cost: FloatArray) -> dict[str, float]:
    """Prices by name: of tasks, from the worth of each profile, and of nodes, from the cost of each class."""
    tasks, named = window.instance.tasks, {}
    for task, profile in zip(tasks, window.profile, strict=True):
        named[f"task:{task.name}"] = float(task_worth[profile])
    for cls, nodes in enumerate(window.classes.members):
        if node_cost[cls] > _NO_PRICE:
            named |= {f"node:{window.nodes.names[node]}": -float(node_cost[cls]) for node in nodes}
    return named

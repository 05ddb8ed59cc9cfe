r"""`assignment`: a window of arriving tasks on the nodes' current state, with power and fragmentation exact.

Neither is linear in what a node hosts, so a column is an *outcome* of a node: the multiset of the window's
task profiles that it hosts, at the exact change of both (`outcomes`). Nodes in the same state are one class,
tasks with the same request one profile:

.. math::
    \min\ &\sum_p w_p d_p + \sum_k \Bigl(c_k - \sum_p w_p a_{kp}\Bigr) \lambda_k
    + \sum_{c,i} \varepsilon_{ci} u_{ci} \\
    \text{s.t.}\ &\sum_k a_{kp} \lambda_k \le d_p\ \forall p, \quad
    \sum_{k\ \text{of class}\ c} \lambda_k \le \sum_i u_{ci}\ \forall c

with a_kp tasks of profile p in outcome k of cost c_k, and d_p tasks, of which each rejected one costs w_p: an
outcome saves that. A node that is alone in its class is a choice group, and one of its choices is to host
nothing. Of other classes, u_ci says whether the i-th node is used. The costs epsilon rise in the order of the
nodes: of decisions that are equally good, the one that uses fewer and earlier nodes is best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csc_array

from wattsched.formulations.placement.fragmentation import Fragmentation
from wattsched.formulations.placement.hosting import Hosting
from wattsched.formulations.placement.node_classes import node_classes
from wattsched.formulations.placement.outcome_columns import OutcomeColumns, outcome_columns
from wattsched.formulations.placement.outcome_fixing import fixed
from wattsched.formulations.placement.outcome_search import NEARBY, search_outcomes
from wattsched.formulations.placement.outcomes import Demand, every_outcome
from wattsched.formulations.program import Block, Program
from wattsched.instances.placement.instance import Placements, TaskTable, Window
from wattsched.topology.arrays import FloatArray, IntArray

WIDTH = 8
MOST_OUTCOMES = 20_000

TIE_BREAK = 0.5
"""Default of what the order of the nodes counts as at most: half a watt, or half a thousandth of a GPU."""


@dataclass(frozen=True)
class Assignment:
    """A window as a program, and the way back from its points.

    Attributes
    ----------
    window : Window
    program : Program
    start : (n_columns,) float
        The best point met while searching: no worse than placing the tasks one by one, each where it costs
        least at once.
    exact : bool
        Whether the program's optimum is the window's.
    profile : (T,) int
        Profile of each task.
    columns : OutcomeColumns
    """

    window: Window
    program: Program
    start: FloatArray
    exact: bool
    profile: IntArray
    columns: OutcomeColumns

    def placements(self, x: FloatArray) -> Placements:
        """Node and GPUs of every task at a point of the program.

        Equal nodes and tasks with the same request are taken in their order.
        """
        window, columns = self.window, self.columns
        classes, outcomes, tasks = columns.classes, columns.outcomes, self.window.tasks
        decision = Placements.none(len(tasks), window.gpu_free_milli.shape[1])
        waiting = [list(np.flatnonzero(self.profile == p)[::-1]) for p in range(outcomes.hosted.shape[1])]
        unused = [list(classes.nodes(c)[::-1]) for c in range(len(classes.count))]
        times = columns.times(x)
        for k in np.repeat(np.arange(len(times)), times):
            node = unused[outcomes.cls[k]].pop()
            free = [(int(milli), gpu) for gpu, milli in enumerate(window.gpu_free_milli[node])]
            for profile, slot in zip(outcomes.profile[k], outcomes.slot[k], strict=True):
                if profile < 0:
                    break
                task = waiting[profile].pop()
                decision.node[task] = node
                free.sort()
                for i in range(slot, slot + tasks.gpus[task]):
                    milli, gpu = free[i]
                    free[i] = (milli - int(tasks.gpu_milli[task]), gpu)
                    decision.gpus[task, gpu] = True
        return decision


def build(
    window: Window,
    *,
    width: int = WIDTH,
    nearby: int = NEARBY,
    most_outcomes: int | None = MOST_OUTCOMES,
    tie_break: float = TIE_BREAK,
    fragmentation: Fragmentation | None = None,
) -> Assignment:
    """Build the program of a window.

    Where the window has few outcomes, all are listed, and only those are left out that are in no better
    decision than one already known: the program's optimum is the window's. Otherwise outcomes are searched
    (`outcome_search`), and the optimum and a solver's bound are those of decisions made of the ones found.

    Parameters
    ----------
    window : Window
    width, nearby : int
        How thoroughly to search, and how many outcomes to take that the search met without needing them.
    most_outcomes : int, optional
        List the outcomes if there are at most about this many; 0 always searches, None always lists all,
        however long that takes.
    tie_break : float
        What the order of the nodes counts as at most: so much of a watt or of a thousandth of a GPU of
        fragmentation, whichever the window weighs less (but not nothing). The node at position n of N costs
        (n + 1) / N of this, shared by the tasks of the window, when it is used.
    fragmentation : Fragmentation, optional
        Tables of the window's target workload, to be built once for many windows.

    Raises
    ------
    ValueError
        If `width` is not positive, or `nearby`, `most_outcomes` or `tie_break` is negative.
    """
    for name, value, least in (
        ("width", width, 1),
        ("nearby", nearby, 0),
        ("most_outcomes", most_outcomes, 0),
        ("tie_break", tie_break, 0),
    ):
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    profiles, profile = window.tasks.profiles
    if fragmentation is None:
        most_gpus = window.gpu_free_milli.shape[1]
        fragmentation = Fragmentation(window.target, window.nodes.models, most_gpus)
    hosting, classes = Hosting(window, profiles, fragmentation), node_classes(window)
    possible = np.isfinite(hosting.best(classes.states)[0])
    classes = classes.take(np.flatnonzero(possible.any(axis=1)))
    worth = np.zeros(len(profiles))
    worth[profile] = window.rejection_w / window.power_ref_w
    worth[~possible.any(axis=0)] = 0.0
    ties = tie_break * _least_unit(window)
    demand = Demand(profile, worth, classes.count, ties)
    found = search_outcomes(hosting, classes, demand, width, nearby)
    most = np.inf if most_outcomes is None else most_outcomes
    every = every_outcome(hosting, classes.states, demand.tasks, most)
    if every is not None:
        found = fixed(every, found, demand)
    columns = outcome_columns(classes, found.outcomes, len(profile))
    program = _program(window, columns, profiles, demand)
    start = columns.point(found.nodes[columns.order])
    return Assignment(window, program, start, every is not None, profile, columns)


def _least_unit(window: Window) -> float:
    """Objective of a watt or of a thousandth of a GPU of fragmentation, the smaller one that counts."""
    units = (window.alpha / window.power_ref_w, (1.0 - window.alpha) / window.fragmentation_ref_milli)
    return min(unit for unit in units if unit > 0.0)


def _program(window: Window, columns: OutcomeColumns, profiles: TaskTable, demand: Demand) -> Program:
    labels, tasks = _Labels(window, columns, profiles), demand.tasks
    n_rows, n = len(tasks) + len(columns.usable), columns.n_columns
    upper = np.ones(n)
    upper[columns.column] = _most_times(columns, tasks)
    cost = np.zeros(n)
    cost[columns.column] = columns.outcomes.cost - columns.outcomes.hosted @ demand.worth
    return Program(
        cost=cost + _ties(columns, len(window.nodes), demand.ties / len(demand.arrivals)),
        matrix=_matrix(columns, len(tasks)),
        row_lower=np.full(n_rows, -np.inf),
        row_upper=np.concatenate([tasks, np.zeros(len(columns.usable))]).astype(float),
        lower=np.zeros(n),
        upper=upper,
        integer=np.ones(n, dtype=bool),
        group_start=columns.group_start(),
        rows=(Block("tasks", len(tasks), labels.tasks), Block("nodes", len(columns.usable), labels.nodes)),
        columns=(
            Block("hosts", columns.first_node, labels.hosts),
            Block("uses", n - columns.first_node, labels.uses),
        ),
        offset=float(tasks @ demand.worth),
    )


def _most_times(columns: OutcomeColumns, tasks: IntArray) -> IntArray:
    """How often each outcome can be used at most, shape (K,)."""
    hosted = columns.outcomes.hosted
    often = np.where(hosted > 0, tasks // np.maximum(hosted, 1), tasks.sum()).min(axis=1)
    most: IntArray = np.minimum(often, columns.classes.count[columns.outcomes.cls])
    return most


def _ties(columns: OutcomeColumns, nodes: int, most: float) -> FloatArray:
    """Cost of using nodes, rising to `most`: on the outcomes of nodes alone and on the columns of nodes."""
    of_node = most * (1.0 + np.arange(nodes)) / nodes
    outcomes, classes = columns.outcomes, columns.classes
    alone = outcomes.cls < columns.alone
    ties = np.zeros(columns.n_columns)
    ties[columns.column[alone]] = of_node[classes.members[classes.start[outcomes.cls[alone]]]]
    ties[columns.first_node :] = of_node[columns.nodes()]
    return ties


def _matrix(columns: OutcomeColumns, profiles: int) -> csc_array:
    outcomes = columns.outcomes
    outcome, profile = np.nonzero(outcomes.hosted)
    several = np.flatnonzero(outcomes.cls >= columns.alone)
    node_class = columns.node_class()
    row = [profile, profiles + outcomes.cls[several] - columns.alone, profiles + node_class]
    column = [
        columns.column[outcome],
        columns.column[several],
        columns.first_node + np.arange(len(node_class)),
    ]
    value = [outcomes.hosted[outcome, profile], np.ones(len(several)), np.full(len(node_class), -1.0)]
    entries = (np.concatenate(value).astype(float), (np.concatenate(row), np.concatenate(column)))
    return coo_array(entries, shape=(profiles + len(columns.usable), columns.n_columns)).tocsc()


class _Labels:
    """Names of rows and columns, made when they are asked for."""

    def __init__(self, window: Window, columns: OutcomeColumns, profiles: TaskTable) -> None:
        self._window, self._columns, self._profiles = window, columns, profiles

    def tasks(self, profile: int) -> str:
        """Row of a profile's tasks."""
        return f"tasks:{self._request(profile)}"

    def nodes(self, several: int) -> str:
        """Row of a class, by its first node."""
        return f"nodes:{self._node(self._columns.alone + several)}"

    def hosts(self, column: int) -> str:
        """Column of an outcome, or of a node that hosts nothing."""
        k = int(np.searchsorted(self._columns.column, column))
        if k == len(self._columns.column) or self._columns.column[k] != column:
            group = int(np.searchsorted(self._columns.group_start(), column))
            return f"{self._node(group)}:nothing"
        outcomes = self._columns.outcomes
        hosted = np.flatnonzero(outcomes.hosted[k])
        tasks = "+".join(f"{outcomes.hosted[k, p]}x{self._request(int(p))}" for p in hosted)
        return f"{self._node(int(outcomes.cls[k]))}:{tasks}"

    def uses(self, column: int) -> str:
        """Column of a node of a class of several."""
        return f"uses:{self._window.nodes.names[self._columns.nodes()[column]]}"

    def _node(self, cls: int) -> str:
        return self._window.nodes.names[int(self._columns.classes.nodes(cls)[0])]

    def _request(self, profile: int) -> str:
        tasks = self._profiles
        gpu = f"{tasks.gpus[profile]}x{tasks.gpu_milli[profile]}g"
        spec = "|".join(sorted(tasks.specs[tasks.spec[profile]]))
        return f"{tasks.cpu_milli[profile]}c,{tasks.memory_mib[profile]}m,{gpu}{',' * bool(spec)}{spec}"

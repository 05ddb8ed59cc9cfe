r"""`patterns`: a window of tasks on the nodes' current state, with power and fragmentation exact.

Neither is linear in what a node hosts, so a column is an *outcome* of a node: the multiset of the window's
task profiles that it hosts, at the exact change of both (`outcomes`). Nodes in the same state are one class,
tasks with the same request one profile:

.. math::
    \min\ \sum_p w_p d_p + \sum_k \Bigl(c_k - \sum_p w_p a_{kp}\Bigr) \lambda_k \quad\text{s.t.}\quad
    \sum_k a_{kp} \lambda_k \le d_p\ \forall p, \quad
    \sum_{k\ \text{of class}\ c} \lambda_k \le n_c\ \forall c

with a_kp tasks of profile p in outcome k of cost c_k, d_p tasks, of which each rejected one costs w_p (an
outcome saves that), and n_c nodes. A node that is alone in its class is a choice group, and one of its
choices is to host nothing.

Where a window has few outcomes, all are listed, and only those left out that are in no better decision than
one already known: the program's optimum is the window's. Otherwise outcomes are searched (`outcome_search`),
and a solver's bound is one on decisions that are made of the ones found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array, csc_array

from wattsched.formulations.model import Model
from wattsched.formulations.placement.data import Window
from wattsched.formulations.placement.outcome_master import Prices
from wattsched.formulations.placement.outcome_search import NEARBY, WIDTH, search_outcomes
from wattsched.formulations.placement.outcomes import Outcomes, decide, every_outcome, fixed, used_by
from wattsched.formulations.program import Block, Program
from wattsched.formulations.timer import Timer
from wattsched.instances.placement.decision import PlacementDecision
from wattsched.topology.arrays import FloatArray, IntArray

MOST_OUTCOMES = 100_000
"""Ways to host tasks that are looked at to list all outcomes; where there are more, outcomes are searched."""

_SEARCH_SHARE = 0.7
_NO_PRICE = 1e-9


def build(
    window: Window,
    objective: str = "",
    timer: Timer | None = None,
    *,
    width: int = WIDTH,
    nearby: int = NEARBY,
    most_outcomes: float = MOST_OUTCOMES,
) -> Model[PlacementDecision]:
    """Build the program of a window.

    Parameters
    ----------
    window : Window
        It holds what its objective counts.
    timer : Timer, optional
        What searching may take.
    width, nearby : int
        How thoroughly to search, and how many outcomes to take that the search met without needing them.
    most_outcomes : float
        List the outcomes if there are at most about this many; 0 always searches, infinity always lists all,
        however long that takes.

    Raises
    ------
    ValueError
        If `width` is not positive, or `nearby` or `most_outcomes` is negative.
    """
    for name, value, least in (
        ("width", width, 1),
        ("nearby", nearby, 0),
        ("most_outcomes", most_outcomes, 0),
    ):
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    timer = timer or Timer()
    found, prices = search_outcomes(window, timer.share(_SEARCH_SHARE), width, nearby), None
    every = every_outcome(window, most_outcomes, timer)
    if every is not None:
        found, prices = fixed(window, every, found)
    columns = Columns.of(window, found.outcomes)
    return Model(
        program=columns.program(),
        decode=lambda x, starts: decide(window, columns.outcomes, columns.times(x)),
        encode=columns.encode,
        prices=None if prices is None else named_prices(window, prices),
        start=columns.point(found.nodes[columns.order]),
        outside=math.inf if every is not None else -math.inf,
        options=len(found.outcomes) if every is None else len(every),
        dropped=0 if every is None else len(every) - len(found.outcomes),
    )


def named_prices(window: Window, prices: Prices) -> dict[str, float]:
    """Prices of the LP under the names of tasks and nodes."""
    tasks, named = window.instance.tasks, {}
    for task, profile in zip(tasks, window.profile, strict=True):
        named[f"task:{task.name}"] = float(prices.task_worth[profile])
    for cls, nodes in enumerate(window.classes.members):
        if prices.node_cost[cls] > _NO_PRICE:
            named |= {f"node:{window.nodes.names[node]}": -float(prices.node_cost[cls]) for node in nodes}
    return named


@dataclass(frozen=True)
class Columns:
    """Outcomes as columns of a program.

    First the classes of one node, each a choice group of hosting nothing and its outcomes, then the outcomes
    of the other classes.

    Attributes
    ----------
    window : Window
    outcomes : Outcomes
        K outcomes, those of classes of one node first, otherwise in the order of their classes.
    order : (K,) int
        Where they were in what `of` was given.
    alone, several : int arrays
        Classes of one node that have outcomes, and the others.
    """

    window: Window
    outcomes: Outcomes
    order: IntArray
    alone: IntArray
    several: IntArray

    @classmethod
    def of(cls, window: Window, outcomes: Outcomes) -> Columns:
        """Columns of some outcomes."""
        classes, count = np.unique(outcomes.cls), window.classes.count
        order = np.lexsort((outcomes.cls, count[outcomes.cls] > 1))
        one = count[classes] == 1
        return cls(window, outcomes.take(order), order, classes[one], classes[~one])

    @cached_property
    def group(self) -> IntArray:
        """Place of each outcome's class among those of `alone`, their number for the others, shape (K,)."""
        in_group = self.window.classes.count[self.outcomes.cls] == 1
        return np.where(in_group, np.searchsorted(self.alone, self.outcomes.cls), len(self.alone))

    @cached_property
    def column(self) -> IntArray:
        """Column of each outcome, shape (K,); the first of a group is to host nothing."""
        return np.arange(len(self.outcomes)) + np.minimum(self.group + 1, len(self.alone))

    @cached_property
    def group_start(self) -> IntArray:
        """Start of every choice group and end of the last, shape (len(alone) + 1,)."""
        start: IntArray = np.searchsorted(self.group, np.arange(len(self.alone) + 1))
        return start + np.arange(len(self.alone) + 1)

    def point(self, times: IntArray) -> FloatArray:
        """Point that uses outcomes so many times, shape (K,)."""
        x = np.zeros(len(self.outcomes) + len(self.alone))
        x[self.column] = times
        x[self.group_start[:-1]] = 1.0 - np.bincount(self.group, times, len(self.alone) + 1)[:-1]
        return x

    def times(self, x: FloatArray) -> IntArray:
        """How often a point uses each outcome, shape (K,)."""
        return np.rint(x[self.column]).astype(np.int64)

    def encode(self, decision: PlacementDecision) -> FloatArray | None:
        """Point of a decision, None where it needs an outcome that is not there."""
        times = used_by(self.window, self.outcomes, decision)
        return None if times is None else self.point(times)

    def program(self) -> Program:
        """The program."""
        window, outcomes = self.window, self.outcomes
        demand, worth, count = window.demand, window.worth, window.classes.count
        profiles, rows = len(demand), len(demand) + len(self.several)
        n, alone = len(outcomes) + len(self.alone), int(self.group_start[-1])
        cost, upper = np.zeros(n), np.ones(n)
        cost[self.column] = outcomes.cost - outcomes.hosted @ worth
        upper[self.column] = self._most_times()
        return Program(
            cost=cost,
            matrix=self._matrix((rows, n)),
            row_lower=np.full(rows, -np.inf),
            row_upper=np.concatenate([demand, count[self.several]]).astype(float),
            lower=np.zeros(n),
            upper=upper,
            integer=np.ones(n, dtype=bool),
            group_start=self.group_start,
            rows=(
                Block("tasks", profiles, self._tasks),
                Block("nodes", len(self.several), lambda row: f"nodes:{self._node(self.several[row])}"),
            ),
            columns=(
                Block("hosts", alone, self._hosts),
                Block("host", n - alone, lambda column: self._hosts(alone + column)),
            ),
            offset=float(demand @ worth),
        )

    def _matrix(self, shape: tuple[int, int]) -> csc_array:
        outcome, profile = np.nonzero(self.outcomes.hosted)
        several = np.flatnonzero(self.group == len(self.alone))
        row = np.concatenate(
            [
                profile,
                len(self.window.demand) + np.searchsorted(self.several, self.outcomes.cls[several]),
            ]
        )
        column = self.column[np.concatenate([outcome, several])]
        value = np.concatenate([self.outcomes.hosted[outcome, profile], np.ones(len(several))])
        return coo_array((value.astype(float), (row, column)), shape=shape).tocsc()

    def _most_times(self) -> IntArray:
        """How often each outcome can be used at most, shape (K,)."""
        hosted, demand = self.outcomes.hosted, self.window.demand
        often = np.where(hosted > 0, demand // np.maximum(hosted, 1), len(self.window.tasks)).min(axis=1)
        return np.minimum(often, self.window.classes.count[self.outcomes.cls])

    def _tasks(self, profile: int) -> str:
        return f"tasks:{self._request(profile)}"

    def _hosts(self, column: int) -> str:
        """Name of an outcome, or of a node that hosts nothing."""
        k = int(np.searchsorted(self.column, column))
        if k == len(self.column) or self.column[k] != column:
            return f"{self._node(self.alone[np.searchsorted(self.group_start, column)])}:nothing"
        hosted = self.outcomes.hosted[k]
        tasks = "+".join(f"{hosted[p]}x{self._request(p)}" for p in np.flatnonzero(hosted))
        return f"{self._node(self.outcomes.cls[k])}:{tasks}"

    def _node(self, cls: int) -> str:
        """First node of a class."""
        return self.window.nodes.names[self.window.classes.members[cls][0]]

    def _request(self, profile: int) -> str:
        tasks = self.window.tasks.profiles[0]
        gpu = f"{tasks.gpus[profile]}x{tasks.gpu_milli[profile]}g"
        spec = "|".join(sorted(tasks.specs[tasks.spec[profile]]))
        return f"{tasks.cpu_milli[profile]}c,{tasks.memory_mib[profile]}m,{gpu}{',' * bool(spec)}{spec}"

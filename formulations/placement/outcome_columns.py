"""Where the outcomes of node classes stand among the columns of a program."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattsched.formulations.placement.node_classes import NodeClasses
from wattsched.formulations.placement.outcomes import Outcomes
from wattsched.topology.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class OutcomeColumns:
    """Layout of the columns, which `outcome_columns` makes.

    First the nodes that are alone in their class, each a choice group of hosting nothing and its outcomes.
    Then the outcomes of the other classes, last the nodes of these classes: whether each is used.

    Attributes
    ----------
    classes : NodeClasses
        C classes that have outcomes, those of one node first.
    outcomes : Outcomes
        K outcomes in the order of their classes.
    order : (K,) int
        Where they were in what `outcome_columns` was given.
    alone : int
        Number of classes of one node.
    column : (K,) int
        Column of each outcome.
    usable : (C - alone,) int
        Nodes of each of the other classes that have columns, the first ones.
    """

    classes: NodeClasses
    outcomes: Outcomes
    order: IntArray
    alone: int
    column: IntArray
    usable: IntArray

    @property
    def first_node(self) -> int:
        """First of the columns of nodes."""
        return len(self.outcomes) + self.alone

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.first_node + int(self.usable.sum())

    def group_start(self) -> IntArray:
        """Start of every choice group and end of the last, shape (alone + 1,)."""
        group = np.arange(self.alone + 1)
        start: IntArray = np.searchsorted(self.outcomes.cls, group) + group
        return start

    def nodes(self) -> IntArray:
        """Positions of the nodes that the columns of nodes stand for."""
        kept = [self.classes.nodes(self.alone + c)[:most] for c, most in enumerate(self.usable)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *kept])

    def node_class(self) -> IntArray:
        """Class of the nodes that the columns of nodes stand for, 0 for the first class of several."""
        return np.repeat(np.arange(len(self.usable)), self.usable)

    def point(self, times: IntArray) -> FloatArray:
        """Point that uses outcomes so many times, shape (K,); of every class the first nodes are used."""
        x = np.zeros(self.n_columns)
        x[self.column] = times
        used = np.bincount(self.outcomes.cls, times, len(self.classes.count))
        x[self.group_start()[:-1]] = 1.0 - used[: self.alone]
        place = np.arange(self.n_columns - self.first_node)
        place -= np.repeat(np.cumsum(self.usable) - self.usable, self.usable)
        x[self.first_node :] = place < used[self.alone :][self.node_class()]
        return x

    def times(self, x: FloatArray) -> IntArray:
        """How often a point uses each outcome, shape (K,)."""
        return np.rint(x[self.column]).astype(np.int64)


def outcome_columns(classes: NodeClasses, outcomes: Outcomes, tasks: int) -> OutcomeColumns:
    """Lay out the columns for outcomes of some classes, when the window has so many tasks.

    Of each class at most as many nodes as tasks can be used. The outcomes are sorted by class, stably.
    """
    used = np.unique(outcomes.cls)
    used = used[np.argsort(classes.count[used] > 1, kind="stable")]
    place = np.zeros(len(classes.count), dtype=np.int64)
    place[used] = np.arange(len(used))
    order = np.argsort(place[outcomes.cls], kind="stable")
    cls = place[outcomes.cls[order]]
    count = classes.count[used]
    alone = int(np.count_nonzero(count == 1))
    return OutcomeColumns(
        classes=classes.take(used),
        outcomes=replace(outcomes.take(order), cls=cls),
        order=order,
        alone=alone,
        column=np.arange(len(order)) + np.minimum(cls + 1, alone),
        usable=np.minimum(count[alone:], tasks),
    )

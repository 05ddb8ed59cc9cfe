"""Orders drawn for a seed: of the arriving tasks, inflated to a demand, and of the nodes."""

from __future__ import annotations

import numpy as np

from wattsched.instances.placement.tables import TaskTable
from wattsched.topology.arrays import IntArray

MOST_ARRIVALS = 5_000_000
"""Tasks of one run at most: tiny requests on a huge cluster should fail early, not run for days."""


def arrival_order(tasks: TaskTable, demand_milli: float, seed: int) -> IntArray:
    """Draw tasks until they ask for this much GPU in total.

    A random permutation of the list comes first, then draws from the whole list with replacement: the "Monte
    Carlo inflation" of FGD's artifact (Weng et al., USENIX ATC 2023). Where the list asks for more than is
    wanted, the tail of the permutation is cut off, which is to delete tasks at random.

    Parameters
    ----------
    tasks : TaskTable
        The list as it was recorded.
    demand_milli : float
        Thousandths of a GPU to ask for; the last task reaches it or steps over it.
    seed : int
        Same seed, same order.

    Returns
    -------
    (A,) int
        Positions in `tasks`, in the order of arrival.

    Raises
    ------
    ValueError
        If no task asks for a GPU, or if it took more than `MOST_ARRIVALS` tasks.
    """
    demand = tasks.demand_milli
    total = int(demand.sum())
    if total == 0:
        raise ValueError("no task asks for a GPU, so the demand cannot be reached")
    expected = demand_milli / total * len(tasks)
    if expected > MOST_ARRIVALS:
        raise ValueError(
            f"about {expected:,.0f} tasks are needed to ask for {demand_milli / 1000:,.0f} GPUs, "
            f"more than {MOST_ARRIVALS:,}"
        )
    random = np.random.default_rng(seed)
    order = random.permutation(len(tasks))
    while (asked := np.cumsum(demand[order]))[-1] < demand_milli:
        missing = (demand_milli - asked[-1]) / total * len(tasks)
        order = np.concatenate([order, random.integers(len(tasks), size=int(missing) + 100)])
    return order[: 1 + np.searchsorted(asked, demand_milli)].astype(np.int64)


def node_order(count: int, seed: int) -> IntArray:
    """Draw the order in which nodes win ties during a run, a permutation of their positions, shape (count,).

    FGD's artifact names the nodes by such a permutation, and its scheduler takes the first name among the
    best nodes; that fixed order packs tasks together and is worth some points of allocation.
    """
    # A second stream of the seed: with the stream of the tasks, orders of equal length would be the same.
    return np.random.default_rng([seed, 1]).permutation(count).astype(np.int64)

"""`powerflow`: PowerFlow's greedy rule, extended from GPU counts to all options of a job.

Jobs are admitted with their smallest configuration. Then, again and again, the upgrade with the largest
relative reduction of completion time per relative increase of energy is made, the first job on ties. An
upgrade is another option with as many GPUs as now, or the next larger count. One for which there are not
enough GPUs is passed over; the first one that breaks a budget ends the rule.
The rule is known from a third party's port only (Algorithm 1, equations 16 and 17 of arXiv 2304.06381).
"""

from __future__ import annotations

import heapq

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.points import feasible_point
from wattsched.solvers.rows import RowSlack, linked_choices
from wattsched.solvers.solution import Limit, Limits, Solution, Start, conclude, unsupported
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

ATTRIBUTES = ("gpus", "completion_s", "energy_j")
_DUAL_SHARE = 0.5


def solve(program: Program, limits: Limits, start: Start | None = None) -> Solution:
    """Apply the rule, whatever the program's objective; `start` is not used.

    Declines programs whose columns have no `ATTRIBUTES`. Waiting columns have 0 GPUs.
    """
    missing = [name for name in ATTRIBUTES if name not in program.attributes]
    if missing:
        return unsupported(f"the program's columns have no attribute '{missing[0]}', which the rule reads")
    timer = Timer(limits.time_s)
    prices, bound = dual_prices(program, timer.share(_DUAL_SHARE).remaining_s())
    x, detail, finished = choose(program, timer)
    limit: Limit | None = None if finished else "time"
    return conclude(program, limits, x, bound, prices, limit, detail)


def choose(program: Program, timer: Timer) -> tuple[FloatArray | None, str, bool]:
    """Find the rule's point alone, without a bound.

    Returns
    -------
    x : float array, shape (n_columns,), or None
    detail : str
        Why there is no point.
    finished : bool
        Whether the time sufficed.
    """
    slack = RowSlack(program)
    alone = ~linked_choices(program)
    if not np.bincount(slack.group[alone], minlength=program.n_groups).all():
        return None, "a job can only run together with others, and the rule forms no sets", True
    smallest = _admit(program, slack, alone)
    if not slack.fits():
        return None, "the smallest configurations do not fit", True
    finished = _upgrade(program, slack, smallest, alone, timer)
    x = feasible_point(program, slack.point())
    return x, "" if x is not None else "the free columns cannot satisfy the rows", finished


def _admit(program: Program, slack: RowSlack, alone: BoolArray) -> IntArray:
    """Let every job wait that can, then admit those that fit, the shortest first.

    Columns that are not `alone`, which can only be taken together with others, are not taken.

    Returns
    -------
    int array, shape (n_groups,)
        The smallest configuration of each job: fewest GPUs, then least energy.
    """
    gpus, completion_s, energy_j = (program.attributes[name][: program.n_choices] for name in ATTRIBUTES)
    runs = gpus > 0
    smallest = np.lexsort((completion_s, energy_j, gpus, ~runs, ~alone, slack.group))[slack.group_start[:-1]]
    waiting = np.lexsort((energy_j, runs, ~alone, slack.group))[slack.group_start[:-1]]
    slack.choose(np.where(runs[waiting], smallest, waiting))
    order = np.argsort(completion_s[smallest], kind="stable")
    slack.swap_in_order(order, smallest[order])
    return smallest


def _upgrade(program: Program, slack: RowSlack, smallest: IntArray, alone: BoolArray, timer: Timer) -> bool:
    """Make upgrades until none is left or one breaks a budget; False when time ran out."""
    gpus, completion_s, energy_j = (program.attributes[name] for name in ATTRIBUTES)
    counts_gpus = _rows_in_gpus(slack, gpus)
    possible = alone & (gpus[: program.n_choices] > 0)
    start = slack.group_start

    def best(job: int) -> tuple[float, int, int] | None:
        """Heap entry of the job's best upgrade: highest ratio first, then the first job."""
        columns = slice(start[job], start[job + 1])
        now = slack.chosen[job]
        larger = gpus[columns][possible[columns] & (gpus[columns] > gpus[now])]
        near = (
            possible[columns] & (gpus[columns] <= larger.min(initial=np.inf)) & (gpus[columns] >= gpus[now])
        )
        saved = (completion_s[now] - completion_s[columns]) / completion_s[now]
        spent = (energy_j[columns] - energy_j[now]) / max(energy_j[now], 1e-300)
        ratio = np.where(spent <= 0, np.inf, saved / np.where(spent <= 0, 1.0, spent))
        ratio = np.where(near & (saved > 0), ratio, -1.0)
        top = float(ratio.max())
        if top <= 0:
            return None
        # Among upgrades of equal ratio, such as those that even save energy, the one that saves most time.
        return -top, job, int(start[job]) + int(np.argmax(np.where(ratio == top, saved, -1.0)))

    admitted = np.flatnonzero(slack.chosen == smallest)
    heap = [entry for job in admitted.tolist() if (entry := best(job)) is not None]
    heapq.heapify(heap)
    while heap:
        if timer.over():
            return False
        _, job, target = heapq.heappop(heap)
        broken = slack.broken_by(target)
        if len(broken) and not counts_gpus[broken].all():
            return True
        if len(broken):
            # GPUs only get scarcer, so what does not fit now is not asked for again.
            columns = slice(start[job], start[job + 1])
            possible[columns] &= slack.fitting(job, counts_gpus)
        else:
            slack.take(target)
        if (entry := best(job)) is not None:
            heapq.heappush(heap, entry)
    return True


def _rows_in_gpus(slack: RowSlack, gpus: FloatArray) -> BoolArray:
    """Which rows count GPUs, or the power-of-two blocks that they take, and so are no budgets."""
    column = np.repeat(np.arange(slack.uses.shape[0]), np.diff(slack.uses.indptr))
    count = gpus[column]
    block = np.exp2(np.ceil(np.log2(np.maximum(count, 1.0))))
    # What is given and not used, as by nodes that are woken, makes no row a budget.
    other = (slack.uses.data > 0) & (slack.uses.data != count) & (slack.uses.data != block)
    return np.asarray(np.bincount(slack.uses.indices[other], minlength=len(slack.limits)) == 0)

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
from wattsched.solvers.solution import Limits, Solution, Start, conclude, unsupported
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
    return conclude(program, limits, x, bound, prices, None if finished else "time", detail)


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
    upgrades = _Upgrades(program, slack, alone)
    finished = upgrades.make(np.flatnonzero(slack.chosen == smallest).tolist(), timer)
    slack.choose(np.array(upgrades.chosen, dtype=np.int64))
    x = feasible_point(program, slack.point())
    return x, "" if x is not None else "the free columns cannot satisfy the rows", finished


def _admit(program: Program, slack: RowSlack, alone: BoolArray) -> IntArray:
    """Let every job wait that can, then admit those that fit, the shortest first.

    Columns that are not `alone`, which can only be taken together with others, are not taken. Returns the
    smallest configuration of each job: fewest GPUs, then least energy.
    """
    gpus, completion_s, energy_j = (program.attributes[name][: program.n_choices] for name in ATTRIBUTES)
    runs = gpus > 0
    smallest = np.lexsort((completion_s, energy_j, gpus, ~runs, ~alone, slack.group))[slack.group_start[:-1]]
    waiting = np.lexsort((energy_j, runs, ~alone, slack.group))[slack.group_start[:-1]]
    slack.choose(np.where(runs[waiting], smallest, waiting))
    order = np.argsort(completion_s[smallest], kind="stable")
    slack.swap_in_order(order, smallest[order])
    return smallest


class _Upgrades:
    """Upgrades of the jobs under the rows of a program.

    Of rows `_activity` is what is used, `_reach` what may be, and `_counts_gpus` whether they count GPUs; of
    columns `_possible` is whether they still can be upgrades. `chosen` is the column of each job. All are
    lists: columns are looked at a few at a time, thousands of times, and arrays are slow for that.
    """

    def __init__(self, program: Program, slack: RowSlack, alone: BoolArray) -> None:
        gpus, completion_s, energy_j = (program.attributes[name][: program.n_choices] for name in ATTRIBUTES)
        self._counts_gpus = _rows_in_gpus(slack, gpus).tolist()
        self._possible = (alone & (gpus > 0)).tolist()
        self._gpus = gpus.tolist()
        self._completion_s, self._energy_j = completion_s.tolist(), energy_j.tolist()
        self._start, self.chosen = slack.group_start.tolist(), slack.chosen.tolist()
        # Rows and uses of all columns, one after the other; those of each begin at its `_first`.
        self._first = slack.uses.indptr.tolist()
        self._entries = list(zip(slack.uses.indices.tolist(), slack.uses.data.tolist(), strict=True))
        self._activity: list[float] = slack.activity.tolist()
        self._reach: list[float] = slack.reach.tolist()

    def make(self, jobs: list[int], timer: Timer) -> bool:
        """Make upgrades of jobs until none is left or one breaks a budget; False when time ran out."""
        heap = [entry for job in jobs if (entry := self._best(job)) is not None]
        heapq.heapify(heap)
        while heap:
            if timer.over():
                return False
            _, job, target = heapq.heappop(heap)
            change = self._change(job, target)
            broken = [row for row, more in change.items() if more > 0 and self._is_over(row, more)]
            if not all(self._counts_gpus[row] for row in broken):
                return True
            if broken:
                self._forget_what_does_not_fit(job)
            else:
                for row, more in change.items():
                    self._activity[row] += more
                self.chosen[job] = target
            if (entry := self._best(job)) is not None:
                heapq.heappush(heap, entry)
        return True

    def _best(self, job: int) -> tuple[float, int, int] | None:
        """Heap entry of the job's best upgrade: minus its ratio, the job and the option's column."""
        gpus, now = self._gpus, self.chosen[job]
        columns = [c for c in self._columns(job) if self._possible[c] and gpus[c] >= gpus[now]]
        next_larger = min((gpus[c] for c in columns if gpus[c] > gpus[now]), default=np.inf)
        now_s, now_j = self._completion_s[now] or 1.0, max(self._energy_j[now], 1e-300)
        best, best_saved, target = 0.0, 0.0, -1
        for column in columns:
            saved = (self._completion_s[now] - self._completion_s[column]) / now_s
            if gpus[column] > next_larger or not saved > 0:
                continue
            spent = (self._energy_j[column] - self._energy_j[now]) / now_j
            ratio = saved / spent if spent > 0 else np.inf
            # Of equal upgrades, such as those that even save energy, the one that saves most time.
            if ratio > best or (ratio == best and saved > best_saved):
                best, best_saved, target = ratio, saved, column
        return None if target < 0 else (-best, job, target)

    def _columns(self, job: int) -> range:
        return range(self._start[job], self._start[job + 1])

    def _uses(self, column: int) -> list[tuple[int, float]]:
        return self._entries[self._first[column] : self._first[column + 1]]

    def _change(self, job: int, target: int) -> dict[int, float]:
        """Return the change in the use of each row when a job takes a column."""
        change = dict(self._uses(target))
        for row, use in self._uses(self.chosen[job]):
            change[row] = change.get(row, 0.0) - use
        return change

    def _is_over(self, row: int, more: float) -> bool:
        return self._activity[row] + more > self._reach[row]

    def _forget_what_does_not_fit(self, job: int) -> None:
        """Pass over columns of a job that take too many GPUs: these only get scarcer."""
        for column in self._columns(job):
            if self._possible[column]:
                change = self._change(job, column).items()
                self._possible[column] = not any(
                    self._counts_gpus[row] and self._is_over(row, more) for row, more in change
                )


def _rows_in_gpus(slack: RowSlack, gpus: FloatArray) -> BoolArray:
    """Return a mask of rows that count GPUs, or the power-of-two blocks they take, and so are no budgets."""
    column = np.repeat(np.arange(slack.uses.shape[0]), np.diff(slack.uses.indptr))
    count = gpus[column]
    block = np.exp2(np.ceil(np.log2(np.maximum(count, 1.0))))
    # What is given and not used, as by nodes that are woken, makes no row a budget.
    other = (slack.uses.data > 0) & (slack.uses.data != count) & (slack.uses.data != block)
    return np.asarray(np.bincount(slack.uses.indices[other], minlength=len(slack.limits)) == 0)

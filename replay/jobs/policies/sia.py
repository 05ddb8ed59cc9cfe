r"""`sia`: goodput-optimal configurations, minute by minute (Jayaram Subramanya et al., SOSP 2023, section 3).

A configuration is a pool and a GPU count, at the batch size of highest goodput and the highest clock. The
goodputs of a job are divided by its least one and multiplied with the GPUs of that; changing them multiplies
them with the restart factor

.. math:: r = \frac{T - N S}{T + S}

for age T, restarts N so far and restart cost S. With these, G, a round solves

.. math:: \min \sum_j \Big(\sum_c x_{jc} G_{jc}^p + \lambda \big(1 - \sum_c x_{jc}\big)\Big),

one configuration at most for each job, within the pools' blocks; :math:`p = -0.5`, :math:`\lambda = 1.1`. A
new job starts in its smallest configurations, and no job gets more than twice the GPUs that it had last.

Where the paper is silent: a job that has waited counts the GPUs of its last run, the factor is 1 before a job
is older than a restart (as in the authors' simulator) and at least `LEAST_FACTOR`.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.menus import WAITS, fastest
from wattsched.replay.jobs.policies.round_solver import RoundSolver
from wattsched.replay.jobs.policies.rounds import Columns, columns_of, program_of
from wattsched.replay.jobs.policies.turns import Rounds
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.topology.arrays import FloatArray

ROUND_S = 60.0
FAIRNESS = -0.5
WAITING = 1.1
MOST_GROWTH = 2
LEAST_FACTOR = 0.01


class Sia:
    """Sia's ILP, each round solved to the setting's gap."""

    def __init__(self, setting: Setting, solver: str = "auto") -> None:
        self.restart_s = setting.restarts.process_s
        menus = setting.trace.menus
        self._rows = fastest(menus, menus.comparable)
        self._rounds = Rounds(ROUND_S)
        self._solver = RoundSolver("sia", solver, setting.gap)
        self._last_gpus = np.zeros(len(setting.trace), dtype=np.int64)
        self._restarts = np.zeros(len(setting.trace), dtype=np.int64)

    def decide(self, view: View) -> Decision:
        """Solve the round."""
        if (kept := self._rounds.kept(view)) is not None:
            return kept
        columns = self._reachable(view, columns_of(view, self._rows, ROUND_S))
        goodput = normalised(view, columns) * self._factor(view, columns)
        cost = np.where(columns.waits, WAITING, goodput**FAIRNESS)
        decision = self._solver.decide(columns, program_of(view, columns, cost), self._rounds.next_s)
        self._note(view, decision)
        return decision

    def _reachable(self, view: View, columns: Columns) -> Columns:
        """Leave out counts that are more than twice the last ones; a new job has its smallest per pool."""
        menus, owner = view.menus, columns.owner
        gpus = np.where(columns.waits, 0, menus.gpus[columns.row])
        last = self._last_gpus[view.jobs][owner]
        place = owner * (len(view.trace.pools) + 1) + np.where(columns.waits, -1, menus.pool[columns.row]) + 1
        least = np.full(len(view) * (len(view.trace.pools) + 1), np.iinfo(np.int64).max)
        np.minimum.at(least, place, gpus)
        return columns.only((gpus <= MOST_GROWTH * last) | (gpus == least[place]))

    def _factor(self, view: View, columns: Columns) -> FloatArray:
        """Restart factor of every column, 1 where nothing restarts."""
        age_s = view.time_s - view.trace.arrival_s[view.jobs]
        lost_s = self._restarts[view.jobs] * view.restart_s
        factor = np.maximum((age_s - lost_s) / np.maximum(age_s + view.restart_s, 1e-12), LEAST_FACTOR)
        factor = np.where(age_s < view.restart_s, 1.0, factor)
        now = view.row[columns.owner]
        kept = columns.waits | (now == WAITS) | (now == columns.row)
        return np.asarray(np.where(kept, 1.0, factor[columns.owner]))

    def _note(self, view: View, decision: Decision) -> None:
        """Remember GPU counts and restarts."""
        runs = decision.row != WAITS
        self._restarts[view.jobs[runs & view.ran & (decision.row != view.row)]] += 1
        self._last_gpus[view.jobs[runs]] = view.menus.gpus[decision.row[runs]]


def normalised(view: View, columns: Columns) -> FloatArray:
    """Goodput of every column over the job's least one, times the GPUs of that; 1 for waiting."""
    menus, starts, owner = view.menus, columns.start[:-1], columns.owner
    rate = np.where(columns.waits, np.inf, menus.rate[columns.row])
    least = np.minimum.reduceat(rate, starts)
    gpus = np.where(rate == least[owner], menus.gpus[columns.row], np.iinfo(np.int64).max)
    fewest = np.minimum.reduceat(gpus, starts)
    return np.asarray(np.where(columns.waits, 1.0, rate / least[owner] * fewest[owner]))

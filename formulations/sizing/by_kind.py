"""`mckp` by kind: large rounds whose options are never written out.

Jobs that start from nothing and share a table or a model have the same rows, at costs and uses that scale
with the job. Jobs that lose time to a restart or keep their GPUs have options of their own, which are
written out.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from wattsched.formulations.kinds import KindProgram, KindRows, OwnColumns
from wattsched.formulations.model import Model
from wattsched.formulations.program import ProgramBuilder
from wattsched.formulations.sizing import mckp
from wattsched.formulations.sizing.budgets import budgets_of, energy_j, extra_power_w, grams_per_j
from wattsched.formulations.sizing.columns import beaten_in_runs, undominated
from wattsched.formulations.sizing.configurations import WAIT, Configurations
from wattsched.formulations.sizing.data import Options, chosen_options, options_of
from wattsched.formulations.sizing.decisions import place_by_buddy
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.matching import UNKNOWN, matching_options, matching_rows
from wattsched.formulations.sizing.mckp import add_block_rows, free_levels
from wattsched.formulations.sizing.objectives import Objective
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

LARGE = 50_000
"""Rounds with as many options are solved by kind."""


def suits(known: RoundJobs, objective: Objective) -> bool:
    """Whether a round is one that pays to solve by kind."""
    return objective.by_kind is not None and not known.job_sets and known.n_options >= LARGE


def build(known: RoundJobs | Options, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the aggregated formulation, of a large round by kind; parameters and errors as `mckp.build`."""
    goal = find_objective(objective)
    if isinstance(known, Options) or not suits(known, goal):
        return mckp.build(known, objective, timer)
    return of_kinds(known, goal)


def of_kinds(known: RoundJobs, objective: Objective) -> Model[Decision]:
    """Build it by kind; the objective must be one that scales (`Objective.by_kind`)."""
    return _Round(known, objective).model()


class _Round:
    """A round between its instance and its program."""

    def __init__(self, known: RoundJobs, objective: Objective) -> None:
        assert objective.by_kind is not None
        self.known = known
        self.worth, self.value = objective.by_kind(known)
        keep = np.flatnonzero(_undominated(known, self.value))
        rows = known.configurations
        # Of every row of the program which of all configurations it is.
        self.index = keep[np.lexsort((-rows.rate[keep], rows.kind[keep]))]
        self.rows, self.value = rows.taken(self.index), self.value[self.index]
        self.own = _own_options(known)
        cost = objective.cost(self.own)
        self.own_index = np.flatnonzero(undominated(self.own, cost))
        self.own_cost = cost[self.own_index]
        self.objective = objective

    def model(self) -> Model[Decision]:
        """Program, and the way between its points and decisions."""
        program = self.program()
        return Model(
            program=program,
            decode=lambda point, starts: self.decision_of(point),
            encode=self.point_of,
            named_prices=program.named_prices,
            lagrangian=True,
            written_out=lambda: mckp.build(self.known, self.objective.name),
            options=self.known.n_options,
            dropped=self.known.n_options - program.n_columns,
        )

    def program(self) -> KindProgram:
        """Costs and rows of the kinds, and of what jobs have for themselves."""
        known, rows, own = self.known, self.rows, self.own
        n_own, n_kind = len(self.own_index), len(rows)
        builder = ProgramBuilder()
        own_block = np.where(known.jobs.fixed[own.job] | own.waiting, 0, own.block)[self.own_index]
        pool = np.concatenate([own.pool[self.own_index], rows.pool])
        add_block_rows(builder, free_levels(known), pool, np.concatenate([own_block, rows.block]))
        idle_w = _idle_w(known, rows)
        extra_w = np.concatenate([extra_power_w(own)[self.own_index], rows.power_w - idle_w])
        budgets = budgets_of(known)
        metered = np.zeros((n_kind, len(budgets)))
        energy = energy_j(own)[self.own_index] if any(b.counts != "power" for b in budgets) else None
        in_round = known.instance.budgets.scope == "round"
        number = []
        for b, budget in enumerate(budgets):
            if budget.counts == "power":
                inside = np.flatnonzero(np.isin(pool, budget.pools))
                use = extra_w[inside]
            else:
                assert energy is not None
                per_joule = grams_per_j(known.instance) if budget.counts == "carbon" else 1.0
                inside, use = np.arange(n_own), energy * per_joule
                metered[:, b] = (extra_w[n_own:] if in_round else rows.power_w) * per_joule
            number.append(builder.row(budget.name, inside, use, upper=budget.capacity))
        builder.n_columns = n_own + n_kind
        fixed = builder.matrix(builder.n_rows, n_own + n_kind)
        lower, upper = builder.row_bounds()
        place = csr_array(
            (np.ones(len(number)), (np.arange(len(number)), number)), (len(number), builder.n_rows)
        )
        return KindProgram(
            kind=np.where(known.simple, known.kind, -1),
            worth=self.worth,
            work=known.work,
            most=self._most(),
            kinds=KindRows(
                start=rows.start,
                value=self.value,
                pace=1.0 / rows.rate,
                fixed=csr_array(fixed[:, n_own:].T),
                metered=csr_array(metered @ place),
            ),
            own=OwnColumns(
                start=np.searchsorted(own.job[self.own_index], np.arange(len(known) + 1)),
                cost=self.own_cost,
                uses=csr_array(fixed[:, :n_own].T),
            ),
            row_lower=lower,
            row_upper=upper,
            rows=builder.row_blocks(),
            horizon_s=known.round_s if in_round else np.inf,
            sense=self.objective.sense,
        )

    def _most(self) -> IntArray:
        """How many of its kind's rows keep a job's deadline; those before a slow one are quicker."""
        known, rows = self.known, self.rows
        sizes = np.diff(rows.start)
        most = np.where(known.simple, sizes[known.kind], 0)
        late = np.flatnonzero(known.simple & np.isfinite(known.latest_s))
        for kind in np.unique(known.kind[late]).tolist():
            jobs = late[known.kind[late] == kind]
            rate = rows.rate[rows.start[kind] : rows.start[kind + 1]]
            in_time = known.work[jobs, None] / rate <= known.latest_s[jobs, None]
            most[jobs] = np.count_nonzero(in_time, axis=1)
        return np.asarray(most)

    def decision_of(self, point: IntArray) -> Decision:
        """Decision of a point, with concrete GPUs."""
        known, n = self.known, len(self.own_index)
        of_kind = point >= n
        row = np.full(len(known), WAIT)
        row[of_kind] = self.index[point[of_kind] - n]
        options = chosen_options(known, row)
        return place_by_buddy(self._with_own(options, point), np.arange(len(known)))

    def _with_own(self, options: Options, point: IntArray) -> Options:
        """Options of a point, where some jobs take one of their own."""
        jobs = np.flatnonzero(~self.known.simple)
        if len(jobs) == 0:
            return options
        taken = self.own_index[point[jobs]]
        return options.replaced(jobs, self.own, taken)

    def point_of(self, decision: Decision) -> IntArray | None:
        """Point of a decision, None where a part of it has no column."""
        known, n = self.known, len(self.own_index)
        row = matching_rows(known, decision)
        place = np.full(len(known.configurations) + 1, UNKNOWN)
        place[self.index] = n + np.arange(len(self.index))
        point = place[np.maximum(row, WAIT)]
        own = np.full(len(self.own), UNKNOWN)
        own[self.own_index] = np.arange(n)
        options = matching_options(self.own, decision)
        has = ~known.simple | (row == WAIT)
        point[has] = np.where(options[has] >= 0, own[options[has]], UNKNOWN)
        point[(row == UNKNOWN) & known.simple] = UNKNOWN
        return point if (point >= 0).all() else None


def _own_options(known: RoundJobs) -> Options:
    """Waiting of every job that may wait, and all options of those that are not like their kind."""
    n = len(known)
    waiting = chosen_options(known, np.full(n, WAIT))
    waits = known.simple & ~known.must_run & (waiting.completion_s <= known.latest_s)
    others = options_of(known, np.flatnonzero(~known.simple))
    return waiting.take(np.flatnonzero(waits)).merged(others)


def _undominated(known: RoundJobs, value: FloatArray) -> BoolArray:
    """Rows of the kinds that no other row of the kind in the pool beats for every job; see `undominated`."""
    rows, budgets = known.configurations, known.instance.budgets
    extra_w = rows.power_w - _idle_w(known, rows)
    # Not for deadlines alone: what is quicker has used less of a budget when the round ends.
    criteria = [value, rows.block.astype(float), 1.0 / rows.rate]
    energy = budgets.energy_j is not None or budgets.carbon_g is not None
    capped = budgets.power_w is not None or bool(known.instance.cluster.power_domains)
    if capped or (energy and budgets.scope == "round"):
        criteria.append(extra_w)
    if energy and budgets.scope == "completion":
        criteria.append(rows.power_w / rows.rate)
    elif energy and (extra_w < 0).any():  # the longer, the less such a row uses
        return np.ones(len(rows), dtype=bool)
    return ~beaten_in_runs(rows.kind, rows.pool, np.array(criteria))


def _idle_w(known: RoundJobs, rows: Configurations) -> FloatArray:
    types = known.instance.cluster.gpu_types
    per_gpu = np.array([types[pool.gpu_type].idle_power_w for pool in known.pools] + [0.0])
    return np.asarray(per_gpu[rows.pool] * rows.gpus)

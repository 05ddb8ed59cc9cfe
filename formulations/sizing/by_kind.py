"""`mckp` by kind: large rounds whose options are never written out.

Jobs that share a table or a model have the same rows, at costs and uses that scale with the job; one that
would restart pays for that in all of them. Waiting, and those configurations that a running job can go on in
without a restart, are columns of its own. So are all options of the few jobs whose costs do not scale:
under some objectives those that lose time to a restart.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from wattsched.formulations.kinds import KindProgram, KindRows, OwnColumns, Uses
from wattsched.formulations.model import Model
from wattsched.formulations.program import Entries, ProgramBuilder
from wattsched.formulations.sizing.budgets import METERED, budgets_of, quotas_of
from wattsched.formulations.sizing.columns import beaten_in_runs, row_criteria, undominated
from wattsched.formulations.sizing.configurations import WAIT, Configurations
from wattsched.formulations.sizing.cutting import add_room_rows
from wattsched.formulations.sizing.data import allowed, options_in
from wattsched.formulations.sizing.decisions import place
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.matching import UNKNOWN, matching_rows
from wattsched.formulations.sizing.objectives import Objective, useful_share
from wattsched.formulations.sizing.rooms import rooms_of
from wattsched.formulations.sizing.sleeping import add_uses, awake_parts, nodes_awake, parts_of
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, Rows, offsets
from wattsched.topology.column import NONE
from wattsched.topology.node_allocation import NoRoomError

LARGE = 50_000
"""Rounds with as many options are solved by kind."""

PER_KIND = 2
"""Jobs of a kind, on average, from which on that pays: a pass takes as long for a kind as for many jobs."""

FEW_JOBS = 250
"""Rounds of so many jobs are quickly written out, and racks with caps are then decided as wholes."""


def suits(known: RoundJobs, objective: Objective) -> bool:
    """True if a round can be solved by kind, and that pays."""
    instance = known.instance
    plain = not known.job_sets and instance.uncertainty is None
    plain &= not instance.budgets.objectives and not instance.unlike
    return objective.by_kind is not None and plain and pays(known)


def pays(known: RoundJobs) -> bool:
    """True if the round is large, and of kinds that have several jobs."""
    n_kinds = len(known.configurations.start) - 1
    return known.n_options >= LARGE and len(known) >= max(PER_KIND * n_kinds, FEW_JOBS + 1)


def of_kinds(known: RoundJobs, objective: Objective) -> Model[Decision]:
    """Build it by kind; the objective must be one that scales (`Objective.by_kind`)."""
    return _Round(known, objective).model()


class _OwnPairs(NamedTuple):
    """Jobs with rows that they have for themselves, in the order of the round.

    Attributes
    ----------
    job, row : int arrays, shape (n,)
        `WAIT` for waiting.
    cost : float array, shape (n,)
    drawn : float array, shape (n,)
        Seconds for which it draws its watts; for waiting the joules that it pays for.
    credit : float array, shape (n,)
        Goodput at the speed of the smallest configuration.
    """

    job: IntArray
    row: IntArray
    cost: FloatArray
    drawn: FloatArray
    credit: FloatArray


class _Round:
    """A round between its instance and its program.

    Attributes
    ----------
    scaled : ByKind
        Costs of jobs in rows of their kinds.
    of_kind : bool array, shape (n_jobs,)
        Whether the program has a job's options as rows of its kind.
    index, rows
        Of each row of the program its number among all configurations, and these rows.
    order, rank : int arrays, shape (n_jobs,)
        Job of each group of the program, and group of each job.
    own : _OwnPairs
        What else jobs can do, in the order of the groups.
    parts : list of Part
        Nodes that sleep: groups behind those of the jobs, of two own columns each.
    """

    def __init__(self, known: RoundJobs, objective: Objective) -> None:
        self.known, self.objective = known, objective
        self.scaled = objective.in_kinds(known)
        self.of_kind = self.scaled.scales & ~known.jobs.fixed & ~_saves_by_restarts(known)
        rows = known.configurations
        self.criteria = row_criteria(known, self.scaled.value)
        # Under this key the next rounds find what was found of rows.
        self.key = objective.name, known.counts_rounds, *self.criteria
        keep = np.flatnonzero(self._undominated("pool", rows.pool))
        by = (rows.power_w, self.scaled.value, -rows.rate, rows.kind)
        self.index, self.rows = rows.once(("in order", *self.key), lambda: _ordered(rows, keep, by))
        # Groups are in the order of their work: those far from one another differ most then, and few cuts by
        # cluster tell much of them.
        self.order = np.argsort(known.work, kind="stable")
        self.rank = np.empty_like(self.order)
        self.rank[self.order] = np.arange(len(self.order))
        self.own = self._own_pairs()
        self.parts = parts_of(known, objective.name)

    def model(self) -> Model[Decision]:
        """Model of the round: its program, and the way between points and decisions."""
        program, own = self.program(), self.own
        # Rows in which jobs of kinds need not restart are among their kind's, too.
        again = np.count_nonzero((own.row != WAIT) & self.of_kind[own.job])
        return Model(
            program=program,
            decode=lambda point, starts: self.decision_of(point),
            encode=self.point_of,
            nearest=self.nearest,
            named_prices=program.named_prices,
            lagrangian=True,
            options=self.known.n_options,
            dropped=self.known.n_options - program.n_columns + 2 * len(self.parts) + int(again),
        )

    def program(self) -> KindProgram:
        """Build the costs and rows of the kinds, and of what jobs have for themselves."""
        known, scaled, own = self.known, self.scaled, self.own
        rows = self.rows
        uses, builder, kinds = self._kinds()
        n, in_round = len(known.configurations), known.instance.budgets.scope == "round"
        horizon_s = known.round_s if in_round else np.inf
        lower, upper = builder.row_bounds()
        of_group = {
            "kind": np.where(self.of_kind, known.kind, -1),
            "worth": scaled.restarted,
            "work": known.work,
            "surcharge": np.where(self.of_kind, scaled.surcharge, 0.0),
            "lost_s": np.where(self.of_kind, known.restart_s, 0.0),
            "credit": known.weight * np.maximum(0.0, 1.0 - known.restart_s / known.round_s),
            "most": self._most(rows),
        }
        of_part, n_parts = {"kind": -1, "worth": 1.0}, len(self.parts)
        nothing = np.zeros(2 * n_parts)
        groups: dict[str, Any] = {
            name: _with_more(values[self.order], np.full(n_parts, of_part.get(name, 0), dtype=values.dtype))
            for name, values in of_group.items()
        }
        n_own = _with_more(np.bincount(own.job, minlength=len(known))[self.order], np.full(n_parts, 2))
        # Uses are those of rows, of rows that jobs keep without taking room, of waiting, and of parts.
        kept = own.row + n * known.jobs.fixed[own.job] if known.jobs.fixed.any() else own.row
        entry = np.where(own.row == WAIT, 2 * n, kept)
        entry = _with_more(entry, 2 * n + 1 + np.arange(2 * n_parts))
        return KindProgram(
            **groups,
            kinds=kinds,
            own=OwnColumns.of(
                start=offsets(n_own),
                cost=_with_more(own.cost, np.ravel([(0.0, part.cost) for part in self.parts])),
                seconds=_with_more(np.minimum(own.drawn, horizon_s), nothing),
                credit=_with_more(own.credit, nothing),
                entry=entry,
                uses=uses,
            ),
            row_lower=lower,
            row_upper=upper,
            rows=builder.row_blocks(),
            horizon_s=horizon_s,
            sense=self.objective.sense,
        )

    def _kinds(self) -> tuple[Uses, ProgramBuilder, KindRows]:
        """Return what `_uses` does, and the rows of the kinds; kept from the last round where equal."""
        known, rows = self.known, self.rows
        instance = known.instance

        def found() -> tuple[Uses, ProgramBuilder, KindRows]:
            uses, builder = self._uses()
            value, own = self.scaled.value[self.index], uses.take(self.index)
            return uses, builder, KindRows(start=rows.start, value=value, pace=1.0 / rows.rate, uses=own)

        # These hang on who is there, too: parts of nodes, quotas' members, and GPUs that some are to keep.
        if self.parts or instance.tenants or known.jobs.fixed.any() or known.in_place:
            return found()
        prices = instance.carbon_g_per_kwh, instance.price_per_kwh
        key = self.key, instance.budgets, instance.round_s, prices
        return known.configurations.latest("kinds", key, found)

    def _uses(self) -> tuple[Uses, ProgramBuilder]:
        """Build the uses of configurations, with their room and without, of waiting, and of parts by state.

        Returns
        -------
        uses : Uses
            With ``2 n_configurations + 1 + 2 n_parts`` entries.
        builder : ProgramBuilder
            With the rows.
        """
        known, rows, budgets = self.known, self.known.configurations, self.known.instance.budgets
        n, builder, metered, credited = len(rows), ProgramBuilder(), Entries(), Entries()
        pool = np.concatenate([rows.pool, rows.pool, [WAIT]])
        room = np.concatenate([rows.block, np.zeros(n + 1, dtype=np.int64)])
        add_room_rows(builder, rooms_of(known), pool, room)
        extra_w = rows.power_w - known.row_idle_w
        at_once = np.concatenate([extra_w, extra_w, [0.0]])
        # A job that waits pays for the energy that it needs at least: by the joule.
        to_completion = np.concatenate([rows.power_w, rows.power_w, [1.0]])
        by_second = at_once if budgets.scope == "round" else to_completion
        for budget in budgets_of(known):
            counted = np.zeros(len(known.pools) + 1, dtype=bool)  # the last is of waiting
            counted[budget.members] = budget.counts == "power"
            inside = np.flatnonzero(counted[pool])
            number = builder.row(budget.name, inside, at_once[inside], upper=budget.capacity)
            if budget.counts != "power":
                metered.add(number, np.arange(len(pool)), by_second * known.per_joule[budget.counts])
        tenant = np.append(np.tile(known.tenant[known.jobs.kinds[0]][rows.kind], 2), NONE)
        for quota in quotas_of(known.instance):
            inside = np.flatnonzero(np.isin(tenant, quota.members))
            amount = np.tile(rows.gpus if quota.counts == "gpus" else rows.power_w, 2)[inside]
            if quota.counts in METERED:
                number = builder.row(quota.name, pool[:0], at_once[:0], upper=quota.limit)
                metered.add(number, inside, amount * known.per_joule[quota.counts])
            else:
                builder.row(quota.name, inside, amount, upper=quota.limit)
        if budgets.least_goodput is not None:
            number = builder.row("least_goodput", pool[:0], at_once[:0], lower=budgets.least_goodput)
            speed = rows.rate / rows.reference_rate[rows.kind]
            credited.add(number, np.arange(2 * n), np.tile(speed, 2))
        add_uses(builder, self.parts, len(pool))
        shape = builder.n_rows, len(pool) + 2 * len(self.parts)
        return Uses(*(csr_array(some.matrix(*shape).T) for some in (builder, metered, credited))), builder

    def _most(self, rows: Configurations) -> IntArray:
        """Count the rows of each job's kind that keep its deadline: the first ones, the quickest."""
        known, sizes = self.known, np.diff(rows.start)
        most = np.where(self.of_kind, sizes[known.kind], 0)
        late = np.flatnonzero(self.of_kind & np.isfinite(known.latest_s))
        for kind in np.unique(known.kind[late]).tolist():
            jobs = late[known.kind[late] == kind]
            rate = rows.rate[rows.start[kind] : rows.start[kind + 1]]
            seconds = known.work[jobs, None] / rate + known.restart_s[jobs, None]
            most[jobs] = np.count_nonzero(seconds <= known.latest_s[jobs, None], axis=1)
        return np.asarray(most)

    def _own_pairs(self) -> _OwnPairs:
        """Return the columns that are no rows of a kind: waiting, going on unchanged, all of odd jobs."""
        parts = [self._waiting(), self._kept(), *([self._odd()] if self._is_odd.any() else [])]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        in_turn = np.argsort(self.rank[columns[0]], kind="stable")  # each part is in turn already
        return _OwnPairs(*(column[in_turn] for column in columns))

    def _waiting(self) -> _OwnPairs:
        """Waiting of the jobs that may; where joules to completion count, it pays for the least."""
        known, every = self.known, np.arange(len(self.known))
        options = options_in(known, every, np.full(len(every), WAIT))
        waits = self.of_kind & ~known.must_run & (options.completion_s <= known.latest_s)
        job, cost = self.order[waits[self.order]], self.objective.cost(options)
        row, nothing = np.full(len(job), WAIT), np.zeros(len(job))
        joules = nothing if known.counts_rounds else options.energy_j[job]
        return _OwnPairs(job, row, cost[job], drawn=joules, credit=nothing)

    def _kept(self) -> _OwnPairs:
        """The rows in which jobs that run now do not restart, without those that another one beats."""
        known, rows = self.known, self.known.configurations

        def unbeaten() -> tuple[IntArray, Rows]:
            some = np.flatnonzero(self._undominated("place", _by_place(rows)))
            return some, Rows([by[some] for by in (rows.kind, rows.pool, rows.gpus, rows.batch_size)])

        some, by_place = rows.once(("unbeaten", *self.key), unbeaten)
        job, place = known.going_on(by_place, self.order[(self.scaled.scales & ~self._is_odd)[self.order]])
        row = some[place]
        if np.isfinite(known.latest_s).any():
            in_time = known.work[job] / rows.rate[row] <= known.latest_s[job]
            job, row = job[in_time], row[in_time]
        cost, seconds = self.scaled.worth[job] * self.scaled.value[row], known.work[job] / rows.rate[row]
        return _OwnPairs(job, row, cost, drawn=seconds, credit=known.weight[job])

    def _undominated(self, name: str, alike: IntArray) -> BoolArray:
        """Mask of rows that none of the same kind and `alike` beats for all jobs; see `columns.undominated`.

        The answer is kept under the name of what is alike.
        """
        rows, every = self.known.configurations, list(self.criteria.values())

        def undominated_rows() -> BoolArray:
            order = np.lexsort((alike, rows.kind))
            beaten = np.empty(len(rows), dtype=bool)
            beaten[order] = beaten_in_runs(rows.kind[order], alike[order], np.array(every)[:, order])
            return ~beaten

        if not every:
            return np.ones(len(rows), dtype=bool)
        return rows.once(("undominated", name, *self.key), undominated_rows)

    @cached_property
    def _is_odd(self) -> BoolArray:
        """Jobs whose options are neither rows of their kind nor kept."""
        return ~self.of_kind & ~(self.known.jobs.fixed & self.scaled.scales)

    def _odd(self) -> _OwnPairs:
        """All options of jobs whose costs or uses do not scale, without those that others beat."""
        known, jobs = self.known, np.flatnonzero(self._is_odd)
        _, job, row = known.configurations.laid_out(known.kind[jobs])
        options = options_in(known, jobs[job], row)
        possible = np.flatnonzero(allowed(options))
        options, row = options.take(possible), row[possible]
        cost = self.objective.cost(options)
        keep = np.flatnonzero(undominated(options, cost))
        keep = keep[np.argsort(self.rank[options.job[keep]], kind="stable")]
        credit = known.weight[options.job] * useful_share(options, known.round_s)
        joules = 0.0 if known.counts_rounds else options.energy_j
        drawn = np.where(options.waiting, joules, options.completion_s)
        return _OwnPairs(options.job[keep], row[keep], cost[keep], drawn[keep], credit[keep])

    def decision_of(self, point: IntArray) -> Decision:
        """Decision of a point, with concrete GPUs; a job may stop that cannot be placed."""
        row, of_parts = np.empty_like(self.order), np.full(2 * len(self.parts), WAIT)
        every = np.arange(len(row))
        row[self.order] = np.concatenate([self.own.row, of_parts, self.index])[point[: len(row)]]
        while True:
            try:
                return place(options_in(self.known, every, row), every)
            except NoRoomError as error:  # rows by size may let through what cannot be cut from the nodes
                if (least := self._cheapest_to_stop(row, error.pool)) is None:
                    raise
                row[least] = WAIT

    def _cheapest_to_stop(self, row: IntArray, pool: int) -> int | None:
        """The job in a pool, of those that may wait, whose waiting costs least more than its `row`."""
        pools = np.append(self.known.configurations.pool, WAIT)
        may_wait = np.zeros(len(row), dtype=bool)
        may_wait[self.own.job[self.own.row == WAIT]] = True
        jobs = np.flatnonzero(may_wait & (pools[row] == pool))
        if not len(jobs):
            return None
        every = np.arange(len(row))
        running, waiting = (
            self.objective.cost(options_in(self.known, every, rows))
            for rows in (row, np.full(len(row), WAIT))
        )
        return int(jobs[np.argmin((waiting - running)[jobs])])

    def point_of(self, decision: Decision) -> IntArray | None:
        """Point of a decision, None where a part of it has no column."""
        point = self._columns_of(decision)
        return point if (point >= 0).all() else None

    def nearest(self, decision: Decision) -> IntArray | None:
        """Point of a decision of another round, in which jobs wait that are new or cannot go on as they did.

        None where one of them may not wait.
        """
        point, waiting = self._columns_of(decision), np.full(len(self.known), UNKNOWN)
        waits = np.flatnonzero(self.own.row == WAIT)
        waiting[self.own.job[waits]] = waits
        jobs = len(waiting)
        point[:jobs] = np.where(point[:jobs] >= 0, point[:jobs], waiting[self.order])
        return point if (point >= 0).all() else None

    def _columns_of(self, decision: Decision) -> IntArray:
        """Column of every group that a decision chooses, `UNKNOWN` where there is none."""
        known, own = self.known, self.own
        row = matching_rows(known, decision)
        place = np.full(len(known.configurations) + 1, UNKNOWN)
        beyond = len(own.job) + 2 * len(self.parts)
        place[self.index] = beyond + np.arange(len(self.index))
        point = np.where(self.of_kind & (row >= 0), place[np.maximum(row, WAIT)], UNKNOWN)
        same = np.flatnonzero(own.row == row[own.job])
        point[own.job[same]] = same
        return np.append(point[self.order], self._awake(row))

    def _awake(self, row: IntArray) -> IntArray:
        """Columns of parts, of which as few are awake as jobs in rows of their kinds need."""
        known, rows = self.known, self.known.configurations
        if not self.parts:
            return np.zeros(0, dtype=np.int64)
        needs = (row >= 0) & ~known.jobs.fixed
        woken = nodes_awake(rooms_of(known), rows.pool[row[needs]], rows.block[row[needs]])
        first = len(self.own.job) + 2 * np.arange(len(self.parts))
        return np.asarray(first + awake_parts(self.parts, woken), dtype=np.int64)


def _with_more(values: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
    """Values and more of them, which there seldom are."""
    return np.append(values, more) if len(more) else values


def _ordered(
    rows: Configurations, keep: IntArray, by: tuple[NDArray[Any], ...]
) -> tuple[IntArray, Configurations]:
    """Some rows in the order of these keys, the last first: their numbers, and what is known of them."""
    index = keep[np.lexsort([key[keep] for key in by])]
    return index, rows.taken(index)


def _by_place(rows: Configurations) -> IntArray:
    """A number of each row, the same for those with one pool, GPU count and batch size."""
    _, batch = np.unique(rows.batch_size, return_inverse=True)
    pool = rows.pool * (int(batch.max(initial=0)) + 1) + batch
    return np.asarray(pool * (int(rows.gpus.max(initial=0)) + 1) + rows.gpus)


def _saves_by_restarts(known: RoundJobs) -> BoolArray:
    """Mask of jobs of which a restart saves energy: a row draws less than its GPUs when they are idle."""
    rows, budgets = known.configurations, known.instance.budgets
    metered = budgets.energy_j is not None or budgets.carbon_g is not None
    if not metered or budgets.scope == "completion" or not (rows.power_w < known.row_idle_w).any():
        return np.zeros(len(known), dtype=bool)
    return known.restart_s > 0.0

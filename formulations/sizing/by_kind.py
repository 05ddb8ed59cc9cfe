"""`mckp` by kind: large rounds whose options are never written out.

Jobs that share a table or a model have the same rows, at costs and uses that scale with the job; one that
would restart pays for that in all of them. Waiting, and those configurations that a running job can go on in
without a restart, are columns of its own. So are all options of the few jobs whose costs do not scale:
under some objectives those that lose time to a restart.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from wattsched.formulations.kinds import KindProgram, KindRows, OwnColumns, Uses
from wattsched.formulations.model import Model
from wattsched.formulations.program import Entries, ProgramBuilder
from wattsched.formulations.sizing import mckp
from wattsched.formulations.sizing.budgets import budgets_of, rooms_of
from wattsched.formulations.sizing.columns import beaten_in_runs, undominated
from wattsched.formulations.sizing.configurations import WAIT, Configurations
from wattsched.formulations.sizing.data import Options, allowed, chosen_options, options_in
from wattsched.formulations.sizing.decisions import place
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.matching import UNKNOWN, matching_rows, note_rows
from wattsched.formulations.sizing.mckp import add_room_rows
from wattsched.formulations.sizing.objectives import Objective, useful_share
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.sizing.own_pairs import OwnPairs, in_turn, with_more
from wattsched.formulations.sizing.quotas import quotas_of
from wattsched.formulations.sizing.sleeping import awake_parts, nodes_awake, parts_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, Rows
from wattsched.topology.column import NONE
from wattsched.topology.node_allocation import NoRoomError

LARGE = 50_000
"""Rounds with as many options are solved by kind."""

PER_KIND = 2
"""Jobs of a kind, on average, from which on that pays: a pass takes as long for a kind as for many jobs."""


def suits(known: RoundJobs, objective: Objective) -> bool:
    """True if a round can be solved by kind, and that pays."""
    return objective.by_kind is not None and not known.job_sets and pays(known)


def pays(known: RoundJobs) -> bool:
    """True if the round is large, and of kinds that have several jobs."""
    n_kinds = len(known.configurations.start) - 1
    return known.n_options >= LARGE and len(known) >= PER_KIND * n_kinds


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
        self.known, self.objective = known, objective
        self.scaled = objective.in_kinds(known)
        self.of_kind = self.scaled.scales & ~known.jobs.fixed & ~_saves_by_restarts(known)
        rows = known.configurations
        self.criteria = _criteria(known, self.scaled.value)
        # Values of rows hang on the objective and the scope alone.
        self.words = objective.name, known.counts_rounds, *self.criteria
        keep = np.flatnonzero(self._undominated("pool", rows.pool))
        # Of every row of the program which of all configurations it is.
        by = (rows.power_w, self.scaled.value, -rows.rate, rows.kind)
        self.index, self.rows = rows.once(("in order", *self.words), lambda: _ordered(rows, keep, by))
        # Groups are in the order of their work: those far from one another differ most then, and few cuts by
        # cluster tell much of them.
        self.order = np.argsort(known.work, kind="stable")
        self.own = self._own_pairs()
        # Parts of the nodes that sleep are groups behind those of the jobs, of two own columns each.
        self.parts = parts_of(known, objective.name)

    def model(self) -> Model[Decision]:
        """Program, and the way between its points and decisions."""
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
            written_out=lambda: mckp.build(self.known, self.objective.name),
            options=self.known.n_options,
            dropped=self.known.n_options - program.n_columns + 2 * len(self.parts) + int(again),
        )

    def program(self) -> KindProgram:
        """Costs and rows of the kinds, and of what jobs have for themselves."""
        known, scaled, own = self.known, self.scaled, self.own
        rows = self.rows
        uses, builder, kinds = self._kinds()
        n, in_round = len(known.configurations), known.instance.budgets.scope == "round"
        horizon_s = known.round_s if in_round else np.inf
        of_parts = np.zeros(2 * len(self.parts))
        nothing = np.broadcast_to(0.0, len(own.job))
        seconds = nothing if own.seconds is None else np.minimum(own.seconds, horizon_s)
        credit = nothing if own.credit is None else own.credit
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
        groups: dict[str, Any] = {
            name: with_more(values[self.order], np.full(n_parts, of_part.get(name, 0), dtype=values.dtype))
            for name, values in of_group.items()
        }
        n_own = with_more(np.bincount(own.job, minlength=len(known))[self.order], np.full(n_parts, 2))
        # Rows of jobs that keep their GPUs are there once more, without the room.
        kept = own.row + n * known.jobs.fixed[own.job] if known.jobs.fixed.any() else own.row
        entry = np.where(own.row == WAIT, 2 * n, kept)
        entry = with_more(entry, 2 * n + 1 + np.arange(2 * n_parts))
        return KindProgram(
            **groups,
            kinds=kinds,
            own=OwnColumns.of(
                start=np.concatenate([[0], np.cumsum(n_own)]),
                cost=with_more(own.cost, np.ravel([(0.0, part.cost) for part in self.parts])),
                seconds=with_more(seconds, of_parts),
                credit=with_more(credit, of_parts),
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
        words = self.words, instance.budgets, instance.round_s, prices
        return known.configurations.latest("kinds", words, found)

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
            counted[budget.pools] = budget.counts == "power"
            inside = np.flatnonzero(counted[pool])
            number = builder.row(budget.name, inside, at_once[inside], upper=budget.capacity)
            if budget.counts != "power":
                metered.add(number, np.arange(len(pool)), by_second * known.per_joule[budget.counts])
        tenant = np.append(np.tile(known.kind_tenant[rows.kind], 2), NONE)
        for quota in quotas_of(known.instance):
            inside = np.flatnonzero(np.isin(tenant, quota.tenants))
            amount = np.tile(rows.gpus if quota.counts == "gpus" else rows.power_w, 2)[inside]
            if quota.metered:
                number = builder.row(quota.name, pool[:0], at_once[:0], upper=quota.limit)
                metered.add(number, inside, amount * known.per_joule[quota.counts])
            else:
                builder.row(quota.name, inside, amount, upper=quota.limit)
        if budgets.least_goodput is not None:
            number = builder.row("least_goodput", pool[:0], at_once[:0], lower=budgets.least_goodput)
            speed = rows.rate / rows.reference_rate[rows.kind]
            credited.add(number, np.arange(2 * n), np.tile(speed, 2))
        number_of = {block.name: number for number, block in builder.numbered()}
        for i, part in enumerate(self.parts):
            for name, use in part.uses.items():
                if name in number_of:
                    builder.add(number_of[name], len(pool) + 2 * i + 1, use)
        shape = builder.n_rows, len(pool) + 2 * len(self.parts)
        return Uses(*(csr_array(some.matrix(*shape).T) for some in (builder, metered, credited))), builder

    def _most(self, rows: Configurations) -> IntArray:
        """Count the rows of its kind that keep a job's deadline; those before a slow one are quicker."""
        known, sizes = self.known, np.diff(rows.start)
        most = np.where(self.of_kind, sizes[known.kind], 0)
        late = np.flatnonzero(self.of_kind & np.isfinite(known.latest_s))
        for kind in np.unique(known.kind[late]).tolist():
            jobs = late[known.kind[late] == kind]
            rate = rows.rate[rows.start[kind] : rows.start[kind + 1]]
            seconds = known.work[jobs, None] / rate + known.restart_s[jobs, None]
            most[jobs] = np.count_nonzero(seconds <= known.latest_s[jobs, None], axis=1)
        return np.asarray(most)

    def _own_pairs(self) -> OwnPairs:
        """Return the columns that are no rows of a kind: waiting, going on unchanged, all of odd jobs."""
        parts = [self._waiting(), self._kept(), *([self._odd()] if self._is_odd.any() else [])]
        return in_turn(parts, self.order)

    def _waiting(self) -> OwnPairs:
        known = self.known
        options = chosen_options(known, np.full(len(known), WAIT))
        waits = self.of_kind & ~known.must_run & (options.completion_s <= known.latest_s)
        job, cost = self.order[waits[self.order]], self.objective.cost(options)
        seconds = self._metered_s(options)[job] if self._meters else None
        credit = np.zeros(len(job)) if self._credits else None
        return OwnPairs(job, np.full(len(job), WAIT), cost[job], seconds, credit)

    def _kept(self) -> OwnPairs:
        """The rows in which jobs that run now do not restart, without those that another one beats."""
        known, rows = self.known, self.known.configurations

        def unbeaten() -> tuple[IntArray, Rows]:
            some = np.flatnonzero(self._undominated("place", _by_place(rows)))
            return some, Rows([by[some] for by in (rows.kind, rows.pool, rows.gpus, rows.batch_size)])

        some, by_place = rows.once(("unbeaten", *self.words), unbeaten)
        job, place = known.going_on(by_place, self.order[(self.scaled.scales & ~self._is_odd)[self.order]])
        row = some[place]
        if np.isfinite(known.latest_s).any():
            in_time = known.work[job] / rows.rate[row] <= known.latest_s[job]
            job, row = job[in_time], row[in_time]
        cost = self.scaled.worth[job] * self.scaled.value[row]
        seconds = known.work[job] / rows.rate[row] if self._meters else None
        return OwnPairs(job, row, cost, seconds, known.weight[job] if self._credits else None)

    def _undominated(self, name: str, alike: IntArray) -> BoolArray:
        """Rows that no other one of the kind beats for all jobs that is alike in what has this name.

        See `columns.undominated`.
        """
        rows, every = self.known.configurations, list(self.criteria.values())

        def undominated_rows() -> BoolArray:
            order = np.lexsort((alike, rows.kind))
            beaten = np.empty(len(rows), dtype=bool)
            beaten[order] = beaten_in_runs(rows.kind[order], alike[order], np.array(every)[:, order])
            return ~beaten

        if not every:
            return np.ones(len(rows), dtype=bool)
        return rows.once(("undominated", name, *self.words), undominated_rows)

    @cached_property
    def _meters(self) -> bool:
        """True if a row counts joules or grams."""
        budgets, quotas = self.known.instance.budgets, quotas_of(self.known.instance)
        return (budgets.energy_j, budgets.carbon_g) != (None, None) or any(quota.metered for quota in quotas)

    @property
    def _credits(self) -> bool:
        """True if a row counts goodput."""
        return self.known.instance.budgets.least_goodput is not None

    @cached_property
    def _is_odd(self) -> BoolArray:
        """Jobs whose options are neither rows of their kind nor kept."""
        return ~self.of_kind & ~(self.known.jobs.fixed & self.scaled.scales)

    def _odd(self) -> OwnPairs:
        """All that jobs can do whose costs or uses do not scale."""
        known, jobs = self.known, np.flatnonzero(self._is_odd)
        _, job, row = known.configurations.laid_out(known.kind[jobs])
        options = options_in(known, jobs[job], row)
        possible = np.flatnonzero(allowed(options))
        options, row = options.take(possible), row[possible]
        cost = self.objective.cost(options)
        keep = np.flatnonzero(undominated(options, cost))
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(rank))
        keep = keep[np.argsort(rank[options.job[keep]], kind="stable")]
        seconds = self._metered_s(options)[keep] if self._meters else None
        credit = None
        if self._credits:
            credit = (known.weight[options.job] * useful_share(options, known.round_s))[keep]
        return OwnPairs(options.job[keep], row[keep], cost[keep], seconds, credit)

    def _metered_s(self, options: Options) -> FloatArray:
        """`OwnPairs.seconds` of options."""
        in_round = self.known.instance.budgets.scope == "round"
        waiting = 0.0 if in_round else options.energy_j
        return np.where(options.waiting, waiting, options.completion_s)

    def decision_of(self, point: IntArray) -> Decision:
        """Decision of a point, with concrete GPUs."""
        row, of_parts = np.empty_like(self.order), np.full(2 * len(self.parts), WAIT)
        row[self.order] = np.concatenate([self.own.row, of_parts, self.index])[point[: len(row)]]
        while True:
            try:
                decision = place(chosen_options(self.known, row), np.arange(len(self.known)))
            except NoRoomError as error:  # rows by size may let through what cannot be cut from the nodes
                if (least := self._cheapest_to_stop(row, error.pool)) is None:
                    raise
                row[least] = WAIT
                continue
            note_rows(self.known, decision, row)
            return decision

    def _cheapest_to_stop(self, row: IntArray, pool: int) -> int | None:
        """The job of a pool that costs least if it waits, of those that may."""
        pools = np.append(self.known.configurations.pool, WAIT)
        may_wait = np.zeros(len(row), dtype=bool)
        may_wait[self.own.job[self.own.row == WAIT]] = True
        jobs = np.flatnonzero(may_wait & (pools[row] == pool))
        if not len(jobs):
            return None
        running, waiting = (
            self.objective.cost(chosen_options(self.known, rows)) for rows in (row, np.full(len(row), WAIT))
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


def _ordered(
    rows: Configurations, keep: IntArray, by: tuple[NDArray[Any], ...]
) -> tuple[IntArray, Configurations]:
    """Some rows in the order of these keys, the last first: their numbers, and what is known of them."""
    index = keep[np.lexsort([key[keep] for key in by])]
    return index, rows.taken(index)


def _by_place(rows: Configurations) -> IntArray:
    """A number of each row, the same for those with one pool, GPU count and batch size."""
    batch = np.unique(rows.batch_size, return_inverse=True)[1]
    pool = rows.pool * (int(batch.max(initial=0)) + 1) + batch
    return np.asarray(pool * (int(rows.gpus.max(initial=0)) + 1) + rows.gpus)


def _saves_by_restarts(known: RoundJobs) -> BoolArray:
    """Jobs of which a restart saves energy: a row draws less than its GPUs when they are idle."""
    rows, budgets = known.configurations, known.instance.budgets
    metered = budgets.energy_j is not None or budgets.carbon_g is not None
    if not metered or budgets.scope == "completion" or not (rows.power_w < known.row_idle_w).any():
        return np.zeros(len(known), dtype=bool)
    return known.restart_s > 0.0


def _criteria(known: RoundJobs, value: FloatArray) -> dict[str, FloatArray]:
    """Return the criteria of which less makes a row better for all jobs; without any no row beats another."""
    rows, budgets = known.configurations, known.instance.budgets
    extra_w = rows.power_w - known.row_idle_w
    # Not for deadlines alone: what is quicker has used less of a budget when the round ends.
    pace = 1.0 / rows.rate
    criteria = {"value": value, "block": rows.block.astype(float)}
    if not np.array_equal(value, pace):
        criteria["pace"] = pace
    energy = budgets.energy_j is not None or budgets.carbon_g is not None
    capped = budgets.power_w is not None or bool(known.instance.cluster.power_domains)
    if capped or (energy and budgets.scope == "round"):
        criteria["extra_w"] = extra_w
    if energy and budgets.scope == "completion":
        criteria["energy"] = rows.power_w / rows.rate
        if known.restart_s.any():  # it draws as much while it restarts
            criteria["power_w"] = rows.power_w
    elif energy and (extra_w < 0).any():  # the longer, the less such a row uses
        return {}
    quotas = quotas_of(known.instance)
    if any(quota.counts == "gpus" for quota in quotas):
        criteria["gpus"] = rows.gpus.astype(float)
    # What draws no more and is as quick uses no more joules, in either scope.
    if any(quota.counts == "power" or quota.metered for quota in quotas):
        criteria["power_w"] = rows.power_w
    return criteria

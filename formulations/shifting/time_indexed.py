r"""`time-indexed`: which option runs in which slot, as a mixed-integer program; exact, for small instances.

A job chooses the slot it ends in, or to stay unfinished: :math:`\sum_t z_{jt} = 1`, its choice group. Of the
slots it runs in (:math:`x_{jto}` binary) it uses :math:`u_{jto}` seconds, all of them but in the last one:

.. math::
    \sum_o x_{jto} + \sum_{s<t} z_{js} \le 1,\quad z_{jt} \le \sum_o x_{jto},\quad
    \Delta_t (x_{jto} - z_{jt}) \le u_{jto} \le \Delta_t x_{jto},\quad
    \sum_{to} \rho_o (u_{jto} - R_j r_{jto}) + m_j = W_j,\quad m_j \le M_j z_{jH}

where slot t has :math:`\Delta_t` seconds and ends at :math:`e_t`, :math:`r_{jto}` says that it begins with a
restart, which is 0 where :math:`\Delta_t \le R_j`, and :math:`m_j` is left over, :math:`M_j` at most. The end
is linear in these:
:math:`\sum_t e_t z_{jt} + e_{H-1} z_{jH} - \sum_{to} (\Delta_t x - u) + m_j / \rho^*_j`.

A restart is a start of a kind of option that the job did not have before. With :math:`y_{kt}` for "runs with
an option of kind k in slot t", starts are :math:`s_{kt} = y_{kt} (1 - y_{k,t-1})` by linear rows. A job that
never ran has one free start, its first: :math:`\sum f \le 1`, :math:`f \le s`, and
:math:`s_{kt} - f_{kt} \le \sum_{s<t} \sum_k y_{ks}`. All but the :math:`x` of the runs and the :math:`z` may
be continuous.

Scenarios have these columns and rows each, with costs times their probability; in the decided slots their
runs equal those of a common plan. That is the deterministic equivalent of a stochastic program with two
stages (Birge and Louveaux 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wattsched.formulations.counts import Counting, Counts, Side
from wattsched.formulations.model import Model, Starts
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.reach import in_reach
from wattsched.formulations.shifting.columns import (
    decision_of,
    follow,
    limits_of,
    named_prices,
    row_limits,
    row_names,
)
from wattsched.formulations.shifting.data import OBJECTIVES, PAUSE, Horizon
from wattsched.formulations.shifting.scenarios import Data, Scenarios, in_all
from wattsched.formulations.timer import Timer
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.topology.arrays import FloatArray, IntArray, offsets
from wattsched.verification.shifting.scenarios import ScenarioProver
from wattsched.verification.tree import Taken

Coefficients = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Coefficients of a job: of its ends, runs and seconds used in them, by slot and option, and of work left."""


def build(data: Data, objective: str, timer: Timer | None = None) -> Model[ShiftingDecision]:
    """Build the program; see the module's text. With scenarios it is the deterministic equivalent."""
    minimised, builder = OBJECTIVES.index(objective), ProgramBuilder()
    cases = {"": (1.0, data)} if isinstance(data, Horizon) else data.horizons
    # The choice groups are the first columns.
    parts = [_Part(horizon, builder, minimised, p, name) for name, (p, horizon) in cases.items()]
    for part in parts:
        part.fill()
    plan = None if isinstance(data, Horizon) else _Plan(data, builder, parts)
    program = builder.program(
        offsets([len(columns) for part in parts for columns in part.ends]),
        offset=sum(part.offset for part in parts),
    )
    model = Model(program, decode=lambda x, starts: parts[0].decision(x), named_prices=parts[0].named_prices)
    if plan is not None:
        model = plan.model(program)
    return in_reach(
        model, {part.prefix + name: v for part in parts for name, v in limits_of(part.horizon).items()}
    )


class _Part:
    """Columns and rows of a horizon; of a scenario at its probability, with its name before theirs.

    Attributes
    ----------
    ends : list of int arrays
        By job, the choice of an end.
    offset : float
        Part of the objective that no column changes.
    """

    def __init__(self, horizon: Horizon, builder: ProgramBuilder, minimised: int, share: float, name: str):
        self.horizon, self.name, self.prefix, self._builder = (
            horizon,
            name,
            f"{name}/" if name else "",
            builder,
        )
        self._minimised, self._share = minimised, share
        # Completion counts from the arrival.
        self._arrival_s = float(horizon.share @ horizon.arrival_s)
        self.offset = share * (float(horizon.idle_use[minimised]) if minimised else -self._arrival_s)
        self.ends = [self._ends(job) for job in range(horizon.n_jobs)]

    def _ends(self, job: int) -> IntArray:
        """Columns of the slots that the job may end in; the last one stands for unfinished."""
        horizon = self.horizon
        slots = np.arange(horizon.first_slot[job], horizon.slots + 1)
        late = horizon.begin_s[slots] >= horizon.deadline_s[job]
        late[-1] |= horizon.must_finish[job] or horizon.most_left[job] <= 0
        cost, *_ = _costs(horizon, job, self._minimised)
        name = self.prefix + horizon.instance.jobs[job].name
        block = Block("ends", len(slots), lambda i: f"ends[{name},{slots[i]}]")
        return self._builder.columns(block, cost=self._share * cost, upper=1.0 - late)

    def fill(self) -> None:
        """Add all but the ends."""
        horizon, builder = self.horizon, self._builder
        self.jobs = [
            _Job(horizon, builder, job, ends, self.prefix, (self._minimised, self._share))
            for job, ends in enumerate(self.ends)
        ]
        upper = row_limits(horizon)
        upper[horizon.n_cells :] += np.where(horizon.limited == 0, self._arrival_s, 0.0)
        names = [self.prefix + name for name in row_names(horizon)]
        self._rows = rows = builder.rows(Block.named("row", names), upper=upper)
        for job in self.jobs:
            for resource, of_resource in enumerate(rows[: horizon.n_cells].reshape(-1, horizon.slots)):
                uses = horizon.uses[job.options, resource]
                able = np.flatnonzero(uses)
                builder.add(of_resource[job.slots][:, None], job.runs[:, able], uses[able])
            for criterion, row in zip(horizon.limited.tolist(), rows[horizon.n_cells :], strict=True):
                job.add_to(row, _costs(horizon, job.number, criterion))

    def named_prices(self, y: FloatArray) -> dict[str, float]:
        """Prices of cells and budgets by name, of those of all rows."""
        return named_prices(self.horizon, y[self._rows])

    def decision(self, x: FloatArray) -> ShiftingDecision:
        """Decision of a point: its runs, followed with their exact work."""
        horizon = self.horizon
        option = np.full((horizon.n_jobs, horizon.slots), PAUSE, dtype=np.int64)
        for job in self.jobs:
            slot, chosen = np.nonzero(x[job.runs] > 0.5)
            option[job.number, job.slots[slot]] = job.options[chosen]
        return decision_of(horizon, follow(horizon, np.arange(horizon.n_jobs), option))


class _Plan:
    """Columns of the decided slots, to which the runs of all scenarios there are equal."""

    def __init__(self, data: Scenarios, builder: ProgramBuilder, parts: list[_Part]):
        self._data, self._parts, self._prover = data, parts, ScenarioProver(data.instance)
        for jobs in zip(*(part.jobs for part in parts), strict=True):
            self._add(builder, jobs, data.instance.jobs[jobs[0].number].name)

    def _add(self, builder: ProgramBuilder, jobs: tuple[_Job, ...], name: str) -> None:
        """Add the columns of a job, and rows that tie its runs in all scenarios to them."""
        decided = jobs[0].slots[jobs[0].slots < self._data.decided].tolist()
        keys = [(slot, row) for slot in decided for row in jobs[0].rows]
        labels = [f"plan[{name},{slot},{row}]" for slot, row in keys]
        columns = builder.columns(Block.named("plan", labels), integer=False, upper=1.0)
        for part, job in zip(self._parts, jobs, strict=True):
            names = [f"{part.prefix}runs:{name}@{slot}={row}" for slot, row in keys]
            rows = builder.rows(Block.named("runs", names), lower=0.0, upper=0.0)
            builder.add(rows, job.runs[: len(decided)].ravel())
            builder.add(rows, columns, -1.0)

    def model(self, program: Program) -> Model[ShiftingDecision]:
        """Return the model of all scenarios' program."""

        def named(y: FloatArray) -> dict[str, float]:
            prices, runs, limits = program.named_prices(y), self._prover.runs, self._prover.limits
            return {name: y for name, y in prices.items() if name in runs or (name in limits and y < 0)}

        def decode(x: FloatArray, starts: Starts) -> ShiftingDecision:
            return in_all(self._data.decided, {part.name: part.decision(x) for part in self._parts})

        return Model(program, decode, named_prices=named, counts=lambda: self._counts(program, named))

    def _counts(self, program: Program, named: Callable[[FloatArray], dict[str, float]]) -> Counts:
        """Counts that certificate trees split: runs in a slot, of all rows or one, and ends until then."""
        counting, decided = Counting(), self._data.decided
        for part in self._parts:
            for job, ends in zip(part.jobs, part.ends, strict=True):
                for at, slot in enumerate(job.slots.tolist()):
                    for column in ends[: at + 1].tolist():
                        counting.add(2, (part.name, job.number, slot, None), column)
                    if slot < decided and part is not self._parts[0]:
                        continue  # what is decided is the same in all scenarios
                    level, runs = (
                        int(slot >= decided),
                        dict(zip(job.rows, job.runs[at].tolist(), strict=True)),
                    )
                    for some in dict.fromkeys([tuple(runs), *((row,) for row in runs)]):
                        for row in some:
                            counting.add(level, (part.name, job.number, slot, some), runs[row])

        def words(key: tuple[str, int, int, tuple[int, ...] | None]) -> dict[str, Any]:
            scenario, job, slot, rows = key
            found = {"scenario": scenario, "job": self._data.instance.jobs[job].name, "slot": slot}
            return found if rows is None else {**found, "rows": list(rows)}

        def proven(prices: dict[str, float], sides: Sequence[Side]) -> float:
            bound = self._prover(prices, [Taken(*side) for side in sides]).bound
            return -np.inf if bound is None else bound

        return counting.counts(program, named, words, proven)


def _completion(horizon: Horizon, job: int) -> Coefficients:
    """Coefficients of a job's columns in its end, in seconds from the beginning of the horizon."""
    first = horizon.first_slot[job]
    slot_s = horizon.slot_s[first:, None]
    left = 1.0 / horizon.rate[horizon.fastest[horizon.table[job]]]
    ends = np.append(horizon.begin_s[first + 1 :], horizon.begin_s[-1])
    return ends, -slot_s, np.ones_like(slot_s), np.array([left])


def _costs(horizon: Horizon, job: int, criterion: int) -> Coefficients:
    """Coefficients of a job's columns in a criterion, by its number in `CRITERIA`."""
    if criterion == 0:
        ends, runs, used, left = (horizon.share[job] * values for values in _completion(horizon, job))
        return ends, runs, used, left
    slots, options = np.arange(horizon.first_slot[job], horizon.slots), horizon.options_of(job)
    per_joule, fastest = horizon.per_joule[criterion - 1], horizon.fastest[horizon.table[job]]
    used = np.outer(per_joule[slots], horizon.extra_w[options])
    left = np.array([horizon.power_w[fastest] / horizon.rate[fastest] * per_joule[-1]])
    return np.zeros(len(slots) + 1), np.zeros(used.shape), used, left


class _Job:
    """Columns and rows of one job besides its choice of an end; arrays by slot and option.

    `ends` are the columns of that choice, `minimised` is the number of the criterion that columns cost, and
    the share of it that they do; `prefix` comes before the job's name.
    """

    def __init__(
        self,
        horizon: Horizon,
        builder: ProgramBuilder,
        job: int,
        ends: IntArray,
        prefix: str,
        minimised: tuple[int, float],
    ):
        self._horizon, self._builder, self.number = horizon, builder, job
        self._name = prefix + horizon.instance.jobs[job].name
        self.slots = np.arange(horizon.first_slot[job], horizon.slots)
        self.options = horizon.options_of(job)
        self.rows: list[int] = horizon.row[self.options].tolist()
        self._slot_s = np.repeat(horizon.slot_s[self.slots], len(self.options))
        criterion, share = minimised
        _, run_cost, used_cost, left_cost = (share * cost for cost in _costs(horizon, job, criterion))
        self._ends = ends
        self.runs = self._columns("runs", self.options, cost=run_cost, integer=True)
        self._used = self._columns("used", self.options, cost=used_cost, upper=self._slot_s)
        self._left = builder.columns(
            Block(f"left[{self._name}]", 1), cost=left_cost, upper=horizon.work[job], integer=False
        )
        self._times()
        self._work()
        if np.isfinite(horizon.deadline_s[job]):
            self.add_to(self._rows("deadline", 1, upper=horizon.deadline_s[job]), _completion(horizon, job))

    def add_to(self, row: ArrayLike, coefficients: Coefficients) -> None:
        """Add to a row the job's columns with these coefficients."""
        columns = self._ends, self.runs, self._used, self._left
        for numbers, values in zip(columns, coefficients, strict=True):
            self._builder.add(row, numbers, values)

    def _columns(self, kind: str, members: IntArray, *, cost: ArrayLike = 0.0, **bounds: Any) -> IntArray:
        """Columns by slot and option, or kind of options; continuous from 0 to 1 if not said otherwise."""
        name, slots, n = self._name, self.slots, len(members)
        block = Block(kind, len(slots) * n, lambda i: f"{kind}[{name},{slots[i // n]},{members[i % n]}]")
        values = np.broadcast_to(cost, (len(slots), n)).ravel()
        return self._builder.columns(block, cost=values, **{"integer": False, **bounds}).reshape(-1, n)

    def _rows(
        self, kind: str, *shape: int, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf
    ) -> IntArray:
        """Rows of this shape, with their bounds broadcast to it."""
        low, high = (np.broadcast_to(values, shape).ravel() for values in (lower, upper))
        block = Block(f"{kind}[{self._name}]", len(low))
        return self._builder.rows(block, lower=low, upper=high).reshape(shape)

    def _times(self) -> None:
        """Add the rows between ends, runs and seconds used, the first ones of the module's text."""
        add, runs, used, ends = self._builder.add, self.runs, self._used, self._ends
        (slots, options), slot_s = runs.shape, self._slot_s.reshape(runs.shape)
        once = self._rows("once", slots, 1, upper=1.0)
        add(once, runs)
        add(once, ends, np.tri(slots, slots + 1, -1))
        in_slot = self._rows("ends", slots, 1, upper=0.0)
        add(in_slot[:, 0], ends[:-1])
        add(in_slot, runs, -1.0)
        full = self._rows("full", slots, options, upper=0.0)
        add(full, runs, slot_s)
        add(full, ends[:-1, None], -slot_s)
        add(full, used, -1.0)
        within = self._rows("within", slots, options, upper=0.0)
        add(within, used)
        add(within, runs, -slot_s)

    def _work(self) -> None:
        """Add the rows of the work done, lost in restarts and left over, in shares of the job's work."""
        add, horizon, job = self._builder.add, self._horizon, self.number
        work, restart_s = float(horizon.work[job]), float(horizon.restart_s[job])
        row = self._rows("work", 1, lower=1.0, upper=1.0)
        add(row, self._left, 1.0 / work)
        add(row, self._used, horizon.rate[self.options] / work)
        if restart_s:
            add(row, self._restarts(restart_s), -horizon.rate[self.options] * restart_s / work)
        left = self._rows("left", 1, upper=0.0)
        add(left, self._left, 1.0 / work)
        add(left, self._ends[-1], -min(1.0, float(horizon.most_left[job]) / work))

    def _restarts(self, restart_s: float) -> IntArray:
        """Columns that are 1 when a slot begins with a restart of an option, and rows that say so."""
        add, runs, horizon = self._builder.add, self.runs, self._horizon
        kinds, kind = np.unique(horizon.kind[self.options], return_inverse=True)
        n, shape = len(self.slots), (len(self.slots), len(kinds))
        # No restart fits into a slot that is as short.
        again = self._columns("again", self.options, upper=self._slot_s > restart_s)
        starts = self._columns("starts", kinds)
        running = self._rows("again runs", *runs.shape, upper=0.0)
        add(running, again)
        add(running, runs, -1.0)
        lost = self._rows("again used", *runs.shape, upper=0.0)
        add(lost, again, restart_s)
        add(lost, self._used, -1.0)
        # A start is at least y - y before, and at most y and 1 - y before; `held` is y before the first slot.
        held = np.zeros(shape)
        held[:1, kinds == horizon.kind_before[self.number]] = 1.0
        begun = self._rows("starts", *shape, lower=-held)
        now = self._rows("starts now", *shape, upper=0.0)
        new = self._rows("starts new", *shape, upper=1.0 - held)
        known = self._rows("restarts", *shape, lower=0.0, upper=0.0)
        for rows, of_runs, of_before in ((begun, -1.0, 1.0), (now, -1.0, 0.0), (new, 0.0, 1.0)):
            add(rows, starts)
            add(rows[:, kind], runs, of_runs)
            add(rows[1:, kind], runs[:-1], of_before)
        add(known, starts)
        add(known[:, kind], again, -1.0)
        if not horizon.ran_before[self.number]:  # its first start is no restart
            first = self._columns("first", kinds)
            add(known, first, -1.0)
            free = self._rows("free start", *shape, upper=0.0)
            add(free, first)
            add(free, starts, -1.0)
            ran = self._rows("first is free", *shape, upper=0.0)
            add(ran, starts)
            add(ran, first, -1.0)
            add(ran[:, :, None, None], runs, -np.tri(n, n, -1)[:, None, :, None])
            add(self._rows("one first", 1, upper=1.0), first)
        return again

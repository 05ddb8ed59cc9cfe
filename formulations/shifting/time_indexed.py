r"""Columns and rows of a program, added one by one.

Restarts in the time-indexed program: a start of a kind of option that the job did not have before.

With :math:`y_{kt}` for "runs with an option of kind k in slot t", starts are
:math:`s_{kt} = y_{kt} (1 - y_{k,t-1})` by linear rows. A job that never ran has one free start, its first:
:math:`\sum f \le 1`, :math:`f \le s`, and :math:`s_{kt} - f_{kt} \le \sum_{s<t} \sum_k y_{ks}`.
All but the :math:`x` of the runs may be continuous.

`time-indexed`: which option runs in which slot, as a mixed-integer program; exact, for small instances.

A job chooses the slot it ends in, or to stay unfinished: :math:`\sum_t z_{jt} = 1`, its choice group. Of the
slots it runs in (:math:`x_{jto}` binary) it uses :math:`u_{jto}` seconds, all of them but in the last one:

.. math::
    \sum_o x_{jto} + \sum_{s<t} z_{js} \le 1,\quad z_{jt} \le \sum_o x_{jto},\quad
    \Delta (x_{jto} - z_{jt}) \le u_{jto} \le \Delta x_{jto},\quad
    \sum_{to} \rho_o (u_{jto} - R_j r_{jto}) + m_j = W_j,\quad m_j \le W_j z_{jH}

where :math:`r_{jto}` says that the slot begins with a restart (`restarts`) and :math:`m_j` is left over. The
end is linear in these:
:math:`\sum_t (t+1) \Delta z_{jt} + H \Delta z_{jH} - \sum_{to} (\Delta x - u) + m_j / \rho^*_j`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.sparse import coo_array

from wattsched.formulations.model import Model, Starts
from wattsched.formulations.program import Block, Program
from wattsched.formulations.shifting.data import OBJECTIVES, PAUSE, Horizon
from wattsched.formulations.shifting.pricing import budget_rows, names_of_prices
from wattsched.formulations.shifting.schedule import decision_of, follow
from wattsched.formulations.timer import Timer
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.topology.arrays import FloatArray, IntArray


class SparseRows:
    """Collects columns and rows, and makes a program of them."""

    def __init__(self) -> None:
        self._columns: list[tuple[str, float, float, bool]] = []
        self._rows: list[tuple[str, float, float]] = []
        self._row: list[int] = []
        self._column: list[int] = []
        self._value: list[float] = []

    @property
    def n_columns(self) -> int:
        """Number of columns so far."""
        return len(self._columns)

    def column(self, name: str, lower: float, upper: float, *, integer: bool = False) -> int:
        """Add a column and return its number."""
        self._columns.append((name, lower, upper, integer))
        return len(self._columns) - 1

    def row(
        self,
        name: str,
        columns: Sequence[int],
        values: Sequence[float],
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
    ) -> int:
        """Add a row and return its number; values of a column named twice add up."""
        number = len(self._rows)
        self._rows.append((name, lower, upper))
        self._row += [number] * len(columns)
        self._column += columns
        self._value += values
        return number

    def program(self, cost: FloatArray, group_start: IntArray, offset: float) -> Program:
        """Program that minimises the cost; the first columns are its choice groups."""
        matrix = coo_array(
            (np.array(self._value, dtype=float), (self._row, self._column)),
            shape=(len(self._rows), len(self._columns)),
        )
        row_names, row_lower, row_upper = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        names, lower, upper, integer = zip(*self._columns, strict=True) if self._columns else ((), (), (), ())
        return Program(
            cost=cost,
            matrix=matrix.tocsc(),
            row_lower=np.array(row_lower, dtype=float),
            row_upper=np.array(row_upper, dtype=float),
            lower=np.array(lower, dtype=float),
            upper=np.array(upper, dtype=float),
            integer=np.array(integer, dtype=bool),
            group_start=group_start.astype(np.int64),
            rows=(Block("row", len(row_names), row_names.__getitem__),),
            columns=(Block("column", len(names), names.__getitem__),),
            offset=offset,
        )


Key = tuple[int, int]


def add_restarts(
    horizon: Horizon, rows: SparseRows, job: int, runs: dict[Key, int], used: dict[Key, int]
) -> dict[Key, int]:
    """Add what says that a slot begins with a restart; nothing for jobs that restart for free.

    Parameters
    ----------
    runs, used : dict
        Columns by slot and option.

    Returns
    -------
    dict
        Column by slot and option: 1 when the slot begins with a restart of the option.
    """
    restart_s = float(horizon.restart_s[job])
    if restart_s == 0.0:
        return {}
    name = horizon.instance.jobs[job].name
    again = {key: rows.column(f"again[{name},{key[0]},{key[1]}]", 0.0, 1.0) for key in runs}
    for key, column in again.items():
        rows.row("again runs", [column, runs[key]], [1.0, -1.0], upper=0.0)
        rows.row("again used", [column, used[key]], [restart_s, -1.0], upper=0.0)
    of_kind: dict[Key, list[Key]] = {}
    for slot, option in runs:
        of_kind.setdefault((slot, int(horizon.kind[option])), []).append((slot, option))
    starts = {key: rows.column(f"starts[{name},{key[0]},{key[1]}]", 0.0, 1.0) for key in of_kind}
    free = {} if horizon.ran_before[job] else {
        key: rows.column(f"first[{name},{key[0]},{key[1]}]", 0.0, 1.0) for key in of_kind
    }  # fmt: skip
    for key, members in of_kind.items():
        slot, kind = key
        now = [runs[member] for member in members]
        before = [runs[member] for member in of_kind.get((slot - 1, kind), [])]
        held = 1.0 if slot == horizon.first_slot[job] and kind == horizon.kind_before[job] else 0.0
        start, less = starts[key], [-1.0] * len(now)
        rows.row("starts", [start, *now, *before], [1.0, *less, *[1.0] * len(before)], lower=-held)
        rows.row("starts now", [start, *now], [1.0, *less], upper=0.0)
        rows.row("starts new", [start, *before], [1.0] * (1 + len(before)), upper=1.0 - held)
        gift = [free[key]] if free else []
        these = [again[member] for member in members]
        rows.row(
            "restarts",
            [start, *gift, *these],
            [1.0, *[-1.0] * (len(gift) + len(these))],
            lower=0.0,
            upper=0.0,
        )
        if free:
            ran = [column for (s, _), column in runs.items() if s < slot]
            rows.row("free start", [free[key], start], [1.0, -1.0], upper=0.0)
            rows.row("first is free", [start, free[key], *ran], [1.0, -1.0, *[-1.0] * len(ran)], upper=0.0)
    if free:
        rows.row("one first", list(free.values()), [1.0] * len(free), upper=1.0)
    return again


def build(horizon: Horizon, objective: str, timer: Timer | None = None) -> Model[ShiftingDecision]:
    """Build the program; see the module's text."""
    rows = SparseRows()
    ends = [_ends(horizon, rows, job) for job in range(horizon.n_jobs)]
    group_start = np.cumsum([0] + [len(columns) for columns in ends])
    runs = [_Runs(horizon, rows, job, ends[job]) for job in range(horizon.n_jobs)]
    named = _capacities(horizon, rows, runs) + _budgets(horizon, rows, runs)
    cost = np.zeros(rows.n_columns)
    for run in runs:
        columns, values = run.criterion(OBJECTIVES.index(objective))
        np.add.at(cost, columns, values)
    program = rows.program(cost, group_start, float(_offset(horizon, OBJECTIVES.index(objective))))
    return Model(
        program,
        decode=partial(_decision, horizon, runs),
        named_prices=partial(names_of_prices, named),
    )


def _offset(horizon: Horizon, criterion: int) -> float:
    """What no column decides: idle GPUs, and that completion counts from the arrival."""
    if criterion == 0:
        return -float(horizon.share @ horizon.arrival_s)
    return float(horizon.standing[criterion])


def _ends(horizon: Horizon, rows: SparseRows, job: int) -> dict[int, int]:
    """Columns of the slots that the job may end in; the number of slots stands for unfinished."""
    name = horizon.instance.jobs[job].name
    columns = {}
    for slot in range(int(horizon.first_slot[job]), horizon.slots + 1):
        late = slot * horizon.slot_s >= horizon.deadline_s[job]
        if slot == horizon.slots:
            late |= bool(horizon.must_finish[job])
        columns[slot] = rows.column(f"ends[{name},{slot}]", 0.0, 0.0 if late else 1.0, integer=True)
    return columns


class _Runs:
    """Columns and rows of one job besides its choice of an end."""

    def __init__(self, horizon: Horizon, rows: SparseRows, job: int, ends: dict[int, int]):
        self.horizon, self.job, self.ends = horizon, job, ends
        self.slots = range(int(horizon.first_slot[job]), horizon.slots)
        self.options = [int(option) for option in horizon.options_of(job)]
        name, slot_s = horizon.instance.jobs[job].name, horizon.slot_s
        keys = [(slot, option) for slot in self.slots for option in self.options]
        self.runs = {k: rows.column(f"runs[{name},{k[0]},{k[1]}]", 0.0, 1.0, integer=True) for k in keys}
        self.used = {k: rows.column(f"used[{name},{k[0]},{k[1]}]", 0.0, slot_s) for k in keys}
        self.left = rows.column(f"left[{name}]", 0.0, float(horizon.work[job]))
        self.again = add_restarts(horizon, rows, job, self.runs, self.used)
        self._times(rows)
        self._work(rows)
        if np.isfinite(deadline_s := horizon.deadline_s[job]):
            columns, values = self.completion()
            rows.row(f"deadline[{name}]", columns, values, upper=float(deadline_s))

    def _times(self, rows: SparseRows) -> None:
        slot_s = self.horizon.slot_s
        for slot in self.slots:
            running = [self.runs[slot, option] for option in self.options]
            before = [column for end, column in self.ends.items() if end < slot]
            rows.row("once", [*running, *before], [1.0] * (len(running) + len(before)), upper=1.0)
            rows.row("ends", [self.ends[slot], *running], [1.0] + [-1.0] * len(running), upper=0.0)
            for option in self.options:
                x, u = self.runs[slot, option], self.used[slot, option]
                rows.row("full", [x, self.ends[slot], u], [slot_s, -slot_s, -1.0], upper=0.0)
                rows.row("within", [u, x], [1.0, -slot_s], upper=0.0)

    def _work(self, rows: SparseRows) -> None:
        horizon, job = self.horizon, self.job
        work = float(horizon.work[job])
        columns, values = [self.left], [1.0 / work]
        for (slot, option), column in self.used.items():
            columns.append(column)
            values.append(float(horizon.rate[option]) / work)
            if (slot, option) in self.again:
                columns.append(self.again[slot, option])
                values.append(-float(horizon.rate[option] * horizon.restart_s[job]) / work)
        rows.row("work", columns, values, lower=1.0, upper=1.0)
        rows.row("left", [self.left, self.ends[horizon.slots]], [1.0 / work, -1.0], upper=0.0)

    def completion(self) -> tuple[list[int], list[float]]:
        """Seconds from the beginning of the horizon to the job's end."""
        horizon = self.horizon
        slot_s, last = horizon.slot_s, horizon.slots
        columns = [*self.ends.values(), *self.runs.values(), *self.used.values(), self.left]
        values = [min(slot + 1, last) * slot_s for slot in self.ends]
        values += [-slot_s] * len(self.runs) + [1.0] * len(self.used)
        return columns, [*values, 1.0 / float(horizon.rate[self._fastest()])]

    def criterion(self, which: int) -> tuple[list[int], list[float]]:
        """What the job adds to a criterion."""
        horizon = self.horizon
        if which == 0:
            columns, values = self.completion()
            return columns, [float(horizon.share[self.job]) * value for value in values]
        per_joule, fastest = horizon.per_joule[which - 1], self._fastest()
        columns = [*self.used.values(), self.left]
        values = [float(horizon.extra_w[option] * per_joule[slot]) for slot, option in self.used]
        return columns, [*values, float(horizon.power_w[fastest] / horizon.rate[fastest] * per_joule[-1])]

    def _fastest(self) -> int:
        return int(self.horizon.fastest[self.horizon.table[self.job]])


def _capacities(horizon: Horizon, rows: SparseRows, runs: list[_Runs]) -> list[tuple[str, int]]:
    named = []
    held: dict[tuple[int, int], tuple[list[int], list[float]]] = {}
    for run in runs:
        for (slot, option), column in run.runs.items():
            columns, gpus = held.setdefault((int(horizon.pool[option]), slot), ([], []))
            columns.append(column)
            gpus.append(float(horizon.gpus[option]))
    for p, pool in enumerate(horizon.instance.pools):
        for slot in range(horizon.slots):
            if (p, slot) in held:
                name = f"gpus:{pool}@{slot}"
                named.append((name, rows.row(name, *held[p, slot], upper=float(horizon.capacity[p]))))
    return named


def _budgets(horizon: Horizon, rows: SparseRows, runs: list[_Runs]) -> list[tuple[str, int]]:
    named = []
    for which, name, limit in budget_rows(horizon):
        columns: list[int] = []
        values: list[float] = []
        for run in runs:
            more, their = run.criterion(which)
            columns += more
            values += their
        upper = limit if which else limit + float(horizon.share @ horizon.arrival_s)
        named.append((name, rows.row(name, columns, values, upper=upper)))
    return named


def _decision(horizon: Horizon, runs: list[_Runs], x: FloatArray, starts: Starts) -> ShiftingDecision:
    option = np.full((horizon.n_jobs, horizon.slots), PAUSE, dtype=np.int64)
    for run in runs:
        for (slot, chosen), column in run.runs.items():
            if x[column] > 0.5:
                option[run.job, slot] = chosen
    return decision_of(horizon, follow(horizon, np.arange(horizon.n_jobs), option))

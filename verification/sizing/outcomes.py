"""Outcome of each job in a decision, and the rules that concern it alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import numpy as np

from wattsched.instances.sizing.decision import Assignment
from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, ranges
from wattsched.topology.column import NONE
from wattsched.verification.report import TOLERANCE
from wattsched.verification.sizing.configurations import Configuration, JobConfigurations
from wattsched.verification.sizing.gpus import UNKNOWN, Assigned
from wattsched.verification.sizing.pools import block_of

WAITS, UNSAID = -1, -2
"""Numbers in place of an assignment: the job waits, or the decision does not name it."""

NO_ROW, SEVERAL = -1, -2
"""Instead of the configuration that a setting names."""


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Outcomes of some jobs in a decision, in arrays of shape (n_jobs,).

    Waiting jobs have no assignment and draw nothing. Of a set of `members` each draws an equal part, and the
    one that `leads` has the GPUs.

    Attributes
    ----------
    jobs : int array
        Numbers of the jobs; those that have no outcome are left out.
    assignment : int array
        Number of an assignment, or `WAITS`.
    rate, power_w, completion_s : float arrays
        Work per second, draw, and seconds from now to completion.
    restarts, leads : bool arrays
    members : int array
    """

    configurations: JobConfigurations
    assigned: Assigned
    jobs: IntArray
    assignment: IntArray
    rate: FloatArray
    power_w: FloatArray
    completion_s: FloatArray
    restarts: BoolArray
    members: IntArray
    leads: BoolArray

    @property
    def runs(self) -> BoolArray:
        """Mask of the jobs that run; the others wait."""
        return np.asarray(self.assignment != WAITS)

    @cached_property
    def moves(self) -> BoolArray:
        """Mask of the jobs that run on other GPUs than they are known to hold."""
        placed, before = self._placed
        moves = np.zeros(len(self.jobs), dtype=bool)
        now = np.diff(self.assigned.start)[self.assignment[placed]]
        # A job with more or fewer GPUs than before moves; of the others, the GPU numbers are compared.
        moves[placed[now != before]] = True
        placed = placed[now == before]
        holder, held = self._held(placed)
        listed, _ = self.assigned.listed(self.assignment[placed])
        used = self.assigned.number[listed]
        # The last number stands for all GPUs that the cluster does not have.
        span = len(self.assigned.places.available) + 1
        held, used = (np.sort(holder * span + gpus % span) for gpus in (held, used))
        moves[placed[held[held != used] // span]] = True
        return moves

    @cached_property
    def displaced(self) -> BoolArray:
        """Mask of the jobs that run and hold a GPU, or a block with a GPU, that takes no job any more."""
        displaced, places = np.zeros(len(self.jobs), dtype=bool), self.assigned.places
        placed, size = self._placed
        if places.available.all() or not len(placed):
            return displaced
        holder, numbers = self._held(placed)
        displaced[placed[holder[~places.available[numbers]]]] = True
        start = np.cumsum(size) - size
        pool = places.home[numbers[start]]
        begin, aligned = places.reserved(numbers, start, size)
        blocks = np.flatnonzero(aligned & np.array([one == "blocks" for one in places.capacity])[pool])
        first = (places.line[pool] + begin)[blocks]
        displaced[placed[blocks[places.broken(first, block_of(size[blocks])) > 0]]] = True
        return displaced

    @cached_property
    def _placed(self) -> tuple[IntArray, IntArray]:
        """Indices in `jobs` of running jobs that are known to hold GPUs, and how many GPUs each holds."""
        columns = self.configurations.jobs
        placed = np.flatnonzero(self.runs & columns.placed[self.jobs])
        return placed, np.diff(columns.holdings.start)[columns.current.codes[self.jobs[placed]]]

    def _held(self, placed: IntArray) -> tuple[IntArray, IntArray]:
        """Return the GPUs held before, job by job: the index in `placed` of the holder, and their numbers."""
        columns, places = self.configurations.jobs, self.assigned.places
        held, code = columns.holdings, columns.current.codes[self.jobs[placed]]
        first = places.first[np.array([*map(places.node.get, held.node.values, repeat(0)), 0])]
        size = held.start[code + 1] - held.start[code]
        entries, holder = ranges(held.start[code], size), np.repeat(np.arange(len(code)), size)
        return holder, first[held.node.codes[entries]] + held.gpu[entries]

    @property
    def change_cost(self) -> FloatArray:
        """Cost in the objective of running jobs that restart or stop, or move although they might stay."""
        paid = self.configurations.change_cost[self.jobs]
        if not paid.any():
            return paid
        return np.where(self.restarts | (self.moves & ~self.displaced), paid, 0.0)

    @property
    def restart_cost(self) -> FloatArray:
        """The part of it that is of jobs that restart or stop."""
        return np.where(self.restarts, self.configurations.change_cost[self.jobs], 0.0)

    @property
    def migrates(self) -> BoolArray:
        """Mask of the running jobs that keep their configuration, on other GPUs than they hold."""
        return self.moves & ~self.restarts


def outcomes_of(
    configurations: JobConfigurations, assigned: Assigned, said: IntArray, jobs: IntArray
) -> tuple[Outcomes, list[str]]:
    """Outcomes of some jobs, and faults that concern one job alone, also why some have no outcome.

    Parameters
    ----------
    said : int array, shape (n_jobs_of_the_instance,)
        What each job does: `WAITS`, the number of its assignment, or `UNSAID`.
    jobs : int array
        Numbers of the jobs.
    """
    jobs = jobs[said[jobs] != UNSAID]
    of, chosen, kind = configurations.jobs, said[jobs], configurations.kind[jobs]
    best_s, row = configurations.best_s[jobs], _rows(configurations, assigned, kind, chosen)
    runs, every = chosen != WAITS, configurations.every
    # The last is that of no row, and of waiting.
    rate, power_w = (np.append(column, 0.0)[row] for column in (every.rate, every.power_w))
    members, leads = np.ones(len(jobs), dtype=np.int64), np.ones(len(jobs), dtype=bool)
    for place in np.flatnonzero(np.append(assigned.set.codes, NONE)[chosen] != NONE).tolist():
        one = _in_set(configurations, of.names[jobs[place]], assigned.records[chosen[place]])
        row[place] = NO_ROW if one is None else 0  # any that is one
        if one is not None:
            rate[place], power_w[place] = one.rate, one.power_w / one.members
            members[place], leads[place] = one.members, one.leads
    alone = np.diff(configurations.start)[kind]
    comparable = (best_s > 0) & (best_s < np.inf)
    refused = (alone == 0) | ~comparable | (runs & (row < 0))
    restarts = _restarts(configurations, assigned, jobs, chosen)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        completion_s = of.numbers("remaining_work")[jobs] / rate
        completion_s += np.where(restarts, of.numbers("restart_s")[jobs], 0.0)
    completion_s = np.where(runs, completion_s, configurations.instance.round_s + best_s)
    columns = jobs, chosen, rate, power_w, completion_s, restarts, members, leads
    sound = ~refused
    outcomes = Outcomes(configurations, assigned, *(column[sound] for column in columns))
    faults = [
        (job, 0, _why_refused(configurations, assigned, job, choice, found, seconds))
        for job, choice, found, seconds in zip(
            *(column[refused].tolist() for column in (jobs, chosen, row, best_s)), strict=True
        )
    ]
    faults += _own_faults(outcomes)
    return outcomes, [f"job '{of.names[job]}' {fault}" for job, _, fault in sorted(faults)]


def _rows(
    configurations: JobConfigurations, assigned: Assigned, kind: IntArray, chosen: IntArray
) -> IntArray:
    """Return the number of the configuration that each job runs as alone, or `NO_ROW`, or `SEVERAL`."""
    every, runs = configurations.every, np.flatnonzero(chosen != WAITS)
    asked = [kind[runs], *(column[chosen[runs]] for column in assigned.settings)]
    of_job, rows = configurations.stated_as(asked)
    job = runs[of_job]
    row = np.full(len(kind), NO_ROW)
    row[job[::-1]] = rows[::-1]
    # A table may repeat settings with other numbers: a decision cannot tell these apart.
    its = row[job]
    same = (every.rate[rows] == every.rate[its]) & (every.power_w[rows] == every.power_w[its])
    row[job[~same]] = SEVERAL
    return row


def _in_set(configurations: JobConfigurations, job: str, a: Assignment) -> Configuration | None:
    """Return the configuration that a job runs as in a set; None if the set has none like it."""
    wanted = (a.set, (a.pool, a.gpus, a.frequency_mhz, a.power_limit_w, a.batch_size))
    return next((row for row in configurations.in_sets(job) if (row.set, row.setting) == wanted), None)


def _restarts(
    configurations: JobConfigurations, assigned: Assigned, jobs: IntArray, chosen: IntArray
) -> BoolArray:
    """Mask of the jobs that ran before, and now change GPU count, batch size or pool, or wait."""
    known, number = configurations.jobs, {name: n for n, name in enumerate(configurations.pools)}
    code, held = known.current.codes[jobs], known.holdings
    pool = np.array([*(number.get(name, UNKNOWN) for name in held.pool.values), UNKNOWN])[held.pool.codes]
    restarts: BoolArray = code != NONE
    on = np.flatnonzero(restarts & (chosen != WAITS))
    now, before = chosen[on], code[on]
    same = assigned.gpus[now] == held.gpus[before]
    same &= assigned.batch_size[now] == held.batch_size[before]
    restarts[on] = ~(same & (assigned.pool[now] == pool[before]))
    return restarts


def _why_refused(
    configurations: JobConfigurations, assigned: Assigned, job: int, chosen: int, row: int, best_s: float
) -> str:
    """Return the reason why a job has no outcome, by its assignment, its configuration and its best time."""
    kind = int(configurations.kind[job])
    if kind in configurations.unknown:
        return f"has no configurations: {configurations.unknown[kind]}"
    if configurations.start[kind] == configurations.start[kind + 1]:
        return "has no configuration that it could run as, now or later"
    if not 0 < best_s < math.inf:
        return f"is complete after {best_s:g} s at best, which is no time that can be compared"
    a = assigned.records[chosen]
    if a.set is not None:
        return f"has no configuration in a set '{a.set}' {_words(a)}"
    if row == SEVERAL:
        return f"has several rows {_words(a)}, and the decision cannot say which"
    return f"has no configuration {_words(a)}"


def _words(a: Assignment) -> str:
    """Name the settings of an assignment, for messages."""
    settings = {
        "frequency_mhz": a.frequency_mhz,
        "power_limit_w": a.power_limit_w,
        "batch_size": a.batch_size,
    }
    given = "".join(f", {name} {value:g}" for name, value in settings.items() if value is not None)
    return f"with {a.gpus} GPUs in pool '{a.pool}'{given}"


def _own_faults(outcomes: Outcomes) -> Iterator[tuple[int, int, str]]:
    """Yield the violated rules that concern one job alone: job, number of the rule, and fault."""
    jobs, places = outcomes.configurations.jobs, outcomes.jobs
    seconds, runs, fixed = outcomes.completion_s, outcomes.runs, jobs.fixed[places]
    deadline_s = jobs.numbers("deadline_s")[places]
    # A time that is none is late, too.
    late = ~np.isnan(deadline_s) & ~(seconds <= deadline_s * (1 + TOLERANCE))
    for place in np.flatnonzero(late).tolist():
        fault = f"is complete after {seconds[place]:.9g} s, its deadline is {deadline_s[place]:.9g} s"
        yield int(places[place]), 1, fault
    stays = runs & fixed & (jobs.current.codes[places] != NONE)
    rules = (
        (~runs & ~jobs.flags("can_wait")[places], "waits although it may not"),
        (~runs & fixed, "is stopped although it is not preemptible"),
        (stays & outcomes.restarts, "changes GPU count, batch size or pool although it is not preemptible"),
        (stays & outcomes.moves, "moves to other GPUs although it is not preemptible"),
    )
    for number, (broken, fault) in enumerate(rules, start=2):
        yield from ((job, number, fault) for job in places[broken].tolist())


def set_faults(instance: Instance, assigned: Assigned) -> Iterator[str]:
    """Yield a fault for sets that are not declared, or with a job missing, foreign or on other GPUs."""
    declared = {one.name: one for one in instance.sets}
    for name, places in assigned.formed.items():
        members = [assigned.records[place] for place in places]
        if name not in declared:
            yield f"job '{members[0].job}' is in the set '{name}', which is not declared"
            continue
        present = {assignment.job for assignment in members}
        for job in declared[name].rates:
            if job not in present:
                yield f"set '{name}' is formed without its job '{job}'"
        first = members[0]
        for other in members:
            if other.job not in declared[name].rates:
                yield f"job '{other.job}' is not in the set '{name}'"
            elif (other.pool, other.gpus) != (first.pool, first.gpus):
                who = f"jobs '{first.job}' and '{other.job}' of set '{name}'"
                yield f"{who} have different pools or GPU counts"
            elif _gpus_of(other.nodes) != _gpus_of(first.nodes):
                yield f"jobs '{first.job}' and '{other.job}' of set '{name}' have different GPUs"


def _gpus_of(nodes: dict[str, list[int]]) -> set[tuple[str, int]]:
    """GPUs as pairs of node name and number."""
    return {(name, gpu) for name, numbers in nodes.items() for gpu in numbers}

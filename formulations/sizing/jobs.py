"""The jobs of a round as arrays, with the configurations of their kinds: what options are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat

import numpy as np

from wattsched.formulations.sizing.configurations import (
    WAIT,
    Configurations,
    configurations_of,
    usable_pools,
)
from wattsched.formulations.tolerances import LAST_DIGITS
from wattsched.instances.sizing.instance import Instance, JobSet, per_joule
from wattsched.instances.sizing.job import Job
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.tenants import most_alone, weights_of
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, Rows, ranges
from wattsched.topology.column import NONE
from wattsched.topology.pools import Pool, pools_of
from wattsched.topology.room import largest_room, room_for


@dataclass(frozen=True)
class JobSetOption:
    """A declared set in a pool.

    Attributes
    ----------
    declared : JobSet
    pool : int
        Number of the pool.
    members : tuple of int
        Numbers of its jobs; the first one *leads*: its option takes the block of GPUs for all of them.
    """

    declared: JobSet
    pool: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class RoundJobs:
    """Jobs of a round before any option is written out.

    Attributes
    ----------
    instance : Instance
    jobs : JobColumns
    pools : tuple of Pool
    configurations : Configurations
        Of every kind of job, whether a job may use them or not.
    job_sets : tuple of JobSetOption
        Sets of jobs that may share GPUs, by pool.
    left_out : mapping of str to str
        Jobs that are not among these, which wait as they have no option, and why.
    in_place : bool
        Whether jobs whose changes have a price are to keep their GPUs where they keep their options.
    box : mapping of str to tuple of float
        Intervals of the parameters of uncertain power caps and objectives (`uncertainty`); nothing is added
        to those that are not named.
    """

    instance: Instance
    jobs: JobColumns
    pools: tuple[Pool, ...]
    configurations: Configurations
    job_sets: tuple[JobSetOption, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    in_place: bool = False
    box: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def round_s(self) -> float:
        """Length of the round."""
        return self.instance.round_s

    @property
    def kind(self) -> IntArray:
        """Kind of each job, shape (n_jobs,)."""
        return self.configurations.of_job

    def numbers_of(self, names: Sequence[str]) -> IntArray:
        """Numbers of jobs by their names, `NONE` for those that are not in the round."""
        if names is self.jobs.names:
            return np.arange(len(self))
        return np.fromiter(map(self.jobs.place.get, names, repeat(NONE)), np.int64, len(names))

    @property
    def work(self) -> FloatArray:
        """Work left of each job, shape (n_jobs,)."""
        return self.jobs.numbers("remaining_work")

    @cached_property
    def weight(self) -> FloatArray:
        """Weight of each job, that of its tenant included, shape (n_jobs,)."""
        return weights_of(self.instance.tenants, self.jobs)

    @cached_property
    def tenant(self) -> IntArray:
        """Number of each job's tenant, `NONE` for none; shape (n_jobs,)."""
        number, of = {name: t for t, name in enumerate(self.instance.tenants)}, self.jobs.coded("tenant")
        return np.array([*(number.get(name, NONE) for name in of.values), NONE])[of.codes]

    @cached_property
    def most_j(self) -> FloatArray:
        """Joules that each job may use by the quotas of its tenant if no other runs; shape (n_jobs,)."""
        tenants, of = self.instance.tenants, self.jobs.coded("tenant")
        if not any(tenant.energy_j or tenant.carbon_g for tenant in tenants.values()):
            return np.full(len(self), np.inf)
        g_per_joule = self.per_joule["carbon"]
        most = (most_alone(tenants, name, g_per_joule).energy_j for name in of.values)
        return np.array([*most, np.inf])[of.codes]

    @cached_property
    def restart_s(self) -> FloatArray:
        """Seconds that a restart takes of each job, 0 for jobs that do not run now; shape (n_jobs,)."""
        found = np.zeros(len(self))
        found[self.jobs.running] = self.jobs.numbers("restart_s")[self.jobs.running]
        return found

    @cached_property
    def change_cost(self) -> FloatArray:
        """Cost in the objective when a job that runs now changes, 0 for other jobs; shape (n_jobs,)."""
        found, running = np.zeros(len(self)), self.jobs.running
        stated = self.jobs.numbers("change_cost")[running]
        found[running] = np.where(np.isnan(stated), self.instance.change_cost, stated)
        return found

    @cached_property
    def latest_s(self) -> FloatArray:
        """Latest completion of each job, infinite without a deadline; shape (n_jobs,)."""
        deadline_s = self.jobs.numbers("deadline_s")
        # A time equal to the deadline may miss it by a last digit.
        return np.where(np.isnan(deadline_s), np.inf, deadline_s * (1 + LAST_DIGITS))

    @cached_property
    def must_run(self) -> BoolArray:
        """Mask of jobs that may not wait, shape (n_jobs,)."""
        return self.jobs.fixed | ~self.jobs.flags("can_wait")

    @cached_property
    def held(self) -> tuple[IntArray, IntArray, FloatArray]:
        """GPU count, number of the pool and batch size that each job holds now; -1, -1 and nan for none."""
        number = {pool.name: p for p, pool in enumerate(self.pools)}
        n = len(self)
        gpus, pool, batch = np.full(n, -1), np.full(n, WAIT), np.full(n, np.nan)
        holdings, running = self.jobs.holdings, self.jobs.running
        codes = self.jobs.current.codes[running]
        named = np.array([*(number.get(name, WAIT) for name in holdings.pool.values), WAIT])
        gpus[running], pool[running] = holdings.gpus[codes], named[holdings.pool.codes[codes]]
        size = holdings.batch_size[codes]
        batch[running] = np.where(size == 0, np.nan, size)
        return gpus, pool, batch

    @cached_property
    def held_gpus(self) -> tuple[IntArray, IntArray]:
        """Job and position of each GPU that running jobs hold now, in the order of these, as far as known.

        A position is a place on the line of the pool that the job holds GPUs of.
        """
        held, running = self.jobs.holdings, self.jobs.running
        codes = self.jobs.current.codes[running]
        size = held.start[codes + 1] - held.start[codes]
        job, entry = np.repeat(running, size), ranges(held.start[codes], size)
        _, pool_of, _ = self.held
        at, position = pool_of[job], np.zeros(len(job), dtype=np.int64)
        node, gpu = held.node.codes[entry], held.gpu[entry]
        for p, pool in enumerate(self.pools):
            here = at == p
            if here.all():
                position = pool.positions(held.node.values, node, gpu)
            else:
                position[here] = pool.positions(held.node.values, node[here], gpu[here])
        place = job * max((pool.n_gpus for pool in self.pools), default=1) + position
        if (at != WAIT).all() and (place[1:] > place[:-1]).all():
            return job, position
        known = np.flatnonzero(at != WAIT)
        order = known[np.argsort(place[known], kind="stable")]
        return job[order], position[order]

    @cached_property
    def can_run(self) -> BoolArray:
        """Mask of jobs that have a configuration of their own, shape (n_jobs,)."""
        return np.asarray(self.configurations.best_rate[self.kind] > 0.0)

    @cached_property
    def shortest_s(self) -> FloatArray:
        """Best completion of each job alone without a restart; infinite for those that cannot run."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.work / self.configurations.best_rate[self.kind])

    @cached_property
    def best_s(self) -> FloatArray:
        """Best completion of each job alone from a standing start, restart included for running jobs."""
        return self.shortest_s + self.restart_s

    @cached_property
    def least_s(self) -> FloatArray:
        """Best completion of each job alone from now: going on as a job runs takes no restart."""
        found, known, paying = self.best_s.copy(), self.configurations, np.flatnonzero(self.restart_s)
        _, place, row = known.laid_out(self.kind[paying])
        (gpus, pool, batch), job = (values[paying[place]] for values in self.held), paying[place]
        alone = row != WAIT
        own_batch = known.batch_size[row]
        same_batch = (own_batch == batch) | (np.isnan(own_batch) & np.isnan(batch))
        same = np.flatnonzero(alone & (known.gpus[row] == gpus) & (known.pool[row] == pool) & same_batch)
        np.minimum.at(found, job[same], self.work[job[same]] / known.rate[row[same]])
        return found

    @cached_property
    def reference_rate(self) -> FloatArray:
        """Best rate of each job at its smallest GPU count, to compare rates between jobs."""
        return np.asarray(self.configurations.reference_rate[self.kind])

    @cached_property
    def least_energy_j(self) -> FloatArray:
        """Least energy to completion of each job from a standing start, in any of its configurations.

        In sets none: whether others are still there to share with next round is not known.
        """
        known = self.configurations
        row = known.least_energy_row[self.kind]
        # The row appended is for `WAIT`, which is -1: of jobs that cannot run.
        rate, power_w = np.append(known.rate, 1.0)[row], np.append(known.power_w, np.inf)[row]
        energy_j = power_w * (self.work / rate)
        # What a restart takes may make another configuration the one of least energy.
        late = np.flatnonzero(self.restart_s)
        if len(late):
            start, place, row = known.laid_out(self.kind[late], known.thrifty_rows)
            rate, power_w = np.append(known.rate, 1.0)[row], np.append(known.power_w, np.inf)[row]
            each_j = power_w * (self.work[late][place] / rate + self.restart_s[late][place])
            energy_j[late] = np.minimum.reduceat(each_j, start[:-1])
        return np.asarray(energy_j)

    @cached_property
    def least_drawn_j(self) -> FloatArray:
        """Least that the GPUs of each job use if it begins anew now, alone, in the scope of the budgets."""
        if not self.counts_rounds:
            return self.least_energy_j
        return np.minimum(self.least_energy_j, self.configurations.least_power_w[self.kind] * self.round_s)

    @cached_property
    def beyond_quotas(self) -> BoolArray:
        """Mask of jobs that use more joules than their tenants may, if they begin anew; shape (n_jobs,)."""
        if np.isinf(self.most_j).all():
            return np.zeros(len(self), dtype=bool)
        return np.asarray(self.least_drawn_j > self.most_j)

    @cached_property
    def row_idle_w(self) -> FloatArray:
        """Draw of the GPUs of each row of the kinds when they are idle."""
        types, rows = self.instance.cluster.gpu_types, self.configurations
        per_gpu = np.array([types[pool.gpu_type].idle_power_w for pool in self.pools] + [0.0])
        return np.asarray(per_gpu[rows.pool] * rows.gpus)

    @property
    def counts_rounds(self) -> bool:
        """True if energy counts as far as it is used in the round, and not to completion."""
        return self.instance.budgets.scope == "round"

    @property
    def per_joule(self) -> Mapping[str, float]:
        """Amount that a joule adds to each objective that counts energy."""
        return per_joule(self.instance)

    @cached_property
    def in_sets(self) -> BoolArray:
        """Mask of jobs that may share GPUs with others, shape (n_jobs,)."""
        found = np.zeros(len(self), dtype=bool)
        found[[j for together in self.job_sets for j in together.members]] = True
        return found

    def going_on(self, rows: Rows, jobs: IntArray) -> tuple[IntArray, IntArray]:
        """Those of some jobs that run now, and the row in which each would not restart, in their order.

        Jobs that may restart, in no time and at no cost, are left out. The `rows` are found by kind and what
        tells whether a job restarts: pool, GPUs and batch size.
        """
        gpus, pool, batch = self.held
        pays = (self.restart_s > 0.0) | (self.change_cost > 0.0)
        bound = jobs[((gpus >= 0) & (pays | self.jobs.fixed))[jobs]]
        place, row = rows.equal([self.kind[bound], pool[bound], gpus[bound], batch[bound]])
        return bound[place], row

    @cached_property
    def n_options(self) -> int:
        """Options of all jobs, those that a deadline rules out and waiting included."""
        rows = np.diff(self.configurations.start)
        return int(rows[self.kind].sum()) + len(self) + sum(len(one.members) for one in self.job_sets)


def jobs_of(instance: Instance) -> RoundJobs:
    """Arrays of the jobs of a validated instance."""
    pools, jobs = pools_of(instance.cluster), instance.by_column()
    configurations = configurations_of(instance, jobs, pools)
    return RoundJobs(instance, jobs, pools, configurations, _job_set_options(instance, jobs, pools))


def _job_set_options(
    instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]
) -> tuple[JobSetOption, ...]:
    """Sets in each pool that can hold them, in the order of the sets and then of the pools."""
    number = {name: j for j, name in enumerate(jobs.names)} if instance.sets else {}
    return tuple(
        JobSetOption(declared, p, tuple(number[name] for name in declared.rates))
        for declared in instance.sets
        for p in _usable(instance, declared, [jobs[number[name]] for name in declared.rates], pools)
    )


def _usable(instance: Instance, declared: JobSet, jobs: list[Job], pools: tuple[Pool, ...]) -> list[int]:
    """Pools in which the set has a block that all its jobs may use, and their tenants let them have."""
    if any(not (job.min_gpus or 1) <= declared.gpus <= (job.max_gpus or declared.gpus) for job in jobs):
        return []
    gpus, power_w = declared.gpus / len(jobs), declared.power_w / len(jobs)
    mosts = [most_alone(instance.tenants, job.tenant) for job in jobs]
    if any(gpus > most.gpus or power_w > most.power_w for most in mosts):
        return []
    meant = [declared.pool in (pool.name, pool.gpu_type) for pool in pools]
    taken = room_for(pools, np.arange(len(pools)), np.full(len(pools), declared.gpus))
    roomy = [room <= largest_room(pool) for room, pool in zip(taken.tolist(), pools, strict=True)]
    usable = np.all([meant, roomy, *(usable_pools(job, pools) for job in jobs)], axis=0)
    return np.flatnonzero(usable).tolist()

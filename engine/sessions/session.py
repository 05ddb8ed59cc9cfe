"""A round that goes on: jobs come, change and go, and each decision begins where the last one ended.

The decision backend of a scheduler, which has its jobs in arrays and asks every few seconds or minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from numbers import Real
from pathlib import Path
from threading import Event, Lock
from types import NoneType
from typing import Any, Literal

import numpy as np

from wattsched.formulations.sizing.data import comparable_jobs
from wattsched.instances.errors import InputError, require, require_range, validated
from wattsched.instances.signals import Signal
from wattsched.instances.sizing.decision import AssignmentColumns
from wattsched.instances.sizing.explanation import Explanation
from wattsched.instances.sizing.instance import PER_KWH, Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.option_rows import OptionTables
from wattsched.instances.sizing.tenants import tenant_faults
from wattsched.instances.sizing.validity import faults_of, sleep_faults
from wattsched.results.problems import problem
from wattsched.results.result import Result
from wattsched.sessions.session_columns import (
    TABLE,
    KnownTables,
    assignments_of,
    divided,
    fields_of,
    jobs_of_columns,
    named,
    plain,
    rows_of_columns,
)
from wattsched.sessions.session_decision import SessionDecision, decision_of, held_after
from wattsched.sessions.session_round import (
    LIMITS,
    SAME,
    STATED,
    Following,
    Limit,
    Same,
    Site,
    changed_fields,
    document_of,
    gathered,
)
from wattsched.solving.call import Call
from wattsched.solving.engine import answered, limits_of, proof_seconds, require_names, seconds_of
from wattsched.topology.arrays import IntArray
from wattsched.topology.cluster import Cluster


class Session:
    """Jobs on a cluster that change from decision to decision.

    Methods may be called from several threads: one decision is made at a time, of the jobs as they are when
    it begins. A session can be pickled between them. Signals, warnings and streams stay the host's.

    Parameters
    ----------
    cluster : Cluster or mapping
        As an instance has it.
    objective, formulation, solver : str
        As for `wattsched.solve`.
    capacity : {"blocks", "nodes", "count"} or mapping, optional
        What jobs take of the pools, instead of what the cluster says.
    round_s : float
        Time until the next decision.
    change_cost : float
        What the objective pays for every running job that changes, moves or stops, where the job does not
        say.
    carbon_g_per_kwh, price_per_kwh : float, optional
        Carbon and price of energy.
    tables : mapping of str to mapping, optional
        Options that jobs share, which they name as their ``options``.
    profiles : sequence, optional
        Performance models besides those of the catalogue.
    tenants : mapping of str to mapping, optional
        Quotas and weights of groups of jobs, which name theirs as their ``tenant``.

    Attributes
    ----------
    told : frozenset of str
        Jobs of which it was said, since a decision was applied, what they hold or whether they may stop.
    following : Following
        The signal that it follows, and when its round begins.

    Raises
    ------
    InputError
        With every fault of the cluster, the tables, the profiles and the tenants, and unknown names.
    ValueError, TypeError
        For numbers out of range, and what is of another type.
    """

    def __init__(
        self,
        cluster: Cluster | Mapping[str, Any],
        *,
        objective: str = "work-value",
        capacity: str | Mapping[str, Any] | None = None,
        round_s: float = 300.0,
        change_cost: float = 0.0,
        carbon_g_per_kwh: float | None = None,
        price_per_kwh: float | None = None,
        tables: Mapping[str, Any] | None = None,
        profiles: Sequence[Any] = (),
        tenants: Mapping[str, Any] | None = None,
        formulation: str | None = None,
        solver: str = "auto",
    ) -> None:
        require("cluster", cluster, (Cluster, Mapping), "a Cluster or a mapping")
        require("objective", objective, (str,), "a name")
        require("capacity", capacity, (str, Mapping, NoneType), "a name, or names by pool")
        require("round_s", round_s, (Real,), "a number of seconds")
        require_range(0.0 < round_s < np.inf, "round_s", "positive and finite", round_s)
        require("change_cost", change_cost, (Real,), "a number")
        require_range(0.0 <= change_cost < np.inf, "change_cost", "at least 0 and finite", change_cost)
        for name, per_kwh in zip(PER_KWH.values(), (carbon_g_per_kwh, price_per_kwh), strict=True):
            require(name, per_kwh, (Real, NoneType), "a number")
        known_g, price = carbon_g_per_kwh or 0.0, price_per_kwh or 0.0
        require_range(0.0 <= known_g < np.inf, "carbon_g_per_kwh", "at least 0 and finite", known_g)
        require_range(bool(np.isfinite(price)), "price_per_kwh", "finite", price)
        require("formulation", formulation, (str, NoneType), "a name")
        require("solver", solver, (str,), "a name")
        require("profiles", profiles, (Sequence,), "a sequence")
        require("tenants", tenants, (Mapping, NoneType), "a mapping of names to quotas")
        site = document_of(cluster) | ({} if capacity is None else {"capacity": capacity})
        document = {"cluster": site, "round_s": round_s, "tables": plain(tables or {}), "jobs": []}
        document |= {"change_cost": change_cost, "name": "session", "profiles": list(profiles)}
        document |= {"carbon_g_per_kwh": carbon_g_per_kwh, "price_per_kwh": price_per_kwh}
        document |= {"tenants": plain(tenants or {})}
        self._names = formulation, solver
        # The round as it was told, and with the limits of a signal.
        self._stated = self._round = _sound(validated(Instance, document))
        self.following = Following()
        self._site = Site.of(self._round.cluster)
        self._own_tables = KnownTables()
        self._jobs, self._held = JobColumns({"name": []}), AssignmentColumns.from_records([])
        self.told = frozenset[str]()
        self._last_result: Result | None = None
        self._last_decision: SessionDecision | None = None
        self._make_locks()
        self.update(objective=objective)

    def _make_locks(self) -> None:
        self._changing, self._solving, self._stop = Lock(), Lock(), Event()

    def __getstate__(self) -> dict[str, Any]:
        with self._changing:
            locks = ("_changing", "_solving", "_stop")
            kept = {name: value for name, value in self.__dict__.items() if name not in locks}
            return kept | {"_last_decision": None}  # its round would be as large as all the rest

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_locks()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: object) -> bool:
        return job in self._jobs.place

    def __repr__(self) -> str:
        jobs, running, nodes = len(self._jobs), len(self._held), len(self._round.cluster.nodes)
        return f"<Session of {jobs} jobs, {running} running, on {nodes} nodes: {self._round.objective}>"

    def ids(self) -> list[str]:
        """Names of the jobs."""
        return list(self._jobs.names)

    # -- what there is to decide -----------------------------------------------------------------------

    def upsert(
        self,
        ids: Sequence[str],
        *,
        start: Sequence[int] | IntArray | None = None,
        held: AssignmentColumns | Sequence[Mapping[str, Any] | None] | None = None,
        **columns: Any,
    ) -> None:
        """Add jobs, or change some of their fields; all of it or, where it has a fault, nothing.

        Parameters
        ----------
        ids : sequence of str, length n
            New jobs and known ones; of these, fields that are not given stay as they are.
        start : int array, shape (n + 1,), optional
            Options of job i are the rows ``start[i]`` to ``start[i + 1]`` of these columns: ``gpus``,
            ``pool`` (or one name for all rows), ``power_w`` in watts, and ``rate`` in work per second or
            ``completion_s``; and, where rows have such settings, ``frequency_mhz``, ``power_limit_w`` and
            ``batch_size``.
        held : AssignmentColumns or sequence, optional
            GPUs that the jobs use now: assignments, of which other jobs' are left out, or for each job a
            mapping with ``gpus``, ``pool`` and ``nodes``, or None.
        **columns
            Any other field of a job, for each job a value, as `JobColumns.of` takes them: ``options`` names
            of the session's tables, ``remaining_work``, ``weight``, ``deadline_s``, ``restart_s``, ...

        Raises
        ------
        InputError
            With every fault.
        """
        if isinstance(ids, set | frozenset):
            raise TypeError("ids must be a sequence of names, got a set, which has no order")
        names = named("ids", ids)
        tables = {name: columns.pop(name) for name in TABLE if name in columns}
        fields, given = fields_of(columns, len(names)), None if held is None else assignments_of(names, held)
        with self._changing:
            own_tables = self._own_tables
            if tables or start is not None:
                if "options" in fields:
                    raise InputError(["options: names a table, but there are columns of the jobs' own"])
                fields["options"], own_tables = own_tables.with_more(rows_of_columns(names, start, tables))
            place, touched = self._jobs.place, set(names)
            known = [place[name] for name in names if name in place]
            before, of_others = divided(self._held, touched)
            own = before if given is None else given
            changed = self._with_defaults(names, known, fields, own)
            others = own_tables.pointed(self._jobs).take(np.delete(np.arange(len(self._jobs)), known))
            jobs, holding = JobColumns.joined([others, changed]), AssignmentColumns.joined([of_others, own])
            # GPUs that these jobs are said to hold may be those of any other.
            suspects = touched if given is None else touched.union(holding.names)
            comparable_jobs(self._require_sound(self._round, jobs, holding, suspects))
            reported = self.told if given is None and "preemptible" not in fields else self.told | touched
            self._jobs, self._held, self._own_tables, self.told = jobs, holding, own_tables, reported
            self._jobs, self._own_tables = self._own_tables.without_unused(self._jobs)

    def remove(self, ids: Sequence[str]) -> None:
        """Take jobs out.

        Raises
        ------
        InputError
            For jobs that are not there; then nothing is taken out.
        """
        names = named("ids", ids)
        with self._changing:
            place = self._jobs.place
            if faults := [f"ids: there is no job '{name:.80}'" for name in names if name not in place]:
                raise InputError(faults)
            left = self._jobs.take(np.delete(np.arange(len(self._jobs)), [place[n] for n in names]))
            _, held = divided(self._held, set(names))
            self._jobs, self._held, self.told = left, held, self.told - set(names)
            self._jobs, self._own_tables = self._own_tables.without_unused(self._jobs)

    def update(
        self,
        *,
        objective: str | None = None,
        round_s: float | None = None,
        change_cost: float | None = None,
        power_w: Limit = SAME,
        energy_j: Limit = SAME,
        carbon_g: Limit = SAME,
        scope: Literal["round", "completion"] | None = None,
        carbon_g_per_kwh: Limit = SAME,
        price_per_kwh: Limit = SAME,
        least_goodput: Limit = SAME,
        tenants: Mapping[str, Any] | None = None,
        reserved_w: Mapping[str, float] | None = None,
        down: Iterable[str] | None = (),
        up: Iterable[str] | None = (),
        unavailable: Mapping[str, Sequence[int]] | None = None,
        cluster: Cluster | Mapping[str, Any] | None = None,
        signal: Signal | Mapping[str, Any] | str | Path | Same | None = SAME,
        now: datetime | str | None = None,
    ) -> None:
        """Change the round; what is not told stays as it is.

        Parameters
        ----------
        power_w, energy_j, carbon_g, least_goodput, carbon_g_per_kwh, price_per_kwh
            As an instance and its budgets have them; None takes one away. Of all others None says nothing.
        objective, round_s, change_cost, scope
            As an instance and its budgets have them.
        tenants : mapping of str to mapping, optional
            Quotas and weights of all tenants, instead of those so far; jobs name them as their ``tenant``.
        reserved_w : mapping of str to float, optional
            What others draw on nodes, and through power domains, by name.
        down, up : iterables of str
            Nodes of which no GPU can be used any more, or those again that are not unavailable.
        unavailable : mapping of str to sequence of int, optional
            GPUs of nodes that are broken or that others use, instead of those so far.
        cluster : Cluster or mapping, optional
            Another one, with nodes that came or without those that went; all of them are up. Jobs that held
            what is not there any more are to be told so first (``upsert(..., held=[None])``). Without a
            capacity of its own it keeps the present one.
        signal : Signal, mapping, str or Path, optional
            Limits over time on the site and its power domains, or their file: the least of them from `now` to
            the end of the round counts, beside `power_w` and the caps of the cluster. None takes it away.
        now : datetime or str, optional
            When the round begins, with a zone; a signal needs it, and each later round, too.

        Raises
        ------
        InputError, ValueError
            With every fault; then nothing is changed.
        """
        given = {**locals(), "tenants": plain(tenants)}
        stated = {name: given[name] for name in LIMITS if given[name] is not SAME}
        stated |= {name: given[name] for name in STATED if given[name] is not None}
        gone, back = named("down", () if down is None else down), named("up", () if up is None else up)
        require("unavailable", unavailable, (Mapping, NoneType), "a mapping of nodes to GPUs")
        require("reserved_w", reserved_w, (Mapping, NoneType), "a mapping of names to watts")
        require("tenants", tenants, (Mapping, NoneType), "a mapping of names to quotas")
        require("cluster", cluster, (Cluster, Mapping, NoneType), "a Cluster or a mapping")
        require("objective", objective, (str, NoneType), "a name")
        require(
            "signal", signal, (Signal, Mapping, str, Path, NoneType, Same), "a Signal, its document or file"
        )
        with self._changing:
            changes, site, faults = dict[str, Any](), self._site, list[str]()
            with gathered(faults):
                if objective is not None:
                    stated["objective"] = require_names(problem("sizing"), *self._names, objective)
            with gathered(faults):
                changes = changed_fields(self._stated, stated)
                faults += tenant_faults(changes["tenants"], self._jobs)
            with gathered(faults):
                if cluster is not None:
                    site = site.replaced(cluster)
                if reserved_w or gone or back or unavailable:
                    site = site.changed(reserved_w or {}, gone, back, unavailable or {})
                faults += sleep_faults(site.cluster)
            with gathered(faults):
                following = self.following.told(signal, now)
            if faults:
                raise InputError(faults)
            told = self._stated.model_copy(update={**changes, "cluster": site.cluster})
            changed = following.limited(told)
            if cluster is not None or tenants is not None:
                _sound(self._instance(changed, self._jobs, self._held, "session"))
            elif gone or unavailable:
                kept = np.flatnonzero(self._jobs.fixed).tolist()
                self._require_sound(changed, self._jobs, self._held, {self._jobs.names[j] for j in kept})
            self._stated, self.following, self._round, self._site = told, following, changed, site

    # -- decisions ---------------------------------------------------------------------------------------

    def solve(
        self, *, deadline_s: float | None = None, gap: float = 1e-4, prove: float | None = 0.0
    ) -> SessionDecision:
        """Decide what every job does next.

        Parameters
        ----------
        deadline_s : float, optional
            Seconds until the answer is there.
        gap : float
            Relative gap at which a decision is good enough.
        prove : float, optional
            Seconds for a certificate tree where prices alone do not prove the gap; None as for `solve`.

        Raises
        ------
        InputError, ValueError, TypeError
            As `wattsched.solve`.
        """
        limits, prove_s = limits_of(gap, seconds_of("deadline_s", deadline_s)), proof_seconds(prove)
        with self._solving:
            stop = self._stop = Event()  # what was given up is not to go on
            instance, last = self.to_instance(), self._last_result
            # What a session holds is sound, whoever changed it last.
            names = *self._names, None
            result = answered(Call(instance, names, limits, last, stop, prove_s, of_session=True))
            self._last_result = result if result.solved else last
        decision = decision_of(instance, result)
        self._last_decision = decision if decision.solved else self._last_decision
        return decision

    def explain(
        self, job: str, *, time_limit: float | None = None, durations: tuple[float, float] | None = None
    ) -> Explanation:
        """Explain why a job waits by the last decision, and what would make it run (`wattsched.explain`).

        Raises
        ------
        ValueError
            Where nothing was decided since the session was made, or read, and for a job that it did not have.
        TypeError
            For arguments of another type.
        """
        if (last := self._last_decision) is None:
            raise ValueError("there is no decision to explain: solve comes first")
        return last.explain(job, time_limit=time_limit, durations=durations)

    def resume(self, result: Result) -> None:
        """Begin the next decision where an earlier one ended: of another process, or of a file.

        Raises
        ------
        TypeError
            For what is no result.
        """
        require("result", result, (Result,), "a Result")
        with self._solving:
            self._last_result = result if result.solved else self._last_result

    def cancel(self) -> None:
        """End the decision that is being made, if one is, with what it has; from another thread."""
        self._stop.set()

    def apply(self, decision: SessionDecision) -> None:
        """Take a decision for what runs now: of the jobs that it knows, those that run hold their GPUs.

        Jobs that came after it was begun keep what they hold.

        Raises
        ------
        ValueError
            Where there is no decision, or one that stops or moves jobs that are not preemptible now.
        InputError
            Where the decision's nodes are not all there any more, where somebody has said meanwhile that a
            job of it holds others, and where it takes GPUs that a job holds which it does not know.
        """
        require("decision", decision, (SessionDecision,), "what solve gives")
        if not decision.solved:
            raise ValueError(f"there is no decision to apply: {decision.result.termination.reason}")
        with self._changing:
            held = held_after(decision, self._jobs, self._held, self.told)
            known = decision.instance.by_column().place
            # It was checked on the cluster that it is of, and for the jobs that it knows.
            unchanged = decision.instance.cluster is self._round.cluster
            if not (unchanged and known.keys() >= held.place.keys()):
                self._require_sound(self._round, self._jobs, held, set(held.names))
            self._held, self.told = held, self.told - known.keys()

    def to_instance(self, name: str = "session") -> Instance:
        """The round as it is, for a file, the checker, or another solver."""
        require("name", name, (str,), "a name")
        if not name:
            raise ValueError("name must not be empty")
        with self._changing:
            return self._instance(self._round, self._jobs, self._held, name)

    # -- inside ------------------------------------------------------------------------------------------

    @staticmethod
    def _instance(now: Instance, jobs: JobColumns, held: AssignmentColumns, name: str) -> Instance:
        every = JobColumns({**jobs.columns, "current": held}) if len(held) else jobs
        return now.model_copy(update={"name": name, "jobs": every})

    def _require_sound(
        self, now: Instance, jobs: JobColumns, held: AssignmentColumns, suspects: set[str]
    ) -> Instance:
        """The round of those jobs whose names are suspects; an InputError for what files are refused for."""
        places = np.array([j for j, name in enumerate(jobs.names) if name in suspects], dtype=np.int64)
        return _sound(self._instance(now, jobs.take(places), held, "session"))

    def _with_defaults(
        self, names: list[str], known: list[int], fields: dict[str, Any], own: AssignmentColumns
    ) -> JobColumns:
        """Jobs of these names with these fields, and others as they are or by default; validated.

        `known` are the places of those that the session has, `own` what all of them hold.
        """
        before = self._jobs.take(np.array(known, dtype=np.int64))
        new = JobColumns({"name": [name for name in names if name not in self._jobs.place]})
        joined = JobColumns.joined([before, new])
        ordered = joined.take(np.array([joined.place[name] for name in names], dtype=np.int64))
        kept = {field: column for field, column in ordered.columns.items() if field not in fields}
        # A job has either options or a model: the new one takes the other's place.
        if "options" in fields and "model" not in fields:
            kept.pop("model", None)
        if "model" in fields and "options" not in fields:
            kept.pop("options", None)
        checked = jobs_of_columns({**kept, **fields, "name": names, **({"current": own} if len(own) else {})})
        if faults := list(tenant_faults(self._round.tenants, checked)):
            raise InputError(faults)
        options = checked.coded("options")
        if not isinstance(options.values, OptionTables):
            strange = options.where(lambda name: isinstance(name, str) and name not in self._round.tables)
            if where := np.flatnonzero(strange).tolist():
                jobs = (f"job '{names[j]}': options: '{options.at(j)}'" for j in where)
                raise InputError([f"{job} is no table of the session" for job in jobs])
        return JobColumns({name: column for name, column in checked.columns.items() if name != "current"})


def _sound(instance: Instance) -> Instance:
    """An instance without the faults that files are refused for."""
    if faults := faults_of(instance):
        raise InputError(faults)
    return instance

"""A round that goes on: jobs come, change and go, and each decision begins where the last one ended.

The decision backend of a scheduler, which has its jobs in arrays and asks every few seconds or minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, Final, Literal

import numpy as np

from wattsched.engine import require_names, solve
from wattsched.instances.errors import InputError, repeated, require, require_known, unknown, validated
from wattsched.instances.sizing.decision import Assignment, AssignmentColumns
from wattsched.instances.sizing.instance import Budgets, Instance
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.problems import problem
from wattsched.result import Result
from wattsched.topology.arrays import IntArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.column import NONE, Coded
from wattsched.topology.pools import pools_of

WAITS = -1
"""Option of a job that waits."""

MODELLED = -2
"""Option of a running job with a performance model: it has no table in which it would be a row."""

TABLE = tuple(OptionTable.model_fields)
"""Arguments of `Session.upsert` that are columns of the jobs' own tables."""

BUDGETS = ("power_w", "energy_j", "carbon_g", "scope")


class _Same:
    """What is not told stays as it is; None takes a limit away."""


SAME: Final = _Same()
Limit = float | None | _Same


@dataclass(frozen=True)
class SessionDecision:
    """What every job of a session is to do, in arrays; it is checked.

    Attributes
    ----------
    ids : list of str
        The jobs, as the other arrays have them.
    option : int array, shape (n_jobs,)
        Row of each job's own or shared table; `WAITS`, or `MODELLED` for a running job with a model.
    assignments : AssignmentColumns
        Those that run, with their settings and concrete GPUs; without any where there is no decision.
    reasons : dict of str to str
        Jobs that wait because they have no option, and why.
    result : Result
        All of it, with the certificate, as `wattsched.solve` gives it.
    """

    ids: list[str]
    option: IntArray
    assignments: AssignmentColumns
    reasons: dict[str, str]
    result: Result

    @property
    def objective(self) -> float | None:
        """What the decision is worth; None where there is none."""
        return self.result.objective

    @property
    def bound(self) -> float | None:
        """What no decision is better than."""
        return self.result.bound

    @property
    def prices(self) -> dict[str, float]:
        """What one more unit of a capacity or budget would improve the objective by."""
        return self.result.prices

    @property
    def gpus_on_nodes(self) -> dict[str, int]:
        """How many GPUs are used on each node that has any; jobs of a set use the same ones."""
        node = self.assignments.coded("node")
        places = np.unique(np.stack([node.codes, self.assignments.gpu]), axis=1)[0]
        names, counts = np.unique(places, return_counts=True)
        return {node.values[n]: many for n, many in zip(names.tolist(), counts.tolist(), strict=True)}


class Session:
    """Jobs on a cluster that change from decision to decision.

    Methods may be called from several threads: one decision is made at a time, of the jobs as they are when
    it begins. A session can be pickled between them. Nothing of the host is changed.

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
    tables : mapping of str to mapping, optional
        Options that jobs share, which they name as their ``options``.
    profiles : sequence, optional
        Performance models besides those of the catalogue.

    Raises
    ------
    InputError
        With every fault of the cluster, the tables and the profiles.
    ValueError
        For unknown names.
    """

    def __init__(
        self,
        cluster: Cluster | Mapping[str, Any],
        *,
        objective: str = "work-value",
        capacity: str | Mapping[str, str] | None = None,
        round_s: float = 300.0,
        tables: Mapping[str, Any] | None = None,
        profiles: Sequence[Any] = (),
        formulation: str | None = None,
        solver: str = "auto",
    ) -> None:
        require("cluster", cluster, (Cluster, Mapping), "a Cluster or a mapping")
        site = cluster.model_dump() if isinstance(cluster, Cluster) else dict(cluster)
        site |= {} if capacity is None else {"capacity": capacity}
        document = {"cluster": site, "round_s": round_s, "tables": dict(tables or {}), "jobs": []}
        document |= {"name": "session", "profiles": list(profiles)}
        self._names = formulation, solver
        self._round = validated(Instance, document)
        self._broken = {node.name: node.unavailable for node in self._round.cluster.nodes}
        self._own: dict[tuple[Any, ...], OptionTable] = {}
        self._jobs, self._held = JobColumns({"name": []}), AssignmentColumns.from_records([])
        self._last: Result | None = None
        self._make_locks()
        self.update(objective=objective)

    def _make_locks(self) -> None:
        self._changing, self._solving, self._stop = Lock(), Lock(), Event()

    def __getstate__(self) -> dict[str, Any]:
        with self._changing:
            locks = ("_changing", "_solving", "_stop")
            return {name: value for name, value in self.__dict__.items() if name not in locks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_locks()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: object) -> bool:
        return job in self._jobs.place

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
        names = _named(ids)
        tables = {name: columns.pop(name) for name in TABLE if name in columns}
        fields = _fields(columns, len(names))
        with self._changing:
            if tables or start is not None:
                if "options" in fields:
                    raise InputError(["options: names a table, but there are columns of the jobs' own"])
                fields["options"] = self._tables_of(names, start, tables)
            place = self._jobs.place
            known = [place[name] for name in names if name in place]
            keep = np.delete(np.arange(len(self._jobs)), known)
            gone = set(names)
            mine = np.array([name in gone for name in self._held.names], dtype=bool)
            own = self._held.take(np.flatnonzero(mine)) if held is None else _assignments(names, held)
            touched = self._with_defaults(names, known, fields, own)
            self._jobs = JobColumns.joined([self._jobs.take(keep), touched])
            self._held = AssignmentColumns.joined([self._held.take(np.flatnonzero(~mine)), own])
            self._forget_tables()

    def remove(self, ids: Sequence[str]) -> None:
        """Take jobs out.

        Raises
        ------
        InputError
            For jobs that are not there; then nothing is taken out.
        """
        names = _named(ids)
        with self._changing:
            place = self._jobs.place
            if faults := list(unknown("session", "job", names, place)):
                raise InputError(faults)
            self._jobs = self._jobs.take(np.delete(np.arange(len(self._jobs)), [place[n] for n in names]))
            gone = set(names)
            stays = [i for i, name in enumerate(self._held.names) if name not in gone]
            self._held = self._held.take(np.array(stays, dtype=np.int64))
            self._forget_tables()

    def update(
        self,
        *,
        objective: str | None = None,
        round_s: float | None = None,
        power_w: Limit = SAME,
        energy_j: Limit = SAME,
        carbon_g: Limit = SAME,
        scope: Literal["round", "completion"] | None = None,
        carbon_g_per_kwh: Limit = SAME,
        reserved_w: Mapping[str, float] | None = None,
        down: Iterable[str] = (),
        up: Iterable[str] = (),
    ) -> None:
        """Change the round; what is not told stays as it is, and None takes a limit away.

        Parameters
        ----------
        objective, round_s, power_w, energy_j, carbon_g, scope, carbon_g_per_kwh
            As an instance and its budgets have them.
        reserved_w : mapping of str to float, optional
            What others draw on nodes, and through power domains, by name.
        down, up : iterables of str
            Nodes of which no GPU can be used any more, or those again that could be used at first.

        Raises
        ------
        InputError, ValueError
            With every fault; then nothing is changed.
        """
        limits = dict(zip(BUDGETS, (power_w, energy_j, carbon_g, scope or SAME), strict=True))
        told = {name: value for name, value in limits.items() if not isinstance(value, _Same)}
        with self._changing:
            now, changes = self._round, dict[str, Any]()
            if objective is not None:
                changes["objective"] = require_names(problem("sizing"), *self._names, objective)
            if told:
                changes["budgets"] = validated(Budgets, {**now.budgets.model_dump(), **told})
            if round_s is not None or not isinstance(carbon_g_per_kwh, _Same):
                same = isinstance(carbon_g_per_kwh, _Same)
                intensity = now.carbon_g_per_kwh if same else carbon_g_per_kwh
                length_s = now.round_s if round_s is None else round_s
                bare = {"cluster": {"gpu_types": {}, "nodes": []}, "jobs": []}
                sound = validated(Instance, {**bare, "round_s": length_s, "carbon_g_per_kwh": intensity})
                changes |= {"round_s": sound.round_s, "carbon_g_per_kwh": sound.carbon_g_per_kwh}
            if reserved_w or down or up:
                changes["cluster"] = self._site(reserved_w or {}, list(down), list(up))
            self._round = now.model_copy(update=changes)

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
        with self._solving:
            self._stop.clear()
            instance, last = self.to_instance(), self._last
            formulation, solver = self._names
            result = solve(
                instance, formulation=formulation, solver=solver, gap=gap, time_limit=deadline_s,
                initial_solution=last, stop=self._stop, prove=prove,
            )  # fmt: skip
            self._last = result if result.solved else last
        return _decision_of(instance, result)

    def cancel(self) -> None:
        """End the decision that is being made, if one is, with what it has; from another thread."""
        self._stop.set()

    def apply(self, decision: SessionDecision) -> None:
        """Take a decision for what runs now: its jobs hold their GPUs, all others none."""
        with self._changing:
            place = self._jobs.place
            here = [i for i, name in enumerate(decision.assignments.names) if name in place]
            self._held = decision.assignments.take(np.array(here, dtype=np.int64))

    def to_instance(self, name: str = "session") -> Instance:
        """The round as it is, for a file, the checker, or another solver."""
        with self._changing:
            jobs = (
                JobColumns({**self._jobs.columns, "current": self._held}) if len(self._held) else self._jobs
            )
            return self._round.model_copy(update={"name": name, "jobs": jobs})

    # -- inside ------------------------------------------------------------------------------------------

    def _with_defaults(
        self, names: list[str], known: list[int], fields: dict[str, Any], own: AssignmentColumns
    ) -> JobColumns:
        """Jobs with the fields that are given, and others as they are or by default; validated."""
        before = self._jobs.take(np.array(known, dtype=np.int64))
        new = JobColumns({"name": [name for name in names if name not in self._jobs.place]})
        joined = JobColumns.joined([before, new])
        ordered = joined.take(np.array([joined.place[name] for name in names], dtype=np.int64))
        kept = {field: column for field, column in ordered.columns.items() if field not in fields}
        if "options" in fields and "model" not in fields:
            kept.pop("model", None)
        if "model" in fields and "options" not in fields:
            kept.pop("options", None)
        checked = _columns_of({**kept, **fields, "name": names, **({"current": own} if len(own) else {})})
        tables = checked.coded("options").values
        if faults := [
            f"options: '{table}' is no table of the session"
            for table in tables
            if isinstance(table, str) and table not in self._round.tables
        ]:
            raise InputError(faults)
        return JobColumns({name: column for name, column in checked.columns.items() if name != "current"})

    def _tables_of(
        self, names: list[str], start: Sequence[int] | IntArray | None, columns: Mapping[str, Any]
    ) -> Coded:
        """Table of each job from columns of all rows; equal ones are one."""
        listed = {name: _listed(name, column) for name, column in columns.items()}
        n_rows = max((len(column) for column in listed.values() if isinstance(column, list)), default=0)
        listed = {n: [column] * n_rows if isinstance(column, str) else column for n, column in listed.items()}
        if faults := [
            f"{n}: has {len(c)} rows, others {n_rows}" for n, c in listed.items() if len(c) != n_rows
        ]:
            raise InputError(faults)
        bounds = [0, n_rows] if start is None and len(names) == 1 else _listed("start", start)
        if (
            len(bounds) != len(names) + 1
            or bounds[0] != 0
            or bounds[-1] != n_rows
            or bounds != sorted(bounds)
        ):
            told = f"{len(names) + 1} ascending numbers from 0 to {n_rows}, the number of rows"
            raise InputError([f"start: must be {told}"])
        found, faults = [], list[str]()
        for name, first, end in zip(names, bounds[:-1], bounds[1:], strict=True):
            rows = {column: values[first:end] for column, values in listed.items()}
            key = tuple((column, *values) for column, values in rows.items())
            if key not in self._own:
                try:
                    self._own[key] = validated(OptionTable, rows)
                except InputError as error:
                    faults += [f"job '{name}': {fault}" for fault in error.faults]
                    continue
            found.append(self._own[key])
        if faults:
            raise InputError(faults)
        return Coded.of(found)

    def _forget_tables(self) -> None:
        """Keep what jobs still use; not every time, as that takes as long as there are tables."""
        if len(self._own) > 2 * len(self._jobs) + 100:
            used = {id(table) for table in self._jobs.coded("options").values}
            self._own = {key: table for key, table in self._own.items() if id(table) in used}

    def _site(self, reserved_w: Mapping[str, float], down: list[str], up: list[str]) -> Cluster:
        """The cluster with other loads, and nodes that are gone or back."""
        cluster = self._round.cluster
        domains = {domain.name for domain in cluster.power_domains}
        for field, names in (("down", down), ("up", up)):
            for name in names:
                require_known(field, name, self._broken)
        for name in reserved_w:
            require_known("reserved_w", name, [*self._broken, *domains])
        gone, back = set(down), set(up)
        nodes = []
        for node in cluster.nodes:
            changes: dict[str, Any] = {}
            if node.name in gone | back:
                every = list(range(node.gpus))
                changes["unavailable"] = every if node.name in gone else self._broken[node.name]
            if node.name in reserved_w:
                changes["reserved_w"] = reserved_w[node.name]
            nodes.append(node.model_copy(update=changes) if changes else node)
        fed = [
            domain.model_copy(update={"reserved_w": reserved_w[domain.name]})
            if domain.name in reserved_w
            else domain
            for domain in cluster.power_domains
        ]
        changed = cluster.model_copy(update={"nodes": nodes, "power_domains": fed})
        return validated(Cluster, changed.model_dump()) if reserved_w else changed


def _named(ids: Sequence[str]) -> list[str]:
    """Names of jobs, each once."""
    names = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if isinstance(ids, str) or not all(isinstance(name, str) for name in names):
        raise TypeError("ids must be a sequence of names")
    if faults := list(repeated("job", names)):
        raise InputError(faults)
    return names


def _fields(columns: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Columns of fields that jobs have, of the right length."""
    known = Job.model_fields.keys() - {"name", "current"}
    faults = [f"'{name}' is no field of a job" for name in columns if name not in known]
    for name, column in columns.items():
        entries = column.codes if isinstance(column, Coded) else column
        if isinstance(entries, str) or not hasattr(entries, "__len__"):
            faults.append(f"{name}: must have a value for each of {n} jobs, got {entries!r:.80}")
        elif len(entries) != n:
            faults.append(f"{name}: has {len(entries)} values for {n} jobs")
    if faults:
        raise InputError(faults)
    return dict(columns)


def _columns_of(columns: Mapping[str, Any]) -> JobColumns:
    """Validate columns of jobs."""
    try:
        return JobColumns.of(columns)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error).split("; ")) from None


def _listed(field: str, column: Any) -> Any:
    """A column of a table as a list, or one name for all rows."""
    if isinstance(column, str):
        return column
    if isinstance(column, Coded) or hasattr(column, "tolist"):
        return column.tolist()
    if hasattr(column, "to_pylist"):
        return column.to_pylist()
    if not isinstance(column, Sequence):
        raise InputError([f"{field}: must be a column, got {column!r:.80}"])
    return list(column)


def _assignments(
    names: list[str], held: AssignmentColumns | Sequence[Mapping[str, Any] | None]
) -> AssignmentColumns:
    """What jobs hold, as assignments."""
    if isinstance(held, AssignmentColumns):
        mine = set(names)
        here = [i for i, name in enumerate(held.names) if name in mine]
        return held.take(np.array(here, dtype=np.int64))
    if len(held) != len(names):
        raise InputError([f"held: has {len(held)} values for {len(names)} jobs"])
    given = [(name, dict(one)) for name, one in zip(names, held, strict=True) if one is not None]
    rows, faults = [], list[str]()
    for name, one in given:
        try:
            rows.append(validated(Assignment, {"job": name, **one}))
        except InputError as error:
            faults += [f"job '{name}': held.{fault}" for fault in error.faults]
    if faults:
        raise InputError(faults)
    return AssignmentColumns.from_records(rows)


def _decision_of(instance: Instance, result: Result) -> SessionDecision:
    """The answer in arrays."""
    jobs = instance.by_column()
    running = AssignmentColumns.from_records([] if result.decision is None else result.decision.jobs)
    option = np.full(len(jobs), WAITS)
    tables, codes = jobs.coded("options"), jobs.coded("options").codes.tolist()
    rows: dict[int, dict[tuple[Any, ...], int]] = {}
    types = {pool.name: pool.gpu_type for pool in pools_of(instance.cluster)}
    for place, name in enumerate(running.names):
        job = jobs.place[name]
        code = codes[job]
        if code == NONE:
            option[job] = MODELLED
            continue
        if code not in rows:
            table = tables.values[code]
            own = instance.tables[table] if isinstance(table, str) else table
            rows[code] = {row: number for number, row in enumerate(own.settings())}
        chosen = running[place]
        settings = (chosen.frequency_mhz, chosen.power_limit_w, chosen.batch_size)
        own_settings = tuple(value for value in settings if value is not None)
        for pool in (chosen.pool, types[chosen.pool]):
            if (found := rows[code].get((chosen.gpus, pool, *own_settings))) is not None:
                option[job] = found
                break
    return SessionDecision(jobs.names, option, running, result.dropped, result)

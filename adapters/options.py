"""Options of jobs, and watts of GPUs, that a site's file and its users state: for every scheduler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator

from wattsched.adapters.allowed import Allow, JobOptions
from wattsched.adapters.quarantine import Clock
from wattsched.instances.clusters import GPU_TYPES, server_power_w
from wattsched.instances.errors import InputError, validated
from wattsched.instances.gpu_names import common_name, recognised_gpu_type
from wattsched.instances.gpu_parts import part_named, part_of, unused_idle_w
from wattsched.instances.io import read_json
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.instances.sizing.tenants import Tenant
from wattsched.perfmodels.profile import Profile, models
from wattsched.reading.inputs import listed, meant
from wattsched.topology.cluster import Cluster, GpuType, PowerDomain
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Standing, Strict
from wattsched.topology.pools import pools_of

if TYPE_CHECKING:
    from wattsched.formulations.sizing.data import Options as SizingOptions
    from wattsched.topology.arrays import IntArray

PLAIN_S = 3600.0
"""Seconds that a job is taken to need that states neither its work nor a time limit."""

OF_MODELS = ("model", "gpu_counts", "batch_sizes", "frequencies_mhz", "power_limits_w")
"""Fields of jobs that a table replaces."""
NOT_TOLD = (*OF_MODELS, "least_progress")
"""Fields of jobs that a session is not told of."""

_BOUNDS = ("pools", "min_gpus", "max_gpus")
"""Fields that say which configurations of a model a job may have."""


class Launched(Strict):
    """GPUs, watts and settings with which a job or a pod of ours was started.

    Attributes
    ----------
    factor : float, optional
        The watts are so many times those of the model, as measured watts have corrected it.
    """

    gpus: Count
    power_w: NonNegative
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    batch_size: Count | None = None
    factor: Positive | None = None

    def corrected(self, factor: float) -> Self:
        """Return the same with so many times the watts of the model."""
        power_w = self.power_w / (self.factor or 1.0) * factor
        return self.model_copy(update={"power_w": power_w, "factor": factor})

    @property
    def settings(self) -> dict[str, Any]:
        """Clock, power limit and batch size, those that there are."""
        return self.model_dump(include=set(SETTINGS), exclude_none=True)


class Foreign(Strict):
    """Watts of other people's jobs.

    Attributes
    ----------
    power_w : float
        Set aside for them, beyond what their GPUs draw when they are idle, whether they draw it or not.
    stop_ours : bool
        Whether jobs of ours stop where theirs draw more than that; else an alarm tells of it.
    """

    power_w: NonNegative = 0.0
    stop_ours: bool = True


class StatedOptions(Strict):
    """The file of a site: watts that its scheduler does not know, and options of jobs.

    Attributes
    ----------
    gpu_types : dict
        GPU types as clusters have them; those of `GPU_TYPES` are known. ``max_power_w`` counts for GPUs that
        plain jobs and other people's jobs use.
    base_power_w : float
        Draw of a node without its GPUs, by default `server_power_w`; what no slice has of a board is added.
    power_domains : list
        Caps of parts of the site; members are groups and nodes.
    foreign : Foreign
        What is set aside for jobs that are not ours.
    fail_safe_w : float, optional
        Cap of the site where the one in force has not been known for a minute.
    watts_error : float, optional
        Relative standard deviation of what a job draws from the watts of its option: caps keep a margin.
    tables, profiles
        As instances have them.
    jobs : dict
        What is said of jobs by name, a pattern with ``*``.
    tenants : dict
        Quotas of the jobs of ours of an account or a namespace, by its name.
    carbon_g_per_kwh : float, optional
        Carbon of energy, for quotas of grams.
    allow : Allow
        What users may say of their own jobs.
    """

    gpu_types: dict[Name, GpuType] = Field(default_factory=dict)
    base_power_w: Standing | None = None
    power_domains: list[PowerDomain] = Field(default_factory=list)
    foreign: Foreign = Field(default_factory=Foreign)
    fail_safe_w: Positive | None = None
    watts_error: Annotated[float, Field(gt=0, le=1)] | None = None
    tables: dict[Name, OptionTable] = Field(default_factory=dict)
    profiles: list[Profile] = Field(default_factory=list)
    jobs: Mapping[str, JobOptions] = Field(default_factory=dict)
    tenants: dict[Name, Tenant] = Field(default_factory=dict)
    carbon_g_per_kwh: NonNegative | None = None
    allow: Allow = Allow()

    @model_validator(mode="after")
    def _carbon_is_known(self) -> Self:
        if self.carbon_g_per_kwh is None and any(one.carbon_g for one in self.tenants.values()):
            raise ValueError("tenants: a carbon quota needs 'carbon_g_per_kwh'")
        return self

    @model_validator(mode="after")
    def _tables_and_models_are_known(self) -> Self:
        # Fields such as `jobs`, and those of subclasses, say something of jobs by some name.
        named = [
            (f"{field}.{name}.options", said.options)
            for field, value in self
            for name, said in (value.items() if isinstance(value, dict) else ())
            if isinstance(said, JobOptions)
        ]
        named += [("allow.tables", name) for name in self.allow.tables or ()]
        for where, name in named:
            if isinstance(name, str) and name not in self.tables:
                raise ValueError(f"{where}: '{name}' is no table of the file{meant(name, self.tables)}")
        known = {*models(), *(one.model for one in self.profiles)}
        for name in self.allow.models or ():
            if name not in known:
                raise ValueError(f"allow.models: '{name}' is no model that is known{meant(name, known)}")
        return self

    def knows(self, name: str) -> bool:
        """True if the watts of a GPU type are known, also by a scheduler's name or that of a slice of it."""
        return self._known_type(name) is not None

    def _known_type(self, name: str) -> GpuType | None:
        """Watts of a GPU type as the site states them, of it or of its board; else by its name, if known."""
        known = {**GPU_TYPES, **self.gpu_types}
        if name in known:
            return known[name]
        part = part_named(name)
        stated = next((one for one in (part.board, common_name(part.board)) if one in self.gpu_types), None)
        if stated is None:
            return recognised_gpu_type(name)
        board = known[stated]
        return part_of(board.model_copy(update={"profile": board.profile or stated}), part)

    def gpu_type(self, name: str) -> GpuType:
        """Watts of a GPU type; of one that is not known the most of any that is."""
        if (known := self._known_type(name)) is not None:
            return known
        types = {**GPU_TYPES, **self.gpu_types}
        idle_w = max(kind.idle_power_w for kind in types.values())
        return GpuType(idle_power_w=idle_w, max_power_w=max(map(self.max_power_w, types)))

    def unknown(self, kinds: Mapping[str, str], of: str, stated: str) -> Iterator[tuple[list[str], str]]:
        """Yield nodes that get no jobs or pods, as the watts of their GPUs are not known, and why.

        `kinds` has the GPU type of each node; `of` says job or pod, `stated` where watts or type can be
        stated.
        """
        for kind in dict.fromkeys(kinds.values()):
            if self.knows(kind):
                continue
            names = [name for name, one in kinds.items() if one == kind]
            idle_w, most_w = self.gpu_type(kind).idle_power_w, self.max_power_w(kind)
            counted = f"Until then a GPU counts at {idle_w:g} W, or {most_w:g} W where a {of} has it"
            why = f"the watts of '{kind}' are not known; state them as {stated}. {counted}"
            yield names, f"{listed(sorted(names), most=NAMED)} gets no {of}s: {why}"

    def server_w(self, kinds: Mapping[str, int]) -> float:
        """Watts of a node without its GPUs, and of what no slice has of their boards.

        `kinds` are its GPUs by type; a node without any has none, as another kind of its machine has them.
        """
        if not kinds:
            return 0.0
        base_w = server_power_w(kinds) if self.base_power_w is None else self.base_power_w
        return base_w + unused_idle_w(kinds, {kind: self.gpu_type(kind) for kind in kinds})

    def max_power_w(self, name: str) -> float:
        """Most that one GPU of a type draws."""
        kind = self.gpu_type(name)
        return kind.idle_power_w if kind.max_power_w is None else kind.max_power_w

    def believed(self, said: JobOptions, kind_of: Callable[[str], str]) -> JobOptions:
        """Return the fields that a user states, with watts that the site believes, or an `InputError`.

        `kind_of` gives the GPU type of a pool, or of a GPU type itself.
        """
        self.allow.require(said)
        if not isinstance(said.options, OptionTable) or self.allow.own_power_w:
            return said
        site_w = dict[tuple[Any, ...], float]()
        for table in self.tables.values():
            for key, power_w in _rows(table, kind_of):
                site_w[key] = max(power_w, site_w.get(key, 0.0))
        watts = list[float]()
        for key, power_w in _rows(said.options, kind_of):
            gpus, kind, *_ = key
            watts.append(max(power_w, site_w[key] if key in site_w else gpus * self.max_power_w(kind)))
        return said.model_copy(update={"options": said.options.model_copy(update={"power_w": watts})})

    def absent(self, there: Collection[str], group: str) -> list[str]:
        """Return notes on members of power domains that are not `there`; `group` names what groups are."""
        found = [(domain.name, {*domain.members} - {*there}) for domain in self.power_domains]
        return [
            f"power_domains of the site's file: the members {listed(sorted(members), most=NAMED)} of "
            f"'{domain}' are no node with GPUs and no {group} now, and count as nothing"
            for domain, members in found
            if members
        ]

    def domains_there(self, there: Collection[str]) -> list[dict[str, Any]]:
        """Power domains as clusters have them, with the members that are there."""
        rows = list[dict[str, Any]]()
        for domain in self.power_domains:
            members = [name for name in domain.members if name in there]
            rows += [{**domain.model_dump(), "members": members}] if members else []
        return rows


def _rows(table: OptionTable, kind_of: Callable[[str], str]) -> Iterator[tuple[tuple[Any, ...], float]]:
    """GPU count, GPU type and settings of every row, and its watts; `kind_of` gives the type of a pool."""
    nothing = [None] * len(table.gpus)
    settings = (table.frequency_mhz, table.power_limit_w, table.batch_size)
    keys = zip(table.gpus, map(kind_of, table.pool), *(one or nothing for one in settings), strict=True)
    return zip(keys, table.power_w, strict=True)


NAMED, _NOTES = 5, 8
"""So many are named in a note, and so many alike are noted in a round."""

StatedT = TypeVar("StatedT", bound=StatedOptions)


def stated_in(path: str | Path | None, form: type[StatedT]) -> StatedT:
    """Read the site's file; defaults without one."""
    return form() if path is None else validated(form, read_json(path), str(path))


def first_of(notes: Collection[str]) -> list[str]:
    """Return the first of some notes, and how many more there are."""
    more = len(notes) - _NOTES
    return [*notes][:_NOTES] + [f"and {more:,} more"] * (more > 0)


def merged(layers: Iterable[JobOptions | None]) -> dict[str, Any]:
    """Fields that are said of a job; later layers go before earlier ones."""
    fields: dict[str, Any] = {}
    for layer in layers:
        own = {} if layer is None else {name: value for name, value in layer if value is not None}
        # A table replaces a model, and the other way round.
        if own.keys() & {"options", "model"}:
            fields = {name: value for name, value in fields.items() if name not in ("options", "model")}
        fields |= own
    return fields


def with_table(fields: dict[str, Any], tables: Mapping[str, OptionTable]) -> dict[str, Any]:
    """Fields of a job with the table of options itself, where they name one."""
    named = fields.get("options")
    if not isinstance(named, str):
        return fields
    if named not in tables:
        raise InputError([f"options: '{named}' is no table of the options file"])
    return {**fields, "options": tables[named]}


def plain_table(gpus: int, kinds: Sequence[str], options: StatedOptions) -> OptionTable:
    """One option on each of some GPU types, for a job that says nothing: GPUs at the most that they draw."""
    watts = [gpus * options.max_power_w(kind) for kind in kinds]
    # A slice is slower than its board.
    speeds = [float(part_named(kind).share) for kind in kinds]
    rates = [speed / max(speeds) for speed in speeds]
    return OptionTable(gpus=[gpus] * len(kinds), pool=list(kinds), power_w=watts, rate=rates)


def under_way(record: Mapping[str, Any], ran_s: float, done_work: float) -> dict[str, Any]:
    """Return a job that has run, and done some work, with the work left and what a stop would lose.

    Who states ``restart_s`` goes on from a checkpoint. All others would begin anew.
    """
    # Rates are estimates: what still runs has some work left.
    work = record.get("remaining_work", 1.0)
    return {"restart_s": ran_s, **record, "remaining_work": max(0.01 * work, work - done_work)}


@dataclass(frozen=True)
class Stated:
    """Names of one kind that are stated somewhere, and those that are there.

    Attributes
    ----------
    where : str
        Where they are stated, in words.
    sure : bool
        Whether there are no others; else only one that is spelt nearly like another is told.
    fault : bool
        Whether such a name is a fault at the start of ``--apply``; else it is noted.
    """

    where: str
    names: Collection[str]
    there: Collection[str]
    sure: bool = False
    fault: bool = True


def require_names(stated: Iterable[Stated], note: Callable[[str], None], *, apply: bool) -> None:
    """Refuse names that are not there, or note them where nothing is done."""
    faults = list[str]()
    for kind in stated:
        for name in sorted({*kind.names} - {*kind.there}):
            # Names that differ in their numbers alone are siblings, of which one may have gone.
            others = [one for one in kind.there if re.sub(r"\d+", "", one) != re.sub(r"\d+", "", name)]
            near = meant(name, kind.there if kind.sure else others)
            text = f"{kind.where}: '{name}' is not there{near}"
            if (kind.sure or near) and kind.fault and apply:
                faults.append(text)
            elif kind.sure or near:
                note(text)
    if faults:
        raise InputError(faults)


class Expansion:
    """Tables of the jobs of a round, within what the site allows a job and a user, while there is time."""

    def __init__(self, cluster: Mapping[str, Any], options: StatedOptions, clock: Clock) -> None:
        self._options, self._clock = options, clock
        # Tables have what a job can be on any GPU, also on those that others use.
        whole = {**cluster, "nodes": [{**node, "unavailable": []} for node in cluster["nodes"]]}
        self._cluster = validated(Cluster, whole)
        # By what is said with a model: how many configurations it has, and their table.
        self._known: dict[str, tuple[int, dict[str, Any]]] = {}
        # Configurations of each user, and which users have asked for what.
        self._of_user: Counter[str] = Counter()
        self._asked: set[tuple[str, str]] = set()

    def with_table(self, fields: dict[str, Any], user: str, factor: float | None = None) -> dict[str, Any]:
        """Fields with the table of their model, where they have one, and `factor` times its watts."""
        table = self._table(fields, user)
        if (least_progress := fields.get("least_progress")) is not None:
            table = _tolerable(table, least_progress)
        if factor is not None:
            table = {**table, "power_w": [factor * watts for watts in table["power_w"]]}
        return {**fields, "options": table}

    def _table(self, fields: Mapping[str, Any], user: str) -> dict[str, Any]:
        self._clock.require_time()
        if "model" in fields:
            said = {name: fields[name] for name in (*OF_MODELS, *_BOUNDS) if name in fields}
            if (key := repr(said)) not in self._known:
                self._known[key] = self._expand(said)
            configurations, table = self._known[key]
        else:
            table = fields["options"]
            key, configurations = repr(table), len(table["gpus"])
        self._count(user, key, configurations)
        self._clock.spend(len(table["gpus"]))
        return table

    def _count(self, user: str, key: str, configurations: int) -> None:
        """Count what a user asks for, the same `key` only once; an `InputError` where it is too much."""
        if (user, key) in self._asked:
            return
        most, so_far = self._options.allow.configurations_per_user, self._of_user[user]
        if so_far + configurations > most:
            text = f"{configurations:,} configurations, and other jobs of '{user}' have {so_far:,}"
            raise InputError([f"{text}; the site allows {most:,} per user"])
        self._asked.add((user, key))
        self._of_user[user] += configurations

    def _expand(self, said: Mapping[str, Any]) -> tuple[int, dict[str, list[Any]]]:
        """Table of a job with a model, and how many configurations it has, which are counted first."""
        from wattsched.formulations.sizing.configurations import usable_pools
        from wattsched.formulations.sizing.data import options_of
        from wattsched.formulations.sizing.jobs import jobs_of

        job = {**said, "name": "job", "preemptible": True}
        parts = {"cluster": self._cluster, "jobs": [job], "profiles": self._options.profiles}
        instance = validated(Instance, parts)
        pools, only = pools_of(self._cluster), instance.jobs[0]
        usable = zip(pools, usable_pools(only, pools), strict=True)
        one_of_each = {pool.gpu_type: pool for pool, may in usable if may}
        configurations = sum(instance.most_configurations(only, pool) for pool in one_of_each.values())
        self._options.allow.require_few(configurations)
        found = options_of(jobs_of(instance))
        rows = _undominated(found)
        if not len(rows):
            text = "is none that is known, and the file states no profile of it"
            if said["model"] in {*models(), *(one.model for one in self._options.profiles)}:
                text = "has no option on the GPUs of this cluster"
            raise InputError([f"model: '{said['model']}' {text}"])
        table: dict[str, list[Any]] = {
            "gpus": found.gpus[rows].tolist(),
            "pool": [found.pools[pool].name for pool in found.pool[rows]],
            "power_w": found.power_w[rows].tolist(),
            "rate": found.rate[rows].tolist(),
        }
        for field, kind in (("frequency_mhz", int), ("power_limit_w", float), ("batch_size", int)):
            values = getattr(found, field)[rows]
            if not np.isnan(values).any():
                table[field] = [kind(value) for value in values]
        return configurations, table


class Row(NamedTuple):
    """Settings that a job can have on the GPUs that it runs on, its watts and its rate with them."""

    settings: dict[str, Any]
    power_w: float
    rate: float


def rates_of(table: Mapping[str, Any]) -> list[float]:
    """Rate of each row of a table, in work per second."""
    rates: list[float] = table.get("rate") or [1.0 / seconds for seconds in table["completion_s"]]
    return rates


def _tolerable(table: Mapping[str, Any], least_progress: float) -> dict[str, Any]:
    """Rows of a table that keep such a part of the best rate of the same GPUs."""
    rates, best = rates_of(table), dict[tuple[int, str], float]()
    places = [*zip(table["gpus"], table["pool"], strict=True)]
    for place, rate in zip(places, rates, strict=True):
        best[place] = max(rate, best.get(place, 0.0))
    kept = [i for i, rate in enumerate(rates) if rate >= least_progress * best[places[i]] * (1.0 - 1e-9)]
    return {name: column and [column[i] for i in kept] for name, column in table.items()}


def _undominated(found: SizingOptions) -> IntArray:
    """Options in which a job runs, but for those that take no fewer watts and are no faster than another one.

    Both have the same GPUs of a pool. Of the combinations of batch sizes and clocks these are most.
    """
    order = np.lexsort((-found.rate, found.power_w, found.gpus, found.pool))
    order = order[found.pool[order] >= 0]
    alike = found.gpus[order] * len(found.pools) + found.pool[order]
    group = np.cumsum(np.diff(alike, prepend=-1) != 0)
    _, rank = np.unique(found.rate, return_inverse=True)
    # All ranks of a group are above those of the groups before it, so that each has a maximum of its own.
    rank = rank[order] + group * (len(found) + 1)
    best = np.maximum.accumulate(np.append(-1, rank))[:-1]
    return np.sort(order[rank > best])

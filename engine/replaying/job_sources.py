"""Jobs of a file that are replayed: `JobSource`."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from pydantic import RootModel

from wattsched.instances.errors import InputError, NoticeWarning, naming, require_range, validated
from wattsched.instances.io import read_json
from wattsched.instances.traces import KNOWN, TraceJob, formats
from wattsched.instances.traces.job_lists import first_arrival
from wattsched.instances.traces.recorded import MOST_GPUS, grown, using_gpus
from wattsched.instances.units import S_PER_DAY
from wattsched.perfmodels.profile import CATALOGUE, Profile, Profiles
from wattsched.perfmodels.profile_errors import with_errors
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import meant, notice
from wattsched.reading.tables import comments_of
from wattsched.replay.jobs.listing import read_listing, read_tables, tells_work
from wattsched.replay.jobs.trace import ELASTICITY, Trace, is_plain, trace_of_durations
from wattsched.report.imports import Entry, gpu_hours, overfull
from wattsched.topology.cluster import Cluster

File = str | Path

LIST = "csv"
"""The format of lists of one's own, of which those that tell work are read by `replay.jobs.listing`."""


def forms() -> list[str]:
    """Names of the formats of lists of jobs, that of lists of one's own first."""
    known = [name for name, form in formats().items() if form.yields == "jobs"]
    return sorted(known, key=lambda name: name != LIST)


def read_profiles(path: str | Path) -> Profiles:
    """Read profiles that take the place of the catalogue's: one of `fit`, a list, or those of an instance.

    Faults, and no profile at all, are an `InputError`.
    """
    document = read_json(path)
    one = isinstance(document, dict) and "throughput" in document
    told = document.get("profiles") if isinstance(document, dict) and not one else document
    if not one and (not isinstance(told, list) or not told):
        what = "is neither a profile nor a list of them, nor an instance with 'profiles'"
        raise InputError([what], str(path))
    found = validated(RootModel[list[Profile]], [document] if one else told, str(path))
    return Profiles(tuple(found.root))


@dataclass(frozen=True)
class JobSource:
    """Jobs of a file, and which of them are replayed.

    Parameters
    ----------
    file : str or Path
        A list or a public trace.
    form : str
        csv: job, arrival, duration, gpus, or job, arrival_s, work, requested_gpus and model or table.
    tables : str or Path, optional
        Option tables by name (.json), for a csv that tells work.
    virtual_cluster : str, optional
        Take its jobs only, of philly, or of gavel with a column vc.
    unit : str, optional
        Unit of the times of pai, where the file does not show it.
    throughputs : str or Path, optional
        Throughputs of gavel's job types (default: the file beside the trace).
    from_day : float
        Jobs from this day on.
    to_day : float, optional
        Jobs before this day.
    profiles : str or Path, optional
        Performance models (.json) of your own, in the place of the catalogue's: of fit, a list, an instance.
    elasticity : int
        Jobs may use from an N-th of the GPUs that they asked for to N times as many; 1: these alone, of the
        type that a list names. Bounds of a list (`min_gpus`, `max_gpus`) take its place.
    as_deployed : bool
        Jobs are what `slurm` and `kubernetes` would deploy: plain requests, where a list gives neither a
        model nor bounds of GPUs.
    model_errors : bool
        Draw errors of the performance models by the seed, too.

    Raises
    ------
    ValueError
        For what does not go with the format; what is named in backticks is a field.
    """

    file: File
    form: str = LIST
    tables: File | None = None
    virtual_cluster: str | None = None
    unit: Literal["s", "h"] | None = None
    throughputs: File | None = None
    from_day: float = 0.0
    to_day: float | None = None
    profiles: File | None = None
    elasticity: int = ELASTICITY
    as_deployed: bool = False
    model_errors: bool = False

    def __post_init__(self) -> None:
        require_types(JobSource, vars(self))
        require_range(self.from_day < math.inf, "from_day", "a number of days", self.from_day)
        require_range(not math.isnan(self.to_day or 0.0), "to_day", "a number of days", self.to_day)
        require_range(1 <= self.elasticity <= MOST_GPUS, "elasticity", f"1 to {MOST_GPUS}", self.elasticity)
        if self.to_day is not None and self.to_day <= self.from_day:
            raise ValueError(f"to_day: must be above `from_day` {self.from_day:g}, got {self.to_day:g}")
        if self.as_deployed and self.elasticity != ELASTICITY:
            told = "a list's min_gpus and max_gpus say which jobs are elastic"
            raise ValueError(f"`elasticity` does not go with `as_deployed`: {told}")
        if self.form not in (known_forms := forms()):
            near = meant(self.form, known_forms)
            raise ValueError(f"form: '{self.form}' is not known{near}; there are {', '.join(known_forms)}")
        known = inspect.signature(formats()[self.form].read).parameters
        for name in self._reading():
            if name not in known:
                raise ValueError(f"`{name}` does not go with the format {self.form}")
        if self.form != LIST and self.tables is not None:
            message = "whose jobs train models of the catalogue"
            raise ValueError(f"`tables` does not go with the format {self.form}, {message}")

    def traces(self, cluster: Cluster, seeds: Sequence[int] = (0,)) -> dict[int, Trace]:
        """Read the jobs: by seed, a trace in which they train the models that the file or the seed tells.

        Raises
        ------
        ValueError
            For a malformed file, one without jobs, and several seeds for a list that tells work, in which
            nothing is drawn without `model_errors`.
        wattsched.InputError
            For a malformed file of tables or profiles, and malformed cells of a list that tells durations.
        OSError
            When a file cannot be read.
        """
        profiles, of_seed = self._profiles()
        if not self.draws:
            return self._listed(cluster, {seed: of_seed(seed) for seed in seeds})
        if self.tables is not None:
            raise ValueError("`tables` does not go with a csv list without work, whose jobs name no tables")
        with naming(self.file):
            jobs, made = self._recorded(profiles, of_seed)
            found = {seed: made(cluster, jobs, seed=seed) for seed in seeds}
        if self.form == LIST:
            clock = first_arrival(self.file)
            found = {s: replace(trace, clock=clock) for s, trace in found.items()}
            self._notice_cuts(jobs, found[seeds[0]])
            if waited := [job for job in jobs if job.waited_s is not None]:
                for entry in overfull(waited, cluster, clock):
                    notice(f"{self.file}: {entry.sentence()}")
        return found

    def as_set(self, cluster: Cluster, traces: Mapping[int, Trace]) -> Mapping[int, Trace]:
        """Traces of the same jobs whose settings the operator may set, plain requests or not."""
        if not self.as_deployed:
            return traces
        with warnings.catch_warnings(category=NoticeWarning, action="ignore"):  # told of `traces`
            return replace(self, as_deployed=False, elasticity=1).traces(cluster, [*traces])

    def elsewhere(self, recorded_on: Cluster, growth: float = 0.0) -> Callable[[Cluster, int], Trace]:
        """Read jobs that ran on a cluster; return what makes the trace of any cluster and seed of them.

        `growth` is the part by which there are more (`instances.traces.recorded.grown`). Errors are those of
        `traces`; a list that tells work is refused, too.
        """
        profiles, of_seed = self._profiles()
        with naming(self.file):
            if not self.draws:
                raise ValueError("tells work; this needs a list of what ran, with durations")
            jobs, made = self._recorded(profiles, of_seed)
        if self.form == LIST:
            self._notice_cuts(jobs, made(recorded_on, jobs, seed=0))
        load = cache(partial(grown, using_gpus(jobs), growth))
        return lambda cluster, seed: made(cluster, load(seed), seed=seed, recorded_on=recorded_on)

    def _profiles(self) -> tuple[Profiles, Callable[[int], Profiles]]:
        """Performance models, and those of a seed."""
        known = CATALOGUE if self.profiles is None else read_profiles(self.profiles)
        return known, cache(partial(with_errors, known)) if self.model_errors else lambda seed: known

    def _recorded(
        self, profiles: Profiles, of_seed: Callable[[int], Profiles]
    ) -> tuple[list[TraceJob], Callable[..., Trace]]:
        """Jobs of the days, of a file that tells durations, and what makes traces with the settings."""
        before, jobs = self._within(self._read(profiles))
        if self.form == LIST or self.as_deployed:
            self._notice_freedom(jobs)

        def made(cluster: Cluster, jobs: Sequence[TraceJob], *, seed: int, **more: Any) -> Trace:
            """Make a trace of jobs by `trace_of_durations`."""
            return trace_of_durations(
                cluster,
                jobs,
                seed=seed,
                elasticity=self.elasticity,
                as_deployed=self.as_deployed,
                profiles=of_seed(seed),
                history=before,
                **more,
            )

        return jobs, made

    def _notice_cuts(self, jobs: Sequence[TraceJob], trace: Trace) -> None:
        """Say of jobs that ask for more GPUs than their model or the cluster has that they get fewer."""
        asked = {job.name: job for job in jobs}
        given = zip(trace.names, trace.requested_gpus.tolist(), strict=True)
        cut = [(asked[name], gpus) for name, gpus in given if gpus < asked[name].gpus]
        if cut:
            lost_h = gpu_hours(replace(job, gpus=job.gpus - gpus) for job, gpus in cut)
            message = f"{len(cut):,} of {len(trace):,} jobs run as long on fewer GPUs than they asked for"
            why = "the profile of their model or the largest block of the cluster has no more"
            job, gpus = max(cut, key=lambda one: one[0].gpus)
            most = f"'{job.name}', which asks for most, runs on {gpus:,} instead of {job.gpus:,}"
            message = f"{message} ({lost_h:,.0f} GPU hours less; {most}): {why}"
            notice(f"{self.file}: assumed: {message}")

    @property
    def draws(self) -> bool:
        """True if models are drawn by seed for jobs that name none; a ValueError for a malformed list."""
        return self.form != LIST or not tells_work(self.file)

    @property
    def comments(self) -> list[str]:
        """Comments of a list of one's own, such as what its import left out."""
        return [f"the trace: {told}" for told in comments_of(self.file)] if self.form == LIST else []

    def _notice_freedom(self, jobs: Sequence[TraceJob]) -> None:
        """Say what jobs may do besides what they did; who has a list of one's own may not have read of it."""
        most = self.elasticity
        if self.as_deployed:
            requests = f"{sum(map(is_plain, jobs)):,} of {len(jobs):,} jobs are plain requests"
            told = f"{requests}, which change neither GPUs nor settings; the others as the list says"
            notice(f"{self.file}: as deployed: {told}")
            return
        gpus = f" and on 1/{most} to {most} times the GPUs that they asked for" if most > 1 else ""
        notice(f"{self.file}: assumed: jobs can run at other batch sizes and clocks{gpus}")

    def _listed(self, cluster: Cluster, known: Mapping[int, Profiles]) -> dict[int, Trace]:
        """Jobs of a list that tells their work, by the seed of the performance models."""
        if len(known) > 1 and not self.model_errors:
            raise ValueError(
                "seeds: a csv list with work tells what every job runs, nothing is drawn; give one seed"
            )
        if (self.from_day, self.to_day) != (0.0, None):
            message = "do not go with a csv list that tells work; leave the lines out of the file"
            raise ValueError(f"`from_day` and `to_day` {message}")
        if self.elasticity != ELASTICITY:
            raise ValueError(
                "`elasticity` does not go with a csv list that tells work; give min_gpus, max_gpus"
            )
        if self.as_deployed:
            told = "whose models, tables and bounds are what is deployed in any case"
            raise ValueError(f"`as_deployed` does not go with a csv list that tells work, {told}")
        tables = {} if self.tables is None else read_tables(self.tables)
        with naming(self.file):
            return {s: read_listing(self.file, cluster, tables, own) for s, own in known.items()}

    def _read(self, profiles: Profiles) -> list[TraceJob]:
        read = formats()[self.form].read
        known = {KNOWN: profiles} if KNOWN in inspect.signature(read).parameters else {}
        jobs: list[TraceJob] = read(self.file, **self._reading(), **known)
        return jobs

    def _reading(self) -> dict[str, Any]:
        """Options of the format's reader that are given."""
        values = {name: getattr(self, name) for name in ("virtual_cluster", "unit", "throughputs")}
        return {name: value for name, value in values.items() if value is not None}

    def _within(self, jobs: list[TraceJob]) -> tuple[list[TraceJob], list[TraceJob]]:
        """Jobs before the days, counted from the first job, and jobs of the days."""
        days = [job.submitted_s / S_PER_DAY for job in jobs]
        first, end = min(days, default=0.0), float("inf") if self.to_day is None else self.to_day
        within = [job for job, day in zip(jobs, days, strict=True) if self.from_day <= day - first < end]
        if jobs and not within:
            last = f"the last one arrives on day {max(days) - first:.4g}"
            raise ValueError(f"no job between `from_day` and `to_day`; {last}")
        window_s = (end - self.from_day) * S_PER_DAY
        if long := [job for job in within if job.duration_s > window_s]:
            what = f"longer than the {window_s / S_PER_DAY:g} days asked for"
            notice(f"{self.file}: {Entry.of('doubtful', what, long).sentence()}")
        before = [job for job, day in zip(jobs, days, strict=True) if day - first < self.from_day]
        return before, within

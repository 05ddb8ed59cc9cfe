"""Exchange with other programs: `import_trace`, `export_program`, `export_topology`, `json_schema`."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from pydantic import BaseModel

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.instances.clairvoyant import ClairvoyantBound
from wattsched.instances.errors import (
    InputError,
    NoticeWarning,
    UnreadableError,
    naming,
    require,
    require_known,
    require_range,
    shown,
)
from wattsched.instances.gpu_names import stated_gpu_type
from wattsched.instances.io import read_json
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.instances.sizing.explanation import Explanation
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.traces import KNOWN, Format, TraceJob, formats, round_at, using_gpus
from wattsched.instances.traces.openb import read_openb
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import read_text, require_once
from wattsched.replaying.placements import read_experiment
from wattsched.report.imports import Entry
from wattsched.results.documents import instance_of
from wattsched.results.problems import problem as find_problem
from wattsched.solvers.export import to_lp, to_mps
from wattsched.solving.engine import model_of
from wattsched.topology.cluster import Cluster
from wattsched.topology.exchange import from_node_link, from_slurm, to_node_link, to_slurm

File = str | Path
_COMMENT = {"mps": "*", "lp": "\\"}
DRAFT = "https://json-schema.org/draft/2020-12/schema"
ROUND = ("at", "cluster", "power_fraction", "objective", "round_s", "restart_s", "seed")
WINDOW = ("window", "arrived", "placed_by", "seed")
"""Options of `import_trace` for a round of jobs, and for a window of tasks."""


def reading_of(form: Format) -> list[inspect.Parameter]:
    """Options of a format's reader."""
    every = list(inspect.signature(form.read).parameters.values())[1:]
    return [parameter for parameter in every if parameter.name != KNOWN]


def import_trace(form: str, *files: File, **options: Any) -> Instance | PlacementInstance:
    """Make an instance of files of a public trace.

    Parameters
    ----------
    form : str
        ``openb``, ``itp``, ``philly``, ``pai`` or ``gavel``.
    *files : str or Path
        Of a trace of jobs any number, whose jobs are taken together; of ``openb`` one file of nodes, which
        gives a cluster without jobs, or with `window` one of nodes and one of tasks.
    **options
        Those of the format's reader. Of a trace of jobs also at (seconds of the trace's clock, or
        "busiest"), cluster, power_fraction, objective, round_s, restart_s and seed, as for
        `instances.traces.round_at`. With window, the number of tasks, also arrived (default: 0.8; GPU asked
        for before, as a part of the capacity), placed_by (default: "fgd"; the policy that placed it) and
        seed.

    Returns
    -------
    Instance or PlacementInstance

    Raises
    ------
    ValueError
        For an unknown format or option, a malformed file, a job that is in two files, or when no job is in
        the system at that moment.
    OSError
        When a file cannot be read.
    """
    instance, _ = imported(form, *files, **options)
    return instance


def imported(form: str, *files: File, **options: Any) -> tuple[Instance | PlacementInstance, list[Entry]]:
    """Make an instance as `import_trace`, and tell what was read, assumed and left out."""
    require_known("form", form, known := formats())
    for file in files:
        require("files", file, (str, os.PathLike), "paths")
    rules, window = known[form], options.get("window") is not None
    of_reader = [] if window else [parameter.name for parameter in reading_of(rules)]
    of_instance = WINDOW if window and rules.windows else ROUND if rules.yields == "jobs" else ()
    for name in options:
        if name not in (*of_reader, *of_instance):
            raise ValueError(f"`{name}` does not go with the format {form}{' and a window' * window}")
    require_types(_window if window else rules.read, options)
    require_types(round_at, options)
    if window:
        return _window(files, **options)
    if rules.yields == "cluster" and len(files) != 1:
        two = ", or with --window two, nodes and tasks" if rules.windows else ""
        raise ValueError(f"{form}: takes one file of nodes{two}; got {len(files)} without it")
    require_once(files)
    reading = {name: options.pop(name) for name in of_reader if name in options}
    read = [rules.read(file, **reading) for file in files]
    if rules.yields == "jobs":
        return _round(_told_apart(read, files) if rules.numbered else read, files, options)
    gpus = sum(node.gpus for node in read[0].nodes)
    entry = Entry("read", f"nodes with {gpus:,} GPUs", len(read[0].nodes))
    return Instance(name=read[0].name, cluster=read[0], jobs=[]), [entry]


def _round(
    traces: list[list[TraceJob]], files: Sequence[File], options: dict[str, Any]
) -> tuple[Instance, list[Entry]]:
    """Round of the jobs of all files, and what was read, left out and assumed; options as of `import_trace`.

    The readers have refused a job that is in a file twice.
    """
    found: dict[str, File] = {}
    for file, trace in zip(files, traces, strict=True):
        for job in trace:
            if job.name in found:
                raise ValueError(f"{file}: the job '{job.name}' is in {found[job.name]} too")
        found |= {job.name: file for job in trace}
    if "objective" in options:
        options["objective"] = find_problem("sizing").objective(options["objective"])
    at = options.pop("at", "busiest")
    every = [job for trace in traces for job in trace]
    with naming(", ".join(map(str, files))):
        jobs = using_gpus(every)
    made = round_at(jobs, at, name=_stem(files[0]), **options)
    here, using = {job.name for job in made.jobs}, {job.name for job in jobs}
    parts = {
        ("read", "jobs"): every,
        ("left out", "without GPUs or duration"): [job for job in every if job.name not in using],
        ("left out", "not in the system at the moment of the round"): [j for j in jobs if j.name not in here],
        ("assumed", "models drawn by the seed"): [j for j in jobs if j.name in here and j.model is None],
    }
    return made, [Entry.of(done, what, part) for (done, what), part in parts.items() if part]


def _told_apart(traces: list[list[TraceJob]], files: Sequence[File]) -> list[list[TraceJob]]:
    """Jobs with the names of their files before their numbers; each file keeps its own clock."""
    if len(files) == 1:
        return traces
    labels = [_stem(file) for file in files]
    if len(set(labels)) < len(labels):
        labels = [f"{label}-{number}" for number, label in enumerate(labels, start=1)]
    return [
        [replace(job, name=f"{label}:{job.name}") for job in trace]
        for label, trace in zip(labels, traces, strict=True)
    ]


def _stem(file: File) -> str:
    return Path(str(file)).name.partition(".")[0]


def _window(
    files: Sequence[File], window: int, arrived: float = 0.8, placed_by: str = "fgd", seed: int = 42
) -> tuple[PlacementInstance, list[Entry]]:
    """Window of so many tasks, and what was read and assumed.

    Tasks that ask for `arrived` of the GPU capacity have come before, and the policy `placed_by` placed them.
    """
    from wattsched.replay.placement.policies import policy_factory
    from wattsched.replay.placement.stream import window_at

    if len(files) != 2:
        raise ValueError(f"window: takes two files, nodes and tasks, got {len(files)}")
    policy_factory(placed_by)
    experiment = read_experiment(*files, arrivals=arrived, seed=seed)
    # How models are spelled is a matter of FGD's target workload; of a window only what they are counts.
    merged = replace(experiment, tasks=experiment.tasks.with_equal_specs_merged())
    entries = [
        Entry("read", f"nodes, and {len(experiment.tasks):,} tasks", len(experiment.nodes)),
        Entry("assumed", f"they arrive in an order drawn by the seed; {placed_by} placed those before"),
    ]
    return window_at(merged, placed_by, seed, window), entries


CLUSTERS = (
    "a cluster is read of an instance or a node-link graph (.json), an openb node list (.csv) or a Slurm "
    "topology (.conf); of what Slurm's commands print, 'wattsched import slurm' makes one"
)


def read_cluster(file: File, gpu_type: str = "A100", gpus_per_node: int = 8) -> Cluster:
    """Read a cluster alone, as `read_site` does."""
    cluster, _ = read_site(file, gpu_type, gpus_per_node)
    return cluster


def read_site(file: File, gpu_type: str = "A100", gpus_per_node: int = 8) -> tuple[Cluster, float | None]:
    """Read a cluster of an instance or node-link graph (.json), of openb's nodes (.csv) or of Slurm (.conf).

    With it comes the cap in watts that an instance states for the whole site, None where there is none.

    Parameters
    ----------
    gpu_type, gpus_per_node
        Of a .conf, which does not tell them. The type is one that is known, such as ``H100``, or says which
        known one counts instead: ``rtx5090=A100``.

    Raises
    ------
    ValueError, wattsched.InputError
        For a malformed file, an instance without a cluster, and an unknown GPU type.
    OSError
        When the file cannot be read.
    """
    require_types(read_site, {"file": file, "gpu_type": gpu_type, "gpus_per_node": gpus_per_node})
    require_range(gpus_per_node >= 1, "gpus_per_node", "at least 1", gpus_per_node)
    name = str(file)
    with naming(file):
        form = cluster_form(file)
        if form == ".csv":
            return read_openb(file), None
        if form == ".conf":
            text, (gpu_type, kind) = read_text(file), stated_gpu_type(gpu_type)
            cluster = from_slurm(
                text, gpu_type=gpu_type, gpus_per_node=gpus_per_node, idle_power_w=kind.idle_power_w
            )
            return cluster.model_copy(update={"gpu_types": {gpu_type: kind}}), None
        try:
            document = read_json(file)
        except UnreadableError:
            raise
        except InputError as error:
            raise InputError([f"{message}; {CLUSTERS}" for message in error.faults], error.source) from None
        if isinstance(document, dict) and "nodes" in document and "format" not in document:
            return from_node_link(document), None
        instance = instance_of(document, source=name)
        return cluster_of(instance), getattr(getattr(instance, "budgets", None), "power_w", None)


def cluster_form(file: File) -> str:
    """Form of a cluster's file, .json, .csv or .conf: by its name, or where that tells none by its text."""
    if named := [form for form in (".json", ".csv", ".conf") if str(file).removesuffix(".gz").endswith(form)]:
        return named[0]
    text = read_text(file).lstrip()
    if text.startswith("{"):
        return ".json"
    return ".conf" if "SwitchName=" in text else ".csv" if "," in text.partition("\n")[0] else ".json"


def cluster_of(instance: Any) -> Cluster:
    """Cluster of an instance; a ValueError for problems besides `sizing`, which have pools alone."""
    if not hasattr(instance, "cluster"):
        raise ValueError(f"an instance of '{instance.problem}' has no cluster")
    cluster: Cluster = instance.cluster
    return cluster


def export_program(
    instance: BaseModel | File,
    form: Literal["mps", "lp"] = "mps",
    *,
    formulation: str | None = None,
    objective: str | None = None,
) -> str:
    """Write the mathematical program of an instance for other solvers.

    Parameters
    ----------
    form : {"mps", "lp"}
    instance, formulation, objective
        As for `solve`.

    Raises
    ------
    ValueError, TypeError, wattsched.InputError
        As `solve`; also when there is no decision, and so no program, or when it holds what such a file
        cannot.

    Notes
    -----
    A program of generated columns, whose optimum need not be that of the instance, begins with a comment that
    says so.
    """
    for option, value in (("formulation", formulation), ("objective", objective)):
        require(option, value, (str, NoneType), "a name")
    write = {"mps": to_mps, "lp": to_lp}
    require_known("form", form, write)
    try:
        model = model_of(instance, formulation=formulation, objective=objective)
    except InfeasibleError as error:
        raise ValueError(f"there is no program: {error.detail}") from None
    text = write[form](model.listed)
    if model.outside == math.inf:
        return text
    message = "the program holds generated columns only; others may have better decisions"
    warnings.warn(f"{getattr(instance, 'name', instance)}: {message}", NoticeWarning, stacklevel=2)
    # Who solves the file later does not see the warning.
    return f"{_COMMENT[form]} {message}\n{text}"


def export_topology(instance: Instance, form: Literal["json", "conf"] = "json") -> str:
    """Write the cluster's tree as a node-link graph (json), or as Slurm's topology (conf).

    Raises
    ------
    ValueError
        For an unknown form, or if the instance has no cluster, or Slurm could not say it.
    """
    require_known("form", form, ("json", "conf"))
    require("instance", instance, (BaseModel,), "an instance")
    cluster = cluster_of(instance)
    return to_node_link(cluster) + "\n" if form == "json" else to_slurm(cluster)


def json_schema(
    document: Literal["instance", "result", "frontier", "bound", "explanation"] = "instance",
    problem: str | None = None,
) -> dict[str, Any]:
    """JSON Schema of the files of a problem, of a bound on the schedules of a trace, or of an explanation.

    Parameters
    ----------
    problem : str, optional
        Default: sizing, and of a frontier shifting; a bound is of none, an explanation of sizing.

    Raises
    ------
    ValueError
        For an unknown document or problem, and one of a bound.
    """
    from pydantic import create_model

    from wattsched.results.result import Result
    from wattsched.solving.tradeoffs import ParetoPoint, ParetoResult

    require_known("document", document, ("instance", "result", "frontier", "bound", "explanation"))
    if document == "bound":
        if problem is not None:
            raise ValueError(f"bound: is of a trace, not of a `problem`, got {shown(problem)}")
        return schema_of(ClairvoyantBound)
    if document == "explanation":
        if problem not in (None, "sizing"):
            raise ValueError(f"explanation: is of `problem` sizing, not {shown(problem)}")
        return schema_of(Explanation)
    if problem is None:
        problem = "shifting" if document == "frontier" else "sizing"
    rules = find_problem(problem)

    def narrowed(model: type[BaseModel], name: str, **types: Any) -> type[BaseModel]:
        """Model of a name, with a type and a default for each field that it leaves open."""
        return create_model(name, __base__=model, __doc__=model.__doc__, **types)

    model: type[BaseModel] = rules.instance
    if document != "instance":
        model = narrowed(
            Result,
            f"{rules.name.title()}Result",
            # Files leave out what is the default.
            problem=(Literal[rules.name], "sizing" if rules.name == "sizing" else ...),
            objective_name=(Literal[tuple(rules.objectives)], ...),
            decision=(rules.decision | None, None),
        )
    if document == "frontier":
        result: Any = model
        before = (result | None, None)
        point: Any = narrowed(ParetoPoint, "ParetoPoint", result=(result, ...), before=before)
        points = (list[point], ...)
        model = narrowed(ParetoResult, "ParetoResult", points=points, ends=(list[result], []))
    return schema_of(model, problem)


def schema_of(model: type[BaseModel], problem: str = "") -> dict[str, Any]:
    """JSON Schema of the files of a model, under the name of its format and problem."""
    name = "/".join(filter(None, [model.model_fields["format"].default, problem]))
    return {"$schema": DRAFT, "$id": name, **model.model_json_schema()}

"""`compare`: every instance by every formulation and solver, and what can be said about all of them."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from wattsched.comparisons.features import Features, features_of
from wattsched.comparisons.run import Case, Run, Settings, asked_of, content_of, execute
from wattsched.comparisons.statistics import Summary, disagreements, summaries, virtual_best
from wattsched.comparisons.tables import latex, markdown, shown
from wattsched.comparisons.trajectories import best_of, with_primal_integrals
from wattsched.environment.extras import missing
from wattsched.environment.version import __version__
from wattsched.instances.errors import require, require_range
from wattsched.instances.io import csv_text_cell, write_atomically, write_json
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import read_bytes
from wattsched.results.documents import read_instance
from wattsched.results.problems import problem
from wattsched.running.executors import ClusterError, Executor, SerialExecutor
from wattsched.solvers.solution import relative_gap
from wattsched.solving.engine import require_names, sound_instance

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "wattsched-comparison/1"
RUNS = "runs"
TRAJECTORY = ["instance", "formulation", "solver", "seed", "time_s", "objective", "bound"]
NOT_IN_CSV = ("trajectory",)
Planned = tuple[Case, str, str, Settings]
"""Case, formulation, solver and settings, with their seed, of a run to do."""


@dataclass(frozen=True)
class Progress:
    """State of a comparison: runs done of all, and the one that begins or has ended (at last: none)."""

    done: int
    total: int
    case: str
    pair: str


@dataclass(frozen=True)
class Comparison:
    """All runs of a comparison, and what follows from them.

    Attributes
    ----------
    runs : list of Run
        By instance, then formulation, then solver, then seed.
    resumed : int
        Runs that were taken from the folder.
    repeated : dict of str to str
        Files that hold the same instance as an earlier one, which is counted once: file to that one's name.
    features : list of Features
        Of every instance under every formulation, where they were asked for.
    """

    settings: Settings
    runs: list[Run]
    resumed: int
    repeated: dict[str, str]
    features: list[Features] = field(default_factory=list)

    @property
    def disagreements(self) -> list[str]:
        """Contradictions between the runs; see `agreement`."""
        return disagreements(self.runs)

    @property
    def failures(self) -> list[str]:
        """Runs in which a solver or a user's formulation broke down."""
        return [
            f"{run.instance}: {run.pair}: {run.detail}"
            for run in self.runs
            if run.status == "error" and not run.faults
        ]

    @property
    def summaries(self) -> list[Summary]:
        """Means for each formulation and solver."""
        return summaries(self.runs)

    @property
    def virtual_best(self) -> Summary | None:
        """Means of the quickest run of every instance and seed, where there are several to choose from."""
        return virtual_best(self.runs)

    @property
    def trajectories(self) -> pd.DataFrame:
        """When each run's own decision or bound became better: a row for every such moment.

        Columns are instance, formulation, solver, seed, time_s (of building and solving), objective and
        bound, which is nan before there is one.
        """
        import pandas as pd

        rows = [
            (run.instance, run.formulation, run.solver, run.seed, *moment)
            for run in self.runs
            for moment in run.trajectory
        ]
        return pd.DataFrame(rows, columns=TRAJECTORY).astype({"objective": float, "bound": float})


def compare(
    instances: Sequence[BaseModel | str | Path] | BaseModel | str | Path,
    *,
    formulations: Sequence[str] | str | None = None,
    solvers: Sequence[str] | str = ("auto",),
    settings: Settings | None = None,
    seeds: Sequence[int] | None = None,
    folder: str | Path | None = None,
    features: bool = False,
    executor: Executor | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Comparison:
    """Solve every instance by every formulation and solver.

    Parameters
    ----------
    instances : sequence of instances, str or Path, or one of them
        Instances, or the paths of instance files. An instance that is named twice, or has a copy among them,
        counts once.
    formulations, solvers : sequences of str, or a str
        Names as for `wattsched.solve`; a formulation may be ``FILE.py:NAME``. Without formulations each
        instance is solved by the default one of its problem.
    settings : Settings, optional
        Objective, gap, time limit, threads and seed, equal for all.
    seeds : sequence of int, optional
        Every run is done once with each of these seeds, in place of that of the settings.
    folder : path, optional
        Where finished runs are kept, but for those in which something broke down. Those that are there
        already are not run again; an interrupted comparison loses the runs that it was in.
    features : bool
        Also solve the LP relaxation of every instance and formulation, in this process, for
        `Comparison.features`.
    executor : Executor, optional
        Does the runs (`wattsched.dask_executor`); default: this process, one after the other.
    progress : callable
        Called before and after every run and once at the end.

    Raises
    ------
    ValueError
        For unknown names, where none is named, and for a folder with a `runs.csv` of somebody else; a
        `ClusterError` where an executor cannot go on.
    TypeError
        For arguments of another type.
    wattsched.InputError
        For files that are no instances, and for a user's formulation that cannot be loaded.
    """
    options = {
        "settings": settings,
        "seeds": seeds,
        "folder": folder,
        "features": features,
        "executor": executor,
        "progress": progress,
    }
    require_types(compare, options)
    settings = settings or Settings()
    executor = executor or SerialExecutor()
    cases, repeated = _cases(_several("instances", instances, BaseModel | str | Path))
    solvers = _several("solvers", solvers, str)
    formulations = None if formulations is None else _several("formulations", formulations, str)
    each = [settings] if seeds is None else [replace(settings, seed=seed) for seed in dict.fromkeys(seeds)]
    require_range(bool(each), "seeds", "one at least", "none")
    plan: list[Planned] = [
        (case, *pair, one)
        for case in cases
        for pair in _pairs(case, formulations, solvers, settings)
        for one in each
    ]
    asked = [asked_of(*one) for one in plan]
    store = None if folder is None else Path(folder) / RUNS
    if store is not None:
        if not store.exists() and (foreign := sorted(store.parent.glob("runs.*"))):
            raise ValueError(f"folder: {foreign[0]} is of no comparison, and would be overwritten")
        store.mkdir(parents=True, exist_ok=True)
    stored = {} if store is None else {number: _stored(store, one) for number, one in enumerate(asked)}
    done = {number: run for number, run in stored.items() if run is not None}
    missing, resumed = [number for number in range(len(plan)) if number not in done], len(done)

    def tell(number: int) -> None:
        case, formulation, solver, _ = plan[number]
        progress(Progress(len(done), len(plan), case.label, f"{formulation} {solver}"))

    tasks = _tasks(plan, missing, executor, tell)
    for place, run in executor.completed(execute, tasks):
        number = missing[place]
        if run.key != asked[number]["key"]:
            raise ClusterError(f"'{run.formulation}' has changed, or is another file where it was run")
        if store is not None and (run.status != "error" or run.faults):
            write_json(store / f"{run.key}.json", json.dumps(run.as_dict()) + "\n")
        done[number] = run
        tell(number)
    progress(Progress(len(done), len(plan), "", ""))
    runs = with_primal_integrals([done[number] for number in range(len(plan))])
    found = _features(plan, runs) if features else []
    return Comparison(settings, runs, resumed, repeated, found)


def _features(plan: Sequence[Planned], runs: Sequence[Run]) -> list[Features]:
    """Features of every instance and formulation, once each; one instance is in memory at a time."""
    best = best_of(runs)
    found: dict[tuple[str, str], Features] = {}
    current, instance = None, None
    for (case, formulation, _, settings), run in zip(plan, runs, strict=True):
        if (case.label, formulation) in found:
            continue
        if case is not current:
            current, instance = case, case.instance or read_instance(case.file)
        one, known = features_of(case, instance, formulation, settings), best.get(run.question)
        if known is not None and one.lp_objective is not None:
            one = replace(one, lp_gap=relative_gap(known, one.lp_objective))
        found[case.label, formulation] = one
    return list(found.values())


def _tasks(
    plan: Sequence[Planned],
    missing: Iterable[int],
    executor: Executor,
    begin: Callable[[int], None],
) -> Iterator[tuple[Any, ...]]:
    """Arguments of `execute` for missing runs, by number; one instance is in memory at a time.

    `begin` is called with the number of a run before its arguments are given.
    """
    current, instance = None, None
    for number in missing:
        case, formulation, solver, settings = plan[number]
        if case is not current:
            current, instance = case, executor.shared(case.instance or read_instance(case.file))
        begin(number)
        yield replace(case, instance=None), instance, formulation, solver, settings


def _several(name: str, given: Any, kind: Any) -> list[Any]:
    """Items of the argument `name`, of a `kind`, names each once; one alone may stand for a list of it."""
    one = isinstance(given, kind | Mapping) or not isinstance(given, Iterable)
    items = [given] if one else list(given)
    require_range(bool(items), name, "one at least", "none")
    for item in items:
        require(name, item, get_args(kind) or (kind,), "names" if kind is str else "instances or paths")
    return list(dict.fromkeys(items)) if kind is str else items


def _pairs(
    case: Case, formulations: Sequence[str] | None, solvers: list[str], settings: Settings
) -> list[tuple[str, str]]:
    """Formulations and solvers of a case, once their names are known to exist."""
    rules = problem(case.problem)
    asked = dict.fromkeys([case.formulation] if formulations is None else formulations)
    pairs = [(formulation, solver) for formulation in asked for solver in solvers]
    for formulation, solver in pairs:
        goal = case.objective if settings.objective is None else settings.objective
        require_names(rules, formulation, solver, goal)
    return pairs


def _cases(given: list[BaseModel | str | Path]) -> tuple[list[Case], dict[str, str]]:
    """Read all instances once, so that a bad one is known before hours are spent on the others.

    Returns the cases, and by file that repeats an instance the label of its case.
    """
    first: dict[str, Case] = {}
    copies: list[tuple[str, str]] = []
    for number, one in enumerate(given, start=1):
        instance, rules = sound_instance(one)
        content, made = content_of(instance), isinstance(one, BaseModel)
        file = f"{instance.name} ({number})" if made else str(one)
        if content in first:
            copies.append((file, content))
        else:
            label = instance.name if made else Path(file).name.removesuffix(".gz").removesuffix(".json")
            source, kept = (file, one) if isinstance(one, BaseModel) else (one, None)
            usual = rules.formulation_of(instance, None)
            first[content] = Case(source, label, content, instance.problem, instance.objective, usual, kept)
    often = Counter(case.label for case in first.values())
    for content, case in first.items():
        if often[case.label] > 1:
            first[content] = replace(case, label=str(case.file))
    return list(first.values()), {file: first[content].label for file, content in copies}


def _stored(store: Path, asked: dict[str, Any]) -> Run | None:
    """Finished run of what is asked; a file that is damaged, or of anything else, counts as none."""
    try:
        run = Run.from_json(read_bytes(store / f"{asked['key']}.json"))
    except (OSError, ValueError):
        return None
    # The same instance may have had another file name.
    found = replace(run, instance=asked["instance"])
    return found if all(getattr(found, name) == value for name, value in asked.items()) else None


def write_report(comparison: Comparison, folder: str | Path) -> list[str]:
    """Write all runs, their trajectories, and the means for a paper; return the names of the files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "runs.json", document(comparison))
    write_atomically(folder / "runs.csv", csv_text(Run, comparison.runs).encode())
    tables = [_write_trajectories(comparison, folder)]
    if comparison.features:
        tables.append("features.csv")
        write_atomically(folder / "features.csv", csv_text(Features, comparison.features).encode())
    means = shown(comparison.summaries, comparison.virtual_best)
    write_atomically(folder / "means.md", markdown(means, comparison.settings).encode())
    write_atomically(folder / "means.tex", latex(means, comparison.settings).encode())
    return ["runs.json", "runs.csv", *tables, "means.md", "means.tex"]


def _write_trajectories(comparison: Comparison, folder: Path) -> str:
    """Write all trajectories as Parquet, or where pyarrow is not installed as CSV; return the file's name."""
    table = comparison.trajectories
    name = "trajectories.csv" if missing("parquet") else "trajectories.parquet"
    if name.endswith(".csv"):
        texts = table.columns[:3]
        table[texts] = table[texts].map(csv_text_cell)
        write_atomically(folder / name, table.to_csv(index=False).encode())
    else:
        write_atomically(folder / name, table.to_parquet(engine="pyarrow", index=False))
    return name


def document(comparison: Comparison) -> str:
    """Comparison as a JSON document, one run per line."""
    runs = ",\n".join(f"  {json.dumps(run.as_dict())}" for run in comparison.runs)
    best = comparison.virtual_best
    means = [*comparison.summaries, *([] if best is None else [best])]
    head = {
        "format": FORMAT,
        "version": __version__,
        "settings": asdict(comparison.settings),
        # Null for nan, the mean over no runs, which JSON does not have.
        "summaries": [
            {name: None if value != value else value for name, value in asdict(summary).items()}
            for summary in means
        ],
        "disagreements": comparison.disagreements,
    }
    lines = [f' "{name}": {json.dumps(value)}' for name, value in head.items()]
    return "{\n" + ",\n".join([*lines, f' "runs": [\n{runs}\n ]']) + "\n}\n"


def csv_text(kind: type[Run | Features], found: Sequence[Run | Features]) -> str:
    """Runs or features as CSV, empty cells where there is no value."""
    text = io.StringIO()
    names = [field.name for field in fields(kind) if field.name not in NOT_IN_CSV]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for one in found:
        values = {name: getattr(one, name) for name in names}
        cells = {name: "; ".join(v) if isinstance(v, tuple) else v for name, v in values.items()}
        writer.writerow({k: csv_text_cell(v) if isinstance(v, str) else v for k, v in cells.items()})
    return text.getvalue()

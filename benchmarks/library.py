"""General solvers and ours on the library of instances, and what is known of them.

    python -m benchmarks.library --folder DIR --write [--limit 60] [--dask [ADDRESS]]

solves every instance by every solver; runs that are finished in DIR are not run again. ``--write`` keeps what
was found that is better than what library/ knows, sets who has solved each instance, and writes the table.

    python -m benchmarks.library --freeze

makes all instances of `library_families` anew and writes library/instances.json: only for a new version of
the library, since results hang on the digests.

    python -m benchmarks.library --folder DIR --records [--limit 10]

solves by wattsched alone, proves as much as there is time for, and writes what is known to library/.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import wattsched
from benchmarks.harness import FOLDER, say, write
from benchmarks.library_families import Draft, drafts
from benchmarks.library_page import content, plot
from wattsched.comparisons.compare import Comparison, compare, write_report
from wattsched.comparisons.run import Run, Settings
from wattsched.instances.digest import digest_of
from wattsched.instances.errors import InputError
from wattsched.instances.io import write_atomically, write_json
from wattsched.library.entries import FILE as INSTANCES
from wattsched.library.entries import Card, Entry, Library, entries, selected
from wattsched.library.recipes import MissingDataError
from wattsched.library.records import (
    FILE,
    RESULTS,
    BestKnown,
    Finder,
    Record,
    document_of,
    merged,
    record_of,
    result_of_record,
    shipped,
)
from wattsched.results.problems import problem
from wattsched.results.result import Result
from wattsched.running.dask_clusters import dask_executor
from wattsched.running.executors import ClusterError, Executor, SerialExecutor

ROOM = Path(__file__).resolve().parent.parent / "library"
VERSION = "1"
_WHEN = (1980, 1, 1, 0, 0, 0)
GAP = 1e-4
SOLVERS = ("highs", "cpsat", "pyomo:scip_direct", "pyomo:cbc", "price", "auto")
GENERAL = ("highs", "cpsat", "pyomo:scip_direct", "pyomo:cbc")
"""Solvers of any program; an instance that one of them has solved within a minute is easy."""
EASY_S = 60.0
PROVING = 0.5
"""As a share of the limit: seconds for a certificate tree."""
LEAST_PRICE = 1e-9


def frozen(drafted: Iterable[Draft], before: Mapping[str, Entry]) -> Iterator[Entry]:
    """Entries of drafts; the cards of those that have not changed are kept."""
    for draft in drafted:
        try:
            instance = draft.recipe.made(draft.name)
        except MissingDataError as error:
            raise SystemExit(f"{draft.name}: {error}") from None
        digest, known = digest_of(instance), before.get(draft.name)
        objective = draft.objective or instance.objective
        same = known is not None and (known.digest, known.objective) == (digest, objective)
        card = known.card if known is not None and same else Card(size=_size(instance), tags=[])
        yield Entry(
            name=draft.name,
            family=draft.family,
            problem=instance.problem,
            objective=objective,
            digest=digest,
            recipe=draft.recipe,
            card=card.model_copy(update={"tags": list(draft.tags)}),
        )
        say(f"{draft.name}: {digest[:12]}")


def _size(instance: Any) -> dict[str, int]:
    """Jobs or tasks, and GPUs."""
    jobs = {"tasks" if instance.problem == "placement" else "jobs": problem(instance.problem).size(instance)}
    match instance.problem:
        case "sizing":
            return jobs | {"gpus": instance.cluster.total_gpus}
        case "shifting":
            gpus = sum(pool.gpus for pool in instance.pools.values())
            return jobs | {"slots": instance.slots, "gpus": gpus}
        case "sharing":
            return jobs | {"gpus": sum(unit.count * unit.gpus for unit in instance.unit_types)}
        case _:
            return jobs | {"gpus": sum(node.gpus for node in instance.nodes)}


def with_card(entry: Entry, result: Result) -> Entry:
    """The entry with what a result tells of its program and its rows."""
    size = {} if result.size is None else result.size.model_dump(exclude_none=True, exclude={"dropped"})
    binding = sorted(
        {name.partition(":")[0] for name, price in result.prices.items() if abs(price) > LEAST_PRICE}
    )
    lp_gap = None
    if result.certificate is not None and result.objective is not None:
        alone = result.certificate.price_bound
        bound = result.certificate.bound if alone is None else alone
        lp_gap = float(f"{abs(result.objective - bound) / max(1e-9, abs(result.objective)):.3g}")
    own = {"jobs", "tasks", "slots", "gpus"}
    kept = {name: value for name, value in entry.card.size.items() if name in own}
    card = {"size": kept | size, "binding": binding, "lp_gap": lp_gap}
    return entry.model_copy(update={"card": entry.card.model_copy(update=card)})


def solved(name: str, solver: str, formulation: str | None, limit_s: float) -> dict[str, Any]:
    """Result of an entry as a document; with imports of its own, for workers elsewhere."""
    import wattsched
    from wattsched.library.entries import entries

    options = {"solver": solver, "formulation": formulation, "gap": GAP, "time_limit": limit_s}
    result = wattsched.solve(entries()[name].instance(), prove=PROVING * limit_s, **options)
    return document_of(result)


def results_of(
    asked: Sequence[tuple[str, str, str | None]], folder: Path, executor: Executor, limit_s: float
) -> Iterator[tuple[str, Result]]:
    """Results by entry, solver and formulation, of the folder where they are there; solved else."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}-{solver.replace(':', '-')}-{limit_s:g}.json" for name, solver, _ in asked]
    missing = [number for number, file in enumerate(files) if not file.exists()]
    tasks = ((*asked[number], limit_s) for number in missing)
    for place, document in executor.completed(solved, tasks):
        write_json(files[missing[place]], json.dumps(document) + "\n")
        ended = document["termination"]["reason"]
        say(f"{asked[missing[place]][0]}: {ended}, gap {document.get('proven_gap')} proven")
    for (name, _, _), file in zip(asked, files, strict=True):
        yield name, wattsched.read_result(file)


def known_records() -> dict[str, Record]:
    """Records of the instances as they are frozen now."""
    if not (ROOM / FILE).exists():
        return {}
    frozen_now = {(name, entry.digest, entry.objective) for name, entry in entries().items()}
    return {
        name: record
        for name, record in shipped().items()
        if (name, record.digest, record.objective_name) in frozen_now
    }


def improved(
    records: dict[str, Record], proofs: dict[str, Result], found: Iterable[tuple[str, Result]]
) -> None:
    """Put checked results in place of what is known where they are better, in `records` and `proofs`."""
    for name, result in found:
        entry = entries()[name]
        verdict = wattsched.check(entry.instance(), result)
        if verdict.faults or result.objective is None:
            say(f"{name}: left out: {'; '.join(verdict.faults) or 'no decision'}")
            continue
        before = records.get(name)
        kept = result.as_proven() if before is None else merged(result, proofs[name])
        proofs[name], records[name] = kept, record_of(entry, kept, Finder.of(result), before)


def with_solvers(record: Record, runs: Sequence[Run]) -> Record:
    """The record with who has solved its instance, and how difficult that makes it."""
    times = dict(record.solved_by)
    for run in runs:
        if run.instance == record.name and run.solved and run.total_s is not None:
            times[run.solver] = min(round(run.total_s, 3), times.get(run.solver, run.total_s))
    easy = any(times.get(solver, EASY_S + 1) <= EASY_S for solver in GENERAL)
    difficulty = "easy" if easy else "hard" if times or record.closed else "open"
    return record.model_copy(update={"solved_by": times, "difficulty": difficulty})


def better_elsewhere(runs: Sequence[Run], records: Mapping[str, Record]) -> list[tuple[str, str, str | None]]:
    """Entry, solver and formulation of runs whose decision is better than what is known."""
    best: dict[str, Run] = {}
    for run in runs:
        if run.objective is None or not run.checked or run.instance not in records:
            continue
        sign = 1.0 if run.sense == "min" else -1.0
        known = best.get(run.instance)
        bar = records[run.instance].objective if known is None else known.objective
        assert bar is not None
        if sign * run.objective < sign * bar - 1e-9 * abs(bar):
            best[run.instance] = run
    return [(name, run.solver, run.formulation) for name, run in best.items()]


def keep(records: Mapping[str, Record], proofs: Mapping[str, Result], cards: Mapping[str, Entry]) -> None:
    """Write what is known, its results, and the cards."""
    ordered = [records[name] for name in entries() if name in records]
    known = BestKnown(library=VERSION, records=ordered)
    _dump(ROOM / FILE, known)
    write_atomically(ROOM / RESULTS, archive_of(proofs))
    _dump(ROOM / INSTANCES, Library(version=VERSION, instances=list(cards.values())))
    say(f"{RESULTS}: {(ROOM / RESULTS).stat().st_size / 1e3:,.0f} kB")


def archive_of(results: Mapping[str, Result]) -> bytes:
    """Results as the archive that comes with a version; equal ones give equal bytes."""
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(results):
            text = json.dumps(document_of(results[name]), separators=(",", ":"))
            info = ZipInfo(f"{name}.json", _WHEN)
            info.compress_type = ZIP_DEFLATED
            archive.writestr(info, text, compresslevel=9)
    return buffer.getvalue()


def _dump(path: Path, model: Library | BestKnown) -> None:
    """Write a file with one entry in each line, so that changes of it can be read."""
    document = model.model_dump(mode="json", exclude_none=True)
    lists = [name for name, value in document.items() if isinstance(value, list)]
    head = [f' "{name}": {json.dumps(value)}' for name, value in document.items() if name not in lists]
    for name in lists:
        rows = ",\n".join(f"  {json.dumps(row)}" for row in document[name])
        head.append(f' "{name}": [\n{rows}\n ]')
    write_json(path, "{\n" + ",\n".join(head) + "\n}\n")


def compared(
    chosen: Sequence[Entry], solvers: Sequence[str], limit_s: float, folder: Path, executor: Executor
) -> Comparison:
    """All runs of all solvers; what is finished in the folder is taken from there."""
    instances = []
    for entry in chosen:
        try:
            instances.append(entry.instance())
        except MissingDataError as error:
            say(f"{entry.name}: left out: {error}")
    settings = Settings(gap=GAP, time_limit_s=limit_s)
    found = compare(
        instances,
        solvers=solvers,
        settings=settings,
        folder=folder,
        executor=executor,
        progress=lambda at: say(f"{at.done} of {at.total}: {at.case} {at.pair}") if at.case else None,
    )
    write_report(found, folder)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--freeze", action="store_true", help="make a new version of the instances")
    parser.add_argument("--records", action="store_true", help="solve by wattsched alone, for the records")
    parser.add_argument("--folder", type=Path, help="where finished runs are kept")
    parser.add_argument("--limit", type=float, default=60.0, metavar="S", help="seconds for each run")
    parser.add_argument("--solvers", default=",".join(SOLVERS), help="who solves, of --records auto alone")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="entries or families")
    parser.add_argument("--write", action="store_true", help="write library/ and docs/tables")
    parser.add_argument("--dask", nargs="?", const="local", help="ADDRESS of a scheduler, or local[:N]")
    asked = parser.parse_args()
    if asked.freeze:
        before = entries() if (ROOM / INSTANCES).exists() else {}
        return _dump(ROOM / INSTANCES, Library(version=VERSION, instances=list(frozen(drafts(), before))))
    if asked.folder is None:
        parser.error("--folder: say where finished runs are kept")
    try:
        chosen = selected(asked.only)
        here = nullcontext(SerialExecutor())
        with here if asked.dask is None else dask_executor(asked.dask) as executor:
            (record if asked.records else compare_all)(asked, chosen, executor)
    except (ClusterError, InputError, ValueError) as error:
        parser.error(str(error))


def record(asked: argparse.Namespace, chosen: Sequence[Entry], executor: Executor) -> None:
    """Solve by wattsched alone, and keep what is better than what is known, and the cards."""
    records = known_records()
    proofs = {name: result_of_record(record) for name, record in records.items()}
    pairs = [(entry.name, "auto", None) for entry in chosen]
    found = list(results_of(pairs, asked.folder / "results", executor, asked.limit))
    improved(records, proofs, found)
    cards = entries() | {name: with_card(entries()[name], result) for name, result in found}
    keep({name: with_solvers(record, []) for name, record in records.items()}, proofs, cards)


def compare_all(asked: argparse.Namespace, chosen: Sequence[Entry], executor: Executor) -> None:
    """Run all solvers, print the table, and keep what is better than what is known."""
    records = known_records()
    solvers = asked.solvers.split(",")
    comparison = compared(chosen, solvers, asked.limit, asked.folder, executor)
    print(content(comparison, records, entries()))
    if not asked.write:
        return
    proofs = {name: result_of_record(record) for name, record in records.items()}
    better = better_elsewhere(comparison.runs, records)
    improved(records, proofs, results_of(better, asked.folder / "results", executor, asked.limit))
    records = {name: with_solvers(record, comparison.runs) for name, record in records.items()}
    keep(records, proofs, entries())
    write("library", content(comparison, records, entries()))
    plot(comparison, FOLDER / "library.svg")


TABLES = {"library": compare_all}

if __name__ == "__main__":
    main()

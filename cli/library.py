"""``wattsched library``: the instances by which solvers are compared, and the best that is known of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.completion import name_option
from wattsched.cli.failures import CHECK_FAILED, BadInput, refusing
from wattsched.cli.files import (
    STANDARD,
    content_of,
    counting,
    read_document,
    shown,
    stray_output_to_stderr,
    write,
    write_json,
)
from wattsched.cli.outputs import FC, Command, folder_option, json_option, output_option
from wattsched.cli.parameters import Limits, limit_options, prove_option
from wattsched.library import OWN
from wattsched.reading.inputs import notice
from wattsched.report.terminal import Cell, console, line, print_skipped, table
from wattsched.report.wording import count, gap_text, listed

if TYPE_CHECKING:
    from wattsched.library.entries import Entry
    from wattsched.library.proofs import Verified
    from wattsched.library.records import Record
    from wattsched.results.result import Result


@click.group("library")
def command() -> None:
    """Instances by which solvers are compared, and the best that is known of each, with its proof.

    NAMES are names of instances or of families; without any, all are meant.
    """


def _selecting(callback: FC) -> FC:
    """Add the argument and options that select instances of the library."""
    for option, told in (
        ("tag", "Those with this tag alone."),
        ("objective", "Those with this objective alone."),
        ("problem", "Those of this problem alone."),
    ):
        callback = click.option(f"--{option}", metavar="NAME", help=told)(callback)
    return click.argument("names", nargs=-1, metavar="[NAMES]...")(callback)


def _best_option(told: str) -> Callable[[FC], FC]:
    return click.option("--best", metavar="FILE", default=OWN, help=told)


NONE_SUCH = "no instance of the library is like that"
NO_TRACES = "no instance could be made: all of them are of traces that are not there"
BEST = "Your own records, where they are better than those that come with wattsched."


def _selected(names: Sequence[str], **having: str | None) -> list[Entry]:
    """Entries of these names, tags and so on, at least one."""
    from wattsched.library.entries import selected

    with refusing():
        found = selected(names, **having)
    if not found:
        raise BadInput(NONE_SUCH)
    return found


@command.command("list", cls=Command)
@_selecting
@click.option("--difficulty", type=click.Choice(["easy", "hard", "open"]), help="Those of this class alone.")
@_best_option(BEST)
@json_option("the entries, with what is known of them,")
def listing(names: tuple[str, ...], difficulty: str | None, best: str, as_json: bool, **having: Any) -> None:
    """List instances: their size, the best that is known, and how much of it is proven."""
    from wattsched.library.records import best_known

    chosen, known = _selected(names, **having), best_known(best)
    chosen = [entry for entry in chosen if difficulty in (None, _class(known.get(entry.name)))]
    if not chosen:
        raise BadInput(NONE_SUCH)
    if as_json:
        documents = [_document(entry, known.get(entry.name)) for entry in chosen]
        return write_json(documents, indent=1)
    out = console()
    columns = ["instance", "objective", ">jobs", ">GPUs", ">columns", "class", ">best known", ">gap proven"]
    table(out, columns, [_row(entry, known.get(entry.name)) for entry in chosen], gives_way=("columns",))
    proven = sum(known[entry.name].closed for entry in chosen if entry.name in known)
    line(out, f"{count(len(chosen), 'instance')}, {proven} proven to a gap of 0.01 %")


def _class(record: Record | None) -> str:
    return "open" if record is None else record.difficulty


def _row(entry: Entry, record: Record | None) -> list[Cell]:
    """Row of an entry in the list, with the best that is known of it."""
    size = entry.card.size
    counts = [size.get("jobs", size.get("tasks", 0)), size["gpus"], size.get("columns", 0)]
    best = "" if record is None else f"{record.objective:,.8g}"
    gap = "" if record is None else gap_text(record.gap).removeprefix("gap ")
    return [entry.name, entry.objective, *(f"{n:,}" if n else "" for n in counts), _class(record), best, gap]


def _document(entry: Entry, record: Record | None) -> dict[str, Any]:
    """Entry, and what is known of it but the result itself, in one JSON object."""
    known = None if record is None else record.model_dump(mode="json", exclude={"result", "name", "digest"})
    return entry.model_dump(mode="json", exclude_defaults=True) | {"best_known": known}


@command.command("get", cls=Command)
@_selecting
@click.option("--mps", is_flag=True, help="Write the program of each, too, and the best known result.")
@folder_option("Folder for the files (default: one instance goes to standard output).")
def getting(names: tuple[str, ...], mps: bool, output: str | None, **having: Any) -> None:
    """Make instances again, the same to the last digit, or refuse to.

    Those of public traces need WATTSCHED_DATA, and are left out with a note without it; exit code 2 if
    nothing is left.
    """
    from wattsched.files.exchange import export_program
    from wattsched.instances.io import document_text
    from wattsched.library.records import best_known, result_of_record

    chosen = _selected(names, **having)
    if output is None and (len(chosen) > 1 or mps):
        raise BadInput("-o: say into which folder, there are several files to write")
    known, missing = best_known(), 0
    for entry in chosen:
        if (instance := _made(entry)) is None:
            missing += 1
            continue
        if output is None:
            return write(None, document_text(instance))
        contents = {"json": document_text(instance)}
        if mps:
            contents["mps"] = export_program(instance)
            contents["best.json"] = document_text(result_of_record(known[entry.name]))
        Path(output).mkdir(exist_ok=True)
        files = {Path(output) / f"{entry.name}.{suffix}": content for suffix, content in contents.items()}
        if folders := [file for file in files if file.is_dir()]:
            raise BadInput(f"-o '{output}': '{folders[0]}' is a folder")
        for file, content in files.items():
            write(str(file), content)
    if missing == len(chosen):
        raise BadInput(NO_TRACES)
    return None


def _made(entry: Entry) -> Any:
    """The instance; None with a note where its trace is not there."""
    from wattsched.library.recipes import MissingDataError

    try:
        with refusing():
            return entry.instance()
    except MissingDataError as error:
        notice(f"{entry.name}: left out: {error}")
        return None


@command.command("run", cls=Command)
@_selecting
@name_option("formulation", "How to write the problem (default: its first one).")
@name_option("solver", "Who solves them.", default="auto")
@prove_option
@limit_options
@_best_option(BEST)
@folder_option("Folder for the results, which 'submit' takes.")
def running(
    names: tuple[str, ...],
    formulation: str | None,
    solver: str,
    prove: float | None,
    limits: Limits,
    best: str,
    output: str | None,
    **having: Any,
) -> None:
    """Solve instances, and hold what is found against the best that is known.

    A plus marks an objective, and the gap of a bound, better than what is known: 'submit' keeps these.
    Instances that the solver does not take are skipped. Exit code 2 if there is nothing to show.
    """
    from wattsched.library.records import best_known, disproof
    from wattsched.solving.engine import solve

    chosen, known = _selected(names, **having), best_known(best)
    rows: list[list[Cell]] = []
    skipped = defaultdict[tuple[str, str], list[str]](list)
    others = defaultdict[str, list[str]](list)
    with counting() as show, stray_output_to_stderr():
        for done, entry in enumerate(chosen):
            show(entry.name, done, len(chosen))
            if (instance := _made(entry)) is None:
                continue
            with refusing():
                result = solve(
                    instance,
                    formulation=formulation,
                    solver=solver,
                    prove=prove,
                    conflict=0.0,
                    **asdict(limits),
                )
            if result.unsupported:
                skipped[f"{result.formulation} {solver}", result.unsupported].append(entry.name)
                continue
            if solver != "auto" and result.decided_by:
                others[result.decided_by].append(entry.name)
            record = known.get(entry.name)
            rows.append(_outcome(entry, result, record))
            if record is not None and (told := disproof(result, record)):
                notice(f"{entry.name}: what is known of it cannot be true: {told}")
            if output is not None:
                Path(output).mkdir(exist_ok=True)
                write(str(Path(output) / f"{entry.name}.json"), content_of(result, None))
    if skipped and not rows:
        pair, why = next(iter(skipped))
        raise BadInput(f"--solver {solver}: {pair}: {why}")
    if not rows:
        raise BadInput(NO_TRACES)
    out = console()
    table(out, OUTCOME, rows)
    for by, some in others.items():
        told = f"not by '{solver}', which had no better decision, but by '{by}': {listed(some)}"
        line(out, (told, "dim"))
    print_skipped(out, skipped)


OUTCOME = ("instance", "ended", ">objective", ">off the best", ">gap", ">gap proven", ">seconds")


def _outcome(entry: Entry, result: Result, record: Record | None) -> list[Cell]:
    """Return the row of a run; a plus marks what is better than the best that is known."""
    from wattsched.library.records import bettered

    better, tighter = (False, False) if record is None else bettered(result, record)
    off = "" if record is None or result.objective is None else _off(result.objective, record)
    gap, proven_gap = (gap_text(gap).removeprefix("gap ") for gap in (result.gap, result.proven_gap))
    value = "-" if result.objective is None else f"{result.objective:,.8g}"
    ended, seconds = result.termination.reason.replace("_", " "), f"{result.time_s['total']:.2f}"
    return [entry.name, ended, value + "+" * better, off, gap, proven_gap + "+" * tighter, seconds]


def _off(objective: float, record: Record) -> str:
    """How much worse an objective is than the best known one, in percent of that."""
    worse = objective - record.objective if record.sense == "min" else record.objective - objective
    return f"{100 * worse / max(1e-9, abs(record.objective)):.3f} %"


@command.command("verify", cls=Command)
@_selecting
@_best_option(BEST)
@json_option("what is found")
def verifying(names: tuple[str, ...], best: str, as_json: bool, **having: Any) -> int:
    """Make instances again, and check the decision and the certificate of everything that is known.

    Exit code 1 if anything does not hold, 2 if nothing could be verified, for want of traces.
    """
    from wattsched.library.proofs import verified
    from wattsched.library.records import best_known

    chosen, known, found = _selected(names, **having), best_known(best), []
    with counting() as show:
        for entry in chosen:
            found.append(verified(entry, known.get(entry.name)))
            show(entry.name, len(found), len(chosen))
    wrong = [one for one in found if one.faults]
    if as_json:
        documents = [
            {"name": one.name, "faults": one.faults, "skipped": one.skipped, "proven_gap": one.gap}
            for one in found
        ]
        write_json(documents, indent=1)
    else:
        _print_verified(found, wrong)
    if all(one.skipped for one in found):
        raise BadInput(f"nothing could be verified: {found[0].skipped}")
    return CHECK_FAILED if wrong else 0


def _print_verified(found: Sequence[Verified], wrong: Sequence[Verified]) -> None:
    """Print the faults, the reasons for skipping, and the number of instances verified."""
    from wattsched.library.records import PROVEN_GAP

    out = console()
    for one in wrong:
        for fault in one.faults:
            line(out, (f"{one.name}: ", "bold red"), fault)
    skipped = [one for one in found if one.skipped]
    for why in dict.fromkeys(one.skipped for one in skipped):
        line(out, (f"skipped: {count(sum(o.skipped == why for o in skipped), 'instance')}: {why}", "dim"))
    valid = len(found) - len(wrong) - len(skipped)
    proven = sum(one.gap is not None and one.gap <= PROVEN_GAP for one in found if not one.faults)
    line(out, f"{valid} of {count(len(found), 'instance')} verified, {proven} proven to a gap of 0.01 %")


@command.command("submit", cls=Command)
@click.argument("result_file", metavar="RESULT")
@_best_option("Your own records, which this result goes into if it is better; made where there are none.")
def submitting(result_file: str, best: str) -> int:
    """Check RESULT, and keep it in place of what is known of its instance if it is better.

    The better decision and the better bound are kept, whichever result has them. Exit code 1 if the result
    does not hold.
    """
    from wattsched.cli.check import print_verdict
    from wattsched.library.proofs import RefusedResultError, submit
    from wattsched.library.recipes import MissingDataError
    from wattsched.results.documents import result_of
    from wattsched.verification.verdict import Verdict

    if best == STANDARD or not best.endswith(".json"):
        raise BadInput(f"--best: '{best}' must end in .json")
    result = result_of(read_document(result_file), shown(result_file))
    try:
        with refusing(best):
            done = submit(result, best, shown(result_file))
    except RefusedResultError as error:
        return print_verdict(Verdict(error.faults), [], required=False)
    except MissingDataError as error:
        raise BadInput(str(error)) from None
    out = console()
    if not done.better:
        kept = f"{best} is as it was" if Path(best).exists() else f"{best} is not made"
        line(out, f"{done.entry.name}: nothing is better than what is known; {kept}")
        return 0
    for told in done.better:
        line(out, (f"{done.entry.name}: ", "bold green"), told)
    line(out, f"Written to {best}: {gap_text(done.record.gap)}")
    return 0


@command.command("schema", cls=Command)
@click.argument("document", type=click.Choice(["instances", "best-known"]))
@output_option(".json", help="The schema file (default: standard output).")
def schemas(document: str, output: str | None) -> None:
    """Print the JSON Schema of the library's list of instances, or of what is best known of them."""
    from wattsched.files.exchange import schema_of
    from wattsched.library.entries import Library
    from wattsched.library.records import BestKnown

    schema = schema_of(Library if document == "instances" else BestKnown)
    write_json(schema, output, indent=2)

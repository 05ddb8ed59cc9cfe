"""`compare` end to end: what is run, kept, written, resumed, and what contradicts what."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.formulations.test_external import PROGRAM
from wattsched.cli import main
from wattsched.cli.compare import PLOTS
from wattsched.comparisons.compare import Comparison, compare
from wattsched.comparisons.compare import document as text_of
from wattsched.comparisons.run import Run, Settings
from wattsched.comparisons.statistics import gaps, summaries, times
from wattsched.instances.generators import generate
from wattsched.instances.io import write_json
from wattsched.solvers import cpsat
from wattsched.solvers.solution import Solution, Termination, listening
from wattsched.solving.engine import solve

LOOSE = PROGRAM.replace("share=1.0", "share={share}")
"""Every limit is this share of what it should be."""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A minimisation and a maximisation."""
    paths = [tmp_path / "first.json", tmp_path / "second.json.gz"]
    write_json(paths[0], generate("uniform", jobs=8, seed=1))
    write_json(paths[1], generate("sia-like", jobs=6, seed=2))
    return [str(path) for path in paths]


def run(*arguments: object, code: int | None = None) -> Result:
    result = CliRunner().invoke(main, ["compare", *map(str, arguments)])
    assert "Traceback" not in result.output
    assert code in (None, result.exit_code), result.output
    return result


def printed(*arguments: object, code: int) -> str:
    """What the command prints, on one line."""
    return " ".join(run(*arguments, code=code).stdout.split())


def test_table_and_files_have_every_run(files: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = (
        *files,
        *("--formulations", "mckp,intervals", "--solvers", "highs,cpsat,greedy"),
        *("--time-limit", "inf", "-o", folder),
    )
    result = run(*arguments, code=0)
    document = json.loads((folder / "runs.json").read_text())
    with (folder / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(document["runs"]) == 2 * 2 * 3
    assert document["disagreements"] == []
    for row, entry in zip(rows, document["runs"], strict=True):
        known = Run.from_json(json.dumps(entry).encode())
        assert row["objective"] == ("" if known.objective is None else repr(known.objective))
        if known.status == "skipped":
            assert known.formulation == "intervals"
            assert "cannot place intervals" in known.detail
            continue
        assert known.checked
        assert known.gap == pytest.approx(
            abs(known.objective - known.bound) / max(1e-9, abs(known.objective)), abs=1e-12
        )
        assert min(known.columns, known.options) > 0
        assert known.nonzeros >= known.rows
        assert min(known.build_s, known.solve_s) > 0
        line = next(line for line in result.stdout.splitlines() if line.split()[:2] == known.pair.split())
        assert known.solver_status in line
    assert sum(row["status"] == "skipped" for row in rows) == 4
    assert "skipped: intervals highs on first, second: solver 'highs' cannot place" in result.stdout
    assert "All answers agree." in result.stdout
    assert {path.name for path in folder.iterdir()} == {
        "runs",
        "runs.csv",
        "runs.json",
        "trajectories.parquet",
        "means.md",
        "means.tex",
        *PLOTS,
    }
    assert all((folder / name).stat().st_size > 1000 for name in PLOTS)
    again = run(*arguments, code=0)
    assert "12 runs taken from there" in " ".join(again.stdout.split())
    assert json.loads((folder / "runs.json").read_text()) == document
    assert "other run" not in again.stdout
    fewer = run(files[0], "--solvers", "greedy", "--time-limit", "inf", "-o", folder)
    assert f"11 other runs in {folder}/runs are not in these files" in " ".join(fewer.stdout.split())


def test_runs_are_taken_again_only_if_nothing_changed(files: list[str], tmp_path: Path) -> None:
    folder, own = tmp_path / "out", tmp_path / "own.py"
    own.write_text(LOOSE.format(share=1.0))
    formulations = ["mckp", f"{own}:made"]

    def resumed(**settings: float) -> int:
        comparison = compare(
            files[:1],
            formulations=formulations,
            solvers=["greedy"],
            settings=Settings(time_limit_s=None, **settings),
            folder=folder,
        )
        return comparison.resumed

    assert resumed() == 0
    assert resumed() == 2
    assert resumed(gap=0.5) == 0
    assert resumed(seed=3) == 0
    own.write_text(own.read_text() + "\n# changed\n")
    assert resumed() == 1
    for kept in (folder / "runs").iterdir():
        kept.write_text(kept.read_text()[: -len(kept.read_text()) // 2])
    assert resumed() == 0
    write_json(files[0], generate("uniform", jobs=8, seed=2))
    assert resumed() == 0


FORGED: dict[str, tuple[object, ...]] = {
    "instance": (5, None),
    "key": ("0" * 24,),
    "content": ("0" * 64,),
    "formulation": ("\x1b[2Jmckp", "assignment"),
    "solver": ("price",),
    "objective_name": ("makespan", "\x1b]0;title\x07"),
    "gap_asked": (0.5,),
    "seed": (1, True, 10**400),
    "version": ("0.0",),
    "status": ("\x1b[31moptimal", "done", 7, None),
    "sense": ("max", "least"),
    "limit": ("\x1b[0m", "memory"),
    "detail": ("\x1b[1A\x1b[2K", "two\nlines", 5),
    "objective": (math.nan, math.inf, "1", [], True),
    "bound": (-math.inf, {}),
    "gap": (-1.0, math.nan),
    "checked": (1, "yes"),
    "solve_s": (-5.0, math.nan, "1"),
    "columns": (-1, 1.5),
    "faults": ("no list", [5], ["\x1b[2J"]),
    "other": (1,),
}


def test_stored_runs_that_are_none_count_as_none(files: list[str], tmp_path: Path) -> None:
    """They are run again, and nothing of them comes into the terminal or a file."""

    def again() -> Comparison:
        return compare(files[:1], formulations="mckp", solvers="greedy", folder=tmp_path)

    again()
    (stored,) = (tmp_path / "runs").iterdir()
    sound = json.loads(stored.read_text())
    for field, values in FORGED.items():
        for value in values:
            stored.write_text(json.dumps(sound | {field: value}))
            comparison = again()
            assert comparison.resumed == 0, (field, value)
            assert "\\u001b" not in text_of(comparison)
            json.dumps(json.loads(text_of(comparison)), allow_nan=False)
    assert again().resumed == 1
    stored.write_text(json.dumps(sound | {"instance": "another name of the file"}))
    assert [run.instance for run in again().runs] == ["first"]


def test_cells_that_a_spreadsheet_would_run_are_text(tmp_path: Path) -> None:
    write_json(tmp_path / "=1+1.json", generate("uniform", jobs=3, seed=1))
    run(tmp_path / "=1+1.json", "--solvers", "greedy", "-o", tmp_path / "out", code=0)
    (row,) = csv.DictReader((tmp_path / "out" / "runs.csv").open())
    assert row["instance"] == "'=1+1"


@pytest.mark.slow
def test_killed_comparison_goes_on_where_it_was(files: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    formulations, solvers = "mckp,intervals", "greedy,highs,cpsat"
    command = [*files, "--formulations", formulations, "--solvers", solvers, "--time-limit", "inf"]
    command += ["-o", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "wattsched", "compare", *command], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not (done := list((folder / "runs").glob("[!.]*.json"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    before = len(list((folder / "runs").glob("[!.]*.json")))
    assert done
    assert before < 12
    comparison = compare(
        files,
        formulations=formulations.split(","),
        solvers=solvers.split(","),
        settings=Settings(time_limit_s=None),
        folder=folder,
    )
    assert comparison.resumed == before
    assert len(comparison.runs) == 12
    assert comparison.disagreements == []


@pytest.mark.parametrize(("share", "words"), [(1.5, "failed its check"), (0.4, "bound")])
@pytest.mark.parametrize("file", [0, 1])
def test_wrong_formulation_is_found_out(files, tmp_path, share, words, file):
    own = tmp_path / "own.py"
    own.write_text(LOOSE.format(share=share))
    told = printed(
        files[file], "--formulations", f"mckp,{own}:made", "--gap", 0, "--time-limit", "inf", code=1
    )
    assert "disagreement: " in told
    assert words in told
    assert "All answers agree" not in told


@pytest.mark.parametrize("solver", ["highs", "auto"])
def test_formulation_that_minimises_something_cheaper_is_found_out(files, tmp_path, solver):
    own = tmp_path / "own.py"
    cost = "pyo.Objective(expr=sum(share * c.cost * m.x[i] for i, c in enumerate(round.choices)))"
    asked = ("--solvers", solver, "--gap", 0, "--time-limit", "inf")
    for share, code in ((1.0, 0), (0.9, 1)):
        own.write_text(
            LOOSE.format(share=1.0).replace("    return", f"    share = {share}; m.o = {cost}\n    return")
        )
        told = printed(files[0], "--formulations", f"mckp,{own}:made", *asked, code=code)
        assert ("has an optimum that is better than its own decision" in told) == bool(code)


def test_solver_that_breaks_down_is_told_and_run_again(files, tmp_path, monkeypatch):
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("wattsched.solvers.greedy.solve", broken)
    result = run(files[0], "--solvers", "greedy", "-o", tmp_path / "out", "--time-limit", "inf", code=1)
    assert "failed: first: mckp greedy: RuntimeError: out of luck" in result.stdout
    monkeypatch.undo()
    result = run(files[0], "--solvers", "greedy", "-o", tmp_path / "out", "--time-limit", "inf", code=0)
    assert "taken from there" not in result.stdout


def test_decision_of_another_solver_is_marked_and_not_counted_as_solved(files, monkeypatch):
    def late(program: object, limits: object, start: object = None) -> Solution:
        return Solution(Termination("no_solution", "time", "no decision in time"))

    monkeypatch.setattr("wattsched.solvers.cpsat.solve", late)
    arguments = (*files, "--solvers", "price,cpsat", "--time-limit", "inf", "--gap", "0.2")
    result = run(*arguments, code=0)
    lines = [line for line in result.stdout.splitlines() if line.split()[:2] == ["mckp", "cpsat"]]
    assert all("no solution, time; greedy better" in line for line in lines[:2])
    assert "0 of 2" in lines[2]
    assert "greedy had a better decision" in " ".join(result.stdout.split())
    price, cpsat = compare(
        files, solvers=["price", "cpsat"], settings=Settings(gap=0.2, time_limit_s=60.0)
    ).summaries
    assert (price.solved, cpsat.solved) == (2, 0)
    assert cpsat.solve_s == cpsat.total_s == pytest.approx(60.0)


def test_formulation_that_breaks_down_on_one_instance_does_not_end_the_others(files, tmp_path):
    own = tmp_path / "own.py"
    # The second file has six jobs.
    own.write_text(LOOSE.format(share=1.0).replace("    m = ", "    1 / (len(round.jobs) - 6)\n    m = "))
    folder = tmp_path / "out"
    told = printed(
        *reversed(files), "--formulations", f"{own}:made,mckp", "--time-limit", "inf", "-o", folder, code=1
    )
    assert f"failed: second: {own}:made auto: line 5: ZeroDivisionError" in told
    assert "All other answers agree." in told
    runs = [
        Run.from_json(json.dumps(entry).encode())
        for entry in json.loads((folder / "runs.json").read_text())["runs"]
    ]
    assert [run.status for run in runs] == ["error", "optimal", "optimal", "optimal"]
    assert [run.sense for run in runs] == ["max", "max", "min", "min"]


def test_instances_made_in_python_are_compared_as_their_files_are(files: list[str]) -> None:
    made = [generate("uniform", jobs=8, seed=1), generate("uniform", jobs=8, seed=3)]
    settings = Settings(time_limit_s=None)
    found = compare([files[0], *made], formulations="mckp", solvers="greedy", settings=settings)
    assert [run.instance for run in found.runs] == ["first", made[1].name]
    assert found.repeated == {f"{made[0].name} (2)": "first"}
    for alone in (compare(Path(files[0]), settings=settings), compare(made[0], settings=settings)):
        assert alone.runs[0].objective == pytest.approx(found.runs[0].objective, rel=0.1)
    renamed = [one.model_copy(update={"name": "same"}) for one in made]
    found = compare(renamed, solvers=["greedy"], settings=settings)
    assert [run.instance for run in found.runs] == ["same (1)", "same (2)"]


@pytest.mark.parametrize(
    ("instances", "options", "error", "message"),
    [
        ([], {}, ValueError, "instances: must be one at least, got none"),
        (None, {"solvers": []}, ValueError, "solvers: must be one at least"),
        (None, {"formulations": []}, ValueError, "formulations: must be one at least"),
        (None, {"solvers": [3]}, TypeError, "solvers must be names, got int"),
        (3, {}, TypeError, "instances must be instances or paths, got int"),
        ([3], {}, TypeError, "instances must be instances or paths, got int"),
        (None, {"settings": Settings(objective="")}, ValueError, "unknown objective ''"),
    ],
)
def test_arguments_that_are_refused(files, instances, options, error, message):
    with pytest.raises(error, match=message):
        compare(files if instances is None else instances, **options)


def test_equal_names_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "same.json" for folder in "ab"]
    for seed, path in enumerate(paths):
        path.parent.mkdir()
        write_json(path, generate("uniform", jobs=2, seed=seed))
    comparison = compare(paths, solvers=["greedy"], settings=Settings(time_limit_s=None))
    assert [run.instance for run in comparison.runs] == [str(path) for path in paths]
    assert all(math.isfinite(summary.solve_s) for summary in comparison.summaries)


def test_instance_that_is_given_twice_counts_once_and_is_told(files: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.json.gz"
    write_json(copy, generate("uniform", jobs=8, seed=1))
    result = run(
        *files, files[0], copy, "--solvers", "greedy", "--time-limit", "inf", "-o", tmp_path / "out", code=0
    )
    document = json.loads((tmp_path / "out" / "runs.json").read_text())
    assert [entry["instance"] for entry in document["runs"]] == ["first", "second"]
    assert [summary["runs"] for summary in document["summaries"]] == [2]
    printed = " ".join(result.stdout.split())
    assert f"counted once: {files[0]} holds the same instance as first" in printed
    assert f"counted once: {copy} holds the same instance as first" in printed


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("own_gap", [0.0, 5e-3, 5e-2])
def test_a_solver_is_credited_with_its_own_decision_and_bound(files, monkeypatch, own_gap, behind):
    """A solver that ends within the gap has solved the instance, though another's decision is a bit better.

    One that does not has not solved it, though a certificate of the engine's closes the gap.
    """
    optimum = solve(files[0], solver="highs", gap=0)
    assert optimum.objective is not None
    settings = Settings(gap=1e-2, time_limit_s=60.0)
    solver, share = cpsat.solve, own_gap / (1 + own_gap)

    def best(program: Any, limits: Any, start: Any = None) -> Solution:
        with listening(None):
            return solver(program, replace(limits, gap=0.0), None)

    def careless(program: Any, limits: Any, start: Any = None) -> Solution:
        found = best(program, limits)
        assert found.objective is not None
        cost = found.objective * (1 + (own_gap if behind else 0.0))
        ended = Termination("optimal" if share <= limits.gap else "feasible")
        return replace(found, termination=ended, objective=cost, bound=cost * (1 - share))

    monkeypatch.setattr(cpsat, "solve", careless)
    monkeypatch.setattr("wattsched.solvers.greedy.solve", best)
    (run,) = compare(files[0], formulations="mckp", solvers="cpsat", settings=settings).runs
    assert (run.status, run.decided_by) == ("optimal", "greedy" if behind and own_gap else "")
    assert run.objective == pytest.approx(optimum.objective)
    assert run.solver_gap == pytest.approx(share, abs=1e-9)
    assert run.solved == (share <= 1e-2)
    assert gaps([run])[run.pair] == {"first seed 0": pytest.approx(share, abs=1e-9)}
    assert math.isfinite(times([run])[run.pair]["first seed 0"]) == run.solved
    assert (summaries([run])[0].solve_s >= 60.0) == (not run.solved)


def test_a_solver_that_cannot_take_a_program_is_skipped_where_there_is_no_decision_either(tmp_path):
    document = generate("uniform", jobs=8, seed=1).model_dump(mode="json")
    document["budgets"] = {"energy_j": 1.0}
    path = tmp_path / "none.json"
    path.write_text(json.dumps(document))
    result = run(path, "--formulations", "mckp,intervals", "--solvers", "highs,cpsat", code=0)
    assert "skipped: intervals highs on none: solver 'highs' cannot place intervals" in result.stdout
    assert "All answers agree." in result.stdout


def test_an_unbounded_formulation_is_wrong(files: list[str], tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    free = "m.z = pyo.Var(); m.below = pyo.Constraint(expr=m.z <= m.x[0]); m.o = pyo.Objective(expr=m.z)"
    own.write_text(LOOSE.format(share=1.0).replace("    return", f"    {free}\n    return"))
    result = run(files[0], "--formulations", f"mckp,{own}:made", "--solvers", "highs", code=1)
    assert f"failed: first: {own}:made highs: the program is unbounded" in " ".join(result.stdout.split())


def test_a_module_beside_a_formulation_is_a_part_of_it(files, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    own, beside = tmp_path / "own.py", tmp_path / "beside_own.py"
    own.write_text("import beside_own\n" + LOOSE.format(share="beside_own.SHARE"))
    resumed = []
    for share in (1.0, 1.0, 0.9):
        beside.write_text(f"SHARE = {share}\n")
        options = {"solvers": "greedy", "settings": Settings(time_limit_s=None), "folder": tmp_path / "out"}
        resumed.append(compare(files[0], formulations=f"{own}:made", **options).resumed)
    assert resumed == [0, 1, 0]


def test_a_table_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"runs\.csv is of no comparison"):
        compare(generate("uniform", jobs=3), solvers="greedy", folder=tmp_path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]

"""The benchmark of the library makes what was frozen, resumes, and writes a page of its runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import wattsched
from benchmarks import library
from wattsched.comparisons.compare import compare
from wattsched.library.entries import entries
from wattsched.library.records import result_of_record, shipped

ONE, OTHER = "tight-15-1", "degenerate-15-1"


def test_the_drafts_are_what_was_frozen() -> None:
    drafts = list(library.drafts())
    known = entries()
    assert [draft.name for draft in drafts] == list(known)
    for draft in drafts:
        entry = known[draft.name]
        assert entry.recipe == draft.recipe
        assert entry.family == draft.family
        assert entry.card.tags == list(draft.tags)
        assert entry.objective == (draft.objective or entry.objective)


def test_freezing_again_changes_nothing() -> None:
    few = [
        draft for draft in library.drafts() if draft.name in (ONE, OTHER, "sia-20-free", "shifting-4-8-late")
    ]
    for entry in library.frozen(few, entries()):
        assert entry == entries()[entry.name]


def test_solvers_are_compared_and_runs_are_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = f"library --only {ONE} --only {OTHER} --solvers highs,auto --limit 20 --folder {tmp_path}"
    monkeypatch.setattr("sys.argv", asked.split())
    library.main()
    first = capsys.readouterr()
    assert "| `highs` | 2 of 2 |" in first.out
    assert f"`{ONE}`" in first.out
    assert len(list((tmp_path / "runs").iterdir())) == 4
    library.main()
    again = capsys.readouterr()
    assert again.out == first.out


def test_a_decision_of_its_own_counts_where_another_one_is_better() -> None:
    found = compare(entries()[ONE].instance(), solvers="highs")
    own = replace(found.runs[0], decided_by="greedy")
    none = replace(own, solver_objective=None, solver_status="no_solution")
    for run, decided in ((own, 1), (none, 0)):
        page = library.content(replace(found, runs=[run]), shipped(), entries())
        assert f"| `highs` | {decided} of 1 | {decided} |" in page


def test_who_has_solved_an_instance_makes_it_easy_or_hard() -> None:
    record = shipped()[ONE].model_copy(update={"solved_by": {}, "difficulty": "open"})
    instance = entries()[ONE].instance()
    by_ours, by_highs = (compare(instance, solvers=solver).runs for solver in ("price", "highs"))
    assert library.with_solvers(record, by_ours).difficulty == "hard"
    assert library.with_solvers(record, by_highs).difficulty == "easy"
    unsolved = record.model_copy(update={"gap": 0.5})
    assert library.with_solvers(unsolved, []).difficulty == "open"


def test_better_results_are_kept_in_records_and_proofs() -> None:
    instance = entries()[ONE].instance()
    rough = wattsched.solve(instance, solver="greedy", prove=0)
    records, proofs = {}, {}
    library.improved(records, proofs, [(ONE, rough)])
    before = records[ONE]
    library.improved(records, proofs, [(ONE, result_of_record(shipped()[ONE]))])
    assert records[ONE].objective <= before.objective
    assert records[ONE].bound >= before.bound
    assert proofs[ONE].objective == records[ONE].objective


def test_equal_results_make_equal_archives() -> None:
    results = {name: result_of_record(shipped()[name]) for name in (ONE, "sia-20-free")}
    assert library.archive_of(results) == library.archive_of(dict(reversed(results.items())))

"""Instances of the library are what was frozen, and all that is known of them is proven anew."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

import pytest

import wattsched
from wattsched.instances.digest import digest_of
from wattsched.instances.errors import InputError
from wattsched.library import proofs, records
from wattsched.library.entries import ChangedInstanceError, entries, entry_of, selected
from wattsched.library.frozen import frozen, short
from wattsched.library.proofs import RefusedResultError, submit, verified
from wattsched.library.recipes import Imported, MissingDataError
from wattsched.library.records import (
    Record,
    best_known,
    disproof,
    document_of,
    merged,
    own_records,
    result_of_record,
    shipped,
    write_own,
)
from wattsched.results.problems import PROBLEMS, problem
from wattsched.verification.claims import gap_between

ROOM = Path(wattsched.__file__).parent / "library"
DATA = Path(os.environ.get("WATTSCHED_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
ONE = "tight-15-1"


def test_there_are_instances_of_every_problem_in_many_families() -> None:
    every = list(entries().values())
    assert 150 <= len(every) <= 300
    assert {entry.problem for entry in every} == set(PROBLEMS)
    assert len({(entry.digest, entry.objective) for entry in every}) == len(every)
    assert min(Counter(entry.family for entry in every).values()) >= 6
    sizing = {entry.objective for entry in every if entry.problem == "sizing"}
    assert sizing == set(problem("sizing").objectives)


def test_every_instance_has_a_record_with_its_proof() -> None:
    known = shipped()
    assert set(known) == set(entries())
    with ZipFile(ROOM / "results.zip") as archive:
        assert {Path(name).stem for name in archive.namelist()} == set(entries())
    for name, record in known.items():
        assert (record.digest, record.objective_name) == (entries()[name].digest, entries()[name].objective)
        assert record.bound is not None
        assert record.gap is not None


def test_cards_name_the_licences_of_their_traces_and_leave_no_attribution_out() -> None:
    page = DATA / "README.md"
    if not page.exists():
        pytest.skip("no public traces here")
    rows = re.findall(r"^\| ([\w-]+) \|.*\| ([^|]+) \|$", page.read_text(encoding="utf-8"), flags=re.M)
    said = {folder: set(licences.split(", ")) for folder, licences in rows}
    public = [entry.recipe for entry in entries().values() if isinstance(entry.recipe, Imported)]
    assert {recipe.trace for recipe in public} == {"itp", "philly", "openb"}
    for recipe in public:
        (folder,) = {file.partition("/")[0] for file in recipe.files}
        told = set(re.findall(r"[\w-]+(?:-[\d.]+)|MIT", recipe.licence))
        assert told
        assert told <= said[folder]
        assert {one for one in said[folder] if one.startswith("CC-BY")} <= told


def test_what_is_shipped_is_small() -> None:
    assert sum(file.stat().st_size for file in ROOM.glob("*.*") if file.suffix in (".json", ".zip")) < 2e6


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(entries()))
def test_an_instance_is_made_again_and_its_proof_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if DATA.exists():
        monkeypatch.setenv("WATTSCHED_DATA", str(DATA))
    entry = entries()[name]
    found = verified(entry, shipped()[name])
    assert not found.faults
    assert bool(found.skipped) == (isinstance(entry.recipe, Imported) and not DATA.exists())


def test_an_instance_of_a_trace_that_is_not_there_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    public = next(entry for entry in entries().values() if isinstance(entry.recipe, Imported))
    monkeypatch.delenv("WATTSCHED_DATA", raising=False)
    with pytest.raises(MissingDataError, match="set WATTSCHED_DATA to the folder of public traces"):
        public.instance()
    monkeypatch.setenv("WATTSCHED_DATA", "/nonexistent")
    found = verified(public, shipped()[public.name])
    assert found.skipped.startswith("WATTSCHED_DATA has no ")
    assert not found.faults


def test_an_instance_that_changed_is_refused() -> None:
    entry = entries()[ONE].model_copy(update={"digest": "0" * 64})
    with pytest.raises(ChangedInstanceError, match=f"{ONE}: was frozen with the digest 000000000000"):
        entry.instance()
    assert "was frozen" in verified(entry, shipped()[ONE]).faults[0]


def test_instances_name_no_models_and_are_frozen_once() -> None:
    instance = entries()["philly-like-30-a100-power7"].instance()
    assert {job.model for job in instance.jobs} == {None}
    assert digest_of(frozen(instance, instance.name)) == digest_of(instance)
    made = wattsched.generate("philly-like", jobs=30, seed=30, power_fraction=0.7)
    free, listed = (wattsched.solve(one, objective="goodput", gap=1e-6) for one in (made, instance))
    assert listed.objective == pytest.approx(free.objective, rel=1e-4)


def test_numbers_are_short() -> None:
    assert short(123456.789) == 123457.0
    assert short(0.000123456789) == 0.000123457


def test_entries_are_found_by_family_tag_and_digest() -> None:
    every = list(entries().values())
    assert selected() == every
    assert [entry.name for entry in selected([ONE])] == [ONE]
    assert {entry.family for entry in selected(["sia", "sets"])} == {"sia", "sets"}
    assert all("racks" in entry.card.tags for entry in selected(tag="racks"))
    assert entry_of(entries()[ONE].digest, entries()[ONE].objective) == entries()[ONE]
    assert entry_of(entries()[ONE].digest, "makespan") is None
    with pytest.raises(ValueError, match=r"'sai' is no instance of the library \(did you mean 'sia'\?\)"):
        selected(["sai"])
    with pytest.raises(ValueError, match="problem: 'sizes' is none of the library's"):
        selected(problem="sizes")


def tampered(record: Record, **changes: object) -> Record:
    return record.model_copy(update=changes)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("objective", lambda value: 1.001 * value),
        ("bound", lambda value: 1.001 * value),
        ("gap", lambda value: value + 1e-6),
        ("gap", lambda value: None),
        ("sense", {"min": "max", "max": "min"}.get),
    ],
)
def test_a_record_that_says_something_else_than_its_result_is_refused(field, change):
    record = shipped()[ONE]
    found = verified(entries()[ONE], tampered(record, **{field: change(getattr(record, field))}))
    assert [fault.startswith(f"{field}: the record says ") for fault in found.faults] == [True]


def test_a_forged_result_is_refused() -> None:
    record = shipped()[ONE]
    document = document_of(result_of_record(record))
    document["certificate"]["bound"] *= 1.01
    found = verified(entries()[ONE], tampered(record, result=document))
    assert found.faults
    document = document_of(result_of_record(record))
    document["decision"]["jobs"][0]["gpus"] *= 2
    assert verified(entries()[ONE], tampered(record, result=document)).faults


def test_a_better_result_takes_the_place_of_a_worse_one(tmp_path: Path) -> None:
    file, instance = tmp_path / "own.json", entries()[ONE].instance()
    best = wattsched.solve(instance, gap=0.0, prove=5)
    assert best.objective is not None
    known = shipped()[ONE]
    worse = wattsched.solve(instance, solver="greedy", prove=0)
    assert submit(worse, file).better == []
    assert not file.exists()
    done = submit(best, file)
    if known.gap is not None and known.gap > 1e-7:
        assert done.better
        assert own_records(file)[ONE].gap < known.gap
        assert not verified(entries()[ONE], best_known(file)[ONE]).faults
    again = submit(best, file)
    assert again.better == []


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "shipped", dict)


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize("beyond", ["bound", "objective"])
def test_what_the_checker_allows_for_rounding_is_not_kept(tmp_path: Path, beyond: str) -> None:
    file, entry = tmp_path / "own.json", entries()[ONE]
    result = wattsched.solve(entry.instance(), gap=0.0, prove=5)
    honest = wattsched.check(entry.instance(), result)
    assert result.objective is not None
    assert honest.proof is not None
    assert honest.proof.bound is not None
    certificate = result.certificate
    assert certificate is not None
    assert honest.proof.reach is not None
    objective, bound = result.objective, certificate.bound
    if beyond == "bound":
        bound = min(honest.proof.reach, objective)
    else:
        objective *= 1 - 5e-7
        bound = min(bound, objective)
    certificate = certificate.model_copy(update={"bound": bound})
    gap = gap_between(objective, bound)
    stated = {"objective": objective, "bound": bound, "certificate": certificate, "gap_asked": 1e-4}
    claimed = result.model_copy(update=stated | {"gap": gap, "proven_gap": gap})
    assert wattsched.check(entry.instance(), claimed).faults == []
    kept = submit(claimed, file).record
    assert (kept.objective, kept.bound, kept.gap) == (honest.objective, honest.proof.bound, honest.proven_gap)
    assert not verified(entry, own_records(file)[ONE]).faults
    assert submit(result, file).better == []


@pytest.mark.usefixtures("nothing_known")
def test_results_that_are_submitted_at_once_are_all_kept(tmp_path, monkeypatch):
    def slowly_read(file: Path) -> dict[str, Record]:
        found = own_records(file)
        time.sleep(0.2)
        return found

    monkeypatch.setattr(proofs, "own_records", slowly_read)
    names = (ONE, "degenerate-15-1", "parity-15-1")
    results = [wattsched.solve(entries()[name].instance(), solver="greedy", prove=0) for name in names]
    file = tmp_path / "own.json"
    with ThreadPoolExecutor() as threads:
        done = list(threads.map(submit, results, [file] * len(results)))
    assert all(one.better for one in done)
    assert set(own_records(file)) == set(names)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("objective", [1.0, 0.9])
def test_nothing_is_built_on_a_record_that_does_not_hold(tmp_path: Path, objective: float) -> None:
    file, known = tmp_path / "own.json", shipped()[ONE]
    document = document_of(result_of_record(known))
    if objective == 1.0:
        forged = tampered(known, objective=1.0, result=document)
    else:
        document |= {"objective": objective * known.objective, "bound": objective * known.objective}
        forged = tampered(known, objective=document["objective"], bound=document["bound"], result=document)
    write_own({ONE: forged}, file)
    before = file.read_bytes()
    result = wattsched.solve(entries()[ONE].instance(), gap=0.0, prove=5)
    told = "is worth 1, its result says" if objective == 1.0 else "does not hold: objective"
    with pytest.raises(InputError, match=f"'{ONE}' {told}"):
        submit(result, file)
    assert file.read_bytes() == before
    assert disproof(result, known) == ""
    assert "it has a decision worth" in disproof(result, forged)
    assert "it has a bound of" in disproof(result, tampered(known, bound=2 * known.objective))


def test_the_better_decision_and_the_better_bound_are_kept() -> None:
    instance = entries()[ONE].instance()
    rough = wattsched.solve(instance, solver="greedy", prove=0)
    fine = wattsched.solve(instance, gap=0.0, prove=5)
    for pair in ((rough, fine), (fine, rough)):
        both = merged(*pair)
        assert both.objective == min(one.objective for one in pair)
        assert both.bound == max(one.certificate.bound for one in pair)
        assert wattsched.check(instance, both).faults == []


def test_results_that_do_not_hold_are_refused(tmp_path: Path) -> None:
    file, instance = tmp_path / "own.json", entries()[ONE].instance()
    result = wattsched.solve(instance)
    with pytest.raises(RefusedResultError, match="objective"):
        submit(result.model_copy(update={"objective": 1.0}), file)
    other = wattsched.solve(wattsched.generate("uniform", jobs=3))
    with pytest.raises(RefusedResultError, match="is no instance of the library"):
        submit(other, file)
    with pytest.raises(RefusedResultError, match=f"digest: .* than the library's '{ONE}', or it was changed"):
        submit(result.model_copy(update={"digest": "0" * 64}), file)
    with pytest.raises(RefusedResultError, match="in the library with the objective total-completion, the"):
        submit(result.model_copy(update={"objective_name": "makespan"}), file)
    assert not file.exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["records"][0].pop("result"), "has no result, which proves it"),
        (lambda d: d["records"][0].update(name="other"), "'other' is no instance of the library"),
        (lambda d: d["records"][0].update(digest="0" * 64), "is no instance of the library, or not this one"),
        (lambda d: d["records"].append(d["records"][0]), f"'{ONE}' is there 2 times"),
        (lambda d: d.update(library="2"), "library: the records are of version '2' of the library"),
        (
            lambda d: d.update(format="x"),
            "is no file of records: its format is 'x', not 'wattsched-best-known/1'$",
        ),
        (lambda d: d["records"][0].update(objective="x"), "records\\[0\\].objective"),
    ],
)
def test_a_damaged_file_of_records_is_refused(tmp_path, change, told):
    record = tampered(shipped()[ONE], result=document_of(result_of_record(shipped()[ONE])))
    document = {
        "format": "wattsched-best-known/1",
        "library": "1",
        "records": [record.model_dump(mode="json")],
    }
    file = tmp_path / "own.json"
    file.write_text(json.dumps(document))
    assert own_records(file) == {ONE: record}
    change(document)
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=told):
        own_records(file)

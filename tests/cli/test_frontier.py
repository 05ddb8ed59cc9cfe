"""Frontiers of shifting: traced, written, shown again, and found out where they were changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .conftest import Run, refused


@pytest.fixture(scope="module")
def traced(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small instance, and the file of three points of its frontier."""
    folder = tmp_path_factory.mktemp("frontier")
    instance, points = folder / "day.json", folder / "points.json"
    run("generate", "shifting", "--jobs", 2, "--slots", 4, "--seed", 1, "-o", instance)
    run("solve", instance, "--frontier", 3, "--time-limit", 60, "-o", points, code=0)
    return instance, points


@pytest.fixture
def frontier(traced: tuple[Path, Path]) -> tuple[Path, dict[str, Any]]:
    """The instance, and the frontier to be spoilt."""
    document = json.loads(traced[1].read_text())
    assert len(document["points"]) == 3
    return traced[0], document


@pytest.fixture
def sharing(run: Run, tmp_path: Path) -> Path:
    """An instance of another problem."""
    path = tmp_path / "round.json"
    run("generate", "sharing", "--jobs", 6, "-o", path, code=0)
    return path


def test_a_frontier_says_what_it_lacks(run, frontier, tmp_path):
    instance, document = frontier
    cut, empty = tmp_path / "cut.json", tmp_path / "empty.json"
    assert document["missing"] == 0
    cut.write_text(json.dumps({**document, "points": document["points"][:1], "missing": 2}))
    assert "2 more asked for, and not found in time" in run("show", cut).stdout
    ended = {"reason": "no_solution", "limit": "time"}
    for termination, options, code in (
        (None, (), 1),
        (ended, (), 0),
        (ended, ("--require-gap", 0.5), 1),
    ):
        empty.write_text(json.dumps({**document, "points": [], "termination": termination}))
        assert "proof" not in run("check", instance, empty, *options, code=code).stdout


def test_points_without_proof_are_told(run, frontier, write):
    instance, document = frontier
    bare = {"certificate": None, "bound": None, "gap": None, "proven_gap": None, "claimed": False}
    for point, told in zip(document["points"], ("2", "1", "none"), strict=True):
        result = point["result"]
        result |= {**bare, "prices": {}, "termination": {"reason": "feasible"}}
        checked = run("check", instance, write(document))
        assert (checked.exit_code, "valid" in checked.stdout) == (0, True)
        assert f"3 points, each with its decision, {told} with a proof" in checked.stdout


@pytest.mark.parametrize("limit", ["60", "inf"])
def test_the_frontier_of_shifting(run: Run, tmp_path: Path, limit: str) -> None:
    instance, points = tmp_path / "day.json", tmp_path / "points.json"
    size = ("--jobs", 2, "--gpus", 8, "--slots", 6, "--seed", 3)
    run("generate", "shifting", *size, "-o", instance, code=0)
    result = run("solve", instance, "--frontier", 3, "--time-limit", limit, "-o", points, code=0)
    frontier = json.loads(points.read_text())
    assert 1 <= len(frontier["points"]) <= 3
    totals = [point["result"]["totals"] for point in frontier["points"]]
    times, grams = ([total[name] for total in totals] for name in ("average_completion_s", "carbon_g"))
    assert times == sorted(times)
    assert grams == sorted(grams, reverse=True)
    assert "average completion" in result.stdout
    assert run("show", points).stdout == result.stdout
    assert run("check", instance, points).stdout.startswith("valid")
    schema = json.loads(run("schema", "frontier", "--problem", "shifting").stdout)
    jsonschema.validate(frontier, schema)


def point(frontier: dict[str, Any], number: int) -> dict[str, Any]:
    """The result at a point."""
    return frontier["points"][number]["result"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: f["points"][1].update(limit=f["points"][1]["limit"] / 2), "points[1].digest: "),
        (
            lambda f: point(f, 1).update(objective_name="energy"),
            "points[1]: minimises 'energy', which is no end",
        ),
        (
            lambda f: f["points"].reverse(),
            "points[1]: is not worse in 'mean-completion'",
        ),
        (lambda f: point(f, 0)["totals"].update(carbon_g=1.0), "points[0].totals.carbon_g: the result says"),
        (
            lambda f: point(f, 0).update(decision=point(f, 2)["decision"]),
            "points[0].objective: the result claims",
        ),
        (lambda f: f["points"].insert(1, f["points"][0]), "points[1]: is not worse in 'mean-completion'"),
        (lambda f: f["points"].pop(), "points[1]: is no end of the frontier: its 'carbon' is "),
        (lambda f: f["points"].pop(0), "points[0]: is no end of the frontier: its 'mean-completion' is "),
        (
            lambda f: f["points"][1].update(before=f["ends"][0], before_limit=None),
            "points[1]: nothing shows that no decision dominates it",
        ),
        (lambda f: f["ends"][0].update(objective_name="energy"), "ends[0]: minimises 'energy'"),
        (lambda f: f["ends"][1].update(bound=0.0), "ends[1].gap: the result claims"),
        (lambda f: point(f, 0).update(decision=None), "points[0]: has no decision"),
        (lambda f: f.update(instance="other"), "instance: the frontier is of 'other'"),
        (lambda f: f["points"][0]["values"].update(carbon=1.0), "points[0].values: 'carbon' is 1"),
    ],
)
def test_a_frontier_that_was_changed_is_not_valid(run, frontier, write, change, told):
    instance, document = frontier
    change(document)
    result = run("check", instance, write(document))
    assert (result.exit_code, told in result.stdout) == (1, True), result.output
    assert "has no decision" in told or "has no decision" not in result.stdout


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: f.update(points=[{}]), "points[0].limit: is missing"),
        (lambda f: f.update(tradeoff="time"), "tradeoff: "),
        (
            lambda f: (f["points"][0].pop("values"), point(f, 0).update(totals={})),
            "points[0].result.totals: 'average_comp",
        ),
        (lambda f: point(f, 0)["decision"].update(waiting=3), "points[0].result.decision: waiting"),
        (lambda f: point(f, 0).update(problem="sharing"), "points[0].result"),
    ],
)
def test_a_frontier_that_makes_no_sense_is_refused(run, frontier, write, change, told):
    instance, document = frontier
    change(document)
    path = write(document)
    for command in (("show", path), ("check", instance, path)):
        assert told in run(*command, code=2).stderr


def test_a_frontier_is_of_its_instance(run, frontier, write, sharing):
    path, points = frontier[0], write(frontier[1], "points.json")
    refused(run("check", sharing, points), "the instance is of 'sharing'")
    dark = write({**json.loads(path.read_text()), "carbon_g_per_kwh": None, "budgets": {}})
    refused(run("check", dark, points), "needs the forecast 'carbon_g_per_kwh'")


def test_a_frontier_is_refused_where_there_is_none(run: Run, sharing: Path) -> None:
    for options, told in (((), "problem 'shifting'"), (("--objective", "power"), "takes two objectives")):
        refused(run("solve", sharing, "--frontier", 3, *options), told)
    run("solve", sharing, "--frontier", 1, code=2)


@pytest.mark.parametrize(
    ("fields", "code", "told"),
    [
        ({"budgets": {"energy_j": 1.0}}, 3, "infeasible: energy_j is short by at least"),
        ({"carbon_g_per_kwh": None, "budgets": {}}, 2, "carbon needs the forecast 'carbon_g_per_kwh'"),
        ({"carbon_g_per_kwh": None, "budgets": {}, "objective": "energy"}, 0, "the least energy"),
    ],
)
def test_why_an_instance_has_no_frontier(run, write, fields, code, told):
    instance = json.loads(run("generate", "shifting", "--jobs", 2, "--gpus", 8, "--slots", 4).stdout)
    path = write(instance | fields)
    result = run("solve", path, "--frontier", 2, "--solver", "greedy")
    assert (result.exit_code, told in result.output) == (code, True), result.output
    if code == 0:
        refused(run("solve", path, "--frontier", 2, "--solver", "pyomo:foo"), "solver 'foo' is not installed")

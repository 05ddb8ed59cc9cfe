"""What `write_document` writes is read and accepted again, of every kind and in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import wattsched
from tests.strategies.replay import clairvoyant, cluster_of, linear, trace_by_hand
from wattsched.cli import main
from wattsched.instances.sizing.instance import Budgets

INSTANCES = {
    "sizing": wattsched.generate("uniform", jobs=3, seed=1),
    "shifting": wattsched.generate("shifting", jobs=2, slots=3, seed=1),
    "sharing": wattsched.generate("sharing", jobs=3, seed=1),
    "placement": wattsched.generate("placement", jobs=3, seed=1),
}


def checked(*files: Path) -> None:
    done = CliRunner().invoke(main, ["check", *map(str, files)])
    assert done.exit_code in (0, 5), done.output


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".parquet"])
@pytest.mark.parametrize("name", INSTANCES)
def test_results_and_decisions_of_all_problems(name: str, ending: str, tmp_path: Path) -> None:
    instance: Any = INSTANCES[name]
    if ending == ".parquet" and name != "sizing":
        return
    files = [tmp_path / f"{part}{ending}" for part in ("instance", "result")]
    result = wattsched.solve(instance)
    for file, model in zip(files, (instance, result), strict=True):
        wattsched.write_document(file, model)
    checked(*files)
    if ending != ".parquet":
        wattsched.write_document(files[1], result.decision)
        checked(*files)


def test_results_without_a_decision(tmp_path: Path) -> None:
    starved = INSTANCES["sizing"].model_copy(update={"budgets": Budgets(power_w=1e-3)})
    files = [tmp_path / "instance.json", tmp_path / "result.json"]
    result = wattsched.solve(starved)
    assert result.decision is None
    for file, model in zip(files, (starved, result), strict=True):
        wattsched.write_document(file, model)
    checked(*files)


@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_frontiers_and_bounds_of_replays(ending: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{part}{ending}" for part in ("instance", "frontier", "bound")]
    day = INSTANCES["shifting"]
    bound = clairvoyant(trace_by_hand(cluster_of(4), (0.0, 900.0, 2, linear(4))))
    for file, model in zip(files, (day, wattsched.pareto(day, 3), bound), strict=True):
        wattsched.write_document(file, model)
    checked(*files[:2])
    checked(files[2])

"""Files of the format before are still read, with a note where a name has changed, and hold when checked.

Each file of the folder ``old_files`` has an instance and its result as the code of that time wrote them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from wattsched.cli import main
from wattsched.cli.failures import ON_TRUST
from wattsched.documents import check, instance_of, read_result
from wattsched.instances.errors import FormerNameWarning
from wattsched.tradeoffs import pareto_of, verdict_on_pareto

BEYOND_PROOF = ("sizing", "work-value", "infeasible", "pareto", "shifting")
"""Of what their certificates prove."""

FOLDER = Path(__file__).parent / "old_files"

RENAMED = {
    "sizing": ("completion", "total-completion"),
    "work-value": ("flow", "work-value"),
    "infeasible": ("completion", "total-completion"),
    "shifting": ("completion", "mean-completion"),
    "sharing": None,
}
"""Result to the name of its objective then and now."""


def old(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return content


@pytest.mark.filterwarnings("ignore::wattsched.instances.errors.FormerNameWarning")
@pytest.mark.parametrize("name", RENAMED)
def test_an_old_result_is_read_and_holds(name: str, tmp_path: Path) -> None:
    content = old(name)
    assert content["result"]["format"] == "wattsched-result/1"
    (tmp_path / "old.json").write_text(json.dumps(content["result"]))
    result = read_result(tmp_path / "old.json")
    assert result.format == "wattsched-result/2"
    assert result.termination.reason == content["result"]["termination"]["reason"]
    assert result.objective == content["result"]["objective"]
    assert result.solved == (name != "infeasible")
    assert all(value is not None for value in result.totals.values())
    assert result.objective_name == (RENAMED[name] or ("", "eaco"))[1]
    assert check(instance_of(content["instance"]), result).faults == []
    assert result.instance in str(result)


@pytest.mark.parametrize("name", [name for name, names in RENAMED.items() if names])
def test_a_former_name_is_noted(name: str, tmp_path: Path) -> None:
    content, names = old(name), RENAMED[name]
    assert names is not None
    (tmp_path / "old.json").write_text(json.dumps(content["result"]))
    with pytest.warns(FormerNameWarning, match=f"'{names[0]}' is called '{names[1]}' now"):
        assert read_result(tmp_path / "old.json").objective_name == names[1]
    with pytest.warns(FormerNameWarning, match=f"'{names[0]}' is called '{names[1]}' now"):
        assert instance_of(content["instance"]).objective == names[1]


@pytest.mark.filterwarnings("ignore::wattsched.instances.errors.FormerNameWarning")
def test_an_old_frontier_is_read_and_holds() -> None:
    content = old("pareto")
    assert "against" in content["result"]
    found = pareto_of(content["result"])
    assert found.tradeoff == "carbon"
    assert len(found.points) == len(content["result"]["points"])
    assert verdict_on_pareto(instance_of(content["instance"]), found).faults == []


@pytest.mark.parametrize("name", [*RENAMED, "pareto"])
def test_the_command_line_takes_old_files(name: str, tmp_path: Path) -> None:
    content = old(name)
    for part in ("instance", "result"):
        (tmp_path / f"{part}.json").write_text(json.dumps(content[part]))
    files = [str(tmp_path / "instance.json"), str(tmp_path / "result.json")]
    shown = CliRunner().invoke(main, ["show", files[1]])
    assert shown.exit_code == 0, shown.output
    checked = CliRunner().invoke(main, ["check", *files])
    assert checked.exit_code == (ON_TRUST if name in BEYOND_PROOF else 0), checked.output

"""Files of the format before are still read, with a note where a name has changed, and hold when checked.

Each file of the folder ``old_files`` has an instance and its result as the code of that time wrote them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wattsched.instances.errors import FormerNameWarning
from wattsched.results.documents import check, instance_of, read_result
from wattsched.solving.tradeoffs import pareto_of, verdict_on_pareto

BEYOND_PROOF = ("sizing", "work-value", "infeasible", "shifting")
"""Results that claim more than their certificates prove."""

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
    verdict = check(instance_of(content["instance"]), result)
    assert (verdict.faults, verdict.claimed) == ([], name in BEYOND_PROOF)
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
    verdict = verdict_on_pareto(instance_of(content["instance"]), found)
    assert (verdict.faults, verdict.claimed) == ([], True)

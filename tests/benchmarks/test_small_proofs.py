"""What small instances prove: they vary as they should, and answers are counted as `check` finds them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from wattsched.documents import instance_of
from wattsched.problems import problem


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("small_proofs")


def test_every_instance_is_valid_and_drawn_by_its_seed(script: ModuleType) -> None:
    for family in script.OPTIONS:
        made = [script.instance_of(family, seed) for seed in range(8)]
        assert made == [script.instance_of(family, seed) for seed in range(8)]
        for instance in made:
            assert instance_of(instance.model_dump(mode="json")) == instance
        assert len({instance.objective for instance in made}) > 1
        assert {instance.objective for instance in made} <= set(problem(made[0].problem).objectives)


def test_a_seed_of_every_family(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["small_proofs.py", "--quick"])
    assert script.main() == 0
    total = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].split("|")][1:-1]
    assert total[:2] == ["all", str(len(script.OPTIONS))]
    assert total[2] == total[3], "what is called optimal is proven"
    assert total[8] == "0", "nothing is refused"

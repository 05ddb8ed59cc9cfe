"""Everything at once on a real API server, in seconds."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any


def test_everything_at_once(programs: ModuleType, load_script: Any, tmp_path: Path) -> None:
    run = load_script("kubernetes_cluster").run
    found = run(tmp_path, nodes=12, pods=40, seed=3, limit_s=240.0, seconds=(2, 8), largest=4)
    exact = ("lost", "run twice", "bound twice", "never whole", "overfull", "above the cap", "exit code")
    assert {name: found[name] for name in exact} == dict.fromkeys(exact, 0)
    assert found["most, of the cap"] <= 1.0

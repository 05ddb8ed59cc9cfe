"""`make results`: what ended well is not made again, and nothing that other sources made counts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def results(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("results")


def test_a_stopped_run_goes_on_and_changed_sources_begin_anew(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called: list[str] = []
    failing = {"grounds.py"}

    def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        called.append(Path(command[1]).name)
        if called[-1].startswith("placement"):
            Path(command[command.index("--runs") + 1]).write_text("{}\n")
        return subprocess.CompletedProcess(command, int(called[-1] in failing))

    monkeypatch.setattr(results.subprocess, "run", run)
    make = ["--folder", str(tmp_path / "made")]
    assert results.main(make) == 1
    assert len(called) == len(results.PROGRAMS) + len(results.PLACEMENT)
    failing.clear()
    called.clear()
    assert results.main(make) == 0
    assert called == ["grounds.py"]
    called.clear()
    assert results.main(make) == 0
    assert not called
    changed = tmp_path / "changed.py"
    changed.write_text("")
    monkeypatch.setattr(results, "sources", lambda: iter([changed]))
    results.begin_or_go_on(tmp_path / "made")
    assert not (tmp_path / "made" / results.RUNS).exists()
    assert results.main(make) == 0
    assert len(called) == len(results.PROGRAMS) + len(results.PLACEMENT)

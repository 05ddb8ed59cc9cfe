"""Every script in examples/ runs, against the installed package, and draws what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
LONG = ("cluster_savings",)


@pytest.mark.parametrize(
    "script",
    [pytest.param(s, marks=pytest.mark.slow if s.stem in LONG else (), id=s.stem) for s in SCRIPTS],
)
def test_scripts_run(script: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    asked = [sys.executable, "-W", "error::DeprecationWarning", str(script)]
    done = subprocess.run(
        asked,
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    drawn = re.findall(r"Written to (\S+\.png)", done.stdout)
    for name in drawn:
        assert (tmp_path / name).stat().st_size > 10_000
    assert drawn or script.stem == "own_formulation"


def test_every_script_is_told_of() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert set(re.findall(r"examples/(\w+\.py)", page)) == {script.name for script in SCRIPTS}

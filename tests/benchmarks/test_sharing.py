"""The sharing benchmark reproduces EaCO's table; the page has a place for each of its tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_measured_sets_are_reproduced() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "sharing.py"), "--part", "measured"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "| J1J2J3 | 1,541 | 1,543 | 38.28 | 38.01 | 59.01 | 58.99 |" in done.stdout
    page = (ROOT / "docs" / "sharing.md").read_text(encoding="utf-8")
    assert all(f"<!-- {part} -->" in page for part in ("measured", "rounds", "policies"))

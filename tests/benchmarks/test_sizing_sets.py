"""The benchmark of sets in sizing has its place on the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_its_table() -> None:
    script = ROOT / "benchmarks" / "sizing_sets.py"
    done = subprocess.run(
        [sys.executable, str(script), "--help"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "sharing.md").read_text(encoding="utf-8")
    assert "<!-- sets -->" in page
    assert "<!-- /sets -->" in page

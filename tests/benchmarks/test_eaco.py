"""The benchmark of EaCO's simulation: its bounds, and streams as it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import eaco, numpy
print(eaco.bounds())
durations_s = eaco.durations_s(numpy.random.default_rng(0), 400_000)
assert abs(durations_s.mean() / eaco.mean_duration_s() - 1) < 0.01
assert len(eaco.stream("light", 28, 0)[0].jobs) == eaco.JOBS
"""


def test_no_policy_saves_what_was_published_at_the_published_runs() -> None:
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT / "benchmarks"
    )
    assert done.returncode == 0, done.stderr
    assert "| measured sets, best of all mixes | 46.6 | 31.4 |" in done.stdout
    assert "| all sets, best of all mixes | 57.9 | 36.0 |" in done.stdout
    written = (ROOT / "docs" / "tables" / "eaco.md").read_text(encoding="utf-8")
    assert "| measured sets, best of all mixes | 46.6 | 31.4 |" in written

"""Gavel's pairs as sets of jobs that may share a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattsched.instances.sharing.instance import Job
from wattsched.instances.traces.gavel import GPU_POWER_W, gpu_power_w, read_pairs, sets_of_pairs

MEASURED = {
    "v100": {
        "A": {"null": 10.0, "A": [5.0, 5.0], "B": [8.0, 3.0]},
        "B": {"null": 4.0, "A": [3.0, 8.0], "B": [0.0, 0.0]},
    }
}


def test_pairs_that_fit_and_pay_are_sets(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(MEASURED))
    table = read_pairs(path)
    jobs = [Job(name=name, job_class=name[0]) for name in ("B1", "A1", "B2", "A2")]
    sets = {declared.name: declared for declared in sets_of_pairs(table, jobs, "v100", pool="p")}
    # Two copies of A share no more than one has alone, two of B do not fit.
    assert list(sets) == ["A1+B1", "A2+B1", "A1+B2", "A2+B2"]
    one = sets["A1+B1"]
    assert (one.pool, one.gpus) == ("p", 1)
    # In epochs of 1000 iterations.
    assert one.rates == pytest.approx({"A1": 8e-3, "B1": 3e-3})
    assert one.power_w == GPU_POWER_W["v100"][1]
    assert len(sets_of_pairs(table, jobs, "v100", least=0.9)) == 5
    assert sets_of_pairs(table, jobs, "v100", least=1.6) == []


def test_watts_rise_from_idle_to_full() -> None:
    watts = [gpu_power_w("v100", share) for share in (0, 20, 60, 100, 170)]
    assert watts == sorted(watts)
    assert (watts[0], watts[-1]) == GPU_POWER_W["v100"]

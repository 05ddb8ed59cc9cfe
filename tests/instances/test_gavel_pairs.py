"""Gavel's table of pairs: what the reader makes of it, sets of jobs, and the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.sharing.patterns import build
from wattsched.instances.errors import InputError
from wattsched.instances.sharing.instance import Job
from wattsched.instances.traces.gavel import (
    GPU_POWER_W,
    gpu_power_w,
    read_jobs,
    read_pairs,
    round_of_pairs,
    sets_of_pairs,
)
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sharing.bound import prove
from wattsched.verification.sharing.checker import check

SMALL: dict[str, Any] = {
    "v100": {
        "A": {"null": 10.0, "A": [5.0, 5.0], "B": [8.0, 3.0]},
        "B": {"null": 4.0, "A": [3.0, 8.0], "B": [0.0, 0.0]},
    }
}


def written(folder: Path, document: Any) -> Path:
    path = folder / "pairs.json"
    path.write_text(json.dumps(document))
    return path


def test_both_orders_are_averaged(tmp_path: Path) -> None:
    table = read_pairs(written(tmp_path, SMALL))
    assert [c.name for c in table.classes] == ["A", "B"]
    assert table.classes[0].alone["v100"].epoch_s == 100.0
    assert table.classes[0].alone["v100"].utilisation_pct == 100.0
    by_classes = {tuple(s.classes): s for s in table.sets}
    assert by_classes["A", "A"].slowdown == [2.0, 2.0]
    assert by_classes["A", "B"].slowdown == pytest.approx([10 / 8, 4 / 3])
    assert not by_classes["B", "B"].fits
    instance = round_of_pairs(table, [Job(name="j", job_class="A")], {"v100": 1})
    assert instance.unit_types[0].row == "gpus:v100"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"A": {"B": [1.0, 1.0]}}, "needs 'null'"),
        ({"A": {"null": 0.0}}, "needs 'null'"),
        ({"A": {"null": 1.0, "C": [1.0, 1.0]}}, "'A' shares with 'C', which is not measured alone"),
        ({"A": {"null": 1.0, "A": [1.0]}}, "needs two speeds"),
        ([1], "an object of GPU types"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_pairs(written(tmp_path, {"v100": change}))


def test_pairs_that_fit_and_pay_are_sets(tmp_path: Path) -> None:
    table = read_pairs(written(tmp_path, SMALL))
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


@pytest.mark.parametrize("objective", ["throughput", "power"])
def test_two_thousand_jobs_on_three_types_are_certified(data_dir: Path, objective: str) -> None:
    folder = data_dir / "gavel-2020"
    table = read_pairs(folder / "oracle_pair_throughputs.json")
    jobs = read_jobs(folder / "traces" / "msr_seed0_jobs.csv", 2000)
    assert len(jobs) == 2000
    instance = round_of_pairs(table, jobs, dict.fromkeys(("v100", "p100", "k80"), 500), objective=objective)
    plan = build(patterns_of(instance), objective)
    answer = get("highs")(plan.program, Limits(gap=1e-3))
    assert answer.x is not None
    assert answer.prices is not None
    report = check(instance, plan.decode(answer.x, {}))
    assert report.faults == []
    assert plan.named_prices is not None
    assert prove(instance, plan.named_prices(answer.prices)).bound == pytest.approx(
        report.objective, rel=1e-3
    )

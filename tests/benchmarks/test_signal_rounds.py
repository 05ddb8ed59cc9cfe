"""Small rounds of public traces under random signals, against the brute force of the page of `shifting`.

``SIGNALS=300`` draws as many.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wattsched
from benchmarks.random_signals import EMERALD, GROUNDS, START, random_round, random_signal
from tests.pages import pages_answers as answers
from tests.pages import pages_shifting as brute
from tests.strategies.effort import examples
from wattsched.instances.shifting.instance import ShiftingInstance

SIGNALS = int(os.environ.get("SIGNALS", examples(60)))
SIZES = ((2, 3, 3), (2, 4, 3), (2, 5, 2), (2, 6, 1), (3, 3, 3), (3, 4, 2), (3, 5, 1), (4, 3, 2), (4, 4, 1))
"""Jobs, slots, and power limits of each job."""


def small(rng: np.random.Generator, round_: ShiftingInstance) -> ShiftingInstance:
    """Some of a round's jobs, with some of their power limits, on little more GPUs than they hold."""
    count, slots, limits = SIZES[rng.integers(len(SIZES))]
    document: dict[str, Any] = round_.model_dump(mode="json")
    chosen = rng.choice(len(document["jobs"]), count, replace=False)
    jobs = [document["jobs"][n] for n in chosen]
    for job in jobs:
        table = round_.table_of(next(one for one in round_.jobs if one.name == job["name"]))
        kept = sorted(rng.choice(len(table.gpus), min(limits, len(table.gpus)), replace=False))
        columns = {"gpus": table.gpus, "pool": table.pool, "rate": table.rate, "power_w": table.power_w}
        columns["power_limit_w"] = table.power_limit_w
        job["options"] = {name: [column[row] for row in kept] for name, column in columns.items()}
    for name, pool in document["pools"].items():
        held = sum(job["current"]["gpus"] for job in jobs if job["current"]["pool"] == name)
        pool["gpus"] = held + int(rng.integers(1, 3))
    return ShiftingInstance.model_validate(document | {"jobs": jobs, "slots": slots, "tables": {}})


def faults_of(under: ShiftingInstance) -> tuple[list[str], str]:
    """Faults of the answer on a round, and how it ended."""
    result = wattsched.solve(under, gap=0.01, time_limit=30.0)
    verdict = wattsched.check(under, result)
    document = under.model_dump(mode="json")
    best, strict = brute.optimum(document, brute.decisions(document))
    faults = [*answers.answer_faults(result, best, strict, exact=True), *verdict.faults]
    if best is None and not verdict.infeasible:
        faults.append(f"not proven that there is no decision: {result.termination}")
    return faults, result.termination.reason


@pytest.mark.parametrize("source", [*GROUNDS, EMERALD])
def test_answers_are_those_of_brute_force(
    source: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTSCHED_DATA", str(data_dir))
    ended = set()
    for seed in range(max(1, SIGNALS // (1 + len(GROUNDS)))):
        rng = np.random.default_rng([seed, 7])
        instance = small(rng, random_round(rng, source))
        signal, _ = random_signal(rng, instance)
        faults, reason = faults_of(instance.under(signal, START))
        assert not faults, (seed, faults)
        ended.add(reason)
    assert ended <= {"optimal", "infeasible"}

"""Why jobs wait: every one of ours has a reason, and the ones that can be worked out by hand are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.adapters.slurm.test_plan import NUMBERS, TRUSTING, changed, decided, site_of
from tests.strategies.effort import examples
from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours
from wattsched.adapters.slurm.plan import plan_of, queued, unclear
from wattsched.adapters.slurm.snapshot import load
from wattsched.serve.journal import Journal

RECORDED = Path(__file__).resolve().parents[3] / "examples" / "slurm.json"
IDLE_W, EACH_W = 50, 400
"""Of one A100."""


@given(st.floats(9_000, 20_000), st.integers(1, 8))
@settings(max_examples=examples(30), deadline=None)
def test_every_job_that_waits_has_a_reason_that_is_true(cap_w: float, gpus: int) -> None:
    """One job of some GPUs that has no other choice, and those that are there."""
    site = changed(plain={"tres_per_job": f"gres:gpu:{gpus}", "time_limit": 30})
    round, decision = decided(site, cap_w, TRUSTING)
    assume(decision.solved)
    plan = plan_of(round, decision)
    why = queued(plan, round, {"": cap_w})
    told = {int(job["name"]) for job in round.jobs if "current" not in job}
    assert why.keys() == told - {start.job.id for start in plan.starts}
    later = round.load.after(plan.stops, plan.starts)
    assert later.power_w == pytest.approx(decision.result.totals["power_w"])
    if NUMBERS["plain"] in why:
        room = max(len(later.free(node)) for node in ("g1", "g2")) >= gpus
        watts = gpus * (EACH_W - IDLE_W) <= cap_w - later.power_w
        told = why[NUMBERS["plain"]]
        free, needs_w = max(len(later.free(node)) for node in ("g1", "g2", "g3")), later.power_w + gpus * 350
        assert not plan.starts or "first" in told
        assert told.kind == ("order" if room and watts else "power" if room else "room")
        if not room:
            assert told.startswith(f"needs {gpus} GPU"), told
            assert f" on one node, {free} " in told
        elif not watts:
            found = re.match(r"the site would draw ([\d.,]+) kW with it, of a cap of ([\d.,]+) kW", told)
            assert found, told
            assert float(found[1]) == pytest.approx(needs_w / 1e3, rel=1e-2)
            assert float(found[2]) < float(found[1])
        else:
            assert told.endswith("first")


def test_the_cap_of_a_power_domain_is_named_and_one_that_idle_nodes_exceed(tmp_path: Path) -> None:
    feed = {"name": "feed", "members": ["root"], "power_cap_w": 9_700.0}
    options = site_of({"power_domains": [feed]})
    # With limits, before the reservation of g4, whose GPUs are free.
    limited = {name: {"time_limit": 30} for name in ("bert-large", "sweep", "plain", "typo", "array")}
    site = changed(**limited, large={"requeue": False})
    round, decision = decided(site, 30_000.0, options)
    why = queued(plan_of(round, decision), round, {"": 30_000.0})
    assert why[NUMBERS["plain"]] == "'feed' would draw 10.3 kW with it, of a cap of 9.7 kW"
    assert why[NUMBERS["plain"]].kind == "power"

    feed["power_cap_w"] = 100.0
    policy = Policy(Ours(), site_of({"power_domains": [feed]}))
    with Journal(tmp_path / "journal") as journal:
        report = Rounds(policy, Budget(), journal, lambda _: load(RECORDED), Actions).round()
    assert "behind 'feed' by what may not be stopped" in report.alarms[0]
    assert "and the cap is 100 W" in report.alarms[0]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"comment": '{"wattsched": {'}, "no JSON object with the key 'wattsched'"),
        ({"comment": "wattsched"}, "no JSON object with the key 'wattsched'"),
        ({"comment": '{"Wattsched": {}}'}, "no JSON object with the key 'wattsched'"),
        ({"comment": '{"wattsched": {}}', "priority": 7}, "was not submitted held"),
        ({"comment": "a model of watts"}, ""),
    ],
)
def test_jobs_that_seem_to_be_meant_for_us_are_told(row: dict[str, Any], told: str) -> None:
    found = unclear(changed(plain=row), Ours())
    assert told in found.get(NUMBERS["plain"], "")
    assert set(found) == ({NUMBERS["plain"]} if told else set())

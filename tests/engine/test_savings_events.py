"""What a signal costs under each policy: against replays without it, second by second."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from tests.strategies.savings import dated_list, study
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.errors import InputError
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import Journal, replay_jobs
from wattsched.replaying.savings import savings
from wattsched.report.savings import events

EVENTS = {
    "limits": [
        {"from": "2026-10-31T22:20Z", "to": "2026-10-31T22:50Z", "power_w": 1300.0},
        {"from": "2026-10-31T22:40Z", "to": "2026-10-31T23:10Z", "power_w": 1200.0, "worth_per_kwh": 2.0},
        {"from": "2026-11-01T00:10Z", "to": "2026-11-01T00:25Z", "power_w": 1200.0, "worth_per_kwh": 3.0},
        {"from": "2026-11-01T00:15Z", "to": "2026-11-01T00:20Z", "power_w": 1300.0, "worth_per_kwh": 4.0},
        {"from": "2026-10-31T22:20Z", "to": "2026-10-31T22:30Z", "power_w": 1299.0, "worth_per_kwh": 1.0},
    ]
}


@pytest.fixture
def dated(tmp_path):
    return dated_list(tmp_path)


@pytest.mark.parametrize("wishes", [False, True])
def test_events_cost_what_replays_without_the_signal_do_not(dated, tmp_path, wishes) -> None:
    """Kilowatt hours and money against sums over the minutes of both replays."""
    file = tmp_path / "july.json"
    file.write_text(json.dumps(EVENTS))
    settings = ReplaySettings(period_s=3600.0, signal=file, wishes=wishes)
    journal, told, cluster = Journal(tmp_path / "kept"), [], homogeneous_cluster(1, 8, "A100")
    options = {"policies": ("fifo",), "levels": (1.0, 0.5), "seeds": (0,), "inputs": (), "settings": settings}
    found = savings(dated, cluster, **options, journal=journal, planned=lambda *counts: told.append(counts))
    assert told == [(8 + len(found.limits) if wishes else 6 + len(found.limits), 0)]
    assert [one.policy for one in found.events] == ["backfill", "fifo"]
    (trace,) = dated.traces(cluster, [0]).values()
    limits = EVENTS["limits"] if wishes else EVENTS["limits"][:1]
    midnight_s = datetime(2026, 10, 31, tzinfo=UTC).timestamp()
    spans = [
        [int(datetime.fromisoformat(one[end]).timestamp() - midnight_s) for end in ("from", "to")]
        for one in limits
    ]
    for one in found.events:
        free, firm, held = (
            next(iter(replay_jobs({0: trace}, [one.policy], settings=each)))[1]
            for each in (ReplaySettings(period_s=3600.0), replace(settings, wishes=False), settings)
        )
        time_s = free.begin_s - 22 * 3600.0 + np.arange(25 * 3600)
        free_w, firm_w, held_w = (run.meter.power.steps.at(time_s) for run in (free, firm, held))
        worth = dict[int, float]()
        for limit, span in zip(limits, spans, strict=True):
            for second in range(*span):
                worth[second] = max(worth.get(second, 0.0), limit.get("worth_per_kwh", 0.0))
        kwh = sum(free_w[s] - held_w[s] for s in worth) / 3.6e6
        assert one.not_drawn_j / 3.6e6 == pytest.approx(kwh, rel=1e-6, abs=1e-3)
        earned = sum((firm_w[s] - held_w[s]) * best for s, best in worth.items()) / 3.6e6
        assert one.earns == pytest.approx(earned, abs=1e-3)
        assert one.completion == pytest.approx(held.jct_s.mean() / free.jct_s.mean())
        assert one.p99 == pytest.approx(np.percentile(held.jct_s, 99) / np.percentile(free.jct_s, 99))
        assert one.restarts == held.jobs.restarts.sum() - free.jobs.restarts.sum()
        assert one.above_s == 0.0
        assert one.completion > 1.0
    stepped = []
    again = replace(journal, resume=True)
    assert found == savings(dated, cluster, **options, journal=again, progress=lambda *of: stepped.append(of))
    assert not stepped
    title, _, columns, rows = events(found)
    assert (title, len(rows), len(columns)) == ("Events", 2, len(rows[0]))
    assert (rows[0][columns.index(">earns")] != "") == wishes


def test_wishes_need_a_signal_and_are_told_of(dated, tmp_path) -> None:
    with pytest.raises(ValueError, match="`wishes` needs `signal`"):
        ReplaySettings(wishes=True)
    file = tmp_path / "july.json"
    file.write_text(json.dumps(EVENTS))
    (trace,) = dated.traces(homogeneous_cluster(1, 8, "A100"), [0]).values()
    with pytest.warns(UserWarning, match="4 of 5 limits are wishes, and limit nothing"):
        next(replay_jobs({0: trace}, ["fifo"], settings=ReplaySettings(signal=file)))


def test_a_signal_that_limits_nothing_costs_nothing_and_says_so(dated, tmp_path) -> None:
    file = tmp_path / "past.json"
    file.write_text(
        json.dumps(
            {"limits": [EVENTS["limits"][0] | {"from": "2020-10-31T22:20Z", "to": "2021-10-31T22:20Z"}]}
        )
    )
    with pytest.warns(
        UserWarning, match=r"past.json: assumed: no limit holds in the time of the jobs, from 2026-10-31 22:"
    ):
        found = study(dated, seeds=(0,), settings=ReplaySettings(period_s=3600.0, signal=file))
    figures = [
        (one.not_drawn_j, one.earns, one.completion, one.restarts, one.above_s) for one in found.events
    ]
    assert figures == [(0.0, 0.0, 1.0, 0.0, 0.0)] * 2
    file.write_text("{}")
    with pytest.raises(InputError, match=r"past.json: has no limits"):
        study(dated, seeds=(0,), settings=ReplaySettings(signal=file))

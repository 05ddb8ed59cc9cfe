"""Which jobs stop for a cap, and what strangers' watts do to a round: on a small model of Slurm."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.histories import EACH_W
from tests.adapters.slurm.emulator import SlurmWorld, patched
from wattsched.adapters.options import Row
from wattsched.adapters.overdraw import Adjustable, Stoppable, settings_to_fit, stops_to_fit
from wattsched.adapters.slurm.options import SiteOptions

WATTS = st.integers(0, 500).map(float)
JOBS = st.lists(st.tuples(WATTS, WATTS, st.integers(1, 8), WATTS, st.booleans()), max_size=7)


@given(st.integers(-100, 1500), st.integers(-100, 1500), JOBS)
def test_what_stops_is_enough_and_none_of_it_is_needless(
    site_w: float, feed_w: float, rows: list[tuple[float, float, int, float, bool]]
) -> None:
    """Jobs have watts behind the feed and beside it."""
    jobs = [
        Stoppable(i, {"": a + b, "feed": a}, gpus, ran_s) for i, (a, b, gpus, ran_s, _) in enumerate(rows)
    ]
    records = {str(i): {"preemptible": may} for i, (*_, may) in enumerate(rows)}
    over = {"": site_w, "feed": feed_w}

    def left(names: Any) -> dict[str, float]:
        return {cap: watts - sum(jobs[name].freed_w[cap] for name in names) for cap, watts in over.items()}

    stops = stops_to_fit(over, jobs, records)
    possible = {cap: watts for cap, watts in left(range(len(jobs))).items() if watts <= 0}
    assert all(left(stops)[cap] <= 1e-6 for cap in possible)
    for name in stops:
        without = left(set(stops) - {name})
        assert any(watts > 1e-6 for watts in without.values())
    # Each says what is too much after those before it.
    for place, why in enumerate(stops.values()):
        assert why.startswith(f"{max(left([*stops][:place]).values()):,.0f} W too many are drawn")
    # Those whose users let nobody stop them go last.
    free = [i for i, (*_, may) in enumerate(rows) if may]
    if all(watts <= 0 for watts in left(free).values()):
        assert set(stops) <= set(free)


def test_the_least_that_is_lost_per_watt_goes_first() -> None:
    jobs = [
        Stoppable(name, {"": 100.0}, 1, ran_s)
        for name, ran_s in (("old", 900.0), ("new", 10.0), ("kept", 500.0))
    ]
    assert list(stops_to_fit({"": 50.0}, jobs)) == ["new"]
    # One that goes on from a checkpoint loses a second; one that weighs more loses more.
    assert list(stops_to_fit({"": 50.0}, jobs, {"old": {"restart_s": 1.0}})) == ["old"]
    assert list(stops_to_fit({"": 50.0}, jobs, {"new": {"weight": 100.0}})) == ["kept"]


ROWS = st.lists(st.builds(Row, st.just({}), WATTS, st.integers(1, 100).map(float)), min_size=1, max_size=5)


@given(
    st.integers(-100, 1500), st.integers(-100, 1500), st.lists(st.tuples(ROWS, st.integers(0, 4)), max_size=5)
)
def test_settings_are_lowered_as_far_as_needed_and_the_least_loss_first(
    site_w: float, feed_w: float, rows: list[tuple[list[Row], int]]
) -> None:
    """Every second job is behind the feed."""
    jobs = [
        Adjustable(i, 1.0, {"": 1.0, "feed": float(i % 2)}, table, table[now % len(table)])
        for i, (table, now) in enumerate(rows)
    ]

    def over(chosen: dict[Any, Row]) -> dict[str, float]:
        saved_w = [job.now.power_w - chosen.get(job.name, job.now).power_w for job in jobs]
        behind_w = sum(watts for job, watts in zip(jobs, saved_w, strict=True) if job.part["feed"])
        return {"": site_w - sum(saved_w), "feed": feed_w - behind_w}

    chosen = {job.name: row for job, row in settings_to_fit({"": site_w, "feed": feed_w}, jobs)}
    lowest = {job.name: min(job.rows, key=lambda row: row.power_w) for job in jobs}
    assert all(watts <= 1e-6 or over(lowest)[cap] > 1e-6 for cap, watts in over(chosen).items())
    # Nobody draws more, and nobody is changed for a cap that it is not under.
    for name, row in chosen.items():
        assert row.power_w < jobs[name].now.power_w
        assert site_w > 0 or jobs[name].part["feed"]
    # With one cap no watt that is kept is cheaper than one that is saved.
    if feed_w <= 0 < site_w:
        spent = [price for job in jobs for price, row in job.steps() if row is chosen.get(job.name)]
        kept = [price for job in jobs if job.name not in chosen for price, _ in job.steps()]
        assert not (spent and kept) or max(spent) <= min(kept)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmWorld]:
    """Three nodes, n3 behind a feed with room for two GPUs."""
    made = patched(monkeypatch)(Random(0))
    made.fail_safe_w = None
    yield made
    made.close()


def with_site(world: SlurmWorld, **fields: Any) -> None:
    """Let the site's file say something else."""
    options = world.rounds.policy.options.model_dump(exclude_unset=True) | fields
    object.__setattr__(world.rounds.policy, "options", SiteOptions.model_validate(options))


def add(world: SlurmWorld, gpus: int, **fields: Any) -> int:
    """A job of ours, or with a node one of somebody else's that runs there."""
    node = fields.pop("node", "")
    world._add(gpus, "" if node else json.dumps({"wattsched": {}}), foreign=bool(node), **fields)
    job = world.jobs[world.made]
    job.seconds = 1e9
    if node:
        job.pinned, job.priority = node, 1
    world.advance()
    return job.id


def test_a_feed_that_strangers_overload_takes_no_more_and_the_others_go_on(world: SlurmWorld) -> None:
    add(world, 8, node="n3")
    ours = add(world, 8)
    report = world.rounds.round()
    assert (list(report.started), report.reason) == ([ours], "optimal")
    assert "n3" not in world.jobs[ours].launch["nodes"]
    assert f"{600 + 8 * EACH_W:,.0f} W are drawn behind 'feed'" in report.alarms[0]


def test_a_site_that_strangers_overload_starts_nothing_and_stops_what_it_may(world: SlurmWorld) -> None:
    ours = add(world, 8)
    assert list(world.rounds.round().started) == [ours]
    add(world, 8, node="n3")
    world.write_cap(world.idle_w + 4 * EACH_W)
    waits = add(world, 1)
    report = world.rounds.round()
    assert (list(report.stopped), report.started, report.reason) == ([ours], {}, "optimal")
    assert waits in report.waiting
    assert "nothing more can be done" in report.alarms[0]


@pytest.mark.parametrize("stop_ours", [True, False])
def test_ours_stop_for_strangers_as_the_site_says(world: SlurmWorld, stop_ours: bool) -> None:
    with_site(world, foreign={"power_w": 2 * EACH_W, "stop_ours": stop_ours})
    world.write_cap(world.idle_w + 10 * EACH_W)
    ours = add(world, 8)
    # Eight GPUs and the two that are set aside: no more starts, though nobody is there yet.
    assert list(world.rounds.round().started) == [ours]
    more = add(world, 1)
    assert more in world.rounds.round().waiting
    add(world, 2, node="n3")
    assert world.rounds.round().stopped == {}
    add(world, 4, node="n2")
    report = world.rounds.round()
    assert list(report.stopped) == ([ours] if stop_ours else [])
    assert bool(report.alarms) != stop_ours
    assert not report.started.keys() - {more}


def slow_decisions(
    world: SlurmWorld, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]
) -> None:
    """Let something happen while a decision is made, which goes on until somebody ends it."""
    ended, solve = threading.Event(), world.rounds.session.solve
    monkeypatch.setattr("wattsched.adapters.loop._WATCH_S", 0.02)
    monkeypatch.setattr(world.rounds.session, "cancel", ended.set)

    def slow(**limits: Any) -> Any:
        meanwhile()
        assert ended.wait(20.0)
        return solve(**limits)

    monkeypatch.setattr(world.rounds.session, "solve", slow)


def test_a_cut_while_a_decision_is_made_ends_it_and_is_acted_on(
    world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = [add(world, 8), add(world, 1)]
    assert set(world.rounds.round().started) == set(ours)
    slow_decisions(world, monkeypatch, lambda: world.write_cap(world.idle_w + 4 * EACH_W))
    add(world, 1)
    report = world.rounds.round()
    assert (list(report.stopped), report.started) == ([ours[0]], {})
    assert world.drawn_w()[""] <= world.idle_w + 4 * EACH_W
    assert "cut while this round was decided" in " ".join(report.notes)


def test_a_signal_ends_a_decision_and_nothing_is_done_after_it(
    world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(world, 1)
    slow_decisions(world, monkeypatch, world.rounds.stop.set)
    report = world.rounds.round()
    assert (report.started, list(report.postponed.values())) == ({}, ["is being ended"])


def test_what_a_decision_raises_does_not_end_the_keeping_of_the_cap(
    world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = add(world, 8)
    world.rounds.round()
    monkeypatch.setattr(world.rounds.session, "solve", lambda **_: 1 // 0)
    world.write_cap(world.idle_w + 4 * EACH_W)
    begun_s = time.monotonic()
    report = world.rounds.round()
    assert time.monotonic() < begun_s + 20
    assert list(report.stopped) == [ours]
    assert "ZeroDivisionError" in report.alarms[0]

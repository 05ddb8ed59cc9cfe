"""Measured watts in the rounds of both adapters: margins, corrections and the fail-safe, on small models."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.adapters.histories import BASE_W, EACH_W, GPUS, IDLE_W, NODES, World
from tests.adapters.kubernetes.emulator import KubernetesWorld
from tests.adapters.slurm.emulator import patched
from tests.adapters.test_signals import write
from wattsched.adapters.correction import Correction, Z
from wattsched.adapters.readings import Reading
from wattsched.adapters.rounds import Report

JOB_W = EACH_W + IDLE_W
"""Watts of a job of one GPU by the model."""


class Measured(Correction):
    """Reads all jobs that run: `true` times the watts of the model, by job or for all."""

    def __init__(self, world: World, true: float) -> None:
        super().__init__(source=self._measure)
        self.world, self.true, self.by_job, self.works = world, true, dict[str, float](), True
        self.drawn = dict[str, float]()

    def update(self, load: Any) -> None:
        now_s = load.site.time_s
        draws = {name: draw for name, draw in load.draws.items() if draw.begun_s <= now_s}
        self.drawn = {
            name: sum(draw.node_w.values()) * self.by_job.get(name, self.true) for name, draw in draws.items()
        }
        super().update(load)

    def _measure(self) -> Any:
        if not self.works:
            return [], ["the meter is broken"]
        return [Reading(self._now_s, watts, name) for name, watts in self.drawn.items()], []

    @property
    def true_w(self) -> float:
        """True watts of the cluster when it was looked at last."""
        return self.world.idle_w + sum(watts - IDLE_W for watts in self.drawn.values())


@pytest.fixture(params=["slurm", "kubernetes"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Three nodes without a feed, and 24 jobs of one GPU each, which wait."""
    kind: type[World] = patched(monkeypatch) if request.param == "slurm" else KubernetesWorld
    # Starts are held against what is drawn in truth, not by the model.
    kind = type("Measured", (kind,), {"require_start": lambda *_: None})
    made = kind(Random(5))
    made.rng = SimpleNamespace(choice=lambda values: values[0], random=lambda: 0.9)
    made.fail_safe_w, made.feed_w = None, BASE_W + GPUS * JOB_W * 3
    made.restart()
    for _ in range(24):
        made.submit_long()
    yield made
    made.close()


def rounds(world: World, count: int, each_s: float = 30) -> Report:
    """Do rounds; the last one's report."""
    for _ in range(count):
        world.pass_time(each_s)
        report = world.rounds.round()
    assert world.faults == []
    return report


def running(world: World) -> int:
    return int(world.rounds.look().running)


def test_without_readings_a_stated_error_is_a_margin_and_without_it_there_is_none(world: World) -> None:
    write(world, 12)
    report = rounds(world, 2)
    assert (running(world), report.margin_w, report.measured_w) == (12, 0.0, None)
    world.rounds.correction = Correction(0.1)
    write(world, 20)
    report = rounds(world, 4)
    count = running(world)
    assert report.margin_w == pytest.approx(Z * 0.1 * JOB_W * count**0.5, rel=0.01)
    assert world.idle_w + count * EACH_W + report.margin_w < world.idle_w + 20 * EACH_W
    assert 16 <= count <= 18
    assert report.alarms == []
    # A cut is met with the margin, too, without a decision.
    write(world, 8)
    report = rounds(world, 1)
    assert 4 <= running(world) <= 6


@pytest.mark.parametrize("true", [0.85, 1.0, 1.15])
def test_readings_make_room_or_take_it(world: World, true: float) -> None:
    """The draw in truth comes close to the cap and stays below it."""
    world.rounds.correction = measured = Measured(world, true)
    room_w = 14 * EACH_W
    write(world, 14)
    rounds(world, 2)  # that all draw 15 % more was to be expected of nobody
    for _ in range(14):
        report = rounds(world, 1)
        assert measured.true_w <= world.idle_w + room_w
        assert report.alarms == []
    assert measured.true_w - world.idle_w > 0.8 * room_w
    assert report.measured_w == pytest.approx(measured.true_w, rel=0.001)
    assert report.power_w == pytest.approx(measured.true_w, rel=0.02)
    assert report.margin_w < 0.1 * room_w


def test_what_exceeds_the_cap_in_spite_of_all_is_stopped_and_told(world: World) -> None:
    world.rounds.correction = measured = Measured(world, 1.0)
    write(world, 16)
    rounds(world, 8)
    before = running(world)
    measured.true = 1.4  # far beyond all that was known of them
    world.pass_time(30)
    report = world.rounds.round()
    (alarm,) = [one for one in report.alarms if "measured" in one]
    excess_w = world.idle_w + before * (1.4 * JOB_W - IDLE_W) - (world.idle_w + 16 * EACH_W)
    assert f"{excess_w:,.0f} W more than the cap" in alarm
    assert running(world) < before
    world.rounds.look()
    assert measured.true_w <= world.idle_w + 16 * EACH_W
    for _ in range(6):
        report = rounds(world, 1)
        assert measured.true_w <= world.idle_w + 16 * EACH_W
    assert report.alarms == []


@pytest.mark.slow
def test_when_readings_stop_jobs_make_room_for_wider_margins_and_somebody_is_told(world: World) -> None:
    world.rounds.correction = measured = Measured(world, 1.0)
    write(world, 16)
    report = rounds(world, 12)
    before, margin_w = running(world), report.margin_w
    measured.works = False
    assert (report.unread_s, report.domains[""]["measured_w"]) == (0.0, report.measured_w)
    assert 0 < report.domains["feed"]["measured_w"] < report.measured_w
    report = rounds(world, 2)
    assert report.unread_s == pytest.approx(60)
    assert "readings: the meter is broken" in report.notes
    assert report.alarms == []
    report = rounds(world, 40, each_s=120)
    assert "no reading has come for 120 s: margins widen" in report.alarms
    assert report.margin_w > 1.5 * margin_w
    assert running(world) < before
    measured.works = True
    report = rounds(world, 12)
    assert running(world) >= before - 1
    assert report.alarms == []


def test_a_process_that_begins_anew_reads_before_it_stops_anything(world: World) -> None:
    world.rounds.correction = measured = Measured(world, 0.9)
    write(world, 14)
    rounds(world, 12)
    before = running(world)
    world.restart()
    world.rounds.correction = Measured(world, 0.9)
    rounds(world, 1)
    assert running(world) >= before - 1
    assert before > 12
    assert len(NODES) == 3
    assert measured.true_w > 0

"""Signals in the file of the cap while both adapters run: on small models of Slurm and Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace

import pytest

from tests.adapters.histories import BASE_W, EACH_W, GPUS, IDLE_W, World
from tests.adapters.kubernetes.emulator import KubernetesWorld
from tests.adapters.slurm.emulator import patched
from wattsched.adapters.rounds import Report

FEED_IDLE_W = BASE_W + GPUS * IDLE_W
"""Watts of the idle node behind the feed."""


def running(world: World) -> tuple[int, int]:
    """GPUs in use on the whole site and behind the feed."""
    drawn = world.drawn_w()
    return round((drawn[""] - world.idle_w) / EACH_W), round((drawn["feed"] - FEED_IDLE_W) / EACH_W)


def write(world: World, gpus: int, *limits: tuple[float, float | None, int, str | None]) -> None:
    """Write a signal in GPUs of the site; its limits have seconds from now on, and a power domain."""

    def at(after_s: float | None) -> str | None:
        return None if after_s is None else datetime.fromtimestamp(world.true_s + after_s, UTC).isoformat()

    rows = [
        {
            "from": at(begin_s),
            "to": at(end_s),
            "power_w": (FEED_IDLE_W if domain else world.idle_w) + count * EACH_W,
            "domain": domain,
        }
        for begin_s, end_s, count, domain in limits
    ]
    document = {"format": "wattsched-signal/1", "power_w": world.idle_w + gpus * EACH_W, "limits": rows}
    world.file.write_text(json.dumps(document))


def later(world: World, seconds: float) -> Report:
    """The report of a round some seconds later, in which nothing went wrong."""
    world.pass_time(seconds)
    report = world.round()
    assert report is not None
    world.check(report, "a signal")
    assert world.faults == []
    return report


@pytest.fixture(params=["slurm", "kubernetes"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Three nodes all of whose GPUs are in use; the feed of one has room for seven of its eight."""
    kind: type[World] = patched(monkeypatch) if request.param == "slurm" else KubernetesWorld
    made = kind(Random(0))
    made.fail_safe_w, made.feed_w = None, FEED_IDLE_W + 7 * EACH_W
    made.rng = SimpleNamespace(choice=lambda values: values[0], random=lambda: 0.9)
    write(made, 24)
    made.restart()
    for _ in range(24):
        made.submit_long()
    later(made, 1)
    assert running(made) == (23, 7)
    yield made
    made.close()


def test_a_signal_that_takes_anothers_place_counts_in_the_next_round_up_and_down(world: World) -> None:
    write(world, 24, (-1, None, 2, "feed"))
    later(world, 1)
    assert running(world) == (18, 2)
    write(world, 24, (-1, None, 9, None), (-1, None, 4, "feed"))
    later(world, 1)
    assert running(world)[0] == 9
    # What is not stated any more has ended, and the site's file still counts.
    write(world, 24)
    later(world, 70)
    assert running(world) == (23, 7)


@pytest.mark.parametrize("spoilt", ['{"format": "wattsched-signal/1", "limits": [{"from"', "strange"])
def test_what_a_file_said_counts_until_it_can_be_read_again(world: World, spoilt: str) -> None:
    write(world, 24, (200, 400, 3, "feed"))
    said = world.file.read_text()
    world.file.write_text(spoilt if spoilt[0] == "{" else said.replace('"feed"', '"fed"'))
    report = later(world, 10)
    # It said nothing of that limit yet.
    assert running(world) == (23, 7)
    assert "the cap is not known" in report.alarms[0]
    assert spoilt[0] == "{" or "limits[0].domain: 'fed' is no power domain" in report.alarms[0]
    world.file.write_text(said)
    later(world, 1)
    world.file.write_text("{")
    later(world, 170)
    assert running(world) == (19, 3)
    later(world, 300)
    assert running(world) == (19, 3), "nothing starts while the cap is not known"
    world.file.write_text(said)
    later(world, 1)
    assert running(world) == (23, 7)


def test_an_announced_limit_is_met_on_time_and_one_that_is_withdrawn_stops_nothing(world: World) -> None:
    write(world, 24, (200, 300, 1, "feed"), (600, 700, 1, "feed"))
    assert not later(world, 130).stopped
    assert len(later(world, 20).stopped) == 6  # 150 s: a minute ahead
    assert running(world) == (17, 1)
    later(world, 140)
    assert running(world) == (17, 1)
    later(world, 20)
    assert running(world) == (23, 7)
    write(world, 24)
    assert not later(world, 230).stopped
    assert not later(world, 100).stopped


@pytest.mark.parametrize("domain", [None, "feed"])
def test_nothing_starts_that_an_announced_limit_would_stop_soon(world: World, domain: str | None) -> None:
    world.rounds.budget.lasting_s = 300.0
    write(world, 24, (-1, None, 2, domain))
    later(world, 1)
    # Now there is room for all, and in four minutes for three: one starts, if it is under that limit.
    write(world, 24, (240, 400, 3, domain))
    report = later(world, 70)
    assert running(world)[domain is not None] == 3
    told = {*report.waiting.values(), *report.postponed.values()}
    assert "an announced cut would stop it soon after its start: waits for the cut" in told
    # A limit that is further away keeps nothing back, and what it stops is stopped in time.
    write(world, 24, (400, 600, 3, domain))
    later(world, 1)
    assert running(world) == (23, 7)
    later(world, 350)
    assert running(world)[domain is not None] == 3


def test_a_report_has_the_watts_of_each_domain_the_next_change_and_kinds_of_reasons(world: World) -> None:
    """Both adapters; the site's file caps the feed at 7 GPUs, and the signal at 2 for a while."""
    write(world, 24, (300, 900, 2, "feed"), (600, None, 20, None))
    report, begin_s = later(world, 1), world.true_s
    site, feed = report.domains[""], report.domains["feed"]
    assert (site["power_w"], site["cap_w"]) == (report.power_w, report.cap_w)
    assert (feed["power_w"], feed["cap_w"]) == (FEED_IDLE_W + 7 * EACH_W, world.feed_w)
    assert (site["margin_w"], "measured_w" in site) == (0.0, False)
    assert [site["next_cap_s"], feed["next_cap_s"]] == pytest.approx([begin_s + 599, begin_s + 299])
    assert (site["next_cap_w"], feed["next_cap_w"]) == (
        world.idle_w + 20 * EACH_W,
        FEED_IDLE_W + 2 * EACH_W,
    )
    assert [why.kind for why in report.waiting.values()] == ["power"]
    json.dumps(report.document(), allow_nan=False)
    world.file.write_text("{")
    report = later(world, 1)
    assert report.cap_unknown
    assert {why.kind for why in report.waiting.values()} == {"undecided"}
    assert report.domains["feed"] == feed, "what the file said is still told"

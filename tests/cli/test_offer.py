"""`wattsched offer`: tables, files and plots of cuts and wishes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattsched.cli.offer import print_offer
from wattsched.report.terminal import console
from wattsched.results.result import Result, TerminationReport
from wattsched.solving.offers import Cut, Offer

from .conftest import DEMO, Run, refused

WISH = {"from": "2026-07-14T02:00Z", "to": "2026-07-14T03:00Z", "power_w": 150.0, "worth_per_kwh": 0.4}


@pytest.fixture(scope="module")
def day(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four jobs in eight hours, without a budget."""
    file = tmp_path_factory.mktemp("offer") / "day.json"
    run("generate", "shifting", "--jobs", 4, "--slots", 8, "--seed", 3, "-o", file, code=0)
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"budgets": {}, "objective": "mean-completion"}))
    return file


def test_cuts_are_told_written_and_drawn(run, day, tmp_path):
    """One offer is made of durations that take the same slots."""
    pytest.importorskip("matplotlib")
    file, plot = tmp_path / "cuts.json", tmp_path / "cuts.svg"
    options = ("--start", "2026-07-14T22:30+02:00", "--points", 1, "--gap", 0.01, "--for", "1h, 30min,1.2h")
    out = ("-o", file, "--plot", plot)
    found = run("offer", day, "--at", "2026-07-15T00:00+02:00", *options, *out, code=0)
    headings = [line for line in found.stdout.splitlines() if "  slot" in line]
    assert headings == [
        "1 h, 1.2 h  slots 1 to 2",
        "30 min  slot 1",
    ]  # 1.5 to 2.5 and to 2 hours after the begin
    cuts = json.loads(file.read_text())["cuts"]
    assert {(cut["first_slot"], cut["slots"]) for cut in cuts} == {(1, 2), (1, 1)}
    assert all(cut["loss"] is None or cut["loss"] >= cut["least_loss"] >= 0 for cut in cuts)
    assert plot.stat().st_size > 1000
    # A time of the clock is the next one, beyond midnight, too.
    clock = run("offer", day, "--at", "0:00", *options[:-1], "20min", "--json", code=0)
    assert [cut["loss"] for cut in json.loads(clock.stdout)["cuts"]] == [
        cut["loss"] for cut in cuts if cut["slots"] == 1
    ]


@pytest.mark.parametrize(
    ("at", "slot"),
    [
        ("03:00", 2),  # on the clock of the zone of --start, whose offset stays
        ("2026-10-25T03:00", 2),
        ("2026-10-25T03:00+01:00", 3),
        ("2026-10-25T03:00Z", 4),
    ],
)
def test_times_without_a_zone_take_that_of_the_start(run, day, at, slot):
    options = ("--start", "2026-10-25T01:00+02:00", "--for", "1h", "--points", 1, "--gap", 0.1, "--json")
    cuts = json.loads(run("offer", day, "--at", at, *options, code=0).stdout)["cuts"]
    assert {cut["first_slot"] for cut in cuts} == {slot}


def test_wishes_keep_the_zone_they_are_written_in_and_a_start_without_one_is_noted(run, day, tmp_path):
    signal = tmp_path / "july.json"
    signal.write_text(json.dumps({"limits": [WISH | {"from": "2026-07-14T04:00+02:00"}]}))
    found = run("offer", day, "--signal", signal, "--start", "2026-07-14T00:00", code=0)
    assert "14 Jul 04:00 to 05:00 UTC+02:00" in found.stdout
    assert "--start: assumed: it has no zone and is UTC" in found.stderr


def test_plans_that_missed_their_gap_are_marked(capsys):
    plan = Result.model_construct(termination=TerminationReport.model_construct(reason="feasible"), gap=0.033)
    cut = Cut.model_construct(
        first_slot=0,
        slots=1,
        power_w=5.0,
        lasts_s=[60.0],
        loss=1.0,
        least_loss=0.0,
        not_drawn_j=1e6,
        result=plan,
    )
    none = Result.model_construct(
        termination=TerminationReport.model_construct(reason="no_solution", detail=""), decision=None
    )
    about = {"instance": "i", "objective": "mean-completion", "slot_s": 60.0, "weight": 1.0, "currency": None}
    print_offer(console(), Offer.model_construct(**about, plan=none, cuts=[cut]))
    assert "feasible, gap 3.3 %" in capsys.readouterr().out


def test_wishes_are_told_and_those_beyond_the_horizon(run, day, tmp_path):
    signal = tmp_path / "july.json"
    later = WISH | {"from": "2026-08-14T02:00Z", "to": "2026-08-14T03:00Z"}
    signal.write_text(json.dumps({"limits": [WISH, later]}))
    found = run("offer", day, "--signal", signal, "--start", "2026-07-14T00:00Z", code=0)
    assert "14 Jul 02:00 to 03:00 UTC" in found.stdout
    assert "left out: 1 of 2 wishes" in found.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give --at and --for"),
        (("--at", "1:00"), "give --at and --for"),
        (("--at", "25:00", "--for", "1h"), "'25:00' is neither a time as 15:00"),
        (("--at", "1:00", "--for", "0h"), "'0h' is no duration above 0"),
        (("--at", "1:00", "--for", "2w"), "units are s, min, h, d"),
        (
            ("--at", "7:00", "--for", "2h"),
            "--for: must be above 0 and end within the horizon, after 3600 s, got 7200",
        ),
        (("--at", "9:00", "--for", "1h"), "--at: must be in the horizon, from 0 to below 28800 s, got 32400"),
        (("--at", "2026-07-14T01:00Z", "--for", "2h"), "--start must be a date"),
        (("--signal", "DAY"), "--start must be a date"),
        (("--signal", "DAY", "--at", "1:00"), "cannot be combined with --signal"),
    ],
)
def test_what_cannot_be_offered_is_refused(run, day, options, said):
    options = [str(day) if option == "DAY" else option for option in options]
    refused(run("offer", day, *options), said)


def test_faulty_files_are_named(run, day, write):
    when = ("--start", "2026-07-14T00:00Z")
    refused(run("offer", DEMO, "--at", "1:00", "--for", "1h"), "demo.json: problem: must be 'shifting'")
    for name, text, said in (
        ("firm.csv", "from,power_w\n2026-07-14T02:00Z,150\n", "--signal: must be one with a wish below"),
        ("kilo.csv", "from,power_w\n2026-07-14T02:00Z,15 kWW\n", "kilo.csv: line 2, column 'power_w'"),
        (
            "day.json",
            '{"limits": [{"from": "2026-07-14T02:00Z", "worth_per_kwh": 1.0}]}',
            "day.json: limits[0]",
        ),
    ):
        refused(run("offer", day, "--signal", write(text, name), *when), said)


def test_a_generated_horizon_notes_a_start_without_a_zone_and_refuses_domains(run, tmp_path):
    file, signal = tmp_path / "capped.json", tmp_path / "july.json"
    limit = {"from": "2026-07-14T02:00Z", "power_w": 1500.0}
    options = ("--jobs", 4, "--slots", 8, "--signal", signal, "--start", "2026-07-14T00:00", "-o", file)
    signal.write_text(json.dumps({"limits": [limit]}))
    assert "'2026-07-14T00:00' has no zone and is UTC" in run("generate", "shifting", *options, code=0).stderr
    later = limit | {"from": "2026-07-14T02:10Z", "to": "2026-07-14T04:00Z"}
    signal.write_text(json.dumps({"limits": [later]}))
    run("generate", "shifting", *options, "--shortest-slot-s", 300, code=0)
    assert json.loads(file.read_text())["slot_s"] == [3600.0, 3600.0, 600.0, 3000.0, *[3600.0] * 5]
    assert "4 jobs over 9 slots of 10 min to 1 h" in run("show", file, code=0).stdout
    signal.write_text(json.dumps({"limits": [limit | {"domain": "feed-a"}]}))
    said = "--signal: power domain: 'feed-a' is not known, there is none"
    assert said in run("generate", "shifting", *options, code=2).stderr

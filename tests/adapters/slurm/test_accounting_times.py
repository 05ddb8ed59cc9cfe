"""Times of accounted jobs: waits, suspension, contradictions, and clocks that go back."""

from __future__ import annotations

import json
from zoneinfo import ZoneInfo

import pytest

from tests.adapters.slurm.test_accounting import NODES
from tests.adapters.slurm.test_documents import RELEASES, accounted_row, wrapped
from wattsched.adapters.slurm.accounting import read_accounting
from wattsched.adapters.slurm.trace import Said, recorded
from wattsched.instances.errors import InputError

SUSPENSION = [
    ("COMPLETED|3800|3000|", 3600),
    ("COMPLETED|3800|3000|00:10:00", 3600),
    ("SUSPENDED|Unknown|3000|00:10:00", 3600),
    ("RUNNING|Unknown|3000|", 3000),
    ("COMPLETED|3800|3600|00:00:00", 3600),
]
"""State, end, elapsed and suspended of a job that started at 200, and for how long it held its GPUs."""


@pytest.mark.parametrize(("cells", "held_s"), SUSPENSION)
def test_a_job_keeps_its_gpus_while_it_is_suspended(cells: str, held_s: float) -> None:
    state, end, elapsed, suspended = cells.split("|")
    head = "JobID|State|Submit|Start|End|ElapsedRaw|Suspended|AllocTRES|ConsumedEnergyRaw|NodeList"
    row = f"7|{state}|100|200|{end}|{elapsed}|{suspended}|gres/gpu=8|3600000|a1"
    found = recorded(Said([f"{head}\n{row}\n"], [NODES]))
    (job,) = found.jobs
    assert (job.duration_s, job.power_w) == (held_s, 3_600_000 / held_s - 200)
    told = [(one.records, one.gpu_h) for one in found.table() if one.what.startswith("suspended for a time")]
    assert told == ([(1, held_s / 450)] if held_s > int(elapsed) else [])
    assert not [one for one in found.table() if one.treatment == "doubtful"]


def test_a_job_that_has_not_started_is_not_cut() -> None:
    (job,) = read_accounting("JobID|State|Submit|Start|Elapsed|AllocTRES\n7|PENDING|100|Unknown|00:00:00|\n")
    assert not job.start_cut


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("end", "held_s"), [(3800, 3600), (0, 3600)])
def test_documents_tell_suspension_and_ends(release: str, end: int, held_s: float) -> None:
    time = {"submission": 100, "eligible": 100, "start": 200, "end": end, "elapsed": 3000, "suspended": 600}
    told = {"allocated": [{"type": "gres", "name": "gpu", "count": 4}], "requested": []}
    row = accounted_row(release, 7, "COMPLETED", time={**time, "limit": wrapped(None)}, tres=told)
    (job,) = read_accounting(json.dumps({"meta": {}, "jobs": [row]}))
    assert (job.held_s, job.elapsed_s, job.suspended_s) == (held_s, 3000, 600)


@pytest.mark.parametrize(
    ("cells", "elapsed_s", "told"),
    [
        ("100|200|800|1200|", 1200, "Elapsed is not the time from Start to End"),
        ("100|200|150|600|", 600, "Elapsed is not the time from Start to End"),
        ("100|200|1400|600|00:00:00", 1200, "Elapsed is not the time from Start to End"),
        ("300|200|800|600|", 600, "Start is before Submit or Eligible"),
        ("100|200|801|600|00:00:00", 601, ""),
    ],
)
def test_times_that_contradict_each_other_are_doubtful(cells: str, elapsed_s: float, told: str) -> None:
    head = "JobID|State|AllocTRES|Submit|Start|End|ElapsedRaw|Suspended"
    found = recorded(Said([f"{head}\n7|COMPLETED|gres/gpu=6|{cells}\n"]))
    assert [job.duration_s for job in found.jobs] == [elapsed_s]
    doubtful = [one for one in found.table() if one.treatment == "doubtful"]
    assert [(one.what.startswith(told), one.records, one.gpu_h) for one in doubtful] == (
        [(True, 1, elapsed_s / 600)] if told else []
    )


@pytest.mark.parametrize(("eligible", "told"), [("", 1), ("|Eligible", 0)])
def test_waits_from_submission_are_told(eligible: str, told: int) -> None:
    head, row = f"JobID|State|Submit{eligible}|Start|Elapsed|AllocTRES", "200|01:00:00|gres/gpu=2"
    row = f"7|COMPLETED|100{'|150' if eligible else ''}|{row}"
    found = recorded(Said([f"{head}\n{row}\n"]))
    rows = [one for one in found.table() if one.what == "Eligible is not told: waits count from Submit"]
    assert [(one.treatment, one.records) for one in rows] == [("assumed", 1)] * told


def test_a_suspended_job_in_the_hour_that_comes_twice() -> None:
    head = "JobID|State|Submit|Start|End|Elapsed|Suspended|AllocTRES"
    times = "2027-10-31T01:00:00|2027-10-31T02:30:00|2027-10-31T03:30:00"
    row = f"7|COMPLETED|{times}|00:30:00|01:30:00|gres/gpu=8"
    found = recorded(Said([f"{head}\n{row}\n"]), BERLIN)
    assert (found.jobs[0].waited_s, found.jobs[0].duration_s) == (5_400, 7_200)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("submit", "start", "end", "elapsed", "waited_s", "ran_s", "ambiguous"),
    [
        ("01:10", "02:40", "02:20", "", 5_400, 2_400, 0),
        ("02:55", "02:15", "04:15", "02:00:00", 1_200, 7_200, 0),
        ("02:05", "02:35", "02:50", "01:15:00", 1_800, 4_500, 0),
        ("01:00", "02:30", "04:30", "", 5_400, 10_800, 1),
        ("01:00", "02:30", "Unknown", "00:10:00", 5_400, 600, 1),
    ],
)
def test_times_in_the_hour_that_comes_twice(
    submit: str, start: str, end: str, elapsed: str, waited_s: float, ran_s: float, ambiguous: int
) -> None:
    """The order of times and the stated duration tell which is meant; where they do not, that is told."""
    times = [one if one == "Unknown" else f"2027-10-31T{one}:00" for one in (submit, start, end)]
    row = ["7", "COMPLETED", *times, elapsed, "gres/gpu=8"]
    text = "JobID|State|Submit|Start|End|Elapsed|AllocTRES\n" + "|".join(row) + "\n"
    found = recorded(Said([text]), BERLIN)
    (job,) = found.jobs
    assert (job.waited_s, job.duration_s) == (waited_s, ran_s)
    assert sum("the hour that comes twice" in one.what for one in found.entries) == ambiguous


def test_exports_during_and_after_the_hour_that_comes_twice_tell_of_one_run() -> None:
    head = "JobID|State|Submit|Start|End|Elapsed|AllocTRES\n"
    begun = "2027-10-31T02:10:00|2027-10-31T02:20:00"
    during = f"{head}7|RUNNING|{begun}|Unknown|00:25:00|gres/gpu=8\n"
    after = f"{head}7|COMPLETED|{begun}|2027-10-31T03:10:00|00:50:00|gres/gpu=8\n"
    for texts in ([during, after], [after, during]):
        found = recorded(Said(texts), BERLIN)
        assert [(job.name, job.duration_s) for job in found.jobs] == [("7", 3000)]


def test_a_time_that_clocks_skip_is_refused_and_the_zone_of_this_machine_is_told() -> None:
    head = "JobID|State|Submit|Start|Elapsed|AllocTRES\n"
    row = "7|COMPLETED|{0}|{0}|00:10:00|gres/gpu=8\n"
    skipped = head + row.format("2027-03-28T02:30:00")
    with pytest.raises(
        InputError, match="line 2, column 'Submit': '2027-03-28T02:30:00': the clocks of Europe/B"
    ):
        recorded(Said([skipped]), BERLIN)
    told = [
        sum(
            "without a zone are this machine's" in one.what
            for one in recorded(Said([head + row.format(time)])).entries
        )
        for time in ("2027-03-28T12:00:00", "2027-03-28T12:00:00+02:00", "1774785600")
    ]
    assert told == [1, 0, 0]

"""Runs of accounted jobs: each counts once, whatever files tell of it, and whole."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.slurm.test_accounting import NODES
from tests.adapters.slurm.test_documents import RELEASES, accounted_row, wrapped
from wattsched.adapters.slurm.trace import Said, recorded
from wattsched.instances.errors import InputError
from wattsched.report.imports import Entry


def test_a_job_that_was_requeued_has_several_runs_and_one_in_two_files_counts_once() -> None:
    text = "JobID|State|Submit|Start|ElapsedRaw|AllocTRES\n" + "".join(
        f"5|{state}|{start}|{start}|60|gres/gpu=1\n"
        for state, start in (("NODE_FAIL", 100), ("COMPLETED", 200))
    )
    found = recorded(Said([text, text]))
    assert [job.name for job in found.jobs] == ["5", "5#2"]
    assert found.cluster is None


HISTORY = (
    ("7", "PENDING", None, "0", ""),
    ("7", "RUNNING", 200, "5", ""),
    ("7", "RUNNING", 200, "30", ""),
    ("7", "NODE_FAIL", 200, "90", "again"),
    ("7", "PENDING", None, "0", "again"),
    ("7", "COMPLETED", 400, "60", "again"),
    ("8", "PENDING", None, "0", ""),
    ("8", "CANCELLED by 5", None, "0", ""),
)
"""Job, state, start, elapsed, and whether it was submitted anew, in the order in which Slurm wrote it."""


@given(st.permutations(HISTORY), st.integers(1, len(HISTORY)))
def test_the_later_record_of_each_run_counts_whatever_the_order_of_files(rows: list[Any], cut: int) -> None:
    """A run is a start; of a job that has started no earlier record waits."""
    head = "JobID|State|Submit|Start|ElapsedRaw|ReqTRES\n"
    lines = [
        f"{id}|{state}|{300 if anew else 100}|{start or 'None'}|{ran}|gres/gpu=2"
        for id, state, start, ran, anew in rows
    ]
    files = [head + "\n".join(part) for part in (lines[:cut], lines[cut:])]
    found = recorded(Said(files))
    assert [(job.name, job.duration_s) for job in found.jobs] == [("7", 90), ("7#2", 60)]
    assert found.left_out == {"never started": 1}
    assert found.ended == {"node_fail": 1, "completed": 1}


def test_a_job_that_was_requeued_and_waits_again_is_told() -> None:
    head = "JobID|State|Submit|Start|ElapsedRaw|AllocTRES|ReqTRES\n"
    text = f"{head}7|PREEMPTED|100|200|90|gres/gpu=8|\n7|PENDING|290|Unknown|0||gres/gpu=8\n"
    found = recorded(Said([text]))
    assert [job.duration_s for job in found.jobs] == [90]
    assert found.left_out == {"still waiting": 1}


CLUSTERS = ["east|7", "west|7", "west|8"]


@pytest.mark.parametrize("form", ["table", *RELEASES])
def test_jobs_of_two_clusters_are_named_by_these(form: str) -> None:
    def said(clusters: list[str]) -> Said:
        if form == "table":
            head = "Cluster|JobID|State|Submit|Start|Elapsed|AllocTRES\n"
            rows = [f"{one}|COMPLETED|100|200|00:01:00|gres/gpu=4\n" for one in clusters]
            return Said([head + "".join(rows)])
        tres = [{"type": "gres", "name": "gpu", "count": 4}]
        time = {"submission": 100, "eligible": 100, "start": 200, "elapsed": 60, "limit": wrapped(None)}
        named = [one.split("|") for one in clusters]
        told = {"time": time, "tres": {"allocated": tres, "requested": tres}}
        jobs = [accounted_row(form, int(id), "COMPLETED", cluster=name, **told) for name, id in named]
        return Said([json.dumps({"meta": {}, "jobs": jobs})])

    found = recorded(said(CLUSTERS))
    assert [job.name for job in found.jobs] == ["east/7", "west/7", "west/8"]
    assert Entry("doubtful", "jobs of the clusters 'east', 'west' count together") in found.entries
    assert [job.name for job in recorded(said(CLUSTERS[1:])).jobs] == ["7", "8"]


def test_jobs_of_one_number_and_several_users_are_named_by_these() -> None:
    head, row = (
        "JobID|User|State|Submit|Start|Elapsed|AllocTRES",
        "7|{}|COMPLETED|100|200|0{}:00:00|gres/gpu=4",
    )
    rows = [row.format("ann", 1), row.format("bob", 2)]
    found = recorded(Said(["\n".join([head, *rows, ""])]))
    assert [(job.name, job.duration_s) for job in found.jobs] == [("ann/7", 3600), ("bob/7", 7200)]
    told = "1 job number of several users, as with several clusters and no column Cluster"
    assert Entry("doubtful", told) in found.entries
    own = recorded(Said(["\n".join([head, rows[0], rows[0].replace("|200|", "|9000|"), ""])]))
    assert not any(one.treatment == "doubtful" for one in own.entries)
    with pytest.raises(ValueError, match="begins with 'CLUSTER: east'"):
        Said().add("\n".join(["CLUSTER: east", head, *rows, ""]))


@pytest.mark.parametrize("told", ["table", *RELEASES])
@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_earlier_runs_that_are_missing_are_pointed_at(told: str, restarts: int) -> None:
    """Two runs are told, of a job that was requeued so often."""
    if told == "table":
        head = "JobID|State|Submit|Start|Elapsed|AllocTRES|Restarts"
        rows = [f"7|REQUEUED|100|200|00:01:00|gres/gpu=2|{max(0, restarts - 1)}"]
        text = "\n".join([head, *rows, f"7|COMPLETED|400|500|00:01:00|gres/gpu=2|{restarts}", ""])
    else:
        times = [{"submission": at, "eligible": at, "start": at + 9, "elapsed": 60} for at in (100, 400)]
        jobs = [accounted_row(told, 7, "COMPLETED", time={**one, "limit": wrapped(None)}) for one in times]
        jobs[0] |= {"restart_cnt": max(0, restarts - 1)}
        text = json.dumps({"meta": {}, "jobs": [jobs[0], jobs[1] | {"restart_cnt": restarts}]})
    doubtful = [one for one in recorded(Said([text])).entries if one.treatment == "doubtful"]
    missing = Entry("doubtful", "earlier runs are missing; sacct --duplicates prints them", 1)
    assert doubtful == [missing] * (restarts > 1)


def test_exports_with_other_columns_complete_each_other() -> None:
    full = "JobID|User|Account|State|Submit|Eligible|Start|Elapsed|AllocTRES\n"
    full += "7|ann|bio|COMPLETED|1000|3000|4000|00:50:00|gres/gpu=8\n"
    bare = "JobID|State|Submit|Start|Elapsed|AllocTRES\n7|COMPLETED|1000|4000|00:50:00|gres/gpu=8\n"
    for texts in ([full, bare], [bare, full]):
        found = recorded(Said(texts), UTC)
        assert [(job.user, job.account, job.waited_s) for job in found.jobs] == [("ann", "bio", 1000)]
        assert not any("Eligible is not told" in one.what for one in found.entries)


RAN_S, BEGIN_S = 8 * 3600, 1_793_476_800
"""Seconds for which a job ran on 8 GPUs and, in seconds since 1970, when; it was submitted 2 h before."""


CUTS = {
    "adjacent": [(0, 4), (4, 8)],
    "overlapping": [(0, 5), (3, 8)],
    "one within the other": [(0, 8), (4, 8)],
    "three": [(0, 2), (2, 6), (5, 8)],
}


def part_of_a_run(form: str, hours: tuple[int, int], state: str, energy_j: float, of: str) -> str:
    """A record as ``sacct --truncate`` prints it: times are cut, the energy of a job or its step never."""
    start_s, end_s = (BEGIN_S + 3600 * hour for hour in hours)
    if form == "table":
        own, of_step = (energy_j, "") if of == "job" else ("", energy_j)
        row = f"{state}|{BEGIN_S - 7200}|{BEGIN_S - 7200}|{start_s}|{end_s}|{end_s - start_s}"
        head = "JobID|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|ConsumedEnergyRaw|NodeList"
        lines = [head, f"7|{row}|gres/gpu:A100=8|{own}|a1", f"7.batch|{row}|gres/gpu:A100=8|{of_step}|a1"]
        return "\n".join([*lines, ""])
    times = {"start": start_s, "end": end_s, "elapsed": end_s - start_s}
    waits = {"submission": BEGIN_S - 7200, "eligible": BEGIN_S - 7200, "suspended": 0}
    step = {"step": {"id": "7.batch"}, "time": times, "nodes": {"range": "a1"}}
    step |= {"statistics": {"energy": {"consumed": wrapped(energy_j if of == "step" else 0)}}}
    tres = [
        {"type": "gres", "name": "gpu:A100", "count": 8},
        {"type": "energy", "name": "", "count": energy_j},
    ]
    told = {"allocated": tres[: 1 + (of == "job")], "requested": []}
    fields = {
        "time": {**waits, **times, "limit": wrapped(None)},
        "tres": told,
        "nodes": "a1",
        "steps": [step],
    }
    return json.dumps({"meta": {}, "jobs": [accounted_row("23.11.4", 7, state, **fields)]})


@pytest.mark.parametrize("form", ["table", "document"])
@pytest.mark.parametrize("of", ["job", "step"])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("later", [False, True])
def test_parts_of_a_run_are_one_run_with_the_energy_of_the_whole(
    form: str, of: str, cuts: str, later: bool
) -> None:
    """Those printed before its end say that it runs, and have the energy so far."""
    whole_j, texts = 3000.0 * RAN_S, []
    for hours in CUTS[cuts]:
        ended = later or hours[1] == 8
        so_far_j = whole_j if ended else whole_j * hours[1] / 8
        texts.append(part_of_a_run(form, hours, "COMPLETED" if ended else "RUNNING", so_far_j, of))
    for files in (texts, texts[::-1]):
        found = recorded(Said(files, [NODES]))
        (job,) = found.jobs
        assert (job.duration_s, job.waited_s, job.power_w) == (RAN_S, 7200, 2800)
        assert found.ended == {"completed": 1}
        assert not [one for one in found.table() if one.treatment == "doubtful"]


def test_steps_of_the_parts_of_a_run_add_up() -> None:
    """One step ran before the cut and one after it: each is in its part alone."""
    texts = [
        part_of_a_run("table", hours, "COMPLETED", 3000.0 * RAN_S / 2, "step").replace("7.batch", f"7.{n}")
        for n, hours in enumerate(CUTS["adjacent"])
    ]
    (job,) = recorded(Said(texts, [NODES])).jobs
    assert (job.duration_s, job.power_w) == (RAN_S, 2800)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (
            "COMPLETED|100|200|4000|gres/gpu=2",
            "COMPLETED|3700|3700|7500|gres/gpu=2",
            "runs overlap: do files",
        ),
        ("COMPLETED|100|200|4000|gres/gpu=2", "COMPLETED|100|300|7500|gres/gpu=4", "runs overlap: do files"),
        (
            "RUNNING|100|200|4000|gres/gpu=2",
            "COMPLETED|100|9000|9900|gres/gpu=2",
            "a run of it is told to go on",
        ),
        ("COMPLETED|100|200|4000|gres/gpu=2", "COMPLETED|4000|4000|9900|gres/gpu=2", ""),
        ("RESIZING|100|200|4000|gres/gpu=2", "COMPLETED|100|4000|9900|gres/gpu=4", ""),
        ("NODE_FAIL|100|200|4000|gres/gpu=2", "COMPLETED|4000|4000|9900|gres/gpu=2", ""),
    ],
)
def test_runs_of_one_job_that_cannot_all_be_are_doubtful(first: str, second: str, told: str) -> None:
    text = "\n".join(["JobID|State|Submit|Start|End|AllocTRES", f"7|{first}", f"7|{second}", ""])
    found = recorded(Said([text]))
    assert len(found.jobs) == 2
    doubtful = [one for one in found.table() if one.treatment == "doubtful"]
    assert [one.records for one in doubtful if one.what.startswith(told)] == [1] * bool(told)
    assert told or not doubtful


HEAD = "JobID|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES|ConsumedEnergyRaw|NodeList"


def run(id: str, state: str, hours: tuple[int, int], limit: str = "3-00:00:00", node: str = "a1") -> str:
    """A row of a job that waited an hour before it ran, on all GPUs of its node."""
    start_s, end_s = (datetime(2026, 10, 26, tzinfo=UTC).timestamp() + 3600 * hour for hour in hours)
    times = "|".join(f"{moment:.0f}" for moment in (start_s - 3600, start_s, end_s))
    lasted = f"{hours[1] - hours[0]}:00:00"
    return f"{id}|{state}|{times}|{lasted}|{limit}|gres/gpu=8|{1500 * (end_s - start_s):.0f}|{node}"


def as_cut(row: str, hours: tuple[int, int]) -> str:
    """A row as ``sacct --truncate`` prints it for a time: its energy is that of the whole run."""
    cells, first_s = row.split("|"), datetime(2026, 10, 26, tzinfo=UTC).timestamp()
    least_s, most_s = (first_s + 3600 * hour for hour in hours)
    start_s, end_s = max(float(cells[3]), least_s), min(float(cells[4]), most_s)
    cells[3:6] = f"{start_s:.0f}", f"{end_s:.0f}", f"{(end_s - start_s) / 3600:.0f}:00:00"
    return "|".join(cells)


@pytest.mark.parametrize(
    ("rows", "watts", "waits_s", "starts", "ends"),
    [
        ([run("1", "COMPLETED", (-8, 30)), run("2", "COMPLETED", (-3, 6), node="a2")], [None] * 2, [], 2, 0),
        (
            [run("1", "COMPLETED", (2, 30)), run("2", "FAILED", (3, 28), node="a2")],
            [None] * 2,
            [3600] * 2,
            0,
            2,
        ),
        (
            [run("1", "COMPLETED", (1, 5)), run("2", "RUNNING", (3, 28), node="a2")],
            [1500, None],
            [3600] * 2,
            0,
            1,
        ),
        (
            [run("1", "COMPLETED", (1, 5)), run("2", "FAILED", (3, 9), node="a2")],
            [1500] * 2,
            [3600] * 2,
            0,
            0,
        ),
        (
            [run("1", "CANCELLED by 5", (1, 9)), run("2", "CANCELLED by 5", (3, 9), node="a2")],
            [1500] * 2,
            [3600] * 2,
            0,
            0,
        ),
    ],
)
def test_runs_that_one_export_alone_has_cut_are_doubtful_without_energy(
    rows: list[str], watts: list[float | None], waits_s: list[float], starts: int, ends: int
) -> None:
    text = "\n".join([HEAD, *(as_cut(row, (0, 24)) for row in rows), ""])
    found = recorded(Said([text], [NODES]), UTC, energy_of="gpus")
    assert [job.power_w for job in found.jobs] == watts
    assert [job.waited_s for job in found.jobs if job.waited_s is not None] == waits_s
    assert all(job.submitted_s >= datetime(2026, 10, 26, tzinfo=UTC).timestamp() for job in found.jobs)
    assert any("mean wait" in line for line in found.lines()) == bool(waits_s)
    for what, jobs in (("starts with others at the first second", starts), ("ends with others", ends)):
        assert [one.records for one in found.entries if one.what.startswith(what)] == [jobs] * bool(jobs)
    whole = recorded(Said([text, "\n".join([HEAD, *rows, ""])], [NODES]), UTC, energy_of="gpus")
    assert not [one for one in whole.entries if "truncate" in one.what and "RUNNING" not in text]


@pytest.mark.parametrize(
    ("state", "hours", "told"),
    [("RUNNING", 720, "still runs after"), ("COMPLETED", 30, "ran longer than"), ("TIMEOUT", 25, "")],
)
def test_a_run_beyond_its_time_limit_is_doubtful(state: str, hours: int, told: str) -> None:
    row = run("7", state, (0, hours), "1-00:00:00").split("|")
    row[4] = "Unknown" if state == "RUNNING" else row[4]
    found = recorded(Said(["\n".join([HEAD, "|".join(row), ""])], [NODES]), UTC)
    doubtful = [one for one in found.table() if one.treatment == "doubtful"]
    assert [(one.what.startswith(told), one.records) for one in doubtful] == [(True, 1)] * bool(told)


@given(
    st.permutations(["9_[1-6%2]", "9_[3-6]", "9_[6]", "1", "2", "3", "4", "5w", "17_3"]), st.integers(1, 8)
)
def test_tasks_of_an_array_that_have_begun_wait_no_more_whatever_the_order(ids: list[str], cut: int) -> None:
    """Of six tasks four have run, the fifth waits on its own, and the sixth in the array's record."""

    def line(id: str) -> str:
        if "[" in id or id.endswith("w"):
            return f"{id if '[' in id else '9_5'}|PENDING|100|None|0|gres/gpu=2"
        return f"{id if '_' in id else f'9_{id}'}|COMPLETED|100|200|60|gres/gpu=2"

    head, lines = "JobID|State|Submit|Start|ElapsedRaw|ReqTRES\n", [line(id) for id in ids]
    found = recorded(Said([head + "\n".join(part) for part in (lines[:cut], lines[cut:])]))
    assert found.left_out == {"still waiting": 2}
    assert len(found.jobs) == 5


@pytest.mark.parametrize(
    ("limit", "fault"),
    [
        ("2 days", "column 'Timelimit': '2 days' is not [D-]HH:MM:SS, as sacct prints it"),
        ("30", "'30' is not [D-]HH:MM:SS, as sacct prints it; a plain number belongs into TimelimitRaw"),
    ],
)
def test_malformed_time_limits_are_named(limit: str, fault: str) -> None:
    with pytest.raises(InputError, match=re.escape(fault)):
        recorded(Said(["\n".join([HEAD, run("1", "COMPLETED", (2, 30), limit)])]))

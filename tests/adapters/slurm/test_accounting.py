"""Slurm's accounting: tables and JSON say the same, every bad cell is told, every job is counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.adapters.slurm.test_documents import RELEASES, accounted_row, wrapped
from wattsched.adapters.slurm.accounting import FIELDS, Accounted, amount, read_accounting
from wattsched.adapters.slurm.trace import Said, kind_of, recorded
from wattsched.instances.errors import InputError
from wattsched.report.imports import Entry

SITE = Path(__file__).resolve().parents[3] / "examples" / "site"
STATES = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1003", "OUT_OF_MEMORY", "RUNNING", "NODE_FAIL"]
ZONE = timezone(timedelta(hours=-7))
NODES = "NodeName=a1 Gres=gpu:A100:8 State=IDLE\nNodeName=a2 Gres=gpu:A100:8(S:0-1) State=MIXED+DRAIN\n"
JOBS = st.lists(
    st.builds(
        Accounted,
        id=st.integers(1, 99).map(str)
        | st.tuples(st.integers(100, 120), st.integers(0, 9)).map("%d_%d".__mod__),
        user=st.sampled_from(["ann", "ben"]),
        account=st.sampled_from(["", "vision"]),
        state=st.sampled_from(STATES),
        eligible_s=st.integers(1_700_000_000, 1_800_000_000).map(float),
        start_s=st.integers(1_800_000_000, 1_800_100_000).map(float),
        elapsed_s=st.integers(0, 400_000).map(float),
        gpus=st.integers(0, 16),
        gpu_types=st.just(frozenset()) | st.just(frozenset(["a100"])),
        energy_j=st.none() | st.integers(1, 10**9).map(float),
        nodes=st.sampled_from([("a1",), ("a2",), ("a1", "a2")]),
        time_limit_s=st.none() | st.integers(1, 10**4).map(lambda minutes: 60.0 * minutes),
    ).map(lambda job: job if job.gpus else replace(job, gpu_types=frozenset())),
    min_size=1,
    max_size=5,
    unique_by=lambda job: job.id,
)


def time_of(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, ZONE).strftime("%Y-%m-%dT%H:%M:%S")


def clock(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86_400)
    return (f"{days}-" if days else "") + f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


def tres_of(job: Accounted) -> str:
    entries = ["cpu=8", "mem=32G", *[f"gres/gpu:{kind}={job.gpus}" for kind in job.gpu_types]]
    return ",".join([*entries, f"gres/gpu={job.gpus}"] if job.gpus else entries)


def cells_of(job: Accounted, name: str = "train") -> dict[str, str]:
    """A line of the table, the energy in its steps."""
    cells = [job.id, job.user, job.account, job.state, time_of(job.eligible_s - 50)]
    cells += [time_of(job.eligible_s), time_of(job.start_s or 0), "Unknown", clock(job.elapsed_s), ""]
    cells += ["UNLIMITED" if job.time_limit_s is None else clock(job.time_limit_s)]
    cells += [tres_of(job), tres_of(job), "", {2: "a[1-2]"}.get(len(job.nodes), job.nodes[0]), "", name]
    return dict(zip(FIELDS, cells, strict=True))


def table_of(jobs: list[Accounted], name: str = "train") -> str:
    lines = ["|".join(FIELDS)]
    for job in jobs:
        cells = cells_of(job, name)
        lines.append("|".join(cells.values()))
        if job.energy_j is not None:
            for step, energy_j in (("batch", 0.0), ("extern", job.energy_j), ("0", job.energy_j / 2)):
                cells |= {
                    "JobID": f"{job.id}.{step}",
                    "JobName": step,
                    "ConsumedEnergyRaw": f"{energy_j:.0f}",
                }
                lines.append("|".join(cells.values()))
    return "\n".join(lines) + "\n"


def document_of(jobs: list[Accounted], release: str) -> str:
    """As a release of Slurm says it."""
    rows = []
    for job in jobs:
        number, _, task = job.id.partition("_")
        tres = [{"type": "cpu", "name": None, "count": 8}, {"type": "energy", "name": None, "count": None}]
        names = ["gpu", *(f"gpu:{kind}" for kind in job.gpu_types)] if job.gpus else []
        tres += [{"type": "gres", "name": name, "count": job.gpus} for name in names]
        times = {"elapsed": job.elapsed_s, "eligible": job.eligible_s, "start": job.start_s}
        minutes = None if job.time_limit_s is None else job.time_limit_s / 60
        times |= {"limit": minutes if release < "23.02" else wrapped(minutes)}
        energies = [0.0, job.energy_j] if job.energy_j is not None else []
        fields: dict[str, Any] = {"user": job.user, "account": job.account}
        fields |= {"time": {**times, "submission": job.eligible_s - 50}}
        fields |= {"tres": {"allocated": tres, "requested": tres}}
        fields |= {"array": {"job_id": int(number), "task_id": int(task)}} if task else {}
        fields |= {"nodes": {2: "a[1-2]"}.get(len(job.nodes), job.nodes[0])}
        fields |= {"steps": [{"statistics": {"energy": {"consumed": wrapped(one)}}} for one in energies]}
        rows.append(accounted_row(release, 7 if task else int(number), job.state.partition(" ")[0], **fields))
    return json.dumps({"meta": {}, "jobs": rows})


def ended(jobs: list[Accounted]) -> list[Accounted]:
    return [replace(job, state=job.state.partition(" ")[0]) for job in jobs]


@given(JOBS, st.sampled_from(RELEASES), st.sampled_from(["train", "a|b", "||", ""]))
@example(
    [Accounted("1", "ann", "", "FAILED", 1.7e9, 1.8e9, 0.0, 1, frozenset(), 5.0, ("a1",))], RELEASES[1], ""
)
def test_tables_and_documents_say_the_same(jobs: list[Accounted], release: str, name: str) -> None:
    assert read_accounting(table_of(jobs, name), ZONE) == ended(jobs)
    assert read_accounting(document_of(jobs, release)) == ended(jobs)


@given(JOBS, JOBS, st.booleans())
def test_a_header_in_the_middle_is_that_of_the_file_that_was_appended(
    jobs: list[Accounted], more: list[Accounted], behind: bool
) -> None:
    lines = [line.split("|")[::-1] for line in table_of(more).splitlines()]  # other columns come first
    appended = "".join("|".join(cells) + "|" * behind + "\n" for cells in lines)
    assert read_accounting(table_of(jobs) + appended, ZONE) == ended([*jobs, *more])


@given(st.sets(st.tuples(st.integers(0, 4), st.sampled_from(["Submit", "Start", "Elapsed", "NodeList"]))))
def test_every_bad_cell_is_told(bad: set[tuple[int, str]]) -> None:
    good = Accounted("1", "ann", "", "COMPLETED", 1e9, 2e9, 9.0, 1, frozenset(), None, ("a1",))
    rows = [cells_of(replace(good, id=str(n))) for n in range(5)]
    for n, column in bad:
        rows[n][column] = "a[3-"
    text = "\n".join(["|".join(FIELDS), *("|".join(row.values()) for row in rows)])
    if not bad:
        assert len(read_accounting(text, ZONE)) == 5
        return
    with pytest.raises(InputError) as error:
        read_accounting(text, ZONE)
    places = re.findall(r"line (\d+), column '(\w+)'", str(error.value))
    assert {(int(line) - 2, column) for line, column in places} == bad
    assert str(error.value).count("a[3-") >= len(bad)


@given(JOBS)
def test_every_job_is_in_the_trace_or_counted(jobs: list[Accounted]) -> None:
    said = Said([table_of(jobs)], [NODES])
    if not any(job.gpus and job.elapsed_s for job in jobs):
        with pytest.raises(InputError, match="no job has used a GPU") as error:
            recorded(said, ZONE)
        assert ("sacct tells of no job" in str(error.value)) == (not jobs)
        return
    found = recorded(said, ZONE)
    assert len(found.jobs) + found.left_out.total() == len(jobs)
    assert found.ended == Counter(job.state.lower() for job in ended(jobs) if job.gpus and job.elapsed_s)
    known = {job.id: job for job in jobs}
    for job in found.jobs:
        of = known[job.name]
        assert of.eligible_s + job.waited_s == of.start_s
        assert (job.submitted_s, job.duration_s, job.gpus) == (of.eligible_s, of.elapsed_s, of.gpus)
        assert (job.gpu_type, job.time_limit_s) == ("A100", of.time_limit_s)
        beside = [
            one
            for one in jobs
            if one is not of and {*one.nodes} & {*of.nodes} and one.start_s is not None
            and max(one.start_s, of.start_s) < min(one.start_s + one.elapsed_s, of.start_s + of.elapsed_s)
        ]  # fmt: skip
        alone, most_w = of.gpus >= 8 * len(of.nodes) and not beside, 5000 * of.gpus
        idle_w = len(of.nodes) * 8 * 50
        known_w = None if of.energy_j is None or not alone else of.energy_j / of.elapsed_s
        known_w = None if known_w is None else known_w - 200 * len(of.nodes)
        assert job.power_w == (None if known_w is None or not idle_w <= known_w <= most_w else known_w)


def test_energy_of_whole_nodes_is_told_of_gpus_without_the_server() -> None:
    text = (
        "JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES|ConsumedEnergyRaw|NodeList\n"
        "1|COMPLETED|100|200|3800|3600|gres/gpu=8|9000000|a1\n"
        "2|COMPLETED|100|4000|7600|3600|gres/gpu=8|9000000|a1\n"
        "3|COMPLETED|100|7599|7700|101|cpu=1||a1\n"
        "4|COMPLETED|100|7600|11200|3600|gres/gpu=8|9000000|a2\n"
    )
    for energy_of, server_w in (("nodes", 200), ("gpus", 0)):
        found = recorded(Said([text], [NODES]), energy_of=energy_of)
        assert [job.power_w for job in found.jobs] == [2500 - server_w, None, 2500 - server_w]
        assert [entry.records for entry in found.entries if "measured energy is" in entry.what] == [2]


@pytest.mark.parametrize(
    ("text", "value"), [("17", 17), ("1.5K", 1500), ("2M", 2e6), ("3.25G", 3.25e9), ("1T", 1e12)]
)
def test_suffixes(text: str, value: float) -> None:
    assert amount(text) == value


@pytest.mark.parametrize(
    ("zone", "time", "expected"),
    [
        (UTC, "2026-03-29T12:00:00", "2026-03-29T12:00:00+00:00"),
        (ZONE, "2026-03-29T12:00:00", "2026-03-29T19:00:00+00:00"),
        (ZONE, "1774785600", "2026-03-29T12:00:00+00:00"),
        (ZONE, "2026-03-29T12:00:00+0200", "2026-03-29T10:00:00+00:00"),
    ],
)
def test_times_as_slurm_may_print_them(zone: Any, time: str, expected: str) -> None:
    text = f"JobID|State|Submit|Start|Elapsed|AllocTRES\n1|COMPLETED|{time}|{time}|00:01:00|gres/gpu=1\n"
    (job,) = read_accounting(text, zone)
    assert job.start_s == job.eligible_s == datetime.fromisoformat(expected).timestamp()


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
    assert [job.name for job in recorded(said(CLUSTERS[1:])).jobs] == ["7", "8"]


@pytest.mark.parametrize(
    ("id", "tasks"),
    [("910_[4-9%2]", 6), ("910_[1,3,7-9]", 5), ("9_[0-8:2%3]", 5), ("9_[3]", 1), ("910_4", 1), ("910", 1)],
)
def test_tasks_of_an_array_that_wait_are_counted(id: str, tasks: int) -> None:
    rows = ["7|COMPLETED|100|200|60|gres/gpu=1", f"{id}|PENDING|100|None|0|gres/gpu=1"]
    text = "\n".join(["JobID|State|Submit|Start|ElapsedRaw|ReqTRES", *rows])
    assert recorded(Said([text])).left_out == {"still waiting": tasks}


MIXED = """NodeName=m1 Gres=gpu:a100:2,gpu:a100_1g.10gb:14 State=IDLE
NodeName=h1 Gres=gpu:h100:8 State=IDLE
NodeName=h[2-3] Gres=gpu:h100:8 State=IDLE
"""


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ([("h100=8", "h1"), ("h100=8", "h2"), ("a100_1g.10gb=14", "m1")], []),
        ([("h100=8", "h1"), ("h100=1", "h1")], [" 9 GPUs on node h1 on ", ", of 8 that"]),
        ([("h100=17", "h[1-2]")], [" 9 GPUs on node h2 on ", ", of 8 that", ", the worst of 2"]),
        ([("h100=12", "h[1-2]"), ("h100=8", "h1")], [" 12 GPUs on node h1 on ", ", of 8 that"]),
        ([("a100=3", "m1")], [" 3 GPUs of type a100 on ", " 3 GPUs on node m1/a100 on "]),
        ([("h100=25", "h9")], [" 25 GPUs of type h100 on ", ", of 24 that"]),
        (
            [("h100=24", "h[1-3]"), ("a100=3", "h9")],
            [" 27 GPUs on ", ", of 26 that", " 3 GPUs of type a100 on "],
        ),
    ],
)
def test_more_gpus_than_a_node_or_a_type_has_are_doubtful(
    jobs: list[tuple[str, str]], told: list[str]
) -> None:
    rows = [f"{n}|COMPLETED|100|200|60|gres/gpu:{tres}|{nodes}" for n, (tres, nodes) in enumerate(jobs)]
    text = "\n".join(["JobID|State|Submit|Start|ElapsedRaw|AllocTRES|NodeList", *rows, ""])
    found = recorded(Said([text], [MIXED]))
    doubtful = " / ".join(one.what for one in found.table() if one.treatment == "doubtful")
    assert [one for one in told if one not in doubtful] == []
    assert bool(doubtful) == bool(told)


@pytest.mark.parametrize("unknown", [2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1])
def test_numbers_that_mean_unknown(unknown: int) -> None:
    text = (
        "JobID|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|ConsumedEnergyRaw|NodeList\n"
        f"1|COMPLETED|100|200|260|{unknown}|{unknown}|gres/gpu=8,energy={unknown}|{unknown}|a1\n"
        f"2|COMPLETED|100|300|360|60|30|gres/gpu={unknown},gres/gpu:a100=8|72000|a1\n"
        f"3|PENDING|100|{unknown}|{unknown}|0|UNLIMITED|gres/gpu=8||\n"
        f"4|COMPLETED|100|400|460|60|Partition_Limit|gres/gpu={unknown}||a1\n"
    )
    found = recorded(Said([text], [NODES]))
    assert [(job.name, job.duration_s, job.gpus, job.power_w, job.time_limit_s) for job in found.jobs] == [
        ("1", 60, 8, None, None), ("2", 60, 8, 1000, 1800),
    ]  # fmt: skip
    assert found.left_out == {"still waiting": 1, "with an unknown number of GPUs": 1}


STEPS = [
    (["8|9|1|5400000|a1", "9|10|1|5400000|a1", "10|11|1|5400000|a1"], 1500, "one after the other"),
    (["8|11|3|16200000|a1", "8|9|1|5400000|a1", "9|11|2|10800000|a1"], 1500, "within the batch script"),
    (["8|10|2|10800000|a1"], None, "of a part of the time"),
    (["8|11|3||a1", "8|11|3|16200000|a1"], 1500, "without energy"),
    (["8|11|3|16200000|"], 1500, "that does not name its nodes"),
]


@pytest.mark.parametrize(("steps", "watts", "what"), STEPS)
def test_energy_of_steps_is_that_of_their_nodes_and_time(
    steps: list[str], watts: float | None, what: str
) -> None:
    rows = ["7|COMPLETED|2026-11-03T08:00:00|2026-11-03T08:00:00|03:00:00|gres/gpu=8||a1"]
    for n, step in enumerate(steps):
        begin, _, hours, joules, node = step.split("|")
        start = f"2026-11-03T{int(begin):02}:00:00"
        rows.append(f"7.{n}|COMPLETED||{start}|0{hours}:00:00|gres/gpu=8|{joules}|{node}")
    text = "\n".join(["JobID|State|Submit|Start|Elapsed|AllocTRES|ConsumedEnergyRaw|NodeList", *rows, ""])
    found = recorded(Said([text], [NODES]), UTC, energy_of="gpus")
    assert [job.power_w for job in found.jobs] == [watts], what
    told = "energy of 1 job is of steps that do not cover its nodes and time; it is left out"
    assert (Entry("noted", told) in found.entries) == (watts is None)


def test_energy_of_steps_on_several_nodes_adds_up() -> None:
    steps = [("a1", 5_400_000), ("a2", 3_600_000)]
    node = {"allocated": [{"type": "gres", "name": "gpu", "count": 16}], "requested": []}
    row = accounted_row("24.05", 7, "COMPLETED", nodes="a[1-2]", tres=node)
    row["time"] |= {"start": 1000, "eligible": 900, "submission": 900, "elapsed": 3600, "end": 4600}
    row["steps"] = [
        {
            "time": {"start": {"set": True, "number": 1000}, "elapsed": 3600},
            "nodes": {"count": 1, "range": name, "list": [name]},
            "statistics": {"energy": {"consumed": {"set": True, "infinite": False, "number": joules}}},
        }
        for name, joules in steps
    ]
    nodes = [NODES]
    for kept, watts in ((2, 2500), (1, None)):
        row["steps"] = row["steps"][:kept]
        found = recorded(Said([json.dumps({"jobs": [row]})], nodes), energy_of="gpus")
        assert [job.power_w for job in found.jobs] == [watts]


def test_parts_of_a_run_from_exports_of_adjacent_days_are_one_run() -> None:
    head = "JobID|State|Submit|Start|End|Elapsed|AllocTRES|NodeList"
    row = "7|COMPLETED|2026-11-03T18:00:00|2026-11-0{}T{}:00:00|2026-11-0{}T{}:00:00|{}|gres/gpu=8|a1"
    parts = [
        ("3", "20", "4", "00", "04:00:00"),
        ("4", "00", "5", "00", "1-00:00:00"),
        ("5", "00", "5", "03", "03:00:00"),
    ]
    texts = [f"{head}\n{row.format(*part)}\n" for part in parts]
    for order in ([0, 1, 2], [2, 0, 1]):
        found = recorded(Said([texts[n] for n in order], [NODES]), UTC)
        assert [(job.name, job.waited_s, job.duration_s) for job in found.jobs] == [("7", 7200, 31 * 3600)]
    requeued = texts[1].replace("2026-11-03T18", "2026-11-04T00")
    assert len(recorded(Said([texts[0], requeued], [NODES]), UTC).jobs) == 2


def test_a_file_that_may_be_cut_is_pointed_at() -> None:
    text = "JobID|State|Submit|Start|Elapsed|AllocTRES\n7|COMPLETED|100|200|01:00:00|gres/gpu=1"
    said = Said()
    said.add(text, "night.txt")
    told = Entry("doubtful", "night.txt: the last line does not end; the file may be cut")
    assert told in recorded(said, UTC).entries
    assert told not in recorded(Said([f"{text}\n"]), UTC).entries


def test_energy_that_no_node_can_draw_is_left_out_and_told() -> None:
    energies = ((1, "9M"), (2, "900M"), (3, "18K"))
    rows = [f"{n}|COMPLETED|100|{n}0000|3600|gres/gpu=8|{joules}|a1" for n, joules in energies]
    text = "\n".join(["JobID|State|Submit|Start|ElapsedRaw|AllocTRES|ConsumedEnergy|NodeList", *rows])
    found = recorded(Said([text], [NODES]))
    assert [job.power_w for job in found.jobs] == [2300, None, None]
    for what in ("means less than its nodes draw when idle", "means more than any GPUs draw"):
        assert Entry("noted", f"energy of 1 job {what}; it is left out") in found.entries


def test_only_gpus_are_gpus_and_other_resources_are_told() -> None:
    others = "gres/vgpu=3,gres/gpumem=40G,gres/gpuutil=97,gres/shard=4,license/gpu=2"
    rows = [
        f"1|COMPLETED|100|200|60|{others},gres/gpu:a100=8,gres/gpu=8",
        f"2|COMPLETED|100|200|60|cpu=4,{others}",
    ]
    text = "\n".join(["JobID|State|Submit|Start|ElapsedRaw|AllocTRES", *rows])
    found = recorded(Said([text]))
    assert [(job.name, job.gpus) for job in found.jobs] == [("1", 8)]
    assert found.left_out == {"without GPUs": 1}
    assert next(one.what for one in found.entries if one.what.startswith("not counted as GPUs")) == (
        "not counted as GPUs: 'gres/vgpu' of 2 jobs, 'gres/gpumem' of 2 jobs, 'gres/gpuutil' of 2 jobs, "
        "'gres/shard' of 2 jobs"
    )


def test_separators_in_one_free_text_are_its_own_and_in_one_of_two_a_fault() -> None:
    row = "7|a{0}b|COMPLETED|100|200|60|gres/gpu=1"
    head = "JobID|Comment|State|Submit|Start|ElapsedRaw|AllocTRES"
    (job,) = read_accounting(f"{head}\n{row.format('|')}\n")
    assert (job.state, job.gpus) == ("COMPLETED", 1)
    with pytest.raises(InputError, match="line 2: 9 cells, the header has 8 columns"):
        read_accounting(f"{head}|JobName\n{row.format('|')}|train\n")


def test_two_files_that_tell_a_node_differently_are_refused() -> None:
    other = NODES.replace("A100:8(S", "A100:7(S")
    text = "JobID|State|Submit|Start|ElapsedRaw|AllocTRES\n7|COMPLETED|100|200|60|gres/gpu=1\n"
    assert recorded(Said([text], [NODES, NODES])).cluster is not None
    with pytest.raises(InputError, match="node 'a2' has 7 A100, in another file 8 A100; name one of these"):
        recorded(Said([text], [NODES, other]))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "JobID|Stat|Submit\n1|x|y\n",
            "columns State, Start, Elapsed or ElapsedRaw or End, AllocTRES or",
        ),
        ("JobID|State|Submit|Start|End|ReqTRES\n1|x|Unknown\n", "line 2: 3 cells, the header has 6 columns"),
        ("a|b\n", "found a, b; read are JobID, User, Account"),
    ],
)
def test_tables_that_are_refused(text: str, fault: str) -> None:
    with pytest.raises(InputError, match=re.escape(fault)):
        read_accounting(text)


HEAD = "JobID|State|Submit|Start|Elapsed|AllocTRES|ReqTRES"


@given(st.text("abc0.-K:= ", max_size=6), st.sampled_from(["gres/gpu", "gres/gpu:a100"]), st.booleans())
def test_gpus_that_are_not_counted_are_a_fault_with_its_line(told: str, name: str, asked: bool) -> None:
    """As what is no number would be a job without GPUs."""
    entry = f"{name}={told}"
    tres = f"|cpu=8,{entry},node=1" if asked else f"cpu=8,{entry},node=1|gres/gpu=8"
    text = f"{HEAD}\n1|COMPLETED|1|2|00:01:00|gres/gpu=1|\n2|COMPLETED|1|2|00:01:00|{tres}\n"
    if re.fullmatch("[0-9]+", told):
        assert [job.gpus for job in read_accounting(text)] == [1, int(told)]
        return
    column = "ReqTRES" if asked else "AllocTRES"
    fault = f"line 3, column '{column}': '{entry}' has no whole number of GPUs"
    with pytest.raises(InputError) as refused:
        read_accounting(text)
    assert refused.value.faults == [fault]


@pytest.mark.parametrize("column", ["AllocTRES", "ReqTRES"])
@pytest.mark.parametrize("tres", ["billing=8,cpu=8,gres/gp+", "gres/gpu=4,no+"])
def test_resources_that_are_cut_off_are_refused(column: str, tres: str) -> None:
    """As sacct cuts them to a column's width, a job would have no GPUs, or too few."""
    text = f"JobID|State|Submit|Start|Elapsed|{column}\n1|COMPLETED|1|2|00:01:00|{tres}\n"
    with pytest.raises(InputError, match=f"line 2, column '{column}': .* is cut off; sacct --parsable2"):
        read_accounting(text)


@pytest.mark.parametrize("count", [-1, 1.5, 10**9])
def test_gpus_of_a_document_are_counted_likewise(count: float) -> None:
    tres = {"allocated": [{"type": "gres", "name": "gpu", "count": count}]}
    job = {
        "job_id": 7,
        "state": {"current": ["COMPLETED"]},
        "time": {"submission": 4, "start": 5, "elapsed": 60},
        "tres": tres,
    }
    with pytest.raises(InputError, match=r"jobs\[0\]\.tres\.allocated: 'gres/gpu=.*' has no whole number"):
        read_accounting(json.dumps({"jobs": [job]}))


@pytest.mark.parametrize("text", ["", "hello", "{", "{}", '{"jobs": 3}', "NodeNames=a", "#NodeName=a1"])
def test_a_file_of_none_of_the_commands_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not what sacct|is no JSON|has neither 'jobs'") as error:
        kind_of(text)
    assert str(error.value).endswith(": it is empty") == (not text)


def test_the_example() -> None:
    said = Said()
    for name in ("topology.conf", "sacct.txt", "nodes.txt"):
        said.add((SITE / name).read_text())
    found = recorded(said, UTC)
    assert found.ended == {"completed": 43, "failed": 2, "timeout": 1, "cancelled": 1, "running": 1}
    assert found.left_out == {"without GPUs": 3, "never started": 1, "still waiting": 1}
    assert {job.gpu_type for job in found.jobs} == {"A100", "V100"}
    assert sum(job.power_w is not None for job in found.jobs) == 13
    assert {job.account for job in found.jobs} == {"vision", "speech", "language"}
    assert found.cluster is not None
    assert {node.name: node.parent for node in found.cluster.nodes} == {
        "a1": "rack1", "a2": "rack1", "a3": "rack2", "a4": "rack2", "v1": "rack3", "v2": "rack3",
    }  # fmt: skip
    assert {group.name: group.parent for group in found.cluster.groups}["rack1"] == "spine"
    assert Entry("noted", "down or drained now, but in the cluster: 1 node") in found.entries


@given(st.data())
def test_mutated_texts_are_read_or_refused_in_words(data: st.DataObject) -> None:
    texts = [(SITE / name).read_text() for name in ("sacct.txt", "nodes.txt", "topology.conf")]
    odd = st.sampled_from(
        ["|", "\n", "a[1-", "=", "gres/gpu=99999999", "0001-01-01T00:00:00", "nan", "é", "\\"]
    )
    for _ in range(data.draw(st.integers(1, 4))):
        which = data.draw(st.integers(0, 2))
        text = texts[which]
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 9))
        texts[which] = text[:at] + data.draw(odd | st.text(max_size=3)) + text[at + cut :]
    with suppress(InputError, ValueError):
        said = Said()
        for text in texts:
            said.add(text)
        recorded(said, data.draw(st.sampled_from([None, UTC, ZONE])))


def test_jobs_of_several_clusters_are_never_added_up_in_silence() -> None:
    head, row = (
        "JobID|User|State|Submit|Start|Elapsed|AllocTRES",
        "7|{}|COMPLETED|100|200|0{}:00:00|gres/gpu=4",
    )
    rows = [row.format("ann", 1), row.format("bob", 2)]
    found = recorded(Said(["\n".join([head, *rows, ""])]))
    assert [(job.name, job.duration_s) for job in found.jobs] == [("ann/7", 3600), ("bob/7", 7200)]
    told = "1 job number of several users, as with several clusters and no column Cluster"
    assert Entry("doubtful", told) in found.entries
    named = [f"{one}|{cluster}" for one, cluster in zip(rows, ("east", "west"), strict=True)]
    found = recorded(Said(["\n".join([f"{head}|Cluster", *named, ""])]))
    assert Entry("doubtful", "jobs of the clusters 'east', 'west' count together") in found.entries
    own = recorded(Said(["\n".join([head, rows[0], rows[0].replace("|200|", "|9000|"), ""])]))
    assert not any(one.treatment == "doubtful" for one in own.entries)
    with pytest.raises(ValueError, match="begins with 'CLUSTER: east'"):
        Said().add("\n".join(["CLUSTER: east", head, *rows, ""]))


def test_gpus_that_jobs_share_are_gpus() -> None:
    nodes = (
        "NodeName=n1 State=IDLE Gres=gpu:a100:no_consume:4\nNodeName=n2 State=IDLE Gres=gpu:no_consume:2\n"
    )
    nodes += "NodeName=n3 State=IDLE Gres=lustre:no_consume:4G,gpu:a100:1\n"
    text = "JobID|State|Submit|Start|Elapsed|AllocTRES\n7|COMPLETED|100|200|01:00:00|gres/gpu=1\n"
    told = "GPUs that no job consumes (no_consume): each counts as one, jobs share them"
    found = recorded(Said([text], [nodes]))
    assert [one.kinds for one in found.machines] == [{"a100": 4}, {"gpu": 2}, {"a100": 1}]
    assert Entry("doubtful", told) in found.entries
    found = recorded(
        Said([text], [nodes.replace("gpu:a100:no_c", "gpu:a100:4,x:no_c").replace("gpu:no_c", "y:no_c")])
    )
    assert Entry("doubtful", told) not in found.entries


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


@pytest.mark.parametrize("form", ["table", *RELEASES])
def test_requested_gpus_that_count_are_told(form: str) -> None:
    if form == "table":
        text = (
            "JobID|State|Submit|Eligible|Start|Elapsed|ReqTRES\n7|COMPLETED|100|100|200|02:00:00|gres/gpu=2\n"
        )
    else:
        row = accounted_row(form, 7, "COMPLETED")
        row["tres"]["allocated"] = []
        text = json.dumps({"meta": {}, "jobs": [row]})
    found = recorded(Said([text]))
    told = "GPUs are those requested, as allocated ones are not told"
    assert Entry.of("assumed", told, found.jobs) in found.entries


@pytest.mark.parametrize(
    ("tres", "gpu_h"),
    [
        ("gres/gpu:a100_3g.40gb=1,gres/gpu:a100_1g.10gb=4,gres/gpu=5", 2.0),
        ("gres/gpu:a100_2g.20gb=1,gres/gpu:a100_1g.10gb=2", 8 / 7),
        ("gres/gpu:a100=1,gres/gpu:a100_1g.10gb=1", 16 / 7),
        ("gres/gpu:a100=1,gres/gpu:h100=2", 6.0),
    ],
)
def test_slices_of_several_types_count_by_their_shares(tres: str, gpu_h: float) -> None:
    text = f"JobID|State|Submit|Start|Elapsed|AllocTRES\n7|COMPLETED|100|200|02:00:00|{tres}\n"
    found = recorded(Said([text]))
    assert found.gpu_h["completed"] == pytest.approx(gpu_h)
    assert any(one.treatment == "converted" for one in found.table()) == ("g.10gb" in tres)


def test_energy_beyond_the_boards_and_nodes_that_no_file_has_are_pointed_at() -> None:
    head = "JobID|State|Submit|Start|ElapsedRaw|AllocTRES|ConsumedEnergyRaw|NodeList"
    rows = [
        f"{n}|COMPLETED|100|{10_000 * n}|3600|gres/gpu:A100=8|{j}|{on}"
        for n, j, on in (
            (1, 3600 * 4000, "a1"),
            (2, 3600 * 3200, "a1"),
            (3, "", "b[1-2]"),
            (4, "", "b1"),
        )
    ]
    found = recorded(Said(["\n".join([head, *rows, ""])], [NODES]))
    doubtful = [one for one in found.table() if one.treatment == "doubtful"]
    lacking = "on nodes that no file tells, and the cluster lacks: 'b1' of 2 jobs, 'b2' of 1 job"
    assert doubtful == [
        Entry("doubtful", lacking),
        Entry.of("doubtful", "measured energy means more watts than their boards draw", found.jobs[:1]),
    ]

"""Energy of accounted jobs: of nodes and steps, their own or nobody's."""

from __future__ import annotations

import json
from datetime import UTC

import pytest

from tests.adapters.slurm.test_accounting import NODES
from tests.adapters.slurm.test_documents import accounted_row
from wattsched.adapters.slurm.trace import Said, recorded
from wattsched.report.imports import Entry


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


def test_energy_that_no_node_can_draw_is_left_out_and_told() -> None:
    energies = ((1, "9M"), (2, "900M"), (3, "18K"))
    rows = [f"{n}|COMPLETED|100|{n}0000|3600|gres/gpu=8|{joules}|a1" for n, joules in energies]
    text = "\n".join(["JobID|State|Submit|Start|ElapsedRaw|AllocTRES|ConsumedEnergy|NodeList", *rows])
    found = recorded(Said([text], [NODES]))
    assert [job.power_w for job in found.jobs] == [2300, None, None]
    for what in ("means less than its nodes draw when idle", "means more than any GPUs draw"):
        assert Entry("noted", f"energy of 1 job {what}; it is left out") in found.entries


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


@pytest.mark.parametrize(
    ("gpus", "on", "kind", "lacks"),
    [
        ("gpu=4", "a1,zz9", None, "'zz9' of 1 job"),
        ("gpu=12", "a1,zz[8-9]", None, "'zz8' of 1 job, 'zz9' of 1 job"),
        ("gpu:A100=4", "a1,zz9", "A100", "'zz9' of 1 job"),
        ("gpu=4", "a1,a2", "A100", None),
    ],
)
def test_a_job_on_known_nodes_and_others_is_pointed_at(
    gpus: str, on: str, kind: str | None, lacks: str | None
) -> None:
    head = "JobID|State|Submit|Start|ElapsedRaw|AllocTRES|ConsumedEnergyRaw|NodeList"
    found = recorded(Said([f"{head}\n1|COMPLETED|100|10000|3600|gres/{gpus}||{on}\n"], [NODES]))
    assert found.jobs[0].gpu_type == kind
    doubtful = [one.what for one in found.table() if one.treatment == "doubtful"]
    assert doubtful == ([f"on nodes that no file tells, and the cluster lacks: {lacks}"] if lacks else [])
    assert ("GPU type not clear: left empty" in [one.what for one in found.table()]) == (kind is None)


SUMS = [
    (30, ["1.batch|100|3600|15|a1", "1.0|101|3599|15|a1"], 15, "of the batch script and what it starts"),
    (15, ["1.batch|100|3600|7|a1", "1.extern|100|3600|15|a1", "1.0|101|3599|8|a1"], 15, "of the extern step"),
    (15, ["1.0|100|1800|8|a1", "1.1|1900|1800|7|a1"], 15, "of steps one after the other"),
    (9, ["1.0|100|1800|9|a1"], None, "of half of the time"),
    (15, [], 15, "of the row alone"),
]
"""Megajoules of a job's row, rows of steps with theirs, and those that the job has drawn."""


@pytest.mark.parametrize("form", ["table", "24.05"])
@pytest.mark.parametrize(("own_mj", "steps", "drawn_mj", "what"), SUMS)
def test_energy_of_a_job_counts_no_node_twice(
    form: str, own_mj: int, steps: list[str], drawn_mj: float | None, what: str
) -> None:
    """Slurm's energy of a job is the sum over its steps, each of which measures all of its nodes."""
    if form == "table":
        head = "JobID|Start|ElapsedRaw|ConsumedEnergyRaw|NodeList|State|Submit|AllocTRES"
        rows = [f"{row}|COMPLETED|90|gres/gpu=8" for row in (f"1|100|3600|{own_mj}M|a1", *steps)]
        texts = ["\n".join([head, *(row.replace("|a1", "000000|a1").replace("M0", "0") for row in rows), ""])]
        alone = "\n".join([*texts[0].splitlines()[:2], ""])
        texts = [texts[0], alone] if steps else texts
    else:
        tres = [{"type": "gres", "name": "gpu", "count": 8}, {"type": "energy", "count": own_mj * 10**6}]
        row = accounted_row(form, 1, "COMPLETED", nodes="a1", tres={"allocated": tres, "requested": []})
        row["time"] |= {"start": 100, "eligible": 90, "submission": 90, "elapsed": 3600, "end": 3700}
        row["steps"] = [
            {
                "step": {"id": name},
                "time": {"start": {"number": int(start)}, "elapsed": int(seconds)},
                "nodes": {"range": node},
                "statistics": {"energy": {"consumed": {"number": int(mj) * 10**6}}},
            }
            for name, start, seconds, mj, node in (step.split("|") for step in steps)
        ]
        texts = [json.dumps({"jobs": [row]})]
    for some in (texts, texts[::-1]):
        found = recorded(Said(some, [NODES]), UTC, energy_of="gpus")
        watts = None if drawn_mj is None else drawn_mj * 1e6 / 3600
        assert [job.power_w for job in found.jobs] == [pytest.approx(watts)], what
        assert [one.records for one in found.entries if "counts no node twice" in one.what] == [1] * (
            not steps
        )

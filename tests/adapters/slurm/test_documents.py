"""Documents of every release of Slurm are read alike, and what one lacks is told with its release."""

from __future__ import annotations

import json
from collections import defaultdict
from copy import deepcopy
from dataclasses import replace
from datetime import UTC
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters.slurm.accounting import read_accounting
from wattsched.adapters.slurm.inventory import nodes_in
from wattsched.adapters.slurm.reading import SlurmJob, read
from wattsched.adapters.slurm.snapshot import Snapshot, load
from wattsched.adapters.slurm.trace import NODES, Said, kind_of, recorded
from wattsched.instances.errors import InputError

RECORDED = load(Path(__file__).resolve().parents[3] / "examples" / "slurm.json")
RELEASES = [
    *("21.08.8", "22.05.8", "23.02.7", "23.11.10", "24.05.4", "24.11.5", "25.05.2", "25.11.1", "26.05.5")
]
NUMBERS = (
    *("node_count", "max_nodes", "tasks", "priority", "time_limit", "start_time", "submit_time"),
    *("eligible_time", "cpus", "het_job_id", "minimum_cpus_per_node", "memory_per_node", "memory_per_cpu"),
)
"""Of a job in the queue, those that newer releases wrap."""


def wrapped(number: Any) -> dict[str, Any]:
    return {"set": number is not None, "infinite": False, "number": number or 0}


def meta_of(release: str) -> dict[str, Any]:
    major, minor, micro = release.split(".")
    if release < "23.11":
        version: dict[str, Any] = {"major": int(major), "micro": int(micro), "minor": int(minor)}
        return {"plugin": {"type": "openapi"}, "Slurm": {"version": version, "release": release}}
    version = {"major": major, "micro": micro, "minor": minor}
    return {"plugin": {"data_parser": "data_parser"}, "slurm": {"version": version, "release": release}}


def job_of(row: dict[str, Any], release: str) -> dict[str, Any]:
    """A job of ``squeue --json`` of 22.05 as another release prints it."""
    row = {**row, "unknown": {"field": [release]}}
    if release < "23.02":
        return row
    row |= {name: wrapped(row[name]) for name in NUMBERS}
    if row["time_limit"]["set"] is False:
        row["time_limit"]["infinite"] = True
    row["tres_per_node"] = row["tres_per_node"].replace("gres:gpu", "gres/gpu")
    row["shared"] = [] if row["shared"] is None else [row["shared"]]
    if release >= "23.11":
        row["job_state"] = [row["job_state"]]
    if release >= "24.11" and row["job_state"] == ["PENDING"]:
        row["max_nodes"] = dict(row["tasks"])
    return row


def nodes_of(rows: list[dict[str, Any]], release: str, by_sinfo: bool) -> dict[str, Any]:
    """Nodes as ``sinfo --json`` or ``scontrol show node --json`` of a release prints them."""
    if release < "23.02":
        return {"nodes": rows}
    alike = [
        {**row, "state": [row["state"].upper(), *row["state_flags"]], "active_features": []} for row in rows
    ]
    for row in alike:
        del row["state_flags"]
    if not by_sinfo:
        return {"nodes": alike, "last_update": wrapped(1)}
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in alike:
        for partition in row["partitions"]:
            groups[partition, *row["state"], row["gres"], row["gres_used"], row["alloc_cpus"]].append(row)
    return {"sinfo": [group_of(found, partition) for (partition, *_), found in groups.items()]}


def group_of(rows: list[dict[str, Any]], partition: str) -> dict[str, Any]:
    first, count = rows[0], len(rows)
    return {
        "node": {"state": first["state"]},
        "nodes": {"total": count, "nodes": [row["name"] for row in rows]},
        "cpus": {"allocated": first["alloc_cpus"] * count, "total": first["cpus"] * count},
        "memory": {
            "minimum": first["real_memory"],
            "maximum": first["real_memory"],
            "allocated": first["alloc_memory"] * count,
        },
        "features": {"total": "", "active": ""},
        "gres": {"total": first["gres"], "used": first["gres_used"]},
        "partition": {"name": partition},
    }


def printed_by(release: str, by_sinfo: bool = False, snapshot: Snapshot = RECORDED) -> Snapshot:
    """The snapshot as another release would have printed it."""
    jobs, nodes = json.loads(snapshot["jobs"])["jobs"], json.loads(snapshot["nodes"])["nodes"]
    meta = {"meta": meta_of(release)}
    told = {"jobs": [job_of(row, release) for row in jobs]} | meta
    return {
        **snapshot,
        "jobs": json.dumps(told),
        "nodes": json.dumps(nodes_of(nodes, release, by_sinfo) | meta),
    }


@pytest.mark.parametrize("by_sinfo", [False, True])
@pytest.mark.parametrize("release", RELEASES)
def test_every_release_tells_the_same(release: str, by_sinfo: bool) -> None:
    told, expected = read(printed_by(release, by_sinfo)), read(RECORDED)
    assert (told.nodes, told.jobs) == (expected.nodes, expected.jobs)


def read_job(release: str, **changes: Any) -> SlurmJob:
    """A held job with other fields, as a release prints it."""
    document = json.loads(RECORDED["jobs"])
    row = next(row for row in document["jobs"] if row["name"] == "bert-large")
    document["jobs"] = [{**row, **changes}]
    snapshot = printed_by(release, snapshot={**RECORDED, "jobs": json.dumps(document)})
    (job,) = read(snapshot).jobs.values()
    return job


def read_unwrapped(release: str, **changes: Any) -> SlurmJob:
    """The same job with fields that are printed just so."""
    snapshot = printed_by(release)
    document = json.loads(snapshot["jobs"])
    row = next(row for row in document["jobs"] if row["name"] == "bert-large")
    document["jobs"] = [{**row, **changes}]
    (job,) = read({**snapshot, "jobs": json.dumps(document)}).jobs.values()
    return job


@pytest.mark.parametrize("release", RELEASES)
def test_a_limit_of_nodes_is_the_users_where_it_is_not_what_slurm_makes_of_tasks(release: str) -> None:
    assert read_job(release).most_nodes == inf
    assert read_job(release, tasks=3).most_nodes == inf
    if release < "23.02":
        assert read_job(release, max_nodes=1).most_nodes == 1
    document = json.loads(printed_by(release)["jobs"])
    document["jobs"][-1]["max_nodes"] = 4 if release < "23.02" else wrapped(4)
    *_, job = read({**RECORDED, "jobs": json.dumps(document)}).jobs.values()
    assert job.most_nodes == 4


@pytest.mark.parametrize("release", RELEASES)
def test_nodes_for_itself_and_parts_of_arrays_and_heterogeneous_jobs(release: str) -> None:
    assert read_job(release, shared="none").needs.exclusive
    assert not read_job(release, shared=None).needs.exclusive
    assert "array" in read_job(release, array_task_string="2-3%2").odd
    assert "heterogeneous" in read_job(release, het_job_id=15).odd
    suspended = replace(
        read_job(release, job_state="SUSPENDED", nodes="g1", gres_detail=["gpu:A100:1(IDX:4)"])
    )
    assert (suspended.on_nodes, suspended.running, suspended.gpus) == (True, False, {"g1": [4]})


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["idle", "mixed", "allocated"]),
            st.sampled_from([[], ["DRAIN"], ["NOT_RESPONDING"]]),
            st.sets(st.sampled_from(["a", "b", "c"]), min_size=1),
            st.integers(0, 8),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_groups_of_nodes_are_the_nodes(drawn: list[tuple[str, list[str], set[str], int]]) -> None:
    (first, *_) = json.loads(RECORDED["nodes"])["nodes"]
    rows = [
        {
            **first,
            "name": f"n{number}",
            "state": state,
            "state_flags": flags,
            "partitions": sorted(partitions),
            "alloc_cpus": used,
            "gres_used": f"gpu:A100:{used}(IDX:{f'0-{used - 1}' if used else 'N/A'})",
        }
        for number, (state, flags, partitions, used) in enumerate(drawn)
    ]
    by_node, by_sinfo = (
        {name: replace(node, partitions=tuple(sorted(node.partitions))) for name, node in found.items()}
        for found in (
            nodes_in(json.dumps(nodes_of(rows, "26.05.5", by_sinfo=False))),
            nodes_in(json.dumps(nodes_of(rows, "26.05.5", by_sinfo=True))),
        )
    )
    assert by_sinfo == by_node


def accounted_row(release: str, id: int, *words: str, **fields: Any) -> dict[str, Any]:
    """A job of ``sacct --json`` with some states."""
    none = None if release < "23.02" else wrapped(None)
    gpus = [{"type": "gres", "name": "gpu", "count": 2}, {"type": "gres", "name": "gpu:a100", "count": 2}]
    energy = {"type": "energy", "name": "", "count": -2}
    return {
        "job_id": id,
        "user": "ann",
        "account": "lab",
        "state": {"current": words[-1] if release < "23.11" else list(words), "reason": "None"},
        "time": {"submission": 100, "eligible": 100, "start": 200, "end": 260, "elapsed": 60, "suspended": 0},
        "array": {"job_id": 0, "task_id": none, "task": ""},
        "het": {"job_id": 0, "job_offset": none},
        "tres": {"allocated": [*gpus, energy], "requested": gpus[:1]},
        "nodes": "n1",
        "steps": [{"statistics": {"energy": {"consumed": none}}}],
        **fields,
    }


def accounted(release: str) -> dict[str, Any]:
    """What ``sacct --json`` prints: a job, an array's task, parts of a heterogeneous one, a resized one."""

    def number(value: int) -> Any:
        return value if release < "23.02" else wrapped(value)

    rows: list[tuple[int, list[str], dict[str, Any]]] = [
        (700, ["COMPLETED"], {}),
        (702, ["COMPLETED"], {"array": {"job_id": 701, "task_id": number(3)}}),
        (900, ["COMPLETED"], {"het": {"job_id": 900, "job_offset": number(0)}}),
        (901, ["COMPLETED"], {"het": {"job_id": 900, "job_offset": number(1)}}),
        (912, ["PENDING", "RESIZING"], {}),
        (913, ["SUSPENDED"], {}),
    ]
    jobs = [accounted_row(release, id, *words, **fields) for id, words, fields in rows]
    return {"meta": meta_of(release), "jobs": jobs}


@pytest.mark.parametrize("release", RELEASES)
def test_the_accounting_of_every_release(release: str) -> None:
    text = json.dumps(accounted(release))
    jobs = {job.id: job for job in read_accounting(text)}
    assert list(jobs) == ["700", "701_3", "900+0", "900+1", "912", "913"]
    assert {(job.gpus, job.gpu_types, job.energy_j) for job in jobs.values()} == {
        (2, frozenset(["a100"]), None)
    }
    found = recorded(Said([text]))
    assert found.ended == {"completed": 4, "resizing": 1, "suspended": 1}
    # What was resized has ended; what is suspended has not.
    running = next(one for one in found.entries if one.what.startswith("still running"))
    assert (running.treatment, running.records) == ("assumed", 1)


@pytest.mark.parametrize("release", ["24.05.4", "26.05.5"])
def test_tables_and_documents_name_the_same_jobs(release: str) -> None:
    """Parts of a heterogeneous job, and tasks of an array that wait, are in both files and count once."""

    def row(id: int, state: str, start_s: int, gpus: int, **fields: Any) -> dict[str, Any]:
        tres = [{"type": "gres", "name": name, "count": gpus} for name in ("gpu", "gpu:a100")]
        times = {"submission": 100, "eligible": 100, "start": start_s, "elapsed": 60, "limit": wrapped(30)}
        told = {"time": times, "tres": {"allocated": tres, "requested": tres}, **fields}
        return accounted_row(release, id, state, **told)

    parts = [{"het": {"job_id": 40, "job_offset": wrapped(part)}} for part in (0, 1)]
    rows = [row(40 + part, "COMPLETED", 200, 8 - 4 * part, **parts[part]) for part in (0, 1)]
    rows.append(row(52, "PENDING", 0, 2, array={"job_id": 50, "task_id": wrapped(None), "task": "3-8%2"}))
    document = json.dumps({"meta": meta_of(release), "jobs": rows})
    head = "JobID|State|Submit|Start|Elapsed|Timelimit|AllocTRES\n"
    ids = {
        "40+0": ("COMPLETED|100|200", 8),
        "40+1": ("COMPLETED|100|200", 4),
        "50_[3-8%2]": ("PENDING|100|None", 2),
    }
    table = head + "".join(
        f"{id}|{cells}|00:01:00|00:30:00|gres/gpu:a100={gpus},gres/gpu={gpus}\n"
        for id, (cells, gpus) in ids.items()
    )
    for files in ([document], [table], [document, table], [table, document]):
        found = recorded(Said(files), UTC)
        assert [(job.name, job.gpus, job.duration_s, job.time_limit_s) for job in found.jobs] == [
            ("40+0", 8, 60, 1800), ("40+1", 4, 60, 1800),
        ]  # fmt: skip
        assert found.left_out == {"still waiting": 6}


UNKNOWN = (2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1, {"set": False, "infinite": True, "number": 0})


@given(st.sampled_from(["22.05.8", "24.11.5"]), st.sampled_from(UNKNOWN), st.sampled_from(NUMBERS))
def test_a_number_that_means_unknown_or_unlimited_is_one_that_is_not_set(
    release: str, unknown: Any, name: str
) -> None:
    """Bare, or in an object that says that it is set, as some releases print it."""
    of_job = name if name != "tasks" else "priority"
    bare = unknown if isinstance(unknown, dict) else {"set": True, "infinite": False, "number": unknown}
    values = [unknown, bare, wrapped(None)]
    first, second, unset = (read_unwrapped(release, **{of_job: value}) for value in values)
    assert first == second == unset


QUEUED = (
    *("job_id", "job_state", "comment", "admin_comment", "nodes", "gres_detail"),
    *("priority", "restart_cnt"),
)
NEEDED = {
    "jobs": QUEUED,
    "nodes": ("name", "state", "gres", "partitions"),
    "sinfo": ("nodes", "node", "gres", "partition"),
    "accounting": ("job_id", "state", "time", "tres"),
}


@pytest.mark.parametrize("release", ["22.05.8", "23.02.7", "26.05.5"])
@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in NEEDED for field in NEEDED[kind]])
def test_a_missing_field_is_told_with_the_release(kind: str, field: str, release: str) -> None:
    by_sinfo = kind == "sinfo" and release > "23"
    snapshot = printed_by(release, by_sinfo)
    part = {"sinfo": "nodes"}.get(kind, kind)
    document = accounted(release) if kind == "accounting" else json.loads(snapshot[part])
    rows = document["sinfo" if by_sinfo else "jobs" if kind in ("jobs", "accounting") else "nodes"]
    if field not in rows[0]:
        return
    del rows[0][field]
    text = json.dumps(document)
    if kind == "jobs" and field in ("job_id", "job_state"):
        there, *others = read(snapshot).jobs
        site = read({**snapshot, part: text})
        (note,) = site.notes
        assert f"jobs[0]: {field}: is missing (Slurm {release}); " in note
        assert [*site.jobs] == others
        assert str(there) in note or field == "job_id"
        return
    with pytest.raises(InputError, match=rf"\[0\](\.|: ){field}: is missing \(Slurm {release}\)"):
        read_accounting(text) if kind == "accounting" else read({**snapshot, part: text})


@pytest.mark.parametrize("field", ["partition", "tres_per_node", "state_reason"])
def test_what_a_job_lacks_besides_is_the_reason_for_which_it_waits(field: str) -> None:
    snapshot = printed_by("26.05.5")
    document = json.loads(snapshot["jobs"])
    (row,) = (row for row in document["jobs"] if row["name"] == "plain")
    del row[field]
    odd = read({**snapshot, "jobs": json.dumps(document)}).jobs[row["job_id"]].odd
    assert f"{field}: is missing (Slurm 26.05.5)" in odd


def test_a_document_that_does_not_name_its_release() -> None:
    document = json.loads(RECORDED["nodes"])
    for meta in (
        {},
        None,
        {"slurm": None},
        {"Slurm": {"version": 3}},
        [],
        {"slurm": {"version": {"major": 24}}},
    ):
        broken = deepcopy(document) | {"meta": meta}
        del broken["nodes"][1]["gres"]
        with pytest.raises(InputError, match=r"nodes\[1\]\.gres: is missing"):
            nodes_in(json.dumps(broken))


def test_nodes_of_all_commands_are_told_from_jobs() -> None:
    for by_sinfo in (False, True):
        assert kind_of(printed_by("26.05.5", by_sinfo)["nodes"]) == NODES
    with pytest.raises(ValueError, match="is of squeue --json, which tells no run as a whole"):
        kind_of(printed_by("26.05.5")["jobs"])


@pytest.mark.parametrize(("end", "state"), [(1060, "completed"), (0, "completing")])
def test_a_job_that_has_completed_and_has_an_end_has_ended(end: int, state: str) -> None:
    """Since 23.02 a document has the flag of a node that still cleans up behind the state."""
    row = accounted_row("24.05", 7, "COMPLETED")
    row["state"]["current"] = ["COMPLETED", "COMPLETING"]
    row["time"] |= {"submission": 900, "eligible": 900, "start": 1000, "end": end, "elapsed": 60}
    assert recorded(Said([json.dumps({"jobs": [row]})])).ended == {state: 1}


def test_a_number_that_no_job_has_is_refused_with_its_place() -> None:
    document = accounted("24.05.4")
    document["jobs"][1] |= {"array": {"job_id": 10**300, "task_id": 1}, "steps": [{"step": {"id": "0"}}]}
    with pytest.raises(InputError, match=r"jobs\[1\]\.job_id: '1000.* has more than 200 characters"):
        read_accounting(json.dumps(document))

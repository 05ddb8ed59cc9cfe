"""Two thousand hostile names of all that has one come back from every format, or are refused by name."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import wattsched
from tests.strategies.names import hostile_names
from tests.strategies.pages import Page
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.traces import TraceJob
from wattsched.instances.traces.job_lists import csv_of, read_plain
from wattsched.reading.inputs import printable
from wattsched.replay.jobs.outcome import csv_text, parquet
from wattsched.report.html import page as html
from wattsched.report.html.solved import page_of
from wattsched.results.result import Result
from wattsched.topology.cluster import Cluster, GpuType, Group, Node
from wattsched.topology.exchange import from_slurm, to_slurm

NAMES = hostile_names(2000)
CONTROLS = [chr(code) for code in (*range(32), *range(0x7F, 0xA0))]
FEW = 40
"""Names of GPU types and tenants, which stand in the names of pools and in rows of the program."""


def document(names: list[str]) -> dict[str, Any]:
    """A round in which all that has a name has a hostile one; no node is also a group."""
    kinds, tenants, nodes = names[:FEW], names[-FEW:], names[: len(names) // 2]
    groups = names[len(names) // 2 :]
    options = [
        {"gpus": [1, 2], "pool": [kind] * 2, "power_w": [100.0, 180.0], "rate": [1.0, 1.8]} for kind in kinds
    ]
    return {
        "format": "wattsched-instance/1",
        "name": names[-1],
        "cluster": {
            "name": names[-2],
            "gpu_types": {kind: {"idle_power_w": 10.0} for kind in kinds},
            "nodes": [
                {
                    "name": name,
                    "gpu_type": kinds[i % len(kinds)],
                    "gpus": 1,
                    "pool": kinds[i % len(kinds)],
                    "parent": groups[i],
                }
                for i, name in enumerate(nodes)
            ],
            "groups": [{"name": name} for name in groups],
        },
        "tenants": {tenant: {"weight": 2.0} for tenant in tenants},
        "tables": dict(zip(kinds, options, strict=True)),
        "jobs": [
            {
                "name": name,
                "remaining_work": 100.0,
                "options": kinds[i % len(kinds)],
                "tenant": tenants[i % len(tenants)],
            }
            for i, name in enumerate(names)
        ],
    }


@pytest.fixture(scope="module")
def solved() -> tuple[Instance, Result]:
    """The round of all names, and its answer."""
    made = Instance.model_validate(document(NAMES))
    return made, wattsched.solve(made, solver="greedy")


@pytest.mark.parametrize("suffix", ["json", "json.gz", "parquet"])
def test_rounds_and_results_keep_every_name(
    tmp_path: Path, suffix: str, solved: tuple[Instance, Result]
) -> None:
    made, result = solved
    wattsched.write_document(tmp_path / f"round.{suffix}", made)
    read = wattsched.read_instance(tmp_path / f"round.{suffix}")
    assert [job.name for job in read.jobs] == NAMES
    assert read.model_copy(update={"jobs": made.jobs}) == made
    wattsched.write_document(tmp_path / f"result.{suffix}", result)
    again = wattsched.read_result(tmp_path / f"result.{suffix}")
    assert again.decision is not None
    assert {job.job for job in again.decision.jobs} | set(again.decision.waiting) == set(NAMES)
    assert wattsched.check(tmp_path / f"round.{suffix}", tmp_path / f"result.{suffix}").faults == []


def test_a_report_shows_names_and_runs_nothing(solved: tuple[Instance, Result]) -> None:
    made, result = solved
    page = Page(html.rendered(page_of(result, made), "wattsched solve it"))
    assert sum(tag == "script" for tag, _ in page.seen) == 1
    assert "img" not in {tag for tag, _ in page.seen}
    assert not [name for _, attributes in page.seen for name in attributes if name.startswith("on")]
    shown = [name for name in NAMES if len(name) > 4 and printable(name) in page.text]
    assert len(shown) > 100


@pytest.mark.filterwarnings("ignore::wattsched.instances.errors.NoticeWarning")
def test_traces_keep_every_name_and_run_in_no_spreadsheet(tmp_path: Path) -> None:
    jobs = [
        TraceJob(name, 0.0, 60.0, 1, user=other, account=name, gpu_type=other)
        for name, other in zip(NAMES, reversed(NAMES), strict=True)
    ]
    path = tmp_path / "jobs.csv"
    path.write_text(csv_of(jobs))
    assert sorted(read_plain(path), key=lambda job: job.name) == sorted(jobs, key=lambda job: job.name)
    with path.open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if re.match(r"[=+@-](?!([\d.]+(E\d+)?|inf)$)", cell, re.IGNORECASE)]


def test_tables_of_a_replay_keep_every_name(tmp_path: Path) -> None:
    columns = {"job": NAMES, "energy_j": np.arange(2000.0)}
    (tmp_path / "jobs.parquet").write_bytes(parquet(columns))
    assert pd.read_parquet(tmp_path / "jobs.parquet")["job"].tolist() == NAMES
    (tmp_path / "jobs.csv").write_text(csv_text(columns))
    read = pd.read_csv(tmp_path / "jobs.csv", dtype=str, keep_default_na=False)["job"]
    assert read.str.replace("^'(?='*[=+@-])", "", regex=True).tolist() == NAMES


def test_a_topology_keeps_a_name_or_refuses_it() -> None:
    kept = []
    for name in [one for one in NAMES if one != "g"]:
        node = Node(name=name, gpu_type="A100", gpus=1, parent="g")
        cluster = Cluster(
            gpu_types={"A100": GpuType(idle_power_w=10.0)}, nodes=[node], groups=[Group(name="g")]
        )
        try:
            text, told = to_slurm(cluster), ""
        except ValueError as error:
            text, told = "", str(error)
        if not text:
            assert printable(name) in told
            continue
        kept.append(
            from_slurm(text, gpu_type="A100", gpus_per_node=1, idle_power_w=10.0).nodes[0].name == name
        )
    assert all(kept)
    assert len(kept) > 100


@pytest.mark.parametrize("control", CONTROLS, ids=lambda one: f"{ord(one):02x}")
def test_control_characters_are_refused_where_a_name_is_read(tmp_path: Path, control: str) -> None:
    """Before the end of a name: cells are read without spaces around them."""
    name = f"a{control}b"
    made = document(hostile_names(4))
    for spoil in (made["jobs"][0], made["cluster"]["nodes"][0], made["cluster"]):
        before, spoil["name"] = spoil["name"], name
        (tmp_path / "round.json").write_text(json.dumps(made))
        with pytest.raises(InputError, match=r"name: must have no control characters, got 'a\\"):
            wattsched.read_instance(tmp_path / "round.json")
        spoil["name"] = before
    (tmp_path / "jobs.csv").write_bytes(f'job,arrival,duration,gpus\n"{name}",0,60,1\n'.encode())
    with pytest.raises((InputError, ValueError), match=r"has control characters|is a binary file"):
        read_plain(tmp_path / "jobs.csv")

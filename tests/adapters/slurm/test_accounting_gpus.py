"""GPUs of accounted jobs: which resources are GPUs, how many, and whether they can be."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.slurm.test_documents import RELEASES, accounted_row
from wattsched.adapters.slurm.accounting import read_accounting
from wattsched.adapters.slurm.trace import Said, recorded
from wattsched.instances.errors import InputError
from wattsched.report.imports import Entry

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


@pytest.mark.parametrize(
    ("tres", "kept"),
    [
        ("gres/gpu:a100_1g.10gb=1,gres/gpu:h100_1g.10gb=1", False),
        ("gres/gpu:a100_1g.10gb=1,gres/gpu:h100=1,gres/gpu=2", False),
        ("gres/gpu:a100_1g.10gb=2,gres/gpu=5", False),
        ("gres/gpu:a100=2,gres/gpu=5", True),
        ("gres/gpu:a100_1g.10gb=2,gres/gpu=2", True),
    ],
)
@pytest.mark.parametrize("nodes", [[], [MIXED]])
def test_slices_beside_what_they_do_not_count_for_are_left_out(
    tres: str, kept: bool, nodes: list[str]
) -> None:
    rows = [f"7|COMPLETED|100|200|02:00:00|{tres}|m1", "8|COMPLETED|100|200|02:00:00|gres/gpu:h100=1|h1"]
    text = "\n".join(["JobID|State|Submit|Start|Elapsed|AllocTRES|NodeList", *rows, ""])
    found = recorded(Said([text], nodes))
    assert [job.name for job in found.jobs] == ["7"] * kept + ["8"]
    told = "on slices beside GPUs of another board or no type (gres/gpu:TYPE in AccountingStorageTRES tells"
    assert [why.startswith(told) for why in found.left_out] == [True] * (not kept)


@pytest.mark.parametrize(
    ("tres", "on", "gpu_type"),
    [
        ("gres/gpu:a100=4,gres/gpu=8", "n1,n2", None),
        ("gres/gpu:a100=4,gres/gpu=8", "", None),
        ("gres/gpu:a100=4,gres/gpu=8", "n1", "a100"),
        ("gres/gpu:a100=4,gres/gpu:v100=4,gres/gpu=8", "n1,n2", None),
        ("gres/gpu:a100=8,gres/gpu=8", "n1", "a100"),
    ],
)
def test_a_type_of_some_of_a_jobs_gpus_is_not_that_of_all(tres: str, on: str, gpu_type: str | None) -> None:
    nodes = ["NodeName=n1 Gres=gpu:a100:8 State=IDLE\nNodeName=n2 Gres=gpu:v100:8 State=IDLE\n"] if on else []
    text = f"JobID|State|Submit|Start|Elapsed|AllocTRES|NodeList\n7|COMPLETED|100|200|01:00:00|{tres}|{on}\n"
    found = recorded(Said([text], nodes))
    assert [(job.gpus, job.gpu_type) for job in found.jobs] == [(8, gpu_type)]
    assert any("GPU type not clear" in one.what for one in found.entries) == (gpu_type is None)

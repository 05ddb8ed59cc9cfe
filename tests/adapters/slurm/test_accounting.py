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
from wattsched.adapters.slurm.accounted import Accounted
from wattsched.adapters.slurm.accounting import FIELDS, amount, read_accounting
from wattsched.adapters.slurm.trace import Said, kind_of, recorded
from wattsched.instances.errors import InputError
from wattsched.reading.inputs import echo
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


def document_of(jobs: list[Accounted], release: str, name: str = "train") -> str:
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
        fields: dict[str, Any] = {"user": job.user, "account": job.account, "name": name}
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
    for found in (
        read_accounting(table_of(jobs, name), ZONE),
        read_accounting(document_of(jobs, release, name)),
    ):
        assert found == ended(jobs)
        assert {job.job_name for job in found} == {name}


@given(JOBS, JOBS, st.booleans())
def test_a_header_in_the_middle_is_that_of_the_file_that_was_appended(
    jobs: list[Accounted], more: list[Accounted], behind: bool
) -> None:
    lines = [line.split("|")[::-1] for line in table_of(more).splitlines()]  # other columns come first
    appended = "".join("|".join(cells) + "|" * behind + "\n" for cells in lines)
    assert read_accounting(table_of(jobs) + appended, ZONE) == ended([*jobs, *more])


def padded(table: str, widths: dict[str, int]) -> str:
    """A table as ``sacct`` prints it: texts are cut to their columns, numbers push the rest of a line on."""
    header, *rows = (line.split("|") for line in table.splitlines())
    wide = [widths.get(name, 20) for name in header]

    def line(cells: list[str]) -> str:
        cut = [
            cell if cell.isdecimal() or len(cell) <= n else f"{cell[: n - 1]}+"
            for cell, n in zip(cells, wide, strict=True)
        ]
        return "".join(f"{cell:>{n}} " for cell, n in zip(cut, wide, strict=True))

    names = "".join(f"{name[:n]:>{n}} " for name, n in zip(header, wide, strict=True))
    return "\n".join([names, "".join("-" * n + " " for n in wide), *map(line, rows), ""])


@given(
    JOBS,
    JOBS,
    st.dictionaries(st.sampled_from(FIELDS), st.integers(17, 40)),
    st.sampled_from([None, *FIELDS]),
)
def test_a_padded_table_says_the_same_or_is_refused(
    jobs: list[Accounted], more: list[Accounted], widths: dict[str, int], narrow: str | None
) -> None:
    widths |= {"AllocTRES": 60, "ReqTRES": 60}
    texts = [padded(table_of(some), widths) for some in (jobs, more)]
    if narrow is None:
        assert kind_of(texts[0]) == "accounting"
        assert read_accounting("".join(texts), ZONE) == ended([*jobs, *more])
        return
    found, faults = list[Accounted](), list[str]()
    try:
        found = read_accounting(padded(table_of(jobs), {**widths, narrow: len(narrow)}), ZONE)
    except InputError as error:
        faults = error.faults
    assert found == ([] if faults else ended(jobs))
    assert all(re.match(r"line \d+: .*; sacct --parsable2 prints all of it", fault) for fault in faults)


def test_lines_of_a_padded_table_that_end_early_are_refused_and_a_plus_with_room_is_none_of_a_cut() -> None:
    job = Accounted("1", "c++", "", "COMPLETED", 1e9, 2e9, 9.0, 16, frozenset(), None, ("a1",))
    text = padded(table_of([job, replace(job, id="2")]), {"AllocTRES": 60, "ReqTRES": 60})
    assert read_accounting(text, ZONE) == [job, replace(job, id="2")]
    with pytest.raises(InputError, match=r"line 3: ends before its dashes; sacct --parsable2"):
        read_accounting(
            "\n".join(line[:-9] if n == 2 else line for n, line in enumerate(text.splitlines())), ZONE
        )


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


@pytest.mark.parametrize(
    ("id", "tasks"),
    [("910_[4-9%2]", 6), ("910_[1,3,7-9]", 5), ("9_[0-8:2%3]", 5), ("9_[3]", 1), ("910_4", 1), ("910", 1)],
)
def test_tasks_of_an_array_that_wait_are_counted(id: str, tasks: int) -> None:
    rows = ["7|COMPLETED|100|200|60|gres/gpu=1", f"{id}|PENDING|100|None|0|gres/gpu=1"]
    text = "\n".join(["JobID|State|Submit|Start|ElapsedRaw|ReqTRES", *rows])
    assert recorded(Said([text])).left_out == {"still waiting": tasks}


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


def test_a_file_that_may_be_cut_is_pointed_at() -> None:
    text = "JobID|State|Submit|Start|Elapsed|AllocTRES\n7|COMPLETED|100|200|01:00:00|gres/gpu=1"
    said = Said()
    said.add(text, "night.txt")
    told = Entry("doubtful", "night.txt: the last line does not end; the file may be cut")
    assert told in recorded(said, UTC).entries
    assert told not in recorded(Said([f"{text}\n"]), UTC).entries


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
        ("7|COMPLETED|100|200\n", "JobName; --noheader leaves the names of columns out"),
    ],
)
def test_tables_that_are_refused(text: str, fault: str) -> None:
    with pytest.raises(InputError, match=re.escape(fault)):
        read_accounting(text)


@pytest.mark.parametrize("text", ["", "hello", "{", "{}", '{"jobs": 3}', "NodeNames=a", "#NodeName=a1"])
def test_a_file_of_none_of_the_commands_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not what sacct|is no JSON|has neither 'jobs'") as error:
        kind_of(text)
    assert str(error.value).endswith(": it is empty") == (not text)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("cells", [["JobID", "State", "Start"], ["7_3", "COMPLETED", "100"]])
def test_another_separator_of_sacct_is_named(cells: list[str], separator: str) -> None:
    with pytest.raises(ValueError, match="between fields; --delimiter changes it") as error:
        kind_of(f"{separator.join(cells)}\n8\n")
    assert f"with {echo(separator)} between" in str(error.value)


@pytest.mark.parametrize(
    ("separator", "tres"),
    [("\t", "cpu=4,gres/gpu=2"), (",", '"cpu=4,gres/gpu=2"'), (",", "cpu=4;gres/gpu=2"), ("|", "gres/gpu=2")],
)
def test_tabs_and_commas_separate_cells_where_all_lines_have_as_many(separator: str, tres: str) -> None:
    rows = [["JobID", "State", "Submit", "Start", "Elapsed", "AllocTRES", "NodeList"]]
    rows += [[id, "COMPLETED", "100", "200", "01:00:00", tres, ""] for id in ("7", "8")]
    text = "".join(f"{separator.join(row)}\n" for row in rows)
    assert kind_of(text) == "accounting"
    assert [(job.id, job.gpus, job.elapsed_s) for job in read_accounting(text)] == [
        ("7", 2, 3600.0),
        ("8", 2, 3600.0),
    ]


def test_steps_without_their_jobs_are_named() -> None:
    text = "JobID|State|Submit|Start|Elapsed|AllocTRES\n7.batch|COMPLETED|100|200|01:00:00|gres/gpu=2\n"
    with pytest.raises(
        InputError, match=r"tells of steps alone, as of '7.batch'; sacct --allocations prints"
    ):
        read_accounting(text)


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

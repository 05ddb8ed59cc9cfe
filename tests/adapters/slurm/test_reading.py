"""What Slurm's real commands printed is read as it is; anything else is refused in words."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapters.trust import ODD
from tests.strategies.effort import examples
from wattsched.adapters.slurm.inventory import gpus_in, nodes_in
from wattsched.adapters.slurm.load import load_of
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.plan import round_of
from wattsched.adapters.slurm.reading import own_nodes, read
from wattsched.adapters.slurm.snapshot import COMMANDS, Snapshot, load, save
from wattsched.instances.errors import InputError

RECORDED = Path(__file__).resolve().parents[3] / "examples" / "slurm.json"
SNAPSHOT = load(RECORDED)


def test_a_recorded_cluster() -> None:
    site = read(SNAPSHOT)
    assert {node.name: (node.gpu_type, node.gpus, node.takes_jobs) for node in site.nodes.values()} == {
        f"g{i}": ("A100", 8, i != 3) for i in range(1, 5)
    }
    assert site.above == {"g1": "r1", "g2": "r1", "g3": "r2", "g4": "r2"}
    assert site.switches == {"r1": "root", "r2": "root", "root": None}
    (reservation,) = site.reservations
    assert (reservation.name, reservation.nodes) == ("maintenance", {"g4"})
    assert reservation.end_s - reservation.start_s == 3600
    assert not site.closed


def test_a_node_with_several_kinds_of_gpus_is_one_for_each_below_its_name() -> None:
    nodes = json.loads(SNAPSHOT["nodes"])
    for row in nodes["nodes"][2:]:
        row["gres"], row["gres_used"] = "gpu:A100:4,gpu:a100_1g.5gb:7", "gpu:a100_1g.5gb:1(IDX:0)"
    site = read({**SNAPSHOT, "nodes": json.dumps(nodes)})
    assert {name: (node.gpu_type, node.gpus) for name, node in site.nodes.items()} == {
        **{"g1": ("A100", 8), "g2": ("A100", 8)},
        **{f"g{i}/A100": ("A100", 4) for i in (3, 4)},
        **{f"g{i}/a100_1g.5gb": ("a100_1g.5gb", 7) for i in (3, 4)},
    }
    assert site.switches_above("g3/A100") == ["g3", "r2", "root"]
    assert site.reservations[0].nodes == {"g4/A100", "g4/a100_1g.5gb"}
    # What is not told to be of one kind may be of any.
    jobs = json.loads(SNAPSHOT["jobs"])
    (row,) = (one for one in jobs["jobs"] if (one["name"], one["job_state"]) == ("resnet", "RUNNING"))
    for detail, asked, held in (
        (["gpu:A100:2(IDX:0-1),gpu:a100_1g.5gb:0(IDX:)"], "gpu:2", {"g3/A100": [0, 1]}),
        (["gpu:2(IDX:0-1)"], "gpu:2", {"g3/A100": [0, 1], "g3/a100_1g.5gb": [0, 1]}),
        ([], "gpu:2", {"g3/A100": [], "g3/a100_1g.5gb": []}),
        ([], "gpu:a100_1g.5gb:2", {"g3/a100_1g.5gb": []}),
    ):
        row |= {"gres_detail": detail, "tres_per_node": f"gres:{asked}"}
        changed = {**SNAPSHOT, "nodes": json.dumps(nodes), "jobs": json.dumps(jobs)}
        assert read(changed).jobs[row["job_id"]].gpus == held
    assert own_nodes(["g3"], '{"wattsched": {"nodes": {"g3/A100": 4}}}') == []
    assert own_nodes(["g3"], '{"wattsched": {"nodes": {"g4/A100": 4}}}') == ["g3"]


@pytest.mark.parametrize("text", ["", "{}", "slurm_load: Unable to contact slurm controller"])
@pytest.mark.parametrize("part", ["partitions", "reservations"])
def test_an_answer_that_is_none_is_not_taken_for_an_empty_one(part: str, text: str) -> None:
    with pytest.raises(InputError, match=f"scontrol show {part[:-1]}: "):
        read({**SNAPSHOT, part: text})


@pytest.mark.parametrize("time_s", ["nan", "-5", "inf", ""])
def test_a_time_that_is_none_is_refused(time_s: str) -> None:
    with pytest.raises(InputError, match="Slurm's answer cannot be read"):
        read({**SNAPSHOT, "time": time_s})


def test_recorded_jobs() -> None:
    jobs = {job.name: job for job in read(SNAPSHOT).jobs.values() if job.pending or job.running}
    theirs, large, resnet = jobs["theirs"], jobs["large"], jobs["resnet"]
    assert theirs.gpus == {"g3": [2, 3, 4]}
    assert large.gpus == {"g1": list(range(8)), "g2": list(range(8))}
    assert (resnet.gpus, resnet.request.gpus, resnet.request.per) == ({"g3": [0, 1]}, 2, "node")
    assert (jobs["plain"].request.gpus, jobs["plain"].request.per, jobs["plain"].limit_s) == (2, "job", 1800)
    assert jobs["plain"].held
    assert "array" in jobs["array"].odd


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:A100:4(IDX:0-2,7)", [("A100", 4, [0, 1, 2, 7])]),
        ("gpu:8", [("", 8, [])]),
        ("gres:gpu:2", [("", 2, [])]),
        ("gres/gpu:h100:3", [("h100", 3, [])]),
        ("gpu:A100:8(S:0-1)", [("A100", 8, [])]),
        ("gpu:a:1(IDX:3),gpu:b:2(IDX:0-1)", [("a", 1, [3]), ("b", 2, [0, 1])]),
        ("gpu:A100:0(IDX:N/A)", [("A100", 0, [])]),
        ("shard:4,license:2", []),
        ("gres/vgpu=3,gres/gpumem=40,license/gpu=2,mygpu:2", []),
        ("gres/vgpu:a:3,gpu:b:2,gpu:1", [("b", 2, []), ("", 1, [])]),
        (None, []),
    ],
)
def test_gres(text: str | None, found: list[object]) -> None:
    assert gpus_in(text) == found


FREE = st.lists(
    st.sampled_from(
        ["swap", "GPU 7,", "Gres=gpu:a100:1", "State=DOWN", "NodeName=x", "Partitions=z", "#1", "a=b"]
    ),
    max_size=5,
).map(" ".join)


@given(FREE, FREE, FREE, FREE, st.booleans())
def test_no_free_text_has_keys(system: str, extra: str, comment: str, reason: str, oneliner: bool) -> None:
    """As scontrol prints nodes, on one line or several."""
    lines = [
        *("NodeName=n1 Arch=x86_64", "AvailableFeatures=(null)", "Gres=gpu:a100:8(S:0-1)"),
        *(f"OS=Linux 5.14 {system}", "RealMemory=512000 Boards=1", "State=IDLE Weight=1", "Partitions=p,q"),
        *(f"Extra={extra}", f"Comment={comment}", f"Reason={reason} [root@2026-11-01T10:00:00]"),
    ]
    text = (" " if oneliner else "\n   ").join(lines)
    second = text.replace("n1", "n2", 1)
    nodes = nodes_in(f"{text}\n\n{second}\n")
    assert {(one.name, one.gpu_type, one.gpus) for one in nodes.values()} == {
        ("n1", "a100", 8),
        ("n2", "a100", 8),
    }
    assert all(one.takes_jobs and one.partitions == ("p", "q") for one in nodes.values())


def test_a_line_of_several_nodes_is_as_many() -> None:
    nodes = nodes_in("NodeName=n[08-10],m1 Gres=gpu:8 State=IDLE\n")
    assert {name: node.gpus for name, node in nodes.items()} == dict.fromkeys(["n08", "n09", "n10", "m1"], 8)


def test_a_comment_of_a_reservation_has_no_keys_and_its_duration_tells_its_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        text = (
            "ReservationName=maint StartTime=2027-10-31T02:30:00 EndTime=2027-10-31T02:45:00 "
            "Duration=01:15:00 Nodes=g[1-2] NodeCnt=2 Comment=was Nodes=g4 StartTime=2020-01-01T00:00:00"
        )
        (found,) = read({**SNAPSHOT, "reservations": text}).reservations
        assert (found.nodes, found.end_s - found.start_s) == ({"g1", "g2"}, 4_500)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_saved_snapshots_are_read_again(tmp_path: Path) -> None:
    save(tmp_path / "again.json", SNAPSHOT)
    assert load(tmp_path / "again.json") == SNAPSHOT


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"jobs": 1}', "no JSON", '{"time": "1", "nodes": 3}'])
def test_what_is_no_snapshot_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(InputError):
        load(tmp_path / "file.json")


@pytest.mark.parametrize("fields", [{"job_id": "many"}, {"job_id": None}, {"job_state": 3}])
def test_a_row_without_a_number_or_a_state_is_left_out_with_a_note(fields: dict[str, object]) -> None:
    document = json.loads(SNAPSHOT["jobs"])
    number, name = document["jobs"][0]["job_id"], document["jobs"][0]["name"]
    document["jobs"][0] |= fields
    site = read({**SNAPSHOT, "jobs": json.dumps(document)})
    assert site.jobs.keys() == read(SNAPSHOT).jobs.keys() - {number}
    (note,) = site.notes
    assert note.startswith(f"squeue --json: jobs[0]: {next(iter(fields))}: "), note
    assert note.endswith(f"'{name}' is left out")


def test_gpus_of_a_row_that_is_left_out_count_at_the_most_that_they_draw() -> None:
    whole = load_of(read(SNAPSHOT), SiteOptions(), Ours())
    for number in whole.ours:
        document = json.loads(SNAPSHOT["jobs"])
        for row in document["jobs"]:
            row |= {"job_state": 3} if row["job_id"] == number else {}
        load = load_of(read({**SNAPSHOT, "jobs": json.dumps(document)}), SiteOptions(), Ours())
        assert number not in load.ours
        assert load.power_w >= whole.power_w


def test_a_queue_in_which_no_row_has_a_number_is_none() -> None:
    with pytest.raises(InputError, match=r"jobs\[0\]: .*job_id: is missing"):
        read({**SNAPSHOT, "jobs": json.dumps({"jobs": [{}, {"name": "one"}, 3]})})


@pytest.mark.parametrize(
    ("field", "value"), [("dependency", 3), ("features", ["a"]), ("excluded_nodes", "g[1-"), ("name", {})]
)
def test_a_job_whose_record_cannot_be_read_waits_or_runs_alone(field: str, value: object) -> None:
    before = load_of(read(SNAPSHOT), SiteOptions(), Ours())
    document = json.loads(SNAPSHOT["jobs"])
    for row in document["jobs"]:
        row |= {field: value} if row["job_id"] in (21, 22, 23, 26) else {}
    load = load_of(read({**SNAPSHOT, "jobs": json.dumps(document)}), SiteOptions(), Ours())
    # GPUs of running jobs count as before; what waits has its reason, and the others go on.
    assert (load.power_w, load.ours.keys(), load.others) == (
        before.power_w,
        before.ours.keys(),
        before.others,
    )
    round = round_of(load, Ours(), 60.0)
    assert "its record cannot be read" in round.left_out[26]
    assert {"21", "22", "24"} <= {job["name"] for job in round.jobs}


SLURM_ODD = ODD | st.one_of(
    st.sampled_from(["g[1-", "gpu:A100:99(IDX:0-98)", "g[1-4]", '{"wattsched": {"options": []}}', "RUNNING"]),
    st.dictionaries(st.sampled_from(["set", "number", "wattsched"]), st.integers(), max_size=2),
)


@st.composite
def mutated(draw: st.DrawFn) -> Snapshot:
    """The recorded outputs with a few changes: fields of JSON, characters of text, ends cut off."""
    snapshot = dict(SNAPSHOT)
    for _ in range(draw(st.integers(1, 4))):
        part = draw(st.sampled_from(list(COMMANDS)))
        text = snapshot[part]
        if part in ("nodes", "jobs") and draw(st.booleans()) and text.startswith("{"):
            try:
                document = json.loads(text)
                row = draw(st.sampled_from(document[part]))
                row[draw(st.sampled_from(sorted(row)))] = draw(SLURM_ODD)
                snapshot[part] = json.dumps(document)
                continue
            except (ValueError, KeyError, TypeError):
                pass
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 30)) | st.just(len(text)))
        snapshot[part] = text[:begin] + draw(st.text(max_size=8)) + text[end:]
    return snapshot


@given(mutated())
@settings(max_examples=examples(300), deadline=None)
def test_mutated_answers_are_read_or_refused_in_words(snapshot: Snapshot) -> None:
    ours = Ours(partitions=["gpu"])
    with suppress(InputError):
        round_of(load_of(read(snapshot), SiteOptions(), ours), ours, 60.0)

"""What users may say and cost, on both schedulers: the site's file is the law, and one job stops nobody."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapters.kubernetes import test_plan as kube
from tests.adapters.slurm import test_plan as slurm
from tests.adapters.trust import EVERYTHING
from tests.strategies.effort import examples
from wattsched.adapters import options as adapter_options
from wattsched.adapters.budget import Budget
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.plan import round_of as kube_round_of
from wattsched.adapters.quarantine import Clock, alone, in_turn
from wattsched.adapters.rounds import tell
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.load import load_of
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.plan import plan_of, round_of
from wattsched.adapters.slurm.reading import SlurmJob
from wattsched.instances.errors import InputError
from wattsched.serve.journal import Journal

PLAIN = slurm.NUMBERS["plain"]
ROWS = {"gpus": [2], "pool": ["A100"], "power_w": [120.0], "rate": [1.0]}
Looked = Callable[[dict[str, Any], dict[str, Any], Clock | None], tuple[Any, dict[str, Any] | None, str]]


def on_slurm(said: dict[str, Any], site: dict[str, Any], clock: Clock | None = None) -> Any:
    """The round of a comment, the job's record and its reason."""
    options = SiteOptions.model_validate(site)
    there = slurm.changed(plain={"comment": json.dumps({"wattsched": said})})
    round = round_of(load_of(there, options, Ours()), Ours(), 60.0, None, clock)
    records = {job["name"]: job for job in round.jobs}
    return round, records.get(str(PLAIN)), round.left_out.get(PLAIN, "")


def on_kubernetes(said: dict[str, Any], site: dict[str, Any], clock: Clock | None = None) -> Any:
    """The round of annotations, the job's record and its reason."""
    there = kube.annotated("plain", **{name: json.dumps(value) for name, value in said.items()})
    round = kube_round_of(kube.load_at(there, KubernetesOptions.model_validate(site)), None, clock)
    records = {job["name"]: job for job in round.jobs}
    return round, records.get("default/plain"), round.left_out.get("default/plain", "")


everywhere = pytest.mark.parametrize("looked", [on_slurm, on_kubernetes])


@everywhere
@pytest.mark.parametrize(
    ("said", "allow", "told"),
    [
        ({"weight": 1e6}, {}, "weight: may not be stated, got 1000000.0; the site allows options, model"),
        ({"weight": 3.0}, {"weight": [0.5, 2]}, "weight: the site allows 0.5 to 2, got 3"),
        ({"restart_s": 0}, {"weight": [0.5, 2]}, "got 0.0; the site allows options, model, weight"),
        ({"remaining_work": 1e-9}, {"remaining_work": [1, 9]}, "work: the site allows 1 to 9, got 1e-09"),
        ({"least_progress": 0.9}, {}, "least_progress: may not be stated, got 0.9; the site allows"),
        ({"least_progress": 0.9}, {"least_progress": [0, 0.5]}, "least_progress: the site allows 0 to 0.5"),
        ({"options": ROWS}, {}, "options: the site takes no rows of users, but names of its tables"),
        ({"options": "small"}, {"tables": ["large"]}, "options: the site allows 'large', got 'small'"),
        ({"options": "none"}, {}, "'none' is no table of the options file"),
        ({"model": "bert"}, {"models": ["vgg16"]}, "model: the site allows 'vgg16', got 'bert'"),
        ({"model": "bert", "batch_sizes": [8, 64]}, {"batch_sizes": [16, 256]}, "16 to 256, got 8"),
        ({"pools": ["A100"]}, {}, "pools: may not be stated, got [\"A100\"]"),
    ],
)  # fmt: skip
def test_what_the_site_does_not_allow_lets_the_job_wait_with_the_field_the_value_and_what_is_allowed(
    looked: Looked, said: dict[str, Any], allow: dict[str, Any], told: str
) -> None:
    site = {"allow": allow, "tables": {"small": ROWS, "large": ROWS}}
    round, record, reason = looked(said, site, None)
    assert record is None
    dashed = reason.replace("remaining-work", "remaining_work").replace("least-progress", "least_progress")
    dashed = dashed.replace("wattsched.io/", "")
    assert told.replace('"', "'") in dashed.replace("restart-s", "restart_s").replace('"', "'")
    assert round.jobs


@everywhere
@pytest.mark.parametrize(("least", "kept"), [(None, [1.0, 0.8, 0.5]), (0.8, [1.0, 0.8]), (1, [1.0])])
def test_settings_that_are_too_slow_for_a_job_are_not_offered(
    looked: Looked, least: float | None, kept: list[float]
) -> None:
    rows = {"gpus": [2] * 3, "pool": ["A100"] * 3, "power_w": [700.0, 500.0, 300.0], "rate": [1.0, 0.8, 0.5]}
    site = {"allow": {"least_progress": [0, 1]}, "tables": {"clocks": {**rows, "frequency_mhz": [3, 2, 1]}}}
    _, record, _ = looked({"options": "clocks"} | ({"least_progress": least} if least else {}), site, None)
    assert record is not None
    assert record["options"]["rate"] == kept


@everywhere
def test_by_default_users_choose_a_table_or_a_model_and_let_themselves_be_stopped(looked: Looked) -> None:
    for said in ({"options": "small"}, {"model": "bert"}, {"preemptible": True}, {}):
        _, record, reason = looked(said, {"tables": {"small": ROWS}}, None)
        assert (bool(record), reason) == (True, ""), said


def test_who_may_not_be_stopped_is_for_the_site_to_say_on_slurm() -> None:
    assert "preemptible: may not be stated, got false" in on_slurm({"preemptible": False}, {})[2]
    assert on_slurm({"preemptible": False}, {"allow": {"preemptible": True}})[1]
    # Nothing else holds of a pod without an annotation.
    assert on_kubernetes({"preemptible": False}, {})[1]


@everywhere
@pytest.mark.parametrize(
    ("allow", "tables", "expected"),
    [
        ({}, {}, 800.0),
        ({}, {"a": {**ROWS, "power_w": [640.0]}, "b": {**ROWS, "power_w": [480.0]}}, 640.0),
        ({}, {"a": {**ROWS, "power_w": [640.0], "frequency_mhz": [1005]}}, 800.0),
        ({"own_power_w": True}, {"a": {**ROWS, "power_w": [640.0]}}, 120.0),
    ],
)
def test_own_rows_count_with_the_watts_that_the_site_believes(
    looked: Looked, allow: dict[str, Any], tables: dict[str, Any], expected: float
) -> None:
    site = {"allow": {"own_options": True, **allow}, "tables": tables}
    _, record, _ = looked({"options": ROWS}, site, None)
    assert record is not None
    assert record["options"]["power_w"] == [expected]


@everywhere
def test_a_clock_that_a_model_does_not_have_stops_nobody_else(looked: Looked) -> None:
    round, record, reason = looked({"model": "bert", "frequencies_mhz": [1411]}, {"allow": EVERYTHING}, None)
    assert record is None
    assert "1411" in reason
    assert len(round.jobs) >= 3


ERRORS = [RecursionError, MemoryError, OverflowError, KeyError, ZeroDivisionError, TypeError, RuntimeError]


@everywhere
@pytest.mark.parametrize("error", ERRORS)
def test_whatever_looking_at_a_job_raises_that_job_alone_waits(
    looked: Looked, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    untouched, _, _ = looked({"model": "gpt2"}, {"allow": EVERYTHING}, None)
    expand = adapter_options.Expansion.with_table

    def fails(self: Any, fields: dict[str, Any], *others: Any) -> dict[str, Any]:
        if fields.get("model") == "gpt2":
            raise error("of the kind that nobody thought of")
        return expand(self, fields, *others)

    monkeypatch.setattr(adapter_options.Expansion, "with_table", fails)
    round, record, reason = looked({"model": "gpt2"}, {"allow": EVERYTHING}, None)
    assert record is None
    assert error.__name__ in reason
    assert "nobody thought of" in reason
    others = [job for job in untouched.jobs if job["name"] not in (str(PLAIN), "default/plain")]
    assert round.jobs == others


@pytest.mark.parametrize(
    "comment", ["{}", "[1]", '{"weight": 1e300}', '{"model": "bert", "batch_sizes": [0]}']
)
def test_a_running_job_of_slurm_whose_comment_does_not_count_is_what_it_was_launched_as(comment: str) -> None:
    site = slurm.changed(large={"comment": f'{{"wattsched": {comment}}}'})
    options = SiteOptions.model_validate({"qos": {"": {"weight": 3.0}}})
    round, decision = slurm.decided(site, 5_000.0, options)
    (record,) = (job for job in round.jobs if job["name"] == str(slurm.NUMBERS["large"]))
    assert (record["options"]["power_w"], record["options"]["gpus"]) == ([6_400.0], [16])
    assert (record["weight"], record["preemptible"]) == (3.0, True)
    assert slurm.NUMBERS["large"] in plan_of(round, decision).stops


@pytest.mark.parametrize(
    "annotations", [{}, {"weight": "1e300"}, {"options": "{"}, {"restart_s": "[" * 9_000}]
)
def test_a_running_pod_whose_annotations_do_not_count_may_still_be_evicted(annotations: Any) -> None:
    round = kube_round_of(kube.load_at(kube.annotated("old", **annotations), KubernetesOptions()))
    (record,) = (job for job in round.jobs if job["name"] == "default/old")
    assert record["options"]["power_w"] == [3_200.0]


CROWD = {"model": "bert", "batch_sizes": [*range(16, 416)], "frequencies_mhz": [*range(1005, 1406)]}


@everywhere
def test_a_job_of_a_million_configurations_is_counted_and_not_expanded(looked: Looked) -> None:
    begun = time.monotonic()
    _, record, reason = looked(CROWD, {"allow": EVERYTHING}, None)
    assert time.monotonic() - begun < 5
    assert record is None
    assert reason.endswith("configurations, the site allows 2,000 per job")
    assert int(reason.split(" ")[0].replace(",", "")) > 90_000


@everywhere
def test_own_rows_and_long_texts_are_counted_too(looked: Looked) -> None:
    many = {"gpus": [2] * 100, "pool": ["A100"] * 100, "power_w": [700.0] * 100, "rate": [1.0] * 100}
    said = {"options": {**many, "batch_size": [*range(1, 101)]}}
    assert looked(said, {"allow": {**EVERYTHING, "configurations": 99}}, None)[2].startswith(
        "100 configurations, the site allows 99 per job"
    )
    assert looked(said, {"allow": {**EVERYTHING, "configurations": 100}}, None)[1]
    assert "the site allows 500" in looked(said, {"allow": {**EVERYTHING, "characters": 500}}, None)[2]


def test_the_configurations_of_a_user_are_counted_once_each_and_others_go_on() -> None:
    site = slurm.changed(
        **{
            name: {"comment": json.dumps({"wattsched": said}), "user_name": user}
            for name, said, user in [
                ("bert-large", {"model": "bert"}, "eve"),
                ("sweep", {"model": "bert"}, "eve"),
                ("plain", {"model": "resnet50"}, "eve"),
                ("typo", {"model": "resnet50"}, "ann"),
            ]
        }
    )
    limits = {**EVERYTHING, "configurations_per_user": 350}
    options = SiteOptions.model_validate({"allow": limits})
    round = round_of(load_of(site, options, Ours()), Ours(), 60.0)
    names = {site.jobs[number].name for number in round.left_out} - {"array"}
    assert names in ({"plain"}, {"bert-large", "sweep"})
    assert all(
        "of 'eve' have" in why and "the site allows 350 per user" in why
        for number, why in round.left_out.items()
        if site.jobs[number].name in names
    )


@everywhere
def test_what_there_is_no_time_to_look_at_waits_and_what_runs_goes_on(looked: Looked) -> None:
    clock = Clock(1e-9)
    round, record, reason = looked({"model": "bert"}, {"allow": EVERYTHING}, clock)
    assert record is None
    assert "was not looked at in this round" in reason
    assert round.jobs
    assert all("current" in job for job in round.jobs)
    assert clock.left_s == pytest.approx(0.25e-9)


@given(st.dictionaries(st.integers(), st.sampled_from("abc"), max_size=20), st.floats(0, 1e9))
@settings(max_examples=examples(100), deadline=None)
def test_users_take_turns_and_nobody_is_left_out(users: dict[int, str], seed: float) -> None:
    order = in_turn(users, seed)
    assert sorted(order) == sorted(users)
    done = dict.fromkeys("abc", 0)
    for name in order:
        done[users[name]] += 1
        mine = done[users[name]]
        total = {user: list(users.values()).count(user) for user in done}
        assert all(done[user] >= min(total[user], mine - 1) for user in done)


def test_who_is_first_changes_from_round_to_round() -> None:
    users = {i: "crowd" for i in range(50)} | {50: "one"}
    firsts = [in_turn(users, 30.0 * i)[:2] for i in range(200)]
    assert all(50 in first for first in firsts)
    assert len({number for first in firsts for number in first}) > 45


def test_an_end_of_the_process_is_not_quarantined() -> None:
    with pytest.raises(KeyboardInterrupt), alone("a", {}):
        raise KeyboardInterrupt
    told = dict[str, str]()
    with alone("a", told):
        raise InputError(["one", "two"])
    assert told == {"a": "one; two"}
    assert SlurmJob.__dataclass_fields__["user"].type == "str"


def crowded(comments: list[dict[str, Any]], site: dict[str, Any], deadline_s: float, folder: Path) -> Any:
    """A round of Slurm's loop with more held jobs of one user, and how long it took."""
    snapshot = slurm.SNAPSHOT
    document = json.loads(snapshot["jobs"])
    (row,) = (one for one in document["jobs"] if one["job_id"] == PLAIN)
    for number, said in enumerate(comments, 1000):
        more = {"job_id": number, "user_name": "eve", "comment": json.dumps({"wattsched": said})}
        document["jobs"].append({**row, **more})
    policy = Policy(Ours(), SiteOptions.model_validate(site), deadline_s=deadline_s)
    with Journal(folder / "journal") as journal:
        rounds = Rounds(
            policy, Budget(12_000.0), journal, lambda _: {**snapshot, "jobs": json.dumps(document)}, Actions
        )
        begun = time.monotonic()
        return rounds.round(), time.monotonic() - begun


@pytest.mark.parametrize("beside", [{}, {"configurations": 100_000, "configurations_per_user": 1_000_000}])
def test_a_crowd_of_jobs_with_many_choices_is_decided_in_time(beside: dict[str, int], tmp_path: Path) -> None:
    """Twenty held jobs of 8 counts, 64 batch sizes and 60 clocks: 60 s under a deadline of 2 s once."""
    said = {
        "model": "bert",
        "gpu_counts": [*range(1, 9)],
        "frequencies_mhz": [*range(1005, 1305, 5)],
    }
    comments = [{**said, "batch_sizes": [*range(16 + i, 528 + i, 8)]} for i in range(20)]
    report, took_s = crowded(comments, {"allow": {**EVERYTHING, **beside}}, 2.0, tmp_path)
    told = [report.waiting.get(1000 + i, "") for i in range(20)]
    if not beside:
        assert all("configurations, the site allows 2,000 per job" in why for why in told)
        assert report.started
    assert took_s < 20


def test_what_runs_and_cannot_be_told_is_what_it_was_launched_as_and_then_others_load(tmp_path: Path) -> None:
    round = slurm.round_at(slurm.SITE, slurm.TRUSTING, Ours())
    jobs = {job["name"]: job for job in round.jobs}
    large, resnet, plain = (str(slurm.NUMBERS[name]) for name in ("large", "resnet", "plain"))
    jobs[large]["remaining_work"] = 1e-9  # no session compares such completion times
    jobs[resnet]["current"]["pool"] = "A100/8/none"
    jobs[plain]["weight"] = 1e9
    told = {
        "objective": "goodput",
        "round_s": 60.0,
        "change_cost": 0.0,
        "tenants": {},
        "carbon_g_per_kwh": None,
    }
    listed = list(jobs.values())
    with Journal(tmp_path / "journal") as journal:
        session = journal.create("slurm", {"cluster": round.cluster})
        left_out = tell(session, round.cluster, listed, cap_w=20_000.0, **told)
        decision = session.solve(deadline_s=5.0).decision
    assert left_out.keys() == {resnet, plain}
    kept = {job["name"]: job for job in listed}
    assert kept.keys() == jobs.keys() - left_out.keys()
    assert kept[large]["options"]["power_w"] == [6_400.0]
    nodes = {row["name"]: row for row in round.cluster["nodes"]}
    assert set(nodes["g3"]["unavailable"]) >= set(jobs[resnet]["current"]["nodes"]["g3"])
    assert decision.solved
    round.left_out.update({int(name): why for name, why in left_out.items()})
    assert int(resnet) not in plan_of(round, decision).stops


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"jobs": {"a*": {"options": "visoin"}}}, "jobs.a\\*.options: 'visoin' is no table .*'vision'"),
        ({"accounts": {"lab": {"options": "none"}}}, "accounts.lab.options: 'none' is no table"),
        ({"allow": {"tables": ["visoin"]}}, "allow.tables: 'visoin' is no table .*'vision'"),
        ({"allow": {"models": ["brt"]}}, "allow.models: 'brt' is no model .*'bert'"),
    ],
)
def test_tables_and_models_that_nobody_states_are_faults(document: dict[str, Any], told: str) -> None:
    table = {"gpus": [1], "pool": ["A100"], "power_w": [100.0], "rate": [1.0]}
    with pytest.raises(ValueError, match=told):
        SiteOptions.model_validate({"tables": {"vision": table}, **document})

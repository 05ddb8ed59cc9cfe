"""Rounds of the recorded cluster under any cap: what we count is what the engine counts, and fits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.adapters.trust import decided as decision_of
from tests.adapters.trust import trusting
from tests.strategies.effort import examples
from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm.load import Load, load_of
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions, launch_of
from wattsched.adapters.slurm.plan import Round, plan_of, round_of
from wattsched.adapters.slurm.reading import Site, read
from wattsched.adapters.slurm.snapshot import load
from wattsched.serve.journal import Journal

RECORDED = Path(__file__).resolve().parents[3] / "examples" / "slurm.json"


def site_of(fields: dict[str, Any]) -> SiteOptions:
    """The file of a site that believes its users."""
    return SiteOptions.model_validate(trusting(fields))


TRUSTING = site_of({})
SNAPSHOT, SITE = load(RECORDED), read(load(RECORDED))
NUMBERS = {job.name: job.id for job in SITE.jobs.values() if job.pending or job.running}


def changed(**jobs: dict[str, Any]) -> Site:
    """The recorded cluster with other fields of some jobs."""
    document = json.loads(SNAPSHOT["jobs"])
    for row in document["jobs"]:
        row |= jobs.get(row["name"], {}) if row["job_id"] in NUMBERS.values() else {}
    nodes = json.loads(SNAPSHOT["nodes"])
    for row in nodes["nodes"]:
        row["gres_used"] = ""
    return read({**SNAPSHOT, "jobs": json.dumps(document), "nodes": json.dumps(nodes)})


def round_at(site: Site, options: SiteOptions, ours: Ours) -> Round:
    """The round of a cluster."""
    return round_of(load_of(site, options, ours), ours, 60.0)


def decided(site: Site, cap_w: float, options: SiteOptions) -> tuple[Any, Any]:
    """The round, and the decision under a cap."""
    round = round_at(site, options, Ours())
    return round, decision_of(round, cap_w)


def after(load: Load, plan: Any) -> Load:
    """The load when the plan has been carried out."""
    for number in plan.stops:
        load.drop(number)
    for start in plan.starts:
        assert load.has_room(start.launch)
        load.take(start.job, start.launch)
    return load


@given(st.floats(3_000, 20_000), st.booleans(), st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_the_draw_is_what_the_engine_says_and_within_the_cap(
    cap_w: float, may_stop: bool, gone: bool
) -> None:
    fields = {"large": {"requeue": may_stop}, "theirs": {"job_state": "COMPLETED"} if gone else {}}
    round, decision = decided(changed(**fields), cap_w, TRUSTING)
    assume(decision.solved)
    plan = plan_of(round, decision)
    # Nobody is moved on the drained node, and who may not be requeued stays.
    assert NUMBERS["resnet"] not in plan.stops
    assert may_stop or NUMBERS["large"] not in plan.stops
    assert not any("g3" in start.launch.nodes for start in plan.starts)
    assert after(round.load, plan).power_w == pytest.approx(decision.result.totals["power_w"], rel=1e-9)
    assert round.load.power_w <= cap_w + 1e-6


def test_the_watts_of_the_recorded_cluster_by_hand() -> None:
    # Bases; three GPUs of others and two jobs of ours; the idle rest of 32 GPUs.
    assert load_of(SITE, TRUSTING, Ours()).power_w == 4 * 200 + 3 * 400 + (700 + 6_400) + (32 - 21) * 50


def test_a_job_that_still_ends_keeps_its_gpus_and_watts() -> None:
    before = load_of(SITE, TRUSTING, Ours())
    ending = {"job_state": "COMPLETING", "restart_cnt": 1, "gres_detail": []}
    site = changed(large=ending, theirs=ending)
    now = load_of(site, TRUSTING, Ours())
    assert now.power_w == before.power_w
    assert list(now.leaving) == [NUMBERS["large"]]
    assert not now.free("g1")
    assert len(now.free("g3")) == 3


def test_a_released_job_holds_what_it_is_about_to_get() -> None:
    released = {"job_state": "PENDING", "priority": 1, "gres_detail": [], "nodes": ""}
    now = load_of(changed(large=released), TRUSTING, Ours())
    assert NUMBERS["large"] in now.ours
    assert not now.free("g2")
    round, decision = decided(changed(large=released), 10_000.0, TRUSTING)
    assert decision.solved
    assert NUMBERS["large"] not in plan_of(round, decision).stops


def test_a_job_that_slurm_requeued_by_itself_is_taken_back() -> None:
    requeued = {"job_state": "PENDING", "priority": 1, "restart_cnt": 1, "gres_detail": [], "nodes": ""}
    assert [*load_of(changed(large=requeued), TRUSTING, Ours()).astray] == [NUMBERS["large"]]


def test_a_clock_does_not_change_while_a_job_runs() -> None:
    (record,) = (
        job for job in round_at(SITE, TRUSTING, Ours()).jobs if job["name"] == str(NUMBERS["resnet"])
    )
    rows = zip(record["options"]["gpus"], record["options"]["frequency_mhz"], strict=True)
    assert [clock for gpus, clock in rows if gpus == 2] == [1410]
    launch = launch_of(SITE.jobs[NUMBERS["resnet"]])
    assert launch is not None
    assert launch.frequency_mhz == 1410


REPORTS = {
    "right": {"run": 0, "frequency_mhz": 1005},
    "of another run": {"run": 1, "frequency_mhz": 1005},
    "of another clock": {"run": 0, "frequency_mhz": 1410},
    "with a limit": {"run": 0, "frequency_mhz": 1005, "power_limit_w": 300},
    "failed": {"run": 0, "frequency_mhz": 1005, "failed": "busy"},
    "old": {"run": 0, "frequency_mhz": 1005},
    "none": {},
}


@given(st.sampled_from([*REPORTS]), st.sampled_from([*REPORTS]))
def test_a_lower_clock_counts_once_the_agents_of_all_nodes_report_it(first: str, second: str) -> None:
    launch = {"run": 0, "released_s": 1, "gpus": 16, "pool": "A100", "nodes": {"g1": 8, "g2": 8}}
    launch |= {"power_w": 3_200, "frequency_mhz": 1005, "before_w": 6_400, "lowering": True}
    site = changed(large={"admin_comment": json.dumps({"wattsched": launch})})
    now_s, number = site.time_s, NUMBERS["large"]
    written = {
        node: json.dumps({"time_s": now_s - 60 * (what == "old"), "jobs": {number: job} if job else {}})
        for node, what, job in (("g1", first, REPORTS[first]), ("g2", second, REPORTS[second]))
    }
    running = load_of(replace(site, agents=json.dumps(written)), TRUSTING, Ours()).ours[number]
    assert running.settled == (first == second == "right")
    assert running.power_w == (3_200 if running.settled else 6_400)
    # It can be changed where all agents are there, and none has failed.
    assert running.adjustable == (not {"failed", "old"} & {first, second})


@pytest.mark.parametrize(
    ("comment", "told"),
    [
        ({"wieght": 2}, "wieght: is not a known field"),
        ({"options": "none"}, "'none' is no table of the options file"),
        ({"options": []}, "one object per option"),
        (
            {"options": {"gpus": [1], "pool": ["A100"], "power_w": [1.0]}},
            "exactly one of 'rate' and 'completion_s'",
        ),
        ({"options": {"gpus": [12], "pool": ["A100"], "power_w": [1.0], "rate": [1]}}, "whole nodes"),
        ({"options": {"gpus": [1], "pool": ["H100"], "power_w": [1.0], "rate": [1]}}, "whole nodes"),
        ({"model": "no-such-model"}, "no-such-model"),
        ({"pools": ["H100"]}, "'H100' is no GPU type"),
        ({"weight": -1}, "weight"),
        ([1], "must be an object"),
    ],
)
def test_what_is_wrong_with_a_comment_is_said_and_others_go_on(comment: Any, told: str) -> None:
    site = changed(typo={"comment": json.dumps({"wattsched": comment})})
    round = round_at(site, TRUSTING, Ours())
    assert told in round.left_out[NUMBERS["typo"]]
    assert {job["name"] for job in round.jobs} >= {
        str(NUMBERS[name]) for name in ("sweep", "plain", "resnet")
    }


def test_a_comment_goes_before_the_name_the_qos_and_the_account() -> None:
    table = {"gpus": [1], "pool": ["A100"], "power_w": [100.0], "rate": [1.0]}
    options = site_of(
        {
            "tables": {"small": table},
            "accounts": {"lab": {"weight": 2.0, "model": "bert", "restart_s": 7.0}},
            "qos": {"high": {"weight": 3.0}},
            "jobs": {"typ*": {"options": "small"}},
        }
    )
    row = {"account": "lab", "qos": "high", "comment": '{"wattsched": {"weight": 5}}'}
    round = round_at(changed(typo=row), options, Ours())
    (record,) = (job for job in round.jobs if job["name"] == str(NUMBERS["typo"]))
    assert (record["weight"], record["restart_s"], record["options"]) == (5.0, 7.0, table)


@given(st.integers(0, 12), st.booleans())
@settings(max_examples=examples(20), deadline=None)
def test_accounts_keep_to_their_quotas(gpus: int, may_stop: bool) -> None:
    """Jobs of two GPUs that wait and one of eight that runs are of one account."""
    lab = {name: {"account": "lab"} for name in ("sweep", "plain", "bert-large", "large")}
    site = changed(**{**lab, "large": {"account": "lab", "requeue": may_stop}})
    options = site_of({"tenants": {"lab": {"gpus": gpus}, "guests": {"power_w": 100}}})
    round, decision = decided(site, 20_000.0, options)
    assert decision.solved
    named = {site.jobs[int(job["name"])].name for job in round.jobs if job.get("tenant") == "lab"}
    assert named == {"sweep", "plain", "bert-large"} | ({"large"} if may_stop else set())
    plan = plan_of(round, decision)
    assert may_stop or NUMBERS["large"] not in plan.stops
    new = sum(start.launch.gpus for start in plan.starts if start.job.account == "lab")
    stays = 8 * (NUMBERS["large"] not in plan.stops)
    assert new + stays <= max(gpus, 0 if may_stop else 8)
    if not may_stop and gpus < 10:
        assert "its tenant 'lab' may have" in plan.reasons[NUMBERS["plain"]]


def test_others_are_ours_by_account() -> None:
    assert str(NUMBERS["theirs-held"]) not in {j["name"] for j in round_at(SITE, TRUSTING, Ours()).jobs}
    ours = round_at(SITE, TRUSTING, Ours(accounts=["physics"]))
    assert str(NUMBERS["theirs-held"]) in {job["name"] for job in ours.jobs}


def test_a_reservation_keeps_those_jobs_away_whose_limit_reaches_into_it() -> None:
    # g4 is reserved in an hour or more. The recorded jobs have no limit: Slurm would not start them there.
    site = changed(plain={"time_limit": 30}, sweep={"time_limit": 30})
    round = round_at(site, TRUSTING, Ours())
    pools = {node["name"]: node["pool"] for node in round.cluster["nodes"]}
    assert all("unavailable" not in node for node in round.cluster["nodes"] if node["name"] == "g4")
    for record in round.jobs:
        may_have = pools["g4"] in record["pools"]
        assert may_have == (record["name"] in {str(NUMBERS["plain"]), str(NUMBERS["sweep"])})
    # What is reserved now, or within a round, is closed to all.
    soon = read(dict(SNAPSHOT, time=SITE.reservations[0].start_s - 10))
    nodes = {node["name"]: node for node in round_at(soon, TRUSTING, Ours()).cluster["nodes"]}
    assert nodes["g4"]["unavailable"] == list(range(8))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"tres_per_node": "gres:gpu:2000000"}, "asks for 2,000,000 GPUs, and the nodes that it may have"),
        ({"tres_per_node": "gres:gpu:A100:2,gres:gpu:V100:1"}, "asks for GPUs of several types"),
        ({"shared": "none", "comment": '{"wattsched": {}}'}, "with all their GPUs: ask for all of them"),
        ({"required_nodes": "g4"}, "time limit reaches into the reservation"),
        ({"comment": '{"wattsched": {"wieght": 1}}', "required_nodes": "g1"}, "wieght"),
        ({"features": "nowhere", "required_nodes": "g1"}, "asks for what no node"),
    ],
)
def test_jobs_that_cannot_run_change_no_pool(fields: dict[str, Any], told: str) -> None:
    before = round_at(changed(), TRUSTING, Ours())
    round = round_at(changed(typo={"comment": '{"wattsched": {}}', **fields}), TRUSTING, Ours())
    assert told in round.left_out[NUMBERS["typo"]]
    assert round.cluster == before.cluster


def test_gpus_that_slurm_mislaid_take_no_job_and_idle() -> None:
    document = json.loads(SNAPSHOT["nodes"])
    document["nodes"][3]["gres_used"] = "gpu:A100:3(IDX:1-2,4)"
    site = read({**SNAPSHOT, "nodes": json.dumps(document), "reservations": "No reservations in the system"})
    load = load_of(site, TRUSTING, Ours())
    assert load.mislaid == {"g4": {1, 2, 4}}
    assert load.free("g4") == [0, 3, 5, 6, 7]
    assert load.power_w == load_of(SITE, TRUSTING, Ours()).power_w
    round, decision = decided(site, 20_000.0, TRUSTING)
    plan = plan_of(round, decision)
    assert 0 < sum(start.launch.nodes.get("g4", 0) for start in plan.starts) <= 5
    assert after(round.load, plan).power_w == pytest.approx(decision.result.totals["power_w"])


def test_a_job_that_is_not_to_begin_yet_waits_but_one_that_was_requeued_does_not() -> None:
    later = SITE.time_s + 100
    round = round_at(changed(sweep={"eligible_time": int(later)}), TRUSTING, Ours())
    assert "begin" in round.left_out[NUMBERS["sweep"]]
    again = changed(sweep={"eligible_time": int(later), "restart_cnt": 1})
    assert NUMBERS["sweep"] not in round_at(again, TRUSTING, Ours()).left_out


def test_who_states_fewer_watts_than_idle_gpus_draw_counts_as_much_as_they_do() -> None:
    table = {"gpus": [2], "pool": ["A100"], "power_w": [0.0], "rate": [1.0]}
    site = changed(plain={"comment": json.dumps({"wattsched": {"options": table}})})
    (record,) = (job for job in round_at(site, TRUSTING, Ours()).jobs if job["name"] == str(NUMBERS["plain"]))
    assert record["options"]["power_w"] == [100.0]


@pytest.mark.parametrize(
    ("state", "waits"), [("UP", False), ("DRAIN", False), ("DOWN", True), ("INACTIVE", True)]
)
def test_partitions_start_what_is_in_their_queue_unless_they_are_down(state: str, waits: bool) -> None:
    partitions = SNAPSHOT["partitions"].replace("State=UP", f"State={state}")
    round = round_at(read({**SNAPSHOT, "partitions": partitions}), TRUSTING, Ours())
    told = round.left_out.get(NUMBERS["plain"], "")
    assert told == (f"the partition 'gpu' is {state}" if waits else "")


@pytest.mark.parametrize(
    ("gres", "told"),
    [
        ("gpu:RTX9999:8", "the watts of 'RTX9999' are not known"),
        ("gpu:8", "the watts of 'gpu' are not known"),
        ("gpu:a100:8", ""),
        ("gpu:nvidia_a100-sxm4-80gb:8", ""),
    ],
)
def test_a_node_whose_watts_are_not_known_counts_at_the_most_and_others_go_on(gres: str, told: str) -> None:
    nodes = json.loads(SNAPSHOT["nodes"])
    nodes["nodes"][3]["gres"] = gres
    free = {"reservations": "No reservations in the system"}
    options = site_of({"gpu_types": {"Z1": {"idle_power_w": 200, "max_power_w": 2345}}})
    load = load_of(read({**SNAPSHOT, **free, "nodes": json.dumps(nodes)}), options, Ours())
    assert (told in " ".join(load.site.notes), bool(load.site.notes)) == (True, bool(told))
    # g4 has nobody on it: 8 idle GPUs more or less.
    before_w = load_of(SITE, options, Ours()).power_w
    assert load.power_w == before_w + 8 * ((200 if told else 50) - 50)
    # Its GPUs go to nobody, and those of a job of others there count at the most.
    round, decision = decided(load.site, 30_000.0, options)
    assert decision.solved
    starts = plan_of(round, decision).starts
    assert starts
    assert any("g4" in start.launch.nodes for start in starts) <= (not told)
    load.claim({"g4": {0, 1}})
    load.others["g4"] = {0, 1}
    assert load.power_w - before_w == (2 * 2345 - 2 * 50 + 6 * 150 if told else 2 * (400 - 50))


@pytest.mark.parametrize(
    ("gres", "idle_w", "most_w"),
    [
        ("gpu:A100:5,gpu:V100:3", 5 * 50 + 3 * 30, 5 * 400 + 3 * 300),
        # Two boards of A100 beside a whole one: 14 of 14 sevenths, or 12 of them.
        ("gpu:A100:1,gpu:a100_1g.5gb:14", 150, 1200),
        ("gpu:A100:1,gpu:a100_1g.5gb:13", 150, 400 + 13 / 7 * 400 + 1 / 7 * 50),
        ("gpu:a100_3g.20gb:4", 100, 2 * (6 / 7 * 400 + 1 / 7 * 50)),
        ("gpu:a100_1g.5gb:7", 50, 400),
    ],
)
def test_a_node_draws_no_more_than_its_boards(gres: str, idle_w: float, most_w: float) -> None:
    nodes = json.loads(SNAPSHOT["nodes"])
    nodes["nodes"][3]["gres"] = gres
    free = {"reservations": "No reservations in the system"}
    feed = {"name": "feed", "members": ["g4"], "power_cap_w": 1e6}
    options = site_of({"power_domains": [feed]})
    load = load_of(read({**SNAPSHOT, **free, "nodes": json.dumps(nodes)}), options, Ours())
    kinds = [node for node in load.site.nodes.values() if node.host == "g4"]
    assert len(kinds) == gres.count(",") + 1
    assert not load.site.notes
    assert all(node.takes_jobs for node in kinds)
    assert load.drawn_w["feed"] == pytest.approx(200 + idle_w)
    for node in kinds:
        load.claim({node.name: range(node.gpus)})
        load.others[node.name] = set(range(node.gpus))
    assert load.drawn_w["feed"] == pytest.approx(200 + most_w)
    assert load.foreign_w["feed"] == pytest.approx(most_w - idle_w)


def test_racks_with_caps_of_their_own() -> None:
    feed = {"name": "feed", "members": ["r1", "r2"], "power_cap_w": 6_000.0}
    options = site_of({"power_domains": [feed]})
    round, decision = decided(SITE, 20_000.0, options)
    assert not {NUMBERS["bert-large"], NUMBERS["sweep"], NUMBERS["plain"]} & round.left_out.keys()
    plan = plan_of(round, decision)
    assert NUMBERS["large"] in plan.stops
    load = after(round.load, plan)
    assert any("A100" in start.launch.pool and "feed" in start.launch.pool for start in plan.starts)
    assert load.power_w <= 6_000


def test_a_job_with_other_gpus_than_it_was_released_for_counts_with_those_and_may_stop() -> None:
    asked = load_of(SITE, TRUSTING, Ours()).ours[NUMBERS["large"]].launch
    fewer = {"nodes": "g1", "node_count": 1, "gres_detail": ["gpu:A100:8(IDX:0-7)"]}
    load = load_of(changed(large=fewer), TRUSTING, Ours())
    given = load.ours[NUMBERS["large"]].launch
    assert (given.nodes, given.gpus) == ({"g1": 8}, 8)
    assert given.power_w == pytest.approx(asked.power_w / 2)
    assert NUMBERS["large"] in [one.name for one in load.stoppable]


def test_a_job_has_as_many_nodes_as_it_asks_for() -> None:
    """One GPU on each of two nodes is nothing that a decision knows; two on one node are not meant."""
    number = NUMBERS["sweep"]
    round = round_at(changed(sweep={"node_count": 2}), TRUSTING, Ours())
    assert "as many whole nodes as -N allows" in round.left_out[number]
    # What we asked for in its user's place is not what he asked for.
    ours = {"node_count": 2, "admin_comment": json.dumps({"wattsched": {"run": 0, "nodes": {"g1": 2}}})}
    assert number not in round_at(changed(sweep=ours), TRUSTING, Ours()).left_out


def test_a_running_job_whose_nodes_are_not_alike_any_more_is_only_counted() -> None:
    feed = {"name": "feed", "members": ["g1"], "power_cap_w": 9_000.0}
    options = site_of({"power_domains": [feed]})
    round, decision = decided(SITE, 20_000.0, options)
    assert decision.solved
    assert str(NUMBERS["large"]) not in {job["name"] for job in round.jobs}
    assert NUMBERS["large"] not in plan_of(round, decision).stops
    # Its watts count as those that it was launched with.
    assert after(round.load, plan_of(round, decision)).power_w == pytest.approx(
        decision.result.totals["power_w"]
    )


@pytest.mark.parametrize(("feed_w", "cap_w"), [(20_000.0, 8_000.0), (3_000.0, 12_000.0)])
def test_a_job_behind_several_caps_stops_for_any_of_them(feed_w: float, cap_w: float, tmp_path: Path) -> None:
    """Its nodes are of two pools, so that no decision can be told of it; it is no stranger's for that."""
    document = {"power_domains": [{"name": "feed", "members": ["g1"], "power_cap_w": feed_w}]}
    policy = Policy(Ours(), SiteOptions.model_validate(document))
    budget = Budget(cap_w)
    budget.stand_at(SITE.time_s)
    with Journal(tmp_path / "journal") as journal:
        rounds = Rounds(policy, budget, journal, lambda _: SNAPSHOT, lambda _: None)
        report = rounds.round()
    assert set(report.stopped) == {NUMBERS["large"]}
    assert report.planned_w is not None
    assert (report.alarms, report.planned_w <= cap_w) == ([], True)


@pytest.mark.parametrize("comment", ["", "mine", '{"wattsched": [', '{"cost": 1}'])
def test_what_we_launched_is_ours_whatever_its_user_makes_of_the_comment(comment: str) -> None:
    before, load = (
        load_of(SITE, TRUSTING, Ours()),
        load_of(changed(large={"comment": comment}), TRUSTING, Ours()),
    )
    assert (load.ours.keys(), load.power_w) == (before.ours.keys(), before.power_w)
    assert NUMBERS["large"] in {one.name for one in load.stoppable}


def test_a_job_has_no_more_gpus_of_a_node_than_there_are() -> None:
    load = load_of(changed(theirs={"gres_detail": ["gpu:A100:900(IDX:0-899)"]}), TRUSTING, Ours())
    node_w = {name: 200.0 + 400.0 * node.gpus for name, node in load.site.nodes.items()}
    assert load.power_w <= sum(node_w.values())

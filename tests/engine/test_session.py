"""Sessions: whatever is put in and taken out, the decision is that of the round as an instance."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wattsched
from tests.strategies.effort import examples
from tests.strategies.sessions import CLUSTER, TABLE, options_of, session
from wattsched import Coded, InputError, Session
from wattsched.instances.signals import Signal
from wattsched.sessions.session_decision import MODELLED, UNDECIDED, WAITS
from wattsched.topology.cluster import Cluster


def test_five_lines_decide() -> None:
    own = session()
    own.upsert(["a", "b"], **options_of(2), weight=np.array([1.0, 2.0]))
    decision = own.solve()
    assert decision.ids == ["a", "b"]
    assert decision.result.termination.reason == "optimal"
    assert wattsched.check(own.to_instance(), decision.result).faults == []
    assert decision.objective == pytest.approx(wattsched.solve(own.to_instance()).objective)
    assert sum(decision.gpus_on_nodes.values()) == decision.result.totals["gpus_used"]


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("own"), st.sets(st.integers(0, 7), min_size=1), st.integers(0, 99)),
        st.tuples(st.just("shared"), st.sets(st.integers(0, 7), min_size=1), st.integers(0, 99)),
        st.tuples(st.just("weight"), st.sets(st.integers(0, 7), min_size=1), st.integers(1, 9)),
        st.tuples(st.just("remove"), st.sets(st.integers(0, 7), min_size=1), st.just(0)),
        st.tuples(st.just("update"), st.just(frozenset()), st.integers(0, 3)),
        st.tuples(st.just("pickle"), st.just(frozenset()), st.just(0)),
        st.tuples(st.just("solve"), st.just(frozenset()), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(changes=CHANGES)
def test_a_session_is_the_instance_of_what_was_put_in(changes: list[tuple[str, Any, int]]) -> None:
    own, jobs, decision = session(), dict[str, dict[str, Any]](), None
    budgets: dict[str, Any] = {}
    for what, numbers, seed in changes:
        names = [f"j{number}" for number in sorted(numbers)]
        if what == "own":
            table = options_of(len(names), seed)
            own.upsert(names, **table, restart_s=[20.0] * len(names))
            for i, name in enumerate(names):
                rows = slice(*table["start"][i : i + 2].tolist())
                listed = {key: table[key][rows].tolist() for key in ("gpus", "rate", "power_w")}
                job = {"options": {**listed, "pool": ["A"] * len(listed["gpus"])}, "restart_s": 20.0}
                jobs[name] = {**jobs.get(name, {}), **job}
        elif what == "shared":
            work = np.random.default_rng(seed).uniform(100, 900, len(names))
            own.upsert(names, options=Coded(np.zeros(len(names), dtype=int), ["t"]), remaining_work=work)
            for name, amount in zip(names, work.tolist(), strict=True):
                jobs[name] = {**jobs.get(name, {}), "options": "t", "remaining_work": amount}
        elif what == "weight":
            known = [name for name in names if name in jobs]
            own.upsert(known, weight=pa.array([float(seed)] * len(known)))
            for name in known:
                jobs[name]["weight"] = float(seed)
        elif what == "remove":
            known = [name for name in names if name in jobs]
            own.remove(known)
            for name in known:
                del jobs[name]
        elif what == "update":
            budgets = {"power_w": [None, 900.0, 1300.0, 2500.0][seed]}
            own.update(**budgets)
        elif what == "pickle":
            own = pickle.loads(pickle.dumps(own))
        else:
            decision = own.solve()
            if decision.result.solved:
                own.apply(decision)
                running = {a.job: a for a in decision.assignments}
                for name, job in jobs.items():
                    job.pop("current", None)
                    if (a := running.get(name)) is not None:
                        job["current"] = {"gpus": a.gpus, "pool": a.pool, "nodes": a.nodes}
    document = {"name": "session", "objective": "total-completion", "cluster": CLUSTER, "budgets": budgets}
    document |= {"tables": {"t": TABLE}, "jobs": [{"name": name, **job} for name, job in jobs.items()]}
    whole = wattsched.Instance.model_validate(document)
    assert len(own) == len(jobs)
    assert all(name in own for name in jobs)
    ours = {job.name: job for job in own.to_instance().jobs}
    for job in whole.jobs:
        mine = ours[job.name]
        assert mine.model_copy(update={"current": None}) == job.model_copy(update={"current": None})
        assert (mine.current is None) == (job.current is None)
        if job.current is not None and mine.current is not None:
            assert mine.current.nodes == job.current.nodes
    found, expected = own.solve(gap=1e-9), wattsched.solve(whole, gap=1e-9)
    assert found.result.termination.reason == expected.termination.reason
    assert found.objective == pytest.approx(expected.objective)
    for job in found.ids:
        option = found.option[found.ids.index(job)]
        running = {a.job: a for a in found.assignments}
        assert (option == WAITS) == (job not in running)
        if job in running:
            table = ours[job].options
            table = wattsched.Instance.table_of(whole, ours[job]) if isinstance(table, str) else table
            assert (table.gpus[option], table.pool[option]) == (running[job].gpus, "A")


def test_settings_single_out_options_and_models_have_none() -> None:
    own = session(objective="goodput")
    own.upsert(
        ["a"], gpus=[2, 2, 2], pool=["A"] * 3, rate=[1.0, 3.0, 2.0], power_w=[9.0] * 3,
        frequency_mhz=[900, 1000, 1100], batch_size=[8, 8, 16],
    )  # fmt: skip
    own.upsert(["m"], model=["resnet50"], remaining_work=[1e6])
    decision = own.solve()
    assert dict(zip(decision.ids, decision.option.tolist(), strict=True)) == {"a": 1, "m": MODELLED}


def test_held_gpus_are_kept_and_those_of_nodes_that_went_down_left() -> None:
    own = session()
    own.upsert(
        ["a", "b"], options=["t", "t"], restart_s=[1e4, 1e4], remaining_work=[100.0, 100.0],
        held=[{"gpus": 1, "pool": "A@feed", "nodes": {"n0": [2]}}, None],
    )  # fmt: skip
    first = own.solve()
    assert {a.job: a.nodes for a in first.assignments}["a"] == {"n0": [2]}
    own.update(down=["n0"])
    assert "n0" not in own.solve().gpus_on_nodes
    own.update(down=["n1"])
    assert own.solve().option.tolist() == [WAITS, WAITS]
    own.update(up=["n0", "n1"])
    assert own.to_instance().cluster.nodes[0].unavailable == [3]
    assert own.solve().objective == pytest.approx(first.objective)


def test_changes_are_what_a_scheduler_has_to_do() -> None:
    nodes = [{"name": name, "gpu_type": "A", "gpus": 2} for name in ("n0", "n1")]
    clocks = {"gpus": [1, 1], "rate": [1.0, 0.8], "power_w": [300, 200], "frequency_mhz": [1400, 1000]}
    own = Session({"gpu_types": {"A": {"idle_power_w": 50}}, "nodes": nodes}, objective="goodput")
    own.upsert(["a"], pool="A", **clocks)

    def decided() -> dict[str, str]:
        decision = own.solve(gap=0.0)
        own.apply(decision)
        return decision.changes

    assert decided() == {"a": "start"}
    assert decided() == {}
    own.update(power_w=400)
    assert decided() == {"a": "setting"}
    (at,) = own.solve().gpus_on_nodes
    own.update(power_w=None, down=[at])
    assert decided() == {"a": "move"}
    own.upsert(["a"], gpus=[2], pool="A", rate=[2.0], power_w=[600])
    assert decided() == {"a": "resize"}
    own.update(power_w=200)
    assert own.solve().solved
    assert decided() == {"a": "stop"}
    own.update(power_w=50)
    assert (own.solve().solved, own.solve().changes) == (False, {})


def test_gpus_of_others_come_and_go_whether_their_node_is_up_or_down() -> None:
    own = session()
    own.upsert(["a", "b"], options=["t", "t"])
    own.update(unavailable={"n0": np.array([0, 1]), "n1": [0, 1, 2]})
    decision = own.solve()
    assert decision.gpus_on_nodes == {"n0": 2, "n1": 1}
    own.apply(decision)
    own.update(down=["n0"], unavailable={"n0": [2]})
    assert own.solve().gpus_on_nodes == {"n1": 1}
    own.update(up=["n0"])
    assert own.to_instance().cluster.nodes[0].unavailable == [2]
    own.update(unavailable={"n0": [], "n1": []})
    assert sum(own.solve().gpus_on_nodes.values()) == 8


def test_nodes_come_and_go_with_another_cluster() -> None:
    own = session(capacity="nodes")
    own.upsert(["a", "b", "c"], options=["t"] * 3)
    own.apply(own.solve())
    more = [*CLUSTER["nodes"], {"name": "n3", "gpu_type": "A", "gpus": 4}]
    own.update(cluster={**CLUSTER, "nodes": more}, down=["n2"], reserved_w={"n3": 7.0})
    assert own.to_instance().cluster.capacity == "nodes"
    assert own.to_instance().cluster.nodes[3].reserved_w == 7.0
    decision = own.solve()
    assert decision.gpus_on_nodes["n3"] == 4
    own.apply(decision)
    with pytest.raises(InputError, match=r"current.nodes: 'n0' is no node of the cluster"):
        own.update(cluster={**CLUSTER, "nodes": more[1:], "power_domains": []})
    fewer = Cluster.model_validate({**CLUSTER, "nodes": more[1:], "power_domains": []})
    own.upsert(own.to_instance().by_column().names, held=[None] * 3)
    own.update(cluster=fewer)
    assert own.to_instance().cluster.capacity == "nodes"
    assert "n0" not in own.solve().gpus_on_nodes


def test_others_and_budgets_come_and_go() -> None:
    own = session(objective="goodput")
    own.upsert(["a", "b", "c"], options=["t"] * 3)
    free = own.solve().result.totals["power_w"]
    own.update(power_w=free - 1.0)
    assert own.solve().result.totals["power_w"] <= free - 1.0
    own.update(reserved_w={"n1": 300.0, "feed": 20.0})
    assert own.to_instance().cluster.power_domains[0].reserved_w == 20.0
    assert own.solve().result.termination.reason in ("optimal", "infeasible")
    before = own.to_instance()
    own.update(down=None, up=None, scope=None, objective=None, cluster=None, reserved_w=None)
    assert own.to_instance() == before
    own.update(power_w=None, reserved_w={"n1": 0.0})
    assert own.solve().result.totals["power_w"] == pytest.approx(free)


EVENT_S = 1_800_000_000


def at(time_s: float) -> str:
    return datetime.fromtimestamp(EVENT_S + time_s, UTC).isoformat()


LIMITS = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(1, 100),
        st.sampled_from([700.0, 1500.0]),
        st.sampled_from([None, "feed"]),
    ),
    max_size=4,
)


@given(LIMITS, st.sampled_from([None, 1200.0]), st.integers(0, 300), st.sampled_from([1.0, 60.0]))
@settings(max_examples=examples(30), deadline=None)
def test_the_caps_of_a_round_are_the_least_of_its_time_by_a_signal(
    limits: list[tuple[int, int, float, str | None]], power_w: float | None, now: int, round_s: float
) -> None:
    rows = [
        {"from": at(begin), "to": at(begin + lasts), "power_w": watts, "domain": domain}
        for begin, lasts, watts, domain in limits
    ]

    def least(domain: str | None, own_w: float) -> float:
        lines = [(b, b + lasts, watts) for b, lasts, watts, of in limits if of == domain]
        moments = np.arange(now, now + round_s + 0.5, 0.5)
        return min([own_w, *(watts for b, e, watts in lines if np.any((moments >= b) & (moments < e)))])

    own = session(objective="goodput")
    own.upsert(["a", "b", "c"], options=["t"] * 3)
    plain = own.to_instance()
    own.update(power_w=power_w, round_s=round_s, signal={"limits": rows}, now=at(0))
    own = pickle.loads(pickle.dumps(own))
    own.update(now=at(now))
    found = own.to_instance()
    (feed,), (own_feed,) = found.cluster.power_domains, plain.cluster.power_domains
    site_w = least(None, math.inf if power_w is None else power_w)
    assert found.budgets.power_w == (None if math.isinf(site_w) else site_w)
    assert feed.power_cap_w == least("feed", own_feed.power_cap_w)
    decision = own.solve()
    assert wattsched.check(found, decision.result).faults == []
    if decision.solved:
        own.apply(decision)
        assert decision.result.totals["power_w"] <= site_w + 1e-6
    # Without it the round is as it was told.
    own.update(signal=None)
    assert (own.to_instance().budgets.power_w, own.to_instance().cluster) == (power_w, plain.cluster)


def test_a_signal_is_read_from_its_file_and_follows_the_cluster(tmp_path: Path) -> None:
    own, file = session(), tmp_path / "event.csv"
    file.write_text(f"from,to,power_w,domain\n{at(0)},{at(60)},900,\n{at(0)},{at(60)},800,feed\n")
    own.update(signal=file, now=datetime.fromtimestamp(EVENT_S, UTC))
    caps = own.to_instance()
    assert (caps.budgets.power_w, caps.cluster.power_domains[0].power_cap_w) == (900.0, 800.0)
    own.update(signal=Signal.model_validate({"power_w": 850.0}))
    caps = own.to_instance()
    assert (caps.budgets.power_w, caps.cluster) == (850.0, session().to_instance().cluster)
    own.update(signal=str(file))
    with pytest.raises(InputError, match=r"signal.limits\[1\].domain: 'feed' is no power domain of the cl"):
        own.update(cluster={**CLUSTER, "power_domains": []})
    own.update(reserved_w={"feed": 5.0})
    (feed,) = own.to_instance().cluster.power_domains
    assert (feed.power_cap_w, feed.reserved_w) == (800.0, 5.0)
    file.write_text("from,power_w\nnoon,5\n")
    with pytest.raises(InputError, match=r"event.csv: limits\[0\].from: must be a time .*, got 'noon'"):
        own.update(signal=file)


def test_with_a_price_of_changes_running_jobs_are_left_as_they_are() -> None:
    own = session(objective="goodput", change_cost=5.0)
    names = [f"j{j}" for j in range(12)]
    own.upsert(names, **options_of(12), weight=np.ones(12))
    first = own.solve()
    # Those that run are worth less now.
    weight = np.where(first.option == WAITS, 5.0, 0.2)
    for price, calm in ((100.0, True), (0.0, False)):
        own.update(change_cost=price)
        own.apply(first)
        own.upsert(first.ids, weight=weight)
        found = own.solve(gap=1e-9)
        assert (found.result.totals["restarts"] == 0) == calm
        assert ("change_cost" in found.result.totals) == calm
        assert wattsched.check(own.to_instance(), found.result).faults == []


def test_new_jobs_are_no_fault_of_the_last_decision() -> None:
    own = session()
    own.upsert(["a"], options=["t"])
    own.solve()
    own.upsert(["b"], options=["t"])
    assert own.solve().result.faults == []
    assert (own.ids(), len(own)) == (["a", "b"], 2)
    assert repr(own) == "<Session of 2 jobs, 0 running, on 3 nodes: total-completion>"
    own.apply(own.solve())
    assert "2 running" in repr(own)


def test_what_is_no_decision_is_not_applied() -> None:
    own = session()
    own.upsert(["a"], options=["t"])
    own.apply(own.solve())
    held = own.to_instance().jobs[0].current
    own.update(power_w=10.0)
    none = own.solve()
    assert (none.solved, none.option.tolist()) == (False, [UNDECIDED])
    with pytest.raises(ValueError, match="there is no decision to apply: infeasible"):
        own.apply(none)
    result: Any = none.result
    with pytest.raises(TypeError, match="decision must be what solve gives"):
        own.apply(result)
    assert own.to_instance().jobs[0].current == held
    own.update(power_w=None)
    own.upsert(["a"], preemptible=[False])
    with pytest.raises(InputError, match="node 'n1' is down, with all GPUs unavailable, but the job"):
        own.update(down=["n0", "n1"])
    assert own.solve().assignments.names == ["a"]


def test_numbers_of_numpy_and_names_of_arrow_are_taken() -> None:
    own = Session({**CLUSTER, "nodes": [{**node, "gpus": np.int64(4)} for node in CLUSTER["nodes"]]})
    gpus = {"gpus": np.int64(1), "pool": "A@feed", "nodes": {"n0": np.array([0])}}
    table = {"gpus": [1], "pool": "A", "rate": [1.0], "power_w": [9.0]}
    own.upsert(["a"], **table, held=[{**gpus, "job": "z"}], deadline_s=[float("nan")])
    own.upsert(pa.chunked_array([["b"], ["c"]]), start=np.arange(3), **{**table, **{
        name: table[name] * 2 for name in ("gpus", "rate", "power_w")}})  # fmt: skip
    assert own.to_instance().jobs[0].current.nodes == {"n0": [0]}
    assert [job.deadline_s for job in own.to_instance().jobs] == [None] * 3


def test_options_are_taken_by_row_as_files_have_them() -> None:
    own, rows = session(), [{"gpus": g, "pool": "A", "rate": 1.0 * g, "power_w": 9.0} for g in (1, 2)]
    own.upsert(["a", "b"], options=[rows, "t"])
    assert own.solve().option.tolist() == [1, 2]
    with pytest.raises(InputError, match=r"options\[1\]: option 1 lacks 'rate'"):
        own.upsert(["c", "d"], options=["t", [rows[0], {"gpus": 2, "pool": "A", "power_w": 9.0}]])


def test_that_there_is_no_decision_is_proven_by_prices() -> None:
    own = session()
    own.upsert(["a", "b"], **options_of(2))
    own.update(power_w=10.0)
    decision = own.solve()
    assert decision.result.termination.reason == "infeasible"
    own.update(power_w=None, least_goodput=1e3)
    decision = own.solve()
    assert (decision.result.termination.reason, decision.result.claimed) == ("infeasible", False)
    assert decision.result.certificate is not None
    assert wattsched.check(decision.instance, decision.result).faults == []


def test_jobs_without_options_are_named() -> None:
    own = session()
    own.upsert(["a", "b"], options=["t", "t"], deadline_s=[1e-3, 1e6])
    decision = own.solve()
    assert decision.reasons == {"a": "cannot meet its deadline of 0.001 s"}
    assert decision.option[decision.ids.index("a")] == WAITS
    own.upsert(["c"], start=[0, 0], gpus=[], pool="A", rate=[], power_w=[])
    assert own.solve().reasons["c"] == "has no option in its pools and within its min_gpus and max_gpus"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.upsert(["x", "x"], options=["t", "t"]), "job 'x'"),
        (lambda s: s.upsert(["x"]), "job 'x'"),
        (lambda s: s.upsert(["x"], options=["u"]), "job 'x': options: 'u' is no table of the"),
        (lambda s: s.upsert(["x", "y"], options=[TABLE, "u"]), "job 'y': options: 'u' is no table of the"),
        (lambda s: s.upsert(["x"], options=["t"], wieght=[1.0]), "'wieght' is no field of a job"),
        (lambda s: s.upsert(["x"], options="t"), "options: must have a value for each of 1 jobs"),
        (lambda s: s.upsert(["x"], **{**options_of(1), "rate": -np.ones(3)}), "rate"),
        (lambda s: s.upsert(["x"], start=[0, 1], gpus=[1], pool=["A"], rate=[1.0]), "power_w"),
        (lambda s: s.upsert(["x"], options=["t"], **options_of(1)), "options: names a table, but"),
        (lambda s: s.upsert(["x", "y"], options=["t", "t"], weight=[-1.0, -2.0]), "weight[1]: must be"),
        (
            lambda s: s.upsert(["x"], gpus=[[1]], pool="A", rate=[1.0], power_w=[1.0]),
            "gpus[0]: must be one value, got [1]",
        ),
        (lambda s: s.upsert(["x"], start=[0.0, 1.0], **{**TABLE}), "start: must be whole numbers"),
        (lambda s: s.upsert(["x"], options=["t"], held="x"), "held: must be a mapping or None for each job"),
        (
            lambda s: s.upsert(["x"], options=["t"], held=[{"gpus": 2, "pool": "A", "nodes": {"n1": [0]}}]),
            "job 'x': held.gpus is 2, but nodes lists 1",
        ),
        (
            lambda s: s.upsert(["x"], options=["t"], held=[5]),
            "job 'x': held: must be a mapping or None, got 5",
        ),
        (lambda s: s.upsert({"a", "b"}, weight=[1.0, 2.0]), "ids must be a sequence of names, got a set"),
        (lambda s: s.upsert(["a"], weight=np.array(1.0)), "weight: must have a value for each of 1 jobs"),
        (lambda s: s.upsert(["a", "b"], weight=np.array([1.0, np.nan])), "weight[1]: must be a finite"),
        (lambda s: s.upsert(["x", "y"], **TABLE), "start: is missing, which tells the rows of 2 jobs"),
        (lambda s: s.upsert(["x"], **{**TABLE, "rate": [1.0] * 4}), "rate: has 4 rows, others 3"),
        (
            lambda s: s.upsert(["x"], **{**TABLE, "gpus": pa.array([1, None, 4])}),
            "gpus[1]: must be a whole number, got null",
        ),
        (lambda s: s.upsert(["a", 5]), "ids must be a sequence of names, and ids[1] is 5"),
        (lambda s: s.update(cluster={"nodes": []}), "cluster.gpu_types: is missing"),
        (lambda s: wattsched.Session(s.to_instance().cluster, profiles=5), "profiles must be a sequence"),
        (lambda s: s.update(down="n0"), "down must be a sequence of names"),
        (lambda s: s.update(down=["n0"], up=["n0"]), "node 'n0' is said to be down and up"),
        (lambda s: s.update(carbon_g=10.0), "a carbon budget needs 'carbon_g_per_kwh'"),
        (lambda s: s.update(power_w=-1.0, down=["n9"]), "down: 'n9' is no node"),
        (lambda s: s.update(power_w=-1.0, down=["n9"]), "power_w: must be greater than 0"),
        (lambda s: s.solve(deadline_s=0.0), "deadline_s must be positive"),
        (lambda s: s.to_instance(""), "name must not be empty"),
        (lambda s: s.remove(["a", "x"]), "'x'"),
        (lambda s: s.update(objective="joy"), "unknown objective 'joy'"),
        (lambda s: s.update(reserved_w={"n0": -1.0}), "reserved_w"),
        (lambda s: s.update(unavailable={"n9": [1]}), "unavailable: 'n9' is no node of the cluster"),
        (lambda s: s.update(unavailable={"n1": [4]}), "unavailable: node 'n1' has no GPU 4, it has 4"),
        (lambda s: s.update(unavailable={"n1": [1, 1]}), "unavailable: node 'n1' lists a GPU twice"),
        (lambda s: s.update(unavailable={"n1": ["x"]}), "must have a list of numbers of GPUs"),
        (lambda s: s.update(unavailable=["n1"]), "unavailable must be a mapping of nodes to GPUs"),
        (lambda s: s.update(cluster={**CLUSTER, "power_domains": [{"name": "f"}]}), "members: is missing"),
        (lambda s: s.update(cluster=3), "cluster must be a Cluster or a mapping"),
        (lambda s: s.update(signal=3), "signal must be a Signal, its document or file, got int 3"),
        (lambda s: s.update(signal={"power_w": 1.0}), "now: is needed with a signal"),
        (lambda s: s.update(signal={"power_w": 0.0}, now=at(0)), "signal.power_w: must be greater than 0"),
        (lambda s: s.update(now="2027-01-31T17:00:00"), "now: must have a zone"),
        (lambda s: s.update(now=1.8e9), "now: must be a time as 2027-01-31T17:00:00Z, got 1800000000"),
        (lambda s: s.update(signal={"until": at(9)}, now=at(9)), "signal.until: it counted until 2027"),
        (lambda s: s.update(signal="none.json", power_w=-1.0), "none.json: no such file"),
    ],
)
def test_faults_are_named_and_change_nothing(call: Any, told: str) -> None:
    own = session()
    own.upsert(["a", "b"], options=["t", "t"], weight=[1.0, 3.0])
    before = own.to_instance().model_dump_json()
    with pytest.raises((InputError, ValueError, TypeError), match=None) as raised:
        call(own)
    assert told in str(raised.value), raised.value
    assert own.to_instance().model_dump_json() == before

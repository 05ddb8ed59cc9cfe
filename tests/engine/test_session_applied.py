"""What jobs hold once a decision is what runs, and what was said of them while it was made."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.strategies.sessions import TABLE
from wattsched import InputError, Session

CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}},
    "nodes": [{"name": name, "gpu_type": "A", "gpus": 4} for name in ("n0", "n1")],
}
Held = dict[str, dict[str, list[int]]]


def session() -> Session:
    return Session(CLUSTER, objective="goodput", tables={"t": TABLE})


def placed(node: str, *gpus: int) -> dict[str, Any]:
    return {"gpus": len(gpus), "pool": "A", "nodes": {node: list(gpus)}}


def held_by(own: Session) -> Held:
    return {job.name: job.current.nodes for job in own.to_instance().jobs if job.current is not None}


def places_of(decision: Any) -> Held:
    return {one.job: one.nodes for one in decision.assignments}


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_decision_leaves_jobs_alone_that_it_does_not_know(preemptible: bool) -> None:
    own = session()
    own.upsert(["a"], options=["t"])
    decision = own.solve()
    (node,) = decision.gpus_on_nodes
    free = "n1" if node == "n0" else "n0"
    own.upsert(["c"], options=["t"], held=[placed(free, 0, 1)], preemptible=[preemptible])
    own.apply(decision)
    assert held_by(own) == {**places_of(decision), "c": {free: [0, 1]}}
    own.upsert(["a"], held=[None])
    own.upsert(["c"], held=[placed(node, 3)])
    before = own.to_instance()
    with pytest.raises(InputError, match=f"jobs 'a' and 'c' both hold GPU 3 of node '{node}'"):
        own.apply(decision)
    assert own.to_instance() == before
    own.remove(["c"])
    own.apply(own.solve())
    own.apply(decision)
    assert held_by(own) == places_of(decision)


def test_what_was_told_after_a_decision_is_not_overwritten_by_it() -> None:
    own = session()
    own.upsert(["a", "b"], options=["t", "t"])
    first = own.solve()
    node = next(iter(places_of(first)["a"]))
    own.upsert(["a", "b"], held=[None, placed(node, 2)])
    before = own.to_instance()
    for again in (own, pickle.loads(pickle.dumps(own))):
        with pytest.raises(InputError, match=r"^job 'b': what it holds was told after .*; decide again$"):
            again.apply(first)
    assert own.to_instance() == before
    # What was so when it began, or what it says itself, is no news.
    second = own.solve()
    own.upsert(["b"], held=[placed(node, 2)])
    own.apply(second)
    own.upsert(["a", "b"], held=second.assignments)
    own.apply(second)
    # Neither is what another decision said.
    own.apply(first)
    assert held_by(own) == places_of(first)


def test_a_job_that_may_not_stop_any_more_is_not_moved() -> None:
    own = session()
    own.upsert(["a"], options=["t"], held=[placed("n1", 0, 1)])
    more = own.solve()
    assert more.assignments.counts("gpus").tolist() == [4]
    own.upsert(["a"], preemptible=[False])
    with pytest.raises(ValueError, match="job 'a' is not preemptible, and the decision moves it"):
        own.apply(more)
    own.apply(own.solve())
    assert held_by(own) == {"a": {"n1": [0, 1]}}

"""A policy with Sia's protocol, asked as its simulator asks, against all decisions of small rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.adapters.sia import GoodputPolicy

GPUS = {"small": 2, "big": 4}
NODES = {"small": 2, "big": 1}
WAITS: tuple[None, tuple[int, ...]] = (None, ())


class Speedup:
    """Goodput as a power of the replicas, less on more nodes."""

    def __init__(self, pace: float, power: float) -> None:
        self.pace, self.power = pace, power

    def get_goodput(self, num_nodes: Any, num_replicas: Any) -> Any:
        return self.pace * num_replicas**self.power * 0.9 ** (num_nodes - 1)


def by_type(value: Any) -> dict[str, Any]:
    return dict.fromkeys(GPUS, value)


@dataclass
class Job:
    """What the simulator tells of a job."""

    speedup_fn: dict[str, Any]
    min_replicas: dict[str, int] = field(default_factory=lambda: by_type(0))
    max_replicas: dict[str, int] = field(default_factory=lambda: by_type(8))
    scale_unit: dict[str, int] = field(default_factory=lambda: by_type(1))
    cluster_throughput_ratios: dict[str, Any] = field(default_factory=dict)
    category: str | None = None
    age: float = 600.0
    num_restarts: int = 1
    scaling_underway: bool = False


@dataclass
class Node:
    resources: Mapping[str, int]


def cluster(**nodes: int) -> dict[str, dict[int, Node]]:
    return {name: {i: Node({"nvidia.com/gpu": GPUS[name]}) for i in range(n)} for name, n in nodes.items()}


def adaptive(small: float = 1.0, big: float = 2.0, power: float = 0.8, **fields: Any) -> Job:
    return Job({"small": Speedup(small, power), "big": Speedup(big, power)}, **fields)


def gpus_used(found: Mapping[str, Any]) -> Counter[tuple[str, int]]:
    return Counter((name, node) for name, nodes in found.values() for node in nodes)


def worths(job: Job, held: Any, p: float, waiting: float) -> dict[tuple[str, int], float]:
    """What each configuration of an adaptive job is worth over waiting; from the paper, in plain Python."""
    sizes = {"small": [1, 2, 4], "big": [1, 2, 4]}
    goodput = {
        (name, gpus): float(fn.get_goodput(-(-gpus // GPUS[name]), gpus))
        for name, fn in job.speedup_fn.items()
        for gpus in sizes[name]
        if gpus <= job.max_replicas[name]
    }
    least, factor = min(goodput.values()), (job.age - 30.0 * job.num_restarts) / (job.age + 30.0)
    now = None if held[0] is None else (held[0], len(held[1]))
    found = {}
    for row, rate in goodput.items():
        changed = factor if now not in (None, row) else 1.0
        value = (rate / least * changed) ** p
        found[row] = waiting - value if p < 0 else value - waiting
    return found


def fits(rows: tuple[tuple[str, int] | None, ...]) -> bool:
    """Whether counts that divide each other are within the GPUs of each type."""
    return all(sum(r[1] for r in rows if r and r[0] == name) <= NODES[name] * GPUS[name] for name in GPUS)


def all_decisions(tables: list[dict[tuple[str, int], float]]) -> Iterator[float]:
    for rows in product(*([None, *table] for table in tables)):
        if fits(rows):
            yield sum(table[row] for table, row in zip(tables, rows, strict=True) if row)


jobs_drawn = st.lists(
    st.builds(
        adaptive,
        small=st.floats(0.5, 2.0),
        big=st.floats(0.5, 4.0),
        power=st.floats(0.3, 1.0),
        age=st.floats(31.0, 5000.0),
        num_restarts=st.integers(0, 1),
        max_replicas=st.sampled_from([by_type(n) for n in (1, 2, 4, 8)]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(40), deadline=None)
@given(drawn=jobs_drawn, terms=st.sampled_from([(-0.5, 1.1), (-1.0, 2.0), (0.5, -1.1)]))
def test_two_rounds_are_the_best_of_all_decisions(drawn: list[Job], terms: tuple[float, float]) -> None:
    jobs = {f"job-{i}": job for i, job in enumerate(drawn)}
    policy, held = GoodputPolicy(*terms, gap=1e-9), dict.fromkeys(jobs, WAITS)
    nodes = cluster(**NODES)
    for _ in range(2):
        found = policy.optimize(jobs, nodes, held)
        tables = [worths(job, held[name], *terms) for name, job in jobs.items()]
        assert policy.last is not None
        assert policy.last.objective == pytest.approx(max(all_decisions(tables)), rel=1e-6)
        assert policy.last.bound == pytest.approx(policy.last.objective, rel=1e-6)
        rows = [None if name is None else (name, len(on)) for name, on in (found[job] for job in jobs)]
        taken = sum(table[row] for table, row in zip(tables, rows, strict=True) if row)
        assert taken == pytest.approx(policy.last.objective, rel=1e-6)
        assert all(many <= GPUS[name] for (name, _), many in gpus_used(found).items())
        held = {job: (name, list(on)) for job, (name, on) in found.items()}


def test_a_running_job_stays_where_it_is_when_nothing_changes() -> None:
    jobs, nodes, policy = {f"job-{i}": adaptive() for i in range(3)}, cluster(small=3, big=2), GoodputPolicy()
    first = policy.optimize(jobs, nodes, {})
    assert all(name for name, _ in first.values())
    assert policy.optimize(jobs, nodes, first) == first
    assert GoodputPolicy().optimize(dict(reversed(jobs.items())), nodes, first) == first
    fewer = {name: jobs[name] for name in ("job-0", "job-2")}
    assert list(policy.optimize(fewer, nodes, first)) == list(fewer)


def test_a_job_that_restarts_keeps_its_gpus() -> None:
    held = {"old": ("big", [0]), "new": WAITS}
    jobs = {"old": adaptive(big=1.0, scaling_underway=True), "new": adaptive(big=9.0)}
    found = GoodputPolicy().optimize(jobs, cluster(big=1, small=0), held)
    assert found["old"] == ("big", [0])
    assert found["new"] == ("big", [0, 0])
    assert GoodputPolicy().optimize({"old": jobs["old"]}, cluster(big=2), {"old": ("big", [1])})["old"][
        1
    ] == [1]


def test_what_is_spread_over_more_nodes_than_it_needs_counts_as_it_is() -> None:
    nodes, spread = cluster(small=2), {"x": ("small", [0, 1])}
    job = adaptive(max_replicas=by_type(2))
    assert GoodputPolicy().optimize({"x": job}, nodes, spread) == {"x": ("small", [0, 0])}
    job.scaling_underway = True
    assert GoodputPolicy().optimize({"x": job}, nodes, spread) == spread


def test_rigid_jobs_have_their_count_on_whole_nodes_and_a_part() -> None:
    pace = {"small": 1.0, "big": 3.0}
    jobs = {
        name: Job({}, max_replicas=by_type(3), cluster_throughput_ratios=pace, category="rigid")
        for name in ("a", "b", "c")
    }
    found = GoodputPolicy().optimize(jobs, cluster(small=3, big=1), {})
    assert sorted(str(name) for name, _ in found.values()) == ["big", "small", "small"]
    for name, on in found.values():
        if name == "small":
            assert sorted(Counter(on).values()) == [1, 2]
    assert all(many <= GPUS[name] for (name, _), many in gpus_used(found).items())


def test_a_type_that_is_not_known_yet() -> None:
    fresh = Job(by_type(None))
    assert GoodputPolicy().optimize({"x": fresh}, cluster(small=1), {}) == {"x": ("small", [0])}
    ran = Job({"small": Speedup(1.0, 1.0), "big": None}, cluster_throughput_ratios={"big": {"small": 5.0}})
    alone = GoodputPolicy(project_throughputs=False).optimize({"x": ran}, cluster(small=1, big=1), {})
    assert alone == {"x": ("small", [0, 0])}
    projected = GoodputPolicy(project_throughputs=True).optimize({"x": ran}, cluster(small=1, big=1), {})
    assert projected == {"x": ("big", [0] * 4)}


def test_nothing_to_decide() -> None:
    policy = GoodputPolicy()
    assert policy.optimize({}, cluster(small=1), {}) == {}
    large = adaptive(scale_unit=by_type(16))
    assert policy.optimize({"large": large}, cluster(small=1), {}) == {"large": WAITS}
    assert policy.last is None
    both = policy.optimize({"large": large, "x": adaptive()}, cluster(small=1), {})
    assert both == {"large": WAITS, "x": ("small", [0, 0])}


def test_limits_of_the_nodes_of_a_job() -> None:
    policy, nodes = GoodputPolicy(p_fairness=0.5, lambda_n=-1.1), cluster(small=4)
    policy.populate_valid_configs({"small": 4}, {"small": 2}, {"small": 2})
    assert len(policy.optimize({"x": adaptive()}, nodes, {})["x"][1]) == 4
    assert len(GoodputPolicy().optimize({"x": adaptive()}, nodes, {})["x"][1]) == 8


def test_restart_times_by_name() -> None:
    job = adaptive(small=1.0, big=1.2, age=1000.0, num_restarts=0, max_replicas=by_type(1))
    held, nodes = {"slow-1": ("small", [0])}, cluster(small=1, big=1)
    assert (
        GoodputPolicy(restart_s=lambda name: 0.0).optimize({"slow-1": job}, nodes, held)["slow-1"][0] == "big"
    )
    stays = GoodputPolicy(restart_s=lambda name: 250.0 if name.startswith("slow") else 0.0)
    assert stays.optimize({"slow-1": job}, nodes, held)["slow-1"] == ("small", [0])


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"p_fairness": 0.0}, "p_fairness: must be finite, not 0, got 0.0"),
        ({"lambda_n": 1.0}, "lambda_n: must be above 1 where p_fairness is negative, got 1.0"),
        ({"p_fairness": 0.5}, "lambda_n: must be at most 0 where p_fairness is positive, got 1.1"),
        ({"restart_s": -1.0}, "restart_s: must be at least 0 and finite, got -1.0"),
    ],
)
def test_terms_out_of_range(terms: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        GoodputPolicy(**terms)


@pytest.mark.parametrize(
    ("job", "held", "told"),
    [
        (adaptive(small=np.nan), WAITS, "job 'x' has a goodput of nan on 1 GPUs of 'small'"),
        (adaptive(scale_unit={}), WAITS, "a field of job 'x' does not have the type 'small'"),
        (object(), WAITS, "job 'x' has no speedup_fn"),
        (adaptive(), ("huge", [0]), "job 'x' is on node 0 of 'huge', which is not there"),
        (adaptive(), ("small", [7]), "job 'x' is on node 7 of 'small', which is not there"),
        (adaptive(), ("small", [0, 0, 0]), "job 'x' has no GPU left on node 0 of 'small'"),
        (
            adaptive(scaling_underway=True, max_replicas=by_type(1)),
            ("small", [0, 0]),
            "job 'x' restarts on 2 GPUs of 'small', none of its configurations",
        ),
    ],
)
def test_what_is_wrong_is_named(job: Any, held: Any, told: str) -> None:
    policy = GoodputPolicy()
    with pytest.raises(ValueError, match=told):
        policy.optimize({"x": job}, cluster(small=2), {"x": held})
    assert policy.optimize({"x": adaptive()}, cluster(small=2), {})["x"][0] == "small"


def test_what_is_wrong_with_the_cluster_and_the_gap() -> None:
    uneven = {"small": {0: Node({"nvidia.com/gpu": 2}), 1: Node({})}}
    with pytest.raises(
        ValueError, match="nodes: those of 'small' must have equally many GPUs, at least 1, got 0 and 2"
    ):
        GoodputPolicy().optimize({}, uneven, {})
    wrong: Any = []
    with pytest.raises(TypeError, match="jobs"):
        GoodputPolicy().optimize(wrong, {}, {})
    with pytest.raises(TypeError, match="p_fairness must be a number"):
        GoodputPolicy(wrong)
    with pytest.raises(ValueError, match="gap"):
        GoodputPolicy(gap=-1.0).optimize({"x": adaptive()}, cluster(small=1), {})

"""Runs: the state of a cluster, curves by hand, the same seed the same run, and the published artifact."""

from __future__ import annotations

import csv
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.placement import node_tables, task_tables
from tests.strategies.placement_cases import nodes_of, share, state_with, tasks_of, whole
from wattsched.formulations.placement.state import MOST_TASKS, ClusterState, Placement, PolicyContext, Request
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.replay.placement.curves import Curves, mean, saving_pct
from wattsched.replay.placement.stream import Experiment, node_order, requests_of, run

T4 = frozenset({"T4"})


@given(node_tables(), task_tables(), st.data())
def test_it_is_the_cluster_less_what_was_placed(
    nodes: NodeTable, tasks: TaskTable, data: st.DataObject
) -> None:
    state = ClusterState(nodes)
    placed: list[tuple[Request, Placement]] = []
    for request in requests_of(tasks):
        fits = np.flatnonzero(state.fits(request))
        if not fits.size:
            continue
        node = data.draw(st.sampled_from(fits.tolist()))
        room = np.flatnonzero(state.gpu_free_milli[node] >= request.gpu_milli).tolist()
        gpus = data.draw(st.permutations(room))[: request.gpus]
        state.place(request, Placement(node, tuple(gpus)))
        placed.append((request, Placement(node, tuple(gpus))))
    cpu, memory, gpu = nodes.cpu_milli.copy(), nodes.memory_mib.copy(), ClusterState(nodes).gpu_free_milli
    for request, (node, gpus) in placed:
        cpu[node] -= request.cpu_milli
        memory[node] -= request.memory_mib
        gpu[node, list(gpus)] -= request.gpu_milli
        assert not request.gpus or not request.models or nodes.models[nodes.model[node]] in request.models
    assert np.array_equal(state.cpu_free_milli, cpu)
    assert np.array_equal(state.memory_free_mib, memory)
    assert np.array_equal(state.gpu_free_milli, gpu)
    assert min(cpu.min(), memory.min(), gpu.min()) >= 0
    assert state.tasks.sum() == state.placements == len(placed)


def test_where_a_task_fits() -> None:
    nodes = nodes_of((8, 2, "T4"), (8, 4, "G2"), (1, 8, "T4"))
    state = state_with(nodes, {0: [400, 300], 1: [1000, 500, 0, 1000]})

    def fits(request: Request) -> list[bool]:
        assert list(state.fits(request, np.array([2, 0]))) == list(state.fits(request)[[2, 0]])
        return list(state.fits(request))

    assert fits(share(300)) == [True, True, True]
    assert fits(share(401)) == [False, True, True]
    assert fits(share(300, models=T4)) == [True, False, True]
    assert fits(whole(1, models=frozenset({"H9"}))) == [False, False, False]
    assert fits(whole(2)) == [False, True, True]
    assert fits(whole(3)) == [False, False, True]
    assert fits(whole(2, vcpus=1.001)) == [False, True, False]
    assert fits(whole(0, vcpus=8)) == [True, True, False]
    assert fits(whole(0)._replace(memory_mib=1_000_001)) == [False, False, False]
    assert list(state.free_gpus()) == [0, 2, 8]
    assert state.first_free_gpus(1, 2) == (0, 3)


@pytest.mark.parametrize(
    ("request_", "node", "gpus"),
    [
        (share(401), 0, (0,)),
        (share(100), 0, (2,)),
        (share(100), 0, (-1,)),
        (share(100), 0, ()),
        (share(100, models=T4), 1, (0,)),
        (whole(2), 1, (0, 0)),
        (whole(2), 1, (0, 1)),
        (whole(0), 1, (0,)),
        (whole(0, vcpus=9), 1, ()),
        (whole(0), 2, ()),
        (whole(0), -1, ()),
        (whole(0)._replace(memory_mib=1_000_001), 1, ()),
    ],
)
def test_what_does_not_fit_is_refused(request_: Request, node: int, gpus: tuple[int, ...]) -> None:
    state = state_with(nodes_of((8, 2, "T4"), (8, 4, "G2")), {0: [400, 300], 1: [1000, 500, 0, 1000]})
    with pytest.raises(ValueError, match="a task does not fit on GPUs"):
        state.place(request_, Placement(node, gpus))
    assert state.placements == 0


def test_a_node_has_a_limit_of_tasks() -> None:
    state = ClusterState(nodes_of((8, 1, "T4")))
    nothing = Request(0, 0, 0, 0, frozenset())
    for _ in range(MOST_TASKS):
        assert state.fits(nothing)[0]
        state.place(nothing, Placement(0, ()))
    assert not state.fits(nothing)[0]


def test_changed_nodes_can_be_found() -> None:
    state = ClusterState(nodes_of((8, 1, "T4"), (8, 1, "T4"), (8, 1, "T4")))
    state.place(whole(0), Placement(2, ()))
    remembered = state.placements
    state.place(whole(0), Placement(0, ()))
    state.place(whole(0), Placement(0, ()))
    assert list(np.flatnonzero(state.changed > remembered)) == [0]
    assert list(np.flatnonzero(state.changed > 0)) == [0, 2]


def test_curves_by_hand() -> None:
    experiment = Experiment(nodes_of((32, 2, "T4")), tasks_of(whole(1)), arrivals=1.5)
    curves = run(experiment, "fgd", seed=42)
    assert list(curves.arrived) == pytest.approx(np.arange(151) / 100)
    at = [0, 49, 50, 99, 100, 149, 150]
    assert list(curves.allocated_pct[at]) == [0, 0, 50, 50, 100, 100, 100]
    assert list(curves.grar[at]) == pytest.approx([1, 1, 1, 1, 1, 1, 2 / 3])
    assert list(curves.failed[at]) == [0, 0, 0, 0, 0, 0, 1]
    assert list(curves.eopc_gpu_w[at]) == [20, 20, 80, 80, 140, 140, 140]
    assert list(curves.eopc_cpu_w[at]) == [15, 15, 120, 120, 120, 120, 120]
    assert list(curves.eopc_w) == list(curves.eopc_cpu_w + curves.eopc_gpu_w)
    assert list(curves.frag_pct) == [0] * 151
    assert curves.at(1.0) == 100


def test_fragments_by_hand() -> None:
    experiment = Experiment(nodes_of((32, 2, "T4")), tasks_of(share(600)), arrivals=0.9)
    curves = run(experiment, "best-fit", seed=1)
    assert list(curves.frag_pct[[29, 30, 59, 60, 89, 90]]) == [0, 20, 20, 40, 40, 40]
    assert curves.allocated_pct[90] == pytest.approx(60)
    assert curves.grar[90] == pytest.approx(2 / 3)


def test_nodes_come_in_the_order_of_the_seed() -> None:
    nodes = nodes_of(*[(8 + i, 1, "T4") for i in range(20)])
    experiment = Experiment(nodes, tasks_of(whole(1)))
    context = experiment.context(seed=7)
    order = node_order(20, 7)
    assert context.nodes.names == tuple(nodes.names[i] for i in order)
    assert list(context.nodes.cpu_milli) == list(nodes.cpu_milli[order])


def test_mapped_cpus_change_the_power() -> None:
    nodes = nodes_of((52, 1, "T4"), (52, 1, "G2"))
    uniform = Experiment(nodes, tasks_of(whole(1))).context(seed=1)
    mapped = Experiment(nodes, tasks_of(whole(1)), mapped_cpus=True).context(seed=1)
    assert uniform.power.packages.sum() == 4
    # 24 and 32 cores.
    assert mapped.power.packages.sum() == 3


class Watcher:
    """Takes the first node that fits and remembers all it is told."""

    def __init__(self, context: PolicyContext):
        self.context = context
        self.log: list[tuple[Request, Placement | None]] = []

    def decide(self, request: Request, state: ClusterState) -> Placement | None:
        assert state.placements == sum(placement is not None for _, placement in self.log)
        fits = np.flatnonzero(state.fits(request))
        return Placement(int(fits[0]), state.first_free_gpus(fits[0], request.gpus)) if fits.size else None

    def on_decision(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        self.log.append((request, placement))


def test_a_policy_is_told_what_happened() -> None:
    made: list[Watcher] = []

    def factory(context: PolicyContext) -> Watcher:
        made.append(Watcher(context))
        return made[0]

    experiment = Experiment(nodes_of((32, 2, "T4"), (1, 1, "G2")), tasks_of(whole(1, vcpus=2)), arrivals=1.0)
    run(experiment, factory, seed=3)
    assert [placement is None for _, placement in made[0].log] == [False, False, True]
    assert len(made[0].context.target) > 0


@pytest.mark.parametrize("policy", ["random", "fgd", "pwr+fgd:50/950"])
def test_a_seed_is_a_run(policy: str) -> None:
    nodes = nodes_of(*[(16, 2, "T4"), (96, 8, "G2")] * 3)
    experiment = Experiment(nodes, tasks_of(share(300), share(700), whole(1, vcpus=5), whole(2), whole(0)))
    first, again, other = (run(experiment, policy, seed) for seed in (42, 42, 43))
    assert all(np.array_equal(a, b) for a, b in zip(astuple(first), astuple(again), strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(astuple(first), astuple(other), strict=True))


def test_means_and_savings() -> None:
    def curves(watts: float) -> Curves:
        return Curves(*(np.full(2, value) for value in (0.5, 10, 1, watts, 100, 5, 3)))

    both = mean([curves(100), curves(300)])
    assert list(both.eopc_cpu_w) == [200, 200]
    assert list(both.arrived) == [0.5, 0.5]
    assert list(saving_pct(curves(110), both)) == pytest.approx([30, 30])


def test_unknown_models_and_tasks_without_gpus_are_refused() -> None:
    with pytest.raises(ValueError, match="GPU model 'H9' is unknown"):
        run(Experiment(nodes_of((1, 1, "H9")), tasks_of(whole(1))), "fgd", 1)
    with pytest.raises(ValueError, match="GPU model 'H9' is unknown"):
        run(Experiment(nodes_of((1, 1, "H9")), tasks_of(whole(1)), mapped_cpus=True), "fgd", 1)
    with pytest.raises(ValueError, match="no task asks for a GPU"):
        run(Experiment(nodes_of((1, 1, "T4")), tasks_of(whole(0))), "fgd", 1)
    with pytest.raises(ValueError, match="there is no policy 'best'"):
        run(Experiment(nodes_of((1, 1, "T4")), tasks_of(whole(1))), "best", 1)


@pytest.mark.parametrize(("policy", "published"), [("fgd", "06-FGD"), ("best-fit", "05-BestFit")])
def test_the_published_artifact(data_dir: Path, policy: str, published: str) -> None:
    folder = data_dir / "alibaba-gpu-2023"
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    tasks = read_tasks(folder / "openb_pod_list_default.csv")
    curves = run(Experiment(nodes, tasks), policy, seed=42)
    results = data_dir / "fgd-results-2023"
    for file, ours, points in (
        ("analysis_allo_discrete.csv", curves.allocated_pct, (100, 130)),
        ("analysis_frag_discrete.csv", curves.frag_pct, (40, 80, 100)),
    ):
        with (results / file).open(newline="") as lines:
            rows = [
                row
                for row in csv.DictReader(lines)
                if row["workload"] == "openb_pod_list_default" and row["sc_policy"] == published
            ]
        assert len(rows) == 10
        for point in points:
            assert ours[point] == pytest.approx(np.mean([float(row[str(point)]) for row in rows]), abs=1)

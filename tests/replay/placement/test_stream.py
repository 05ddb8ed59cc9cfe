"""Runs: curves worked by hand, the same seed the same run, and the published artifact."""

from __future__ import annotations

import csv
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from tests.strategies.placement_cases import nodes_of, share, tasks_of, whole
from wattsched.formulations.placement.state import ClusterState, Placement, PolicyContext, Request
from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.replay.placement.curves import Curves, mean, saving_pct
from wattsched.replay.placement.stream import Experiment, node_order, run


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

"""Pods that were announced a node: whatever the scheduler does when, they have their GPUs and watts there."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapters.kubernetes.server import GPU, PREFIX, Server, new_pod
from tests.adapters.trust import trusting
from tests.strategies.effort import examples
from wattsched.adapters.budget import Budget
from wattsched.adapters.kubernetes.announcing import Announcing
from wattsched.adapters.kubernetes.api import KubernetesError
from wattsched.adapters.kubernetes.extender import Extender, filtered, read_args
from wattsched.adapters.kubernetes.loop import Policy, Report, Rounds
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.reading import read_pod
from wattsched.serve.journal import Journal

# Three nodes draw 3 * 200 + 24 * 50 W when they idle; a GPU in use 350 W more.
NODES, IDLE_W, USED_W = ("n0", "n1", "n2"), 1_800.0, 350.0
SLICE = "nvidia.com/mig-3g.40gb"
"""Slices of three sevenths, two to a board."""


class Cluster(Server):
    """Objects of an API server, rounds on them, and a scheduler that asks and binds when it likes."""

    def __init__(self, folder: Path, power_w: float) -> None:
        super().__init__(*NODES)
        self.made, self.silent = 0, False
        self.coming: list[tuple[float, str, str]] = []
        self.folder, self.budget = folder, Budget(power_w)
        self.begin()

    def begin(self) -> None:
        """A process of ours, perhaps after another one."""
        policy = Policy(
            KubernetesOptions.model_validate(trusting()), "default-scheduler", apply=True, marked=True
        )
        self.extender = Extender(lambda pod: policy.ours(read_pod(pod)), 1e6, lambda: self.now_s)
        self.extender.publish({})
        self.journal = Journal(self.folder / "journal")
        self.rounds = Rounds(policy, self.budget, self.journal, self.look, self.actions)

    def actions(self, journal: Any) -> Announcing:
        server: Any = self
        return Announcing(server, server, journal, extender=self.extender)

    def annotate(self, namespace: str, name: str, uid: str, annotations: dict[str, str]) -> None:
        if self.silent:
            raise KubernetesError("the API server does not answer")
        if uid not in self.pods:
            raise KubernetesError("not found", 404)
        self.pods[uid]["metadata"]["annotations"] |= annotations

    def cut(self, name: str) -> None:
        """Cut two boards of a node, and take two away."""
        has = {GPU: "4", SLICE: "4", "pods": "110"}
        self.nodes[name]["status"] |= {"capacity": has, "allocatable": has}

    def submit(self, pods: int, gpus: int, weight: float = 1.0, resource: str = GPU) -> list[str]:
        self.made += 1
        labels, said = {}, {PREFIX + "weight": json.dumps(weight)}
        if pods > 1:
            labels = {PREFIX + "gang": f"g{self.made}", PREFIX + "gang-size": str(pods)}
        names = [f"j{self.made}-{i}" for i in range(pods)]
        for name in names:
            self.pods[name] = new_pod(
                name, gpus, "default", "default-scheduler", labels=labels, annotations=dict(said)
            )
            self.pods[name]["spec"]["containers"][0]["resources"]["limits"] = {resource: str(gpus)}
        return names

    def bound(self, uid: str) -> str:
        found: str = self.pods[uid]["spec"].get("nodeName", "")
        return found

    def ask(self, uid: str, delay_s: float = 0.0) -> str:
        """The scheduler asks, and binds where it may after a moment; where that is."""
        question = read_args({"Pod": copy.deepcopy(self.pods[uid]), "NodeNames": list(NODES)})
        passing = filtered(question, self.extender.asked_for(question.pod))["NodeNames"]
        if not passing:
            return ""
        self.coming.append((self.now_s + delay_s, uid, passing[0]))
        return str(passing[0])

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for due in [one for one in self.coming if one[0] <= self.now_s]:
            self.coming.remove(due)
            if due[1] in self.pods and not self.bound(due[1]):
                self.pods[due[1]]["spec"]["nodeName"] = due[2]

    def round(self) -> Report:
        return self.rounds.round()

    def drawn_w(self) -> float:
        return IDLE_W + USED_W * (self.used().total() + 3 / 7 * self.used(SLICE).total())


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Watts for eight GPUs."""
    return Cluster(tmp_path, IDLE_W + 8 * USED_W)


@given(seed=st.integers(0, 2**32), gpus=st.integers(4, 20), cut=st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_a_slow_scheduler_never_draws_more_than_the_cap(
    tmp_path_factory: pytest.TempPathFactory, seed: int, gpus: int, cut: bool
) -> None:
    """It asks and binds in any order, up to 25 s later; we are killed, and jobs that are worth more come."""
    chance, cap_w = random.Random(seed), IDLE_W + gpus * USED_W
    cluster = Cluster(tmp_path_factory.mktemp("announcing"), cap_w - 100 * cut)
    if cut:  # two boards fewer idle there
        cluster.cut("n2")
    ran = set[str]()
    for _ in range(60):
        match chance.choice(["submit", "round", "round", "ask", "ask", "ask", "time", "end", "kill"]):
            case "submit":
                size = chance.choice([1, 1, 2, 3]), chance.choice([1, 2, 4]), chance.uniform(1, 50)
                cluster.submit(*size, resource=chance.choice([GPU, SLICE]) if cut else GPU)
            case "round":
                cluster.round()
            case "ask" if waiting := [uid for uid in cluster.pods if not cluster.bound(uid)]:
                cluster.ask(chance.choice(waiting), chance.choice([0.0, 1.0, 25.0]))
            case "time":
                cluster.pass_time(chance.choice([1.0, 5.0, 40.0]))
            case "end" if running := [uid for uid in cluster.pods if cluster.bound(uid)]:
                del cluster.pods[chance.choice(running)]
            case "kill" if chance.random() < 0.2:
                cluster.journal.close()
                cluster.begin()
        ran |= {uid for uid in cluster.pods if cluster.bound(uid)}
        assert cluster.drawn_w() <= cap_w + 1e-6
        for name, one in cluster.nodes.items():
            for what, most in one["status"]["allocatable"].items():
                assert cluster.used(what)[name] <= int(most)
    cluster.journal.close()


def test_an_announced_pod_keeps_its_watts_until_it_is_bound(cluster: Cluster) -> None:
    (first,) = cluster.submit(1, 8)
    assert cluster.round().started
    assert cluster.ask(first, delay_s=20.0)
    (second,) = cluster.submit(1, 8, weight=1e3)
    for _ in range(3):
        report = cluster.round()
        assert (report.started, report.running, report.queued) == ({}, 1, 1)
        assert report.power_w == IDLE_W + 8 * USED_W
        assert cluster.ask(second) == ""
        cluster.pass_time(7.0)
    assert cluster.bound(first)
    assert cluster.drawn_w() == IDLE_W + 8 * USED_W


def test_an_announcement_lapses(cluster: Cluster) -> None:
    """One that the scheduler did not ask about is free at once; one that it might follow counts longer."""
    (first,) = cluster.submit(1, 8)
    cluster.round()
    (second,) = cluster.submit(1, 8, weight=1e3)
    cluster.pass_time(61.0)
    assert cluster.round().started.keys() == {f"default/{second}"}
    assert cluster.ask(first) == ""
    cluster.pass_time(50.0)
    assert cluster.ask(second, delay_s=1e6)
    cluster.submit(1, 8, weight=1e6)
    cluster.pass_time(11.0)
    assert (cluster.round().started, cluster.ask(second)) == ({}, "")
    cluster.pass_time(20.0)
    assert cluster.round().started.keys() == {"default/j3-0"}


def test_a_cut_takes_announcements_back_first(cluster: Cluster) -> None:
    gang = cluster.submit(2, 4)
    assert cluster.round().started.keys() == {"default/gang:g1"}
    cluster.budget.power_w = IDLE_W + 4 * USED_W
    (small,) = cluster.submit(1, 4)
    report = cluster.round()
    assert report.started.keys() == {f"default/{small}"}
    assert report.power_w <= cluster.budget.power_w
    assert [cluster.ask(uid) for uid in gang] == ["", ""]
    assert cluster.ask(small)


def test_a_node_that_is_cordoned_loses_its_announcements(cluster: Cluster) -> None:
    (first,) = cluster.submit(1, 8)
    cluster.round()
    where = read_pod(cluster.pods[first]).annotations[PREFIX + "launch"]
    before = json.loads(where)["node"]
    cluster.nodes[before]["spec"]["unschedulable"] = True
    cluster.round()
    assert cluster.ask(first) not in ("", before)


def test_what_was_announced_before_a_kill_counts_for_a_while(cluster: Cluster) -> None:
    (first,) = cluster.submit(1, 8)
    cluster.round()
    cluster.ask(first, delay_s=20.0)
    cluster.journal.close()
    cluster.begin()
    (second,) = cluster.submit(1, 8, weight=1e3)
    assert cluster.round().started == {}
    assert (cluster.ask(first), cluster.ask(second)) == ("", "")
    cluster.pass_time(20.0)
    assert cluster.round().started == {}
    assert cluster.bound(first)


def test_no_answer_takes_the_whole_gang_back(cluster: Cluster) -> None:
    gang = cluster.submit(2, 4)
    cluster.silent = True
    with pytest.raises(KubernetesError, match="does not answer"):
        cluster.round()
    assert [cluster.ask(uid) for uid in gang] == ["", ""]
    cluster.silent = False
    assert cluster.round().started
    assert all(cluster.ask(uid) for uid in gang)


def test_a_pod_that_the_scheduler_cannot_bind_keeps_no_gpus_for_good(cluster: Cluster) -> None:
    (first,) = cluster.submit(1, 8, weight=1e3)
    cluster.round()
    assert cluster.ask(first, delay_s=1e9)
    (second,) = cluster.submit(1, 8)
    started = list[str]()
    for _ in range(20):
        cluster.pass_time(10.0)
        started += cluster.round().started
        cluster.ask(first, delay_s=1e9)
        cluster.ask(second)
    assert started == [f"default/{second}"]
    assert cluster.bound(second)
    # It is not forgotten.
    del cluster.pods[second]
    cluster.pass_time(100.0)
    assert cluster.round().started.keys() == {f"default/{first}"}

"""Pods that nodes have no CPU, memory, ports or other things for keep no GPUs from others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapters.kubernetes.server import PREFIX, Server, new_pod
from tests.adapters.trust import trusting
from tests.strategies.effort import examples
from wattsched.adapters.budget import Budget
from wattsched.adapters.kubernetes.actions import Actions
from wattsched.adapters.kubernetes.announcing import Announcing
from wattsched.adapters.kubernetes.api import KubernetesError
from wattsched.adapters.kubernetes.extender import Extender
from wattsched.adapters.kubernetes.launches import Launches
from wattsched.adapters.kubernetes.loop import Policy, Report, Rounds
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.reading import read, read_pod
from wattsched.adapters.kubernetes.snapshot import load, save
from wattsched.serve.journal import Journal

KEY = b"k" * 32


class Cluster(Server):
    """Nodes of eight GPUs and 64 CPUs, and an API server that binds and evicts at once."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        super().__init__(*(f"n{i}" for i in range(nodes)), cpu="64")
        self.guarded = set[str]()
        self.journal, self.budget = Journal(folder / "journal"), Budget(100_000.0)

    def submit(
        self, name: str, gpus: int = 1, ports: list[int] | None = None, spec: Any = None, **said: Any
    ) -> dict[str, Any]:
        """Make a pod; what it says are annotations, and ``needs`` what it asks for besides GPUs."""
        needs, labels = said.pop("needs", {}), said.pop("labels", {})
        annotations = {PREFIX + key.replace("_", "-"): str(value) for key, value in said.items()}
        made = self.pods[name] = new_pod(name, gpus, labels=labels, annotations=annotations)
        (container,) = made["spec"]["containers"]
        container["resources"]["limits"] |= needs
        container["ports"] = [{"hostPort": port} for port in ports or []]
        made["spec"] |= spec or {}
        return made

    def gang(self, name: str, pods: int, **said: Any) -> None:
        """Make the pods of a gang."""
        for i in range(pods):
            labels = {PREFIX + "gang": name}
            self.submit(f"{name}-{i}", labels=labels, **{"gang_size": pods, **said})

    def rounds(self, apply: bool = True, options: Any = None, extender: bool = False) -> Rounds:
        """Rounds that bind or, with an extender, tell a scheduler that binds at once what it is told."""
        server: Any = self
        policy = Policy(KubernetesOptions.model_validate(trusting(options)), apply=apply)
        asked = {"extender": Extender(lambda pod: policy.ours(read_pod(pod)), 1e6)} if extender else {}
        kind: Any = Announcing if extender else Actions

        def actions(journal: Any) -> Actions:
            made: Actions = kind(server, server, journal, Launches(KEY), **asked)
            return made

        return Rounds(policy, self.budget, self.journal, self.look, actions)

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> None:
        self.pods[name]["metadata"]["annotations"] |= annotations
        self.pods[name]["spec"]["nodeName"] = node

    def annotate(self, namespace: str, name: str, uid: str, annotations: dict[str, str]) -> None:
        node = json.loads(annotations[PREFIX + "launch"])["node"]
        self.bind(namespace, name, uid, node, annotations)

    def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool = False) -> None:
        if name in self.guarded:
            raise KubernetesError("a budget", 429)
        if not dry_run:
            del self.pods[name]

    def running(self) -> set[str]:
        return {name for name, pod in self.pods.items() if pod["spec"].get("nodeName")}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes."""
    made = Cluster(tmp_path)
    yield made
    made.journal.close()


def started(report: Report) -> set[str]:
    return set(report.started)


@pytest.mark.parametrize("how", ["apply", "shadow", "extender"])
def test_what_no_node_has_keeps_no_gpus_from_others(cluster: Cluster, how: str) -> None:
    cluster.submit("fpga", 8, needs={"x.com/fpga": "1"}, weight=100)
    for i in range(8):
        cluster.submit(f"cpu{i}", needs={"cpu": "100"})
    cluster.gang("wide", 4, gpus=2, needs={"cpu": "60"}, weight=100)
    for i in range(16):
        cluster.submit(f"small{i}")
    rounds = cluster.rounds(how != "shadow", extender=how == "extender")
    report = rounds.round()
    assert started(report) == {f"t/small{i}" for i in range(16)}
    assert "x.com/fpga" in report.waiting["t/fpga"]
    assert all("cpu" in report.waiting[f"t/cpu{i}"] for i in range(8))
    assert "cpu" in report.waiting["t/gang:wide"]
    assert report.postponed == {}


@pytest.mark.parametrize("how", ["apply", "shadow", "extender"])
def test_a_gang_is_reported_and_launched_on_the_nodes_that_it_gets(cluster: Cluster, how: str) -> None:
    """By GPUs alone one node would do."""
    cluster.gang("wide", 2, gpus=2, needs={"cpu": "40"})
    report = cluster.rounds(how != "shadow", extender=how == "extender").round()
    assert report.started == {"t/gang:wide": "GPUs 2 of n0, 2 of n1, 1,600 W"}
    if how != "shadow":
        launches = [
            json.loads(pod["metadata"]["annotations"][PREFIX + "launch"]) for pod in cluster.pods.values()
        ]
        assert [one["gang"] for one in launches] == [{"n0": 1, "n1": 1}] * 2
        assert cluster.used() == {"n0": 2, "n1": 2}


@pytest.mark.parametrize("how", ["apply", "shadow"])
def test_what_others_use_now_keeps_no_gpus_from_others(cluster: Cluster, how: str) -> None:
    for name in cluster.nodes:
        theirs = cluster.submit(f"theirs-{name}", 0, needs={"cpu": "40"})
        theirs["spec"] |= {"schedulerName": "default-scheduler", "nodeName": name}
    for i in range(4):
        cluster.submit(f"cpu{i}", 4, needs={"cpu": "20"}, weight=100)
    for i in range(8):
        cluster.submit(f"small{i}")
    report = cluster.rounds(how == "apply").round()
    large = {name for name in report.started if "cpu" in name}
    assert len(large) == 2
    assert started(report) - large == {f"t/small{i}" for i in range(8)}
    assert all("cpu" in report.waiting[f"t/cpu{i}"] for i in range(4) if f"t/cpu{i}" not in large)


@pytest.mark.parametrize(
    ("pin_s", "pin_cpu", "theirs_cpu", "starts", "waits", "why"),
    [
        (1, 30, 0, "gang:wide", "pin", "of the nodes that it may have, jobs of several nodes"),
        (1, 30, 40, "pin", "gang:wide", "waits for room: cpu"),  # it has no room now, so loses none
        (0, 30, 0, "pin", "gang:wide", "waits for room: cpu"),
        (
            0,
            65,
            0,
            "gang:wide",
            "pin",
            "asks for more than nodes have: cpu",
        ),  # who cannot run divides nothing
    ],
)
@pytest.mark.parametrize("how", ["apply", "shadow"])
def test_a_pinned_pod_takes_no_cpu_from_an_older_gang(
    cluster: Cluster, how: str, pin_s: int, pin_cpu: int, theirs_cpu: int, starts: str, waits: str, why: str
) -> None:
    cluster.nodes["n1"]["metadata"]["labels"]["zone"] = "a"
    theirs = cluster.submit("theirs", 0, needs={"cpu": str(theirs_cpu)})
    theirs["spec"] |= {"schedulerName": "default-scheduler", "nodeName": "n0"}
    cluster.gang("wide", 2, gpus=2, needs={"cpu": "40"}, weight=3)
    cluster.submit("pin", needs={"cpu": str(pin_cpu)}, spec={"nodeSelector": {"zone": "a"}})
    for name, pod in cluster.pods.items():
        second = 2 * pin_s if name == "pin" else 1
        pod["metadata"]["creationTimestamp"] = f"2026-07-14T11:00:0{second}Z"
    report = cluster.rounds(how == "apply").round()
    assert started(report) == {f"t/{starts}"}
    assert report.waiting[f"t/{waits}"].startswith(why)


def test_nobody_is_evicted_for_a_pod_that_cannot_start(cluster: Cluster) -> None:
    cluster.gang("old", 16, preemptible="true")
    rounds = cluster.rounds()
    assert started(rounds.round()) == {"t/gang:old"}
    for name in cluster.nodes:
        theirs = cluster.submit(f"theirs-{name}", 0, needs={"cpu": "40"})
        theirs["spec"] |= {"schedulerName": "default-scheduler", "nodeName": name}
    cluster.submit("new", 8, needs={"cpu": "30"}, weight=1e6)
    assert (rounds.round().stopped, len(cluster.running())) == ({}, 18)


JOBS = st.lists(
    st.tuples(st.integers(1, 8), st.sampled_from([0, 5, 20, 40, 64]), st.integers(1, 3), st.integers(1, 9)),
    min_size=1,
    max_size=12,
)


@given(jobs=JOBS)
@settings(max_examples=examples(40), deadline=None)
def test_whatever_pods_ask_for_gpus_stay_idle_only_for_want_of_the_rest(
    tmp_path_factory: pytest.TempPathFactory, jobs: Any
) -> None:
    """After a few rounds no pod waits that has room; shadow mode says what the first round does."""
    cluster = Cluster(tmp_path_factory.mktemp("room"))
    for i, (gpus, cpu, pods, weight) in enumerate(jobs):
        said = {"gpus": gpus, "needs": {"cpu": str(cpu)} if cpu else {}, "weight": weight}
        cluster.gang(f"g{i}", pods, **said) if pods > 1 else cluster.submit(f"p{i}", **said)
    told = cluster.rounds(apply=False).round()
    rounds = cluster.rounds()
    done = rounds.round()
    assert (started(told), told.waiting.keys()) == (started(done), done.waiting.keys())
    assert (told.postponed, done.postponed) == ({}, {})
    rounds.round()
    assert all(count <= 8 for count in cluster.used().values())
    assert all(count <= 64 for count in cluster.used("cpu").values())
    waiting = {name for name in cluster.pods if name not in cluster.running() and name.startswith("p")}
    for name in waiting:
        asked = cluster.pods[name]["spec"]["containers"][0]["resources"]["limits"]
        for node in cluster.nodes:
            full = cluster.used()[node] + int(asked["nvidia.com/gpu"]) > 8
            assert full or cluster.used("cpu")[node] + int(asked.get("cpu", 0)) > 64
    cluster.journal.close()


@pytest.mark.parametrize("how", ["apply", "shadow"])
def test_a_host_port_is_had_by_one_pod_of_a_node(cluster: Cluster, how: str) -> None:
    theirs = cluster.submit("theirs", 0, ports=[80])
    theirs["spec"] |= {"schedulerName": "default-scheduler", "nodeName": "n0"}
    for i in range(2):
        cluster.submit(f"web{i}", ports=[80], weight=9)
    cluster.submit("other", ports=[81])
    cluster.gang("pair", 3, ports=[82])
    report = cluster.rounds(how == "apply").round()
    assert len(started(report) & {"t/web0", "t/web1"}) == 1
    (waits,) = {"t/web0", "t/web1"} - started(report)
    assert report.waiting[waits] == "waits for room: host port 80/TCP"
    assert "t/other" in report.started
    assert report.waiting["t/gang:pair"] == "asks for more than nodes have: host port 82/TCP"


CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
TEMPLATE = {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]}


@pytest.mark.parametrize("volumes", [CLAIM, TEMPLATE])
def test_a_pod_with_claims_waits_unless_every_node_can_have_them(cluster: Cluster, volumes: Any) -> None:
    cluster.submit("one", spec=volumes)
    cluster.submit("two", spec={"volumes": [{"name": "data", "emptyDir": {}}]})
    report = cluster.rounds(apply=False).round()
    assert started(report) == {"t/two"}
    assert "persistent volume claims" in report.waiting["t/one"]
    assert "t/one" in cluster.rounds(apply=False, options={"claims_on_any_node": True}).round().started
    assert "t/one" in cluster.rounds(extender=True).round().started


def test_what_pods_ask_for_is_in_saved_snapshots(cluster: Cluster, tmp_path: Path) -> None:
    pod = cluster.submit("one", ports=[80], needs={"cpu": "3"}, spec=CLAIM)
    pod["spec"]["containers"][0]["ports"] += [{"containerPort": 81, "name": "secret"}]
    save(tmp_path / "saved.json", cluster.look())
    assert "secret" not in (tmp_path / "saved.json").read_text()
    assert read(load(tmp_path / "saved.json")).pods == read(cluster.look()).pods


def test_a_gang_of_which_one_pod_is_guarded_is_not_evicted_in_part(cluster: Cluster) -> None:
    cluster.gang("guarded", 2, gpus=4, preemptible="true", weight=1)
    cluster.gang("other", 2, gpus=4, preemptible="true", weight=50)
    rounds = cluster.rounds()
    idle_w = 2 * 200 + 16 * 50
    assert rounds.round().power_w == idle_w + 16 * 350
    cluster.guarded = {"guarded-1"}
    cluster.budget.power_w = idle_w + 8 * 350
    report = rounds.round()
    assert cluster.running() == {"guarded-0", "guarded-1"}
    assert "t/guarded-1: a disruption budget forbids it now" in " ".join(report.notes)
    cluster.budget.power_w = idle_w + 7 * 350
    assert "nothing more can be done" in " ".join(rounds.round().alarms)
    assert cluster.running() == {"guarded-0", "guarded-1"}


def test_a_guarded_pod_keeps_no_gpus_for_who_is_worth_more(cluster: Cluster) -> None:
    cluster.submit("guarded", 8, preemptible="true")
    rounds = cluster.rounds()
    rounds.round()
    cluster.guarded = {"guarded"}
    cluster.gang("large", 2, gpus=8, weight=1e3)
    cluster.submit("small", 1)
    assert started(rounds.round()) == {"t/small"}
    assert cluster.running() == {"guarded", "small"}


@pytest.mark.parametrize("how", ["apply", "extender"])
def test_no_pod_counts_for_less_than_idle_gpus(cluster: Cluster, how: str) -> None:
    table = {"gpus": [4], "pool": ["A100"], "rate": [1.0], "power_w": [0]}
    cluster.submit("modest", 4, options=json.dumps(table))
    cluster.submit("plain", 4)
    idle_w = 2 * 200 + 16 * 50
    rounds = cluster.rounds(extender=how == "extender")
    report = rounds.round()
    assert (started(report), report.power_w) == ({"t/modest", "t/plain"}, idle_w + 4 * 350)


def forge(pod: dict[str, Any], **fields: Any) -> None:
    """Change what a pod says of its launch."""
    written = pod["metadata"]["annotations"]
    launch = json.loads(written.get(PREFIX + "launch", "{}"))
    written[PREFIX + "launch"] = json.dumps(launch | fields)


@pytest.mark.parametrize("how", ["apply", "extender"])
def test_what_we_wrote_counts_and_not_what_a_pod_says_of_it(cluster: Cluster, how: str) -> None:
    def rounds() -> Rounds:
        return cluster.rounds(extender=how == "extender")

    cluster.submit("plain", 4)
    running = rounds()
    drawn_w = running.round().power_w
    assert drawn_w == 2 * 200 + 16 * 50 + 4 * 350
    honest = cluster.pods["plain"]["metadata"]["annotations"][PREFIX + "launch"]
    for power_w in (0.0, 1e9):
        forge(cluster.pods["plain"], power_w=power_w)
        # While we run we remember; after a restart it is another's pod, and those count at the most.
        assert [running.round().power_w, rounds().round().power_w] == [drawn_w, drawn_w]
    del cluster.pods["plain"]["metadata"]["annotations"][PREFIX + "launch"]
    assert running.round().power_w == drawn_w
    cluster.pods["plain"]["metadata"]["annotations"][PREFIX + "launch"] = honest
    assert rounds().round().running == 1


def test_nobody_is_announced_by_what_a_pod_says(cluster: Cluster) -> None:
    cluster.submit("first", 8)
    assert started(cluster.rounds(extender=True).round()) == {"t/first"}
    copied = json.loads(cluster.pods["first"]["metadata"]["annotations"][PREFIX + "launch"])
    for uid, fields in (
        ("forged", {"uid": "forged", "gpus": 4, "power_w": 0.0, "node": "n0"}),
        ("b", copied),
    ):
        forge(cluster.submit(uid, 4), **{**fields, "uid": uid})
    cluster.budget.power_w = 1.0  # nothing starts
    report = cluster.rounds(extender=True).round()
    assert report.running == 1
    assert report.power_w == 2 * 200 + 8 * 50 + 8 * 400


def test_pods_that_their_gang_has_no_place_for_are_told(cluster: Cluster) -> None:
    cluster.gang("trio", 3, gang_size=2)
    rounds = cluster.rounds()
    for _ in range(2):  # before the gang is bound, and afterwards
        report = rounds.round()
        assert report.waiting == {"t/trio-2": "its gang has its 2 pods without it"}
    assert cluster.running() == {"trio-0", "trio-1"}


@pytest.mark.parametrize(
    ("said", "told"),
    [({"gang_size": 2}, "without the label wattsched.io/gang"), ({"gang": "g"}, "gang: must be a label")],
)
def test_a_gang_without_its_label_is_told(cluster: Cluster, said: Any, told: str) -> None:
    for i in range(2):
        cluster.submit(f"one{i}", **said)
    report = cluster.rounds().round()
    assert (report.started, cluster.running()) == ({}, set())
    assert all(told in report.waiting[f"t/one{i}"] for i in range(2))


@pytest.mark.parametrize("cpu", ["40", "4"])
def test_a_gang_on_parts_of_nodes_is_stopped_for_the_cap_alone_and_that_is_said(
    cluster: Cluster, cpu: str
) -> None:
    cluster.gang("wide", 2, needs={"cpu": cpu}, preemptible="true")
    rounds = cluster.rounds()
    assert "was not stopped" not in " ".join(rounds.round().notes)
    for i in range(2):
        cluster.submit(f"heavy{i}", 8, weight=1e3)
    report, told = rounds.round(), "t/gang:wide was not stopped: it is on parts of several nodes"
    scattered = cpu == "40"
    assert (told in " ".join(report.notes)) == scattered
    assert report.stopped.keys() == (set() if scattered else {"t/gang:wide"})
    cluster.budget.power_w = IDLE_W
    assert rounds.round().stopped.keys() == ({"t/gang:wide"} if scattered else set())


IDLE_W, USED_W = 2 * 200 + 16 * 50, 350
FEED = {"name": "feed", "members": ["n0", "n1"], "power_cap_w": IDLE_W + 8 * USED_W}


@pytest.mark.parametrize(
    ("gpus", "power_w", "options", "kind", "told"),
    [
        (7, 1e5, {}, "room", "needs 7 GPUs on one node, 1 is free on n0; "),
        (5, IDLE_W + 8 * USED_W, {}, "power", "the site would draw 4.7 kW with it, of a cap of 4.0 kW; "),
        (5, 1e5, {"power_domains": [FEED]}, "power", "'feed' would draw 4.7 kW with it, of a cap of 4.0 kW;"),
        (5, 1e5, {"tenants": {"t": {"gpus": 9}}}, "quota", "needs 5 GPUs, the quota of 't' is 9, and 5 are"),
    ],
)
@pytest.mark.parametrize("how", ["apply", "shadow"])
def test_whoever_waits_is_told_why(
    cluster: Cluster, how: str, gpus: int, power_w: float, options: Any, kind: str, told: str
) -> None:
    cluster.budget.power_w = power_w
    for i in range(3):
        cluster.submit(f"p{i}", gpus)
    report = cluster.rounds(how == "apply", options).round()
    assert report.waiting.keys() == {f"t/p{i}" for i in range(3)} - started(report)
    assert len(report.waiting) == (1 if gpus == 7 else 2)
    (*_, last) = sorted(started(report))
    assert all(why.startswith(told) and why.endswith("first") for why in report.waiting.values())
    assert all(last in why for why in report.waiting.values())
    assert {why.kind for why in report.waiting.values()} == {kind}


def test_where_idle_nodes_draw_more_than_the_cap_nothing_starts_and_it_is_told(cluster: Cluster) -> None:
    cluster.submit("one")
    cluster.budget.power_w = IDLE_W - 1
    report = cluster.rounds().round()
    assert (report.started, report.reason) == ({}, "optimal")
    assert report.waiting == {"t/one": "the site would draw 1.6 kW with it, of a cap of 1.2 kW"}
    assert "nothing more can be done" in " ".join(report.alarms)


def test_a_gang_is_stopped_only_if_all_its_pods_allow_it(cluster: Cluster) -> None:
    cluster.gang("mixed", 2, gpus=4)
    cluster.pods["mixed-1"]["metadata"]["annotations"][PREFIX + "preemptible"] = "true"
    rounds = cluster.rounds()
    assert started(rounds.round()) == {"t/gang:mixed"}
    cluster.budget.power_w = IDLE_W
    assert (rounds.round().stopped, len(cluster.running())) == ({}, 2)
    cluster.pods["mixed-0"]["metadata"]["annotations"][PREFIX + "preemptible"] = "true"
    assert (rounds.round().stopped.keys(), cluster.running()) == ({"t/gang:mixed"}, set())


def test_pods_that_are_given_back_have_nothing_of_ours(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.submit("one", weight=2)
    cluster.submit("theirs", spec={"schedulerName": "other", "nodeName": "n1"})
    rounds = cluster.rounds()
    assert started(rounds.round()) == {"t/one"}

    def annotate(namespace: str, name: str, uid: str, annotations: dict[str, None]) -> None:
        for key in annotations:
            del cluster.pods[name]["metadata"]["annotations"][key]

    monkeypatch.setattr(cluster, "annotate", annotate)
    assert rounds.give_back() == {"t/one": ""}
    assert cluster.pods["one"]["metadata"]["annotations"] == {PREFIX + "weight": "2"}
    assert cluster.pods["one"]["spec"]["nodeName"]
    assert rounds.give_back() == {}

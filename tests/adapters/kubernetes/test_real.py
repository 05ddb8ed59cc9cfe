"""On a real API server: gangs all or none, evictions, what changes under us, and restarts of either side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kubernetes import client

from tests.adapters.trust import trusting
from wattsched.adapters.budget import Budget
from wattsched.adapters.kubernetes.actions import Actions
from wattsched.adapters.kubernetes.api import Api, KubernetesError
from wattsched.adapters.kubernetes.launches import Launches
from wattsched.adapters.kubernetes.loop import Policy, Rounds
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.reading import read
from wattsched.adapters.kubernetes.snapshot import Mirror, Watched, take
from wattsched.serve.journal import Journal

Submit = Callable[..., Any]
# Two nodes draw 2 * 200 + 16 * 50 W when they idle; a GPU in use 350 W more.
IDLE_W, USED_W = 1_200.0, 350.0
PREFIX = "wattsched.io/"


@pytest.fixture
def mirror(api: Api) -> Iterator[Mirror]:
    with_watches = Mirror(api)
    yield with_watches
    with_watches.close()


@pytest.fixture
def rounds(api: Api, mirror: Mirror, tmp_path: Path) -> Iterator[Rounds]:
    """Rounds that act, with a journal."""
    with Journal(tmp_path / "journal") as journal:
        yield rounds_on(api, mirror, journal)


def rounds_on(api: Api, mirror: Mirror, journal: Journal) -> Rounds:
    policy = Policy(KubernetesOptions.model_validate(trusting()), apply=True)
    return Rounds(policy, Budget(20_000.0), journal, mirror.snapshot, lambda of: Actions(api, mirror, of))


def nodes_of(api: Api) -> dict[str, str]:
    """Pods and the nodes that they are bound to."""
    return {pod.name: pod.node for pod in read(take(api)).pods.values()}


def member(gang: str, size: int, **said: str) -> dict[str, Any]:
    """What a pod of a gang says."""
    annotations = {PREFIX + "gang-size": str(size)} | {PREFIX + name: text for name, text in said.items()}
    return {"annotations": annotations, "labels": {PREFIX + "gang": gang}}


def in_mirror(mirror: Mirror, *uids: str) -> None:
    """Wait until the watch has pods."""
    assert mirror.wait(lambda pods: set(uids) <= pods.keys())


def submitted(mirror: Mirror, *pods: Any) -> list[str]:
    uids = [pod["metadata"]["uid"] for pod in pods]
    in_mirror(mirror, *uids)
    return uids


def test_gangs_are_bound_all_or_none_within_the_cap(
    api: Api, mirror: Mirror, rounds: Rounds, submit: Submit
) -> None:
    gang = [submit(f"g-{i}", 4, **member("g", 3)) for i in range(3)]
    option = '{"gpus": [2], "pool": ["A100"], "rate": [1.0], "power_w": [500], "power_limit_w": [250]}'
    one = submit("one", 2, annotations={PREFIX + "options": option})
    submit("theirs", 1, scheduler="default-scheduler")
    submitted(mirror, *gang, one)
    rounds.budget.power_w = IDLE_W + 12 * USED_W - 1
    report = rounds.round()
    assert set(report.started) == {"default/one"}
    assert report.power_w == IDLE_W + 400
    assert [nodes_of(api)[f"g-{i}"] for i in range(3)] == [""] * 3
    rounds.budget.power_w = IDLE_W + 400 + 12 * USED_W
    assert set(rounds.round().started) == {"default/gang:g"}
    nodes = nodes_of(api)
    assert all(nodes[name] for name in ("g-0", "g-1", "g-2", "one"))
    assert nodes["theirs"] == ""
    # The same again changes nothing.
    again = rounds.round()
    assert (again.started, again.stopped, again.joined) == ({}, {}, {})
    assert again.power_w == IDLE_W + 400 + 12 * USED_W
    pod = api.pod("default", "one")
    assert pod is not None
    assert pod["metadata"]["annotations"][PREFIX + "power-limit-w"] == "250"


def test_pods_that_allow_it_are_evicted_for_others_and_for_the_cap(
    api: Api, mirror: Mirror, rounds: Rounds, submit: Submit
) -> None:
    for name in ("small", "kept"):
        may = {PREFIX + "preemptible": "true"} if name == "small" else {}
        submitted(mirror, submit(name, 8, annotations=may))
    assert set(rounds.round().started) == {"default/small", "default/kept"}
    submitted(mirror, submit("large", 8, annotations={PREFIX + "weight": "50"}))
    report = rounds.round()
    assert set(report.stopped) == {"default/small"}
    assert set(report.postponed) == {"default/large"}
    # Its grace period: nobody else is evicted, and nothing starts where it is.
    waits = rounds.round()
    assert (waits.stopped, set(waits.postponed)) == ({}, {"default/large"})
    api.call(api.core.delete_namespaced_pod, "small", "default", grace_period_seconds=0)
    assert mirror.wait(lambda pods: len(pods) == 2)
    assert set(rounds.round().started) == {"default/large"}
    rounds.budget.power_w = IDLE_W
    told = rounds.round()
    assert "nothing more can be done" in " ".join(told.alarms)
    assert set(nodes_of(api)) == {"kept", "large"}


def test_a_gang_of_which_one_pod_is_guarded_is_not_evicted_in_part(
    api: Api, mirror: Mirror, rounds: Rounds, submit: Submit
) -> None:
    pods = [submit(f"q-{i}", 4, **member("q", 2, preemptible="true")) for i in range(2)]
    api.call(api.core.patch_namespaced_pod, "q-1", "default", {"metadata": {"labels": {"guarded": "yes"}}})
    budget = {
        "apiVersion": "policy/v1beta1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "one"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"guarded": "yes"}}},
    }
    objects = client.CustomObjectsApi(api.core.api_client)
    objects.create_namespaced_custom_object("policy", "v1beta1", "default", "poddisruptionbudgets", budget)
    submitted(mirror, *pods)
    assert set(rounds.round().started) == {"default/gang:q"}
    for name in ("q-0", "q-1"):
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        api.call(api.core.patch_namespaced_pod_status, name, "default", status)
    rounds.budget.power_w = IDLE_W
    report = rounds.round()
    assert report.stopped == {}
    assert "default/q-1: a disruption budget forbids it now" in " ".join(report.notes)
    site = read(take(api))
    assert [pod.leaving for pod in site.pods.values()] == [False, False]
    objects.delete_namespaced_custom_object("policy", "v1beta1", "default", "poddisruptionbudgets", "one")
    assert set(rounds.round().stopped) == {"default/gang:q"}
    assert all(pod.leaving for pod in read(take(api)).pods.values())


def test_a_pod_that_goes_between_decision_and_binding(
    api: Api, mirror: Mirror, rounds: Rounds, submit: Submit
) -> None:
    submitted(mirror, *(submit(f"g-{i}", 2, **member("g", 2)) for i in range(2)))
    gone: list[str] = []

    class Interfering(Actions):
        """Acts on a cluster in which somebody else is quicker."""

        def start(self, name: str, bindings: Any) -> Any:
            """Bind, when one of the pods has been deleted or bound by others."""
            if not gone:
                gone.append(bindings[-1].pod.name)
                api.call(api.core.delete_namespaced_pod, gone[0], "default", grace_period_seconds=0)
            return super().start(name, bindings)

    assert rounds.actions is not None
    rounds.actions = Interfering(api, mirror, rounds.session)
    report = rounds.round()
    assert "404" in " ".join(report.notes)
    submitted(mirror, submit("g-again", 2, **member("g", 2)))
    joined = rounds.round()
    assert set(joined.joined) == {"default/g-again"}
    assert joined.power_w == IDLE_W + 4 * USED_W
    site = read(take(api))
    assert all(Launches().of(pod) is not None for pod in site.pods.values())


def test_a_pod_that_is_bound_already_is_not_bound_again(
    api: Api, mirror: Mirror, rounds: Rounds, submit: Submit
) -> None:
    (uid,) = submitted(mirror, submit("one", 2))
    api.bind("default", "one", uid, "gpu-2", {})
    with pytest.raises(KubernetesError, match="409") as refused:
        api.bind("default", "one", uid, "gpu-1", {})
    assert refused.value.certain
    report = rounds.round()
    assert (report.started, report.power_w) == ({}, IDLE_W + 2 * USED_W)


def test_another_process_of_ours_goes_on_where_one_was_killed(
    api: Api, mirror: Mirror, rounds: Rounds, submit: Submit, tmp_path: Path
) -> None:
    submitted(mirror, *(submit(f"g-{i}", 6, **member("g", 2)) for i in range(2)))

    class Killed(Actions):
        """Acts until it is killed, after the first pod of a gang."""

        def start(self, name: str, bindings: Any) -> Any:
            """Bind one pod, and no more."""
            self.journal.begin_action("cut off", {"action": "start"})
            super().start(name, bindings[:1])
            raise KubernetesError("killed")

    assert rounds.actions is not None
    rounds.actions = Killed(api, mirror, rounds.session)
    with pytest.raises(KubernetesError, match="killed"):
        rounds.round()
    rounds.journal.close()
    assert sorted(nodes_of(api).values())[0] == ""
    with Journal(tmp_path / "journal") as journal:
        report = rounds_on(api, mirror, journal).round()
    assert "1 actions were cut off" in " ".join(report.notes)
    assert len(report.joined) == 1
    assert sorted(nodes_of(api).values()) == ["gpu-1", "gpu-2"]
    assert (report.number, report.power_w) == (2, IDLE_W + 12 * USED_W)


def test_a_server_that_does_not_answer_is_no_empty_cluster_and_comes_back(
    plane: Any, api: Api, mirror: Mirror, rounds: Rounds, submit: Submit
) -> None:
    submitted(mirror, submit("one", 2))
    rounds.round()
    plane.stop_server()
    assert mirror.wait(lambda _: False, 1.0) is False
    with pytest.raises(KubernetesError):
        mirror.snapshot(timeout_s=0.5)
    plane.start_server()
    submit("two", 2)
    assert mirror.wait(lambda pods: len(pods) == 2, 20.0)
    report = rounds.round()
    assert (set(report.started), report.stopped) == ({"default/two"}, {})


def test_a_watch_that_is_too_old_lists_anew(plane: Any, api: Api, submit: Submit) -> None:
    old = submit("one", 1)["metadata"]["resourceVersion"]
    for i in range(3):
        submit(f"more-{i}", 1)
    # After a restart the server does not know what changed before.
    plane.stop_server()
    plane.start_server()
    with pytest.raises(KubernetesError) as refused:
        list(api.watched(api.core.list_pod_for_all_namespaces, old))
    assert refused.value.status == 410
    changed, stop = threading.Condition(), threading.Event()
    watched = Watched(api, api.core.list_pod_for_all_namespaces, changed, {"stale": {}}, old)
    threading.Thread(target=watched.follow, args=(stop,), daemon=True).start()
    with changed:
        assert changed.wait_for(lambda: "stale" not in watched.objects and watched.error is None, 20.0)
    assert len(watched.objects) == 4
    stop.set()


def test_a_token_that_is_renewed_is_read_again(plane: Any, tmp_path: Path) -> None:
    document = json.loads(plane.kubeconfig.read_text())
    token, path = tmp_path / "token", tmp_path / "kubeconfig"
    document["users"][0]["user"] = {"tokenFile": str(token)}
    path.write_text(json.dumps(document))
    token.write_text("old")
    api = Api(str(path))
    with pytest.raises(KubernetesError, match="401"):
        take(api)
    mirror = Mirror(api)
    assert not mirror.wait(lambda _: True, 0.5)
    token.write_text("admintoken")
    assert len(take(api)["nodes"]) == 2
    assert mirror.wait(lambda _: True, 20.0)
    mirror.close()


def test_a_certificate_that_is_not_believed_is_no_refusal(plane: Any, tmp_path: Path) -> None:
    document = json.loads(plane.kubeconfig.read_text())
    del document["clusters"][0]["cluster"]["insecure-skip-tls-verify"]
    (tmp_path / "strict").write_text(json.dumps(document))
    with pytest.raises(KubernetesError, match=r"does not answer.*certificate verify failed") as told:
        take(Api(str(tmp_path / "strict")))
    assert not told.value.certain


TRIAL = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from benchmarks.real_kubernetes import real_kubernetes
with real_kubernetes(Path(sys.argv[2]), 1) as plane:
    print(plane._etcd.pid, plane._server.pid, flush=True)
    time.sleep(60.0)
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_trial_that_is_ended_stops_what_it_started(
    programs: ModuleType, tmp_path: Path, ending: int
) -> None:
    folder = str(Path(str(programs.__file__)).parents[1])
    words = [sys.executable, "-c", TRIAL, folder, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trial:
        assert trial.stdout is not None
        started = [int(word) for word in trial.stdout.readline().split()]
        assert len(started) == 2
        trial.send_signal(ending)
        _, said = trial.communicate(timeout=30)
    assert "KeyboardInterrupt" in said
    for number in started:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)

"""The extender under the real default scheduler: pods land where we decide, gangs all or none."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, utils

from tests.adapters.processes import wait_for
from wattsched.serve.tokens import add_token

ROOT = Path(__file__).resolve().parents[3]
TOOLS = Path(os.environ.get("WATTSCHED_KUBERNETES", ROOT.parent / "shared" / "kubernetes"))
BUILT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "wattsched-kubernetes"
BIN = Path(os.environ.get("WATTSCHED_KUBERNETES_BIN", BUILT))
NEEDED = (TOOLS / "up", BIN / "kube-apiserver", BIN / "kube-scheduler")
MISSING = [path for path in NEEDED if not path.exists()]


def free_port(row: int = 1) -> int:
    """First of so many free ports in a row, below those that are given to clients' connections."""
    for first in random.sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), contextlib.ExitStack() as bound:
            for port in range(first, first + row):
                bound.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise RuntimeError("no ports are free")


class Trial:
    """A control plane, and our process beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.token = add_token(folder / "tokens", "scheduler", "read")
        self.process: subprocess.Popen[bytes] | None = None
        self.scheduler: subprocess.Popen[bytes] | None = None
        env = {**os.environ, "KUBE_PORT": str(free_port(row=3))}
        for name in ("up", "build"):
            shutil.copy(TOOLS / name, folder / name)
        script = (folder / "up").read_text().replace("=AlwaysAllow", "=RBAC")
        (folder / "up").chmod(0o755)
        (folder / "up").write_text(script)
        subprocess.run([folder / "up", folder / "cluster", "4"], env=env, check=True, timeout=90)
        # Its scheduler knows no extender.
        stopped = int((folder / "cluster" / "scheduler.pid").read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGTERM)
        (folder / "cluster" / "scheduler.pid").write_text("")
        settings = client.Configuration()
        config.load_kube_config(str(folder / "cluster" / "kubeconfig"), client_configuration=settings)
        self.core = client.CoreV1Api(client.ApiClient(settings))
        utils.create_from_yaml(self.core.api_client, str(ROOT / "deploy" / "rbac.yaml"))
        # Ours is the service account of the manifests, with its rights and no more.
        asked = {"spec": {"audiences": ["https://kubernetes.default.svc"]}}
        token = self.core.create_namespaced_service_account_token("wattsched", "wattsched", asked)
        text = (folder / "cluster" / "kubeconfig").read_text()
        (folder / "kubeconfig").write_text(text.replace("admintoken", token.status.token))

    def start_scheduler(self, ignorable: bool) -> None:
        """The scheduler under the configuration that we ship, as this version of it has it."""
        text = (ROOT / "deploy" / "scheduler.yaml").read_text()
        text = text.replace("config.k8s.io/v1", "config.k8s.io/v1beta1").replace("TOKEN", self.token)
        text = text.replace("wattsched.wattsched.svc:8765", f"127.0.0.1:{self.port}")
        text = text.replace("ignorable: false", f"ignorable: {str(ignorable).lower()}")
        text += f"clientConnection: {{kubeconfig: {self.folder}/cluster/kubeconfig}}\n"
        text += "leaderElection: {leaderElect: false}\n"
        text += f"healthzBindAddress: 127.0.0.1:{(port := free_port())}\n"
        text += f"metricsBindAddress: 127.0.0.1:{port}\n"
        (self.folder / "scheduler.yaml").write_text(text)
        command = [BIN / "kube-scheduler", "--config", self.folder / "scheduler.yaml", "--secure-port=0"]
        with (self.folder / "scheduler.log").open("ab") as out:
            self.scheduler = subprocess.Popen(command, stdout=out, stderr=out)

    def close(self) -> None:
        for one in (self.process, self.scheduler):
            if one is not None:
                one.kill()
                one.wait()
        subprocess.run([TOOLS / "down", self.folder / "cluster"], check=True)

    def start(self, power_w: float) -> None:
        command = [sys.executable, "-m", "wattsched", "kubernetes", "--apply", "--every", "0.5"]
        command += ["--extender", str(self.port), "--tokens", str(self.folder / "tokens")]
        command += ["--journal", str(self.folder / "journal"), "--power-w", str(power_w)]
        (self.folder / "site.json").write_text('{"allow": {"weight": [1, 1000]}}')
        command += ["--kubeconfig", str(self.folder / "kubeconfig"), "--json"]
        command += ["--options", str(self.folder / "site.json")]
        with (self.folder / "rounds").open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        wait_for(lambda: b'"number"' in (self.folder / "rounds").read_bytes())

    def end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        code, self.process = self.process.wait(30), None
        return code

    def submit(self, name: str, gpus: int, labels: dict[str, str], annotations: dict[str, str]) -> None:
        needs = {"limits": {"nvidia.com/gpu": str(gpus)}}
        pod = {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "none", "resources": needs}]},
        }
        self.core.create_namespaced_pod("default", pod)

    def nodes(self) -> dict[str, str]:
        """Nodes of the pods that are bound."""
        pods = self.core.list_namespaced_pod("default").items
        return {pod.metadata.name: pod.spec.node_name for pod in pods if pod.spec.node_name}

    def why(self, name: str) -> str:
        events = self.core.list_namespaced_event("default").items
        return " ".join(one.message for one in events if one.involved_object.name == name)

    def launches(self) -> dict[str, Any]:
        pods = self.core.list_namespaced_pod("default").items
        found = {pod.metadata.name: pod.metadata.annotations or {} for pod in pods}
        key = "wattsched.io/launch"
        return {name: json.loads(said[key]) for name, said in found.items() if key in said}

    def decided(self, name: str) -> list[str]:
        """What rounds told of a pod's start."""
        lines = (self.folder / "rounds").read_text().splitlines()
        told = [json.loads(line).get("started", {}) for line in lines if line.startswith("{")]
        return [started[key] for started in told if (key := f"default/{name}") in started]


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    if MISSING:
        pytest.skip(f"not there: {', '.join(map(str, MISSING))}")
    made = Trial(tmp_path)
    try:
        yield made
    finally:
        made.close()


OURS = {"wattsched.io/weight": "1"}


def test_the_default_scheduler_does_as_was_decided(trial: Trial) -> None:
    # Four nodes draw 4 * 200 + 32 * 50 W when they idle or so; a GPU that works 350 W more.
    trial.start(power_w=8_000.0)
    trial.start_scheduler(ignorable=True)
    for i in range(3):
        trial.submit(f"p{i}", 4, {}, OURS)
    trial.submit("theirs", 1, {}, {})
    wait_for(lambda: len(trial.nodes()) == 4)
    launches = trial.launches()
    assert set(launches) == {"p0", "p1", "p2"}
    nodes = trial.nodes()
    assert all(f"4 of {nodes[name]}," in trial.decided(name)[-1] for name in launches)
    # A gang that is not complete, and one that the cap leaves no room for, wait as a whole, and say why.
    small = {"wattsched.io/gang": "g", "wattsched.io/gang-size": "3"}
    for i in range(2):
        trial.submit(f"g{i}", 2, small, OURS)
    large = {"wattsched.io/gang": "h", "wattsched.io/gang-size": "2"}
    for i in range(2):
        trial.submit(f"h{i}", 8, large, OURS)
    wait_for(lambda: b"2 of the 3 pods of its gang" in (trial.folder / "rounds").read_bytes())
    wait_for(lambda: "wattsched: waits" in trial.why("g0"))
    wait_for(lambda: "wattsched: waits" in trial.why("h0"))
    wait_for(lambda: "2 of the 3 pods of its gang" in trial.why("g0"))
    assert len(trial.nodes()) == 4
    for name in ("p0", "p1", "p2"):
        trial.core.delete_namespaced_pod(name, "default", grace_period_seconds=0)
    trial.submit("g2", 2, small, OURS)
    wait_for(lambda: {"g0", "g1", "g2"} <= trial.nodes().keys())
    assert trial.end(signal.SIGTERM) == 0


def test_a_pod_keeps_what_it_was_announced_until_the_scheduler_comes(trial: Trial) -> None:
    """The cap has room for one of two pods, the second is worth more, and the scheduler comes late."""
    trial.start(power_w=4_000.0)
    trial.submit("first", 4, {}, OURS)
    wait_for(lambda: "first" in trial.launches())
    trial.submit("second", 4, {}, {"wattsched.io/weight": "1000"})
    told = len((trial.folder / "rounds").read_text().splitlines())
    wait_for(lambda: len((trial.folder / "rounds").read_text().splitlines()) >= told + 4)
    assert trial.decided("second") == []
    trial.start_scheduler(ignorable=False)
    wait_for(lambda: "first" in trial.nodes())
    wait_for(lambda: "wattsched: waits" in trial.why("second"))
    assert trial.launches().keys() == trial.nodes().keys() == {"first"}
    trial.core.delete_namespaced_pod("first", "default", grace_period_seconds=0)
    wait_for(lambda: "second" in trial.nodes())


@pytest.mark.parametrize("ignorable", [True, False])
def test_what_becomes_of_pods_when_we_are_killed(trial: Trial, ignorable: bool) -> None:
    trial.start(power_w=3_000.0)
    trial.start_scheduler(ignorable)
    trial.submit("p", 4, {}, OURS)
    wait_for(lambda: "wattsched: waits" in trial.why("p"))
    assert trial.nodes() == {}
    trial.end(signal.SIGKILL)
    trial.submit("q", 4, {}, OURS)
    if ignorable:
        wait_for(lambda: "q" in trial.nodes())
        return
    wait_for(lambda: "connection refused" in trial.why("q"))
    assert trial.nodes() == {}
    trial.start(power_w=9_000.0)
    wait_for(lambda: {"p", "q"} <= trial.nodes().keys(), 90.0)


def test_the_manifests_are_accepted(trial: Trial) -> None:
    utils.create_from_yaml(trial.core.api_client, str(ROOT / "deploy" / "deployment.yaml"))
    assert trial.core.read_namespaced_service("wattsched", "wattsched").spec.ports[0].port == 8765

"""The extender under the real default scheduler: pods land where we decide, gangs all or none."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, utils

from wattsched.serve.tokens import add_token

ROOT = Path(__file__).resolve().parents[3]
TOOLS = Path(os.environ.get("WATTSCHED_KUBERNETES", ROOT.parent / "shared" / "kubernetes"))
BUILT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "wattsched-kubernetes"
BIN = Path(os.environ.get("WATTSCHED_KUBERNETES_BIN", BUILT))
DEMO = {name: str(BIN / name) for name in ("kube-apiserver", "kube-scheduler") if not (BIN / name).exists()}


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
    return port


def wait_for(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come")


class Trial:
    """A control plane, and our process beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.token = add_token(folder / "tokens", "scheduler", "read")
        url = f"http://scheduler:{self.token}@127.0.0.1:{self.port}/kubernetes"
        env = {**os.environ, "KUBE_PORT": os.environ.get("KUBE_PORT", "18443")}
        subprocess.run([TOOLS / "up", folder / "cluster", "4", url], env=env, check=True, timeout=90)
        settings = client.Configuration()
        config.load_kube_config(str(folder / "cluster" / "kubeconfig"), client_configuration=settings)
        self.core = client.CoreV1Api(client.ApiClient(settings))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, power_w: float) -> None:
        command = [sys.executable, "-m", "wattsched", "kubernetes", "--apply", "--every", "0.5"]
        command += ["--extender", str(self.port), "--tokens", str(self.folder / "tokens")]
        command += ["--journal", str(self.folder / "journal"), "--power-w", str(power_w)]
        command += ["--kubeconfig", str(self.folder / "cluster" / "kubeconfig"), "--json"]
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
        return {name: json.loads(said["wattsched.io/launch"]) for name, said in found.items()
                if "wattsched.io/launch" in said}  # fmt: skip


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    if DEMO or not (TOOLS / "up").exists():
        pytest.skip("kube-apiserver, kube-scheduler or the script that starts them are not there")
    made = Trial(tmp_path)
    try:
        yield made
    finally:
        if made.process is not None:
            made.end(signal.SIGKILL)
        subprocess.run([TOOLS / "down", tmp_path / "cluster"], check=True)


OURS = {"wattsched.io/weight": "1"}


def test_the_default_scheduler_does_as_was_decided(trial: Trial) -> None:
    # Four nodes draw 4 * 200 + 32 * 50 W when they idle or so; a GPU that works 350 W more.
    trial.start(power_w=8_000.0)
    for i in range(3):
        trial.submit(f"p{i}", 4, {}, OURS)
    trial.submit("theirs", 1, {}, {})
    wait_for(lambda: len(trial.nodes()) == 4)
    launches = trial.launches()
    assert set(launches) == {"p0", "p1", "p2"}
    # A gang that is not complete, and one that the cap leaves no room for, wait as a whole, and say why.
    small = {"wattsched.io/gang": "g", "wattsched.io/gang-size": "3"}
    for i in range(2):
        trial.submit(f"g{i}", 2, small, OURS)
    large = {"wattsched.io/gang": "h", "wattsched.io/gang-size": "2"}
    for i in range(2):
        trial.submit(f"h{i}", 8, large, OURS)
    assert "2 of the 3 pods of its gang" in wait_for(
        lambda: trial.why("g0") if "of its" in trial.why("g0") else ""
    )
    wait_for(lambda: "wattsched: waits" in trial.why("h0"))
    assert len(trial.nodes()) == 4
    for name in ("p0", "p1", "p2"):
        trial.core.delete_namespaced_pod(name, "default", grace_period_seconds=0)
    trial.submit("g2", 2, small, OURS)
    wait_for(lambda: {"g0", "g1", "g2"} <= trial.nodes().keys())
    assert trial.end(signal.SIGTERM) == 0


def test_the_scheduler_goes_on_when_we_are_killed(trial: Trial) -> None:
    trial.start(power_w=3_000.0)
    trial.submit("p", 4, {}, OURS)
    wait_for(lambda: "wattsched: waits" in trial.why("p"))
    trial.end(signal.SIGKILL)
    # Not ignorable, as the scripts have it: pods that ask for GPUs wait until we are back, others do not.
    trial.submit("q", 4, {}, OURS)
    wait_for(lambda: "connection refused" in trial.why("q"))
    assert trial.nodes() == {}
    trial.start(power_w=9_000.0)
    wait_for(lambda: {"p", "q"} <= trial.nodes().keys(), 60.0)


def test_manifests_are_accepted(trial: Trial) -> None:
    for file in sorted((ROOT / "deploy").glob("*.yaml")):
        if file.name == "scheduler.yaml":
            continue
        utils.create_from_yaml(trial.core.api_client, str(file))

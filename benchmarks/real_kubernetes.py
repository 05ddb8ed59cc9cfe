"""A real Kubernetes control plane on this machine: etcd and the API server, with nodes in the API only.

Needs `etcd`, and `kube-apiserver` in the folder that WATTSCHED_KUBERNETES_BIN names (without it
~/.cache/wattsched-kubernetes). There is no kubelet: pods are bound, none runs, and whoever wants them to run
patches their status.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ending import ended_by_signals, wait_until
from wattsched.adapters.kubernetes.api import Api, KubernetesError

GPUS = 8
_TOKEN = "admintoken"


def folder_of_programs() -> Path:
    """Return the folder of the API server."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("WATTSCHED_KUBERNETES_BIN") or cache / "wattsched-kubernetes")


def missing() -> str:
    """Why there can be no control plane here; '' where there can."""
    server = folder_of_programs() / "kube-apiserver"
    if not os.access(server, os.X_OK):
        return f"there is no {server} (WATTSCHED_KUBERNETES_BIN names the folder)"
    lacks = [name for name in ("etcd", "openssl") if shutil.which(name) is None]
    return f"'{lacks[0]}' is not installed" if lacks else ""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@dataclass
class ControlPlane:
    """Etcd and an API server in a folder."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: free_ports(3))
    _etcd: subprocess.Popen[bytes] | None = None
    _server: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        """Configuration of clients."""
        return self.folder / "kubeconfig"

    def start(self) -> None:
        """Start both, and wait until they answer."""
        key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(f"{_TOKEN},admin,admin,system:masters\n")
        cluster = {"server": f"https://127.0.0.1:{self.ports[0]}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.kubeconfig.write_text(json.dumps(config))
        client, peer = (f"http://127.0.0.1:{port}" for port in self.ports[1:])
        urls = (
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
        )
        self._etcd = self._popen("etcd", "etcd", "--data-dir=etcd", *urls, "--unsafe-no-fsync")
        self.start_server()

    def start_server(self) -> None:
        """Start the API server, and wait until it answers."""
        self._server = self._popen(
            "apiserver",
            str(folder_of_programs() / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self.ports[1]}",
            "--cert-dir=certs",
            f"--secure-port={self.ports[0]}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--service-account-key-file=sa.key",
            "--service-account-signing-key-file=sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--insecure-port=0",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
        wait_until(self._answers, 60.0, f"the API server does not answer: {self.folder}/apiserver.log")

    def _answers(self) -> bool:
        """True if pods can be made, which needs the default namespace."""
        assert self._server is not None
        if self._server.poll() is not None:
            raise RuntimeError(f"the API server ended: {self.folder}/apiserver.log")
        try:
            api = Api(str(self.kubeconfig))
            api.call(api.core.read_namespace, "default")
        except KubernetesError:
            return False
        return True

    def stop_server(self) -> None:
        """Kill the API server; what it knows is in etcd."""
        _kill(self._server)

    def stop(self) -> None:
        """Kill both."""
        _kill(self._server)
        _kill(self._etcd)

    def _popen(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()


@contextmanager
def real_kubernetes(folder: Path, nodes: int) -> Iterator[ControlPlane]:
    """A control plane with nodes of eight A100, two in a rack, that is stopped at the end.

    It is so, too, where a signal ends the program.
    """
    plane = ControlPlane(folder)
    with ended_by_signals():
        try:
            plane.start()
            api = Api(str(plane.kubeconfig))
            for i in range(1, nodes + 1):
                add_node(api, f"gpu-{i}", f"r{(i + 1) // 2}")
            yield plane
        finally:
            plane.stop()


def add_node(api: Api, name: str, rack: str) -> None:
    """Make a node that is ready."""
    labels = {"nvidia.com/gpu.product": "A100-SXM4-40GB", "topology.kubernetes.io/rack": rack}
    body: dict[str, Any] = {"kind": "Node", "metadata": {"name": name, "labels": labels}}
    api.call(api.core.create_node, body)
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
    api.call(api.core.patch_node_status, name, status)


def pod_body(
    name: str,
    gpus: int,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    scheduler: str = "wattsched",
    **spec: Any,
) -> dict[str, Any]:
    """A pod that asks for GPUs."""
    container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }

"""The shipped agent as a process on a Kubernetes node, with a tool that notes what it is asked."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.emulated_slurm import AGENT, agent_module
from tests.adapters.processes import wait_for
from wattsched.adapters.kubernetes.launches import LAUNCH, Launch, Launches

TOOL = """#!/bin/sh
case "$*" in
*--query-gpu=power.default_limit*) echo 700.00 ;;
*--query-gpu*) printf 'index, uuid, power.draw [W]\\n0, {first}, 250.10\\n1, {second}, 260.20\\n' ;;
*) echo "$@" >> {calls}; [ ! -f {broken} ] || {{ echo "it is broken"; exit 3; }} ;;
esac
"""
FIRST, SECOND = (f"GPU-0000000{i}-1111-2222-3333-444444444444" for i in (1, 2))
KEY, NODE_KEY = b"k" * 32, b"n" * 32
SELECTOR = "spec.nodeName=g1.lab,status.phase!=Succeeded,status.phase!=Failed"


@dataclass
class Node:
    """A node with an agent, the API server that it asks, and what kubelet notes of GPUs."""

    folder: Path
    pods: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    asked: int = 0
    agents: list[subprocess.Popen[str]] = field(default_factory=list)
    port: int = 0

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start an agent; the options are further ones."""
        words = [sys.executable, "-I", str(AGENT), "--kubernetes", "node-key", "--node", "g1.lab"]
        words += ["--settings", ".", "--account", ".", "--kubelet", ".", "--every", "0.05", *options]
        server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.port)}
        path = {"PATH": f"{self.folder}/bin:/usr/bin:/bin"}
        self.agents.append(
            subprocess.Popen(words, env=server | path, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        )
        return self.agents[-1]

    def has(self, uid: str, *devices: str, numa: bool = True, resource: str = "nvidia.com/gpu") -> None:
        """Give a pod devices as kubelet does: in lists by NUMA node, or in one as before."""
        path = self.folder / "kubelet_internal_checkpoint"
        told = json.loads(path.read_text()) if path.exists() else {"Data": {"PodDeviceEntries": None}}
        entry = {"PodUID": uid, "ContainerName": "c", "ResourceName": resource}
        entry |= {"DeviceIDs": {"-1": list(devices)} if numa else list(devices), "AllocResp": "Cg=="}
        told["Data"]["PodDeviceEntries"] = [*(told["Data"]["PodDeviceEntries"] or []), entry]
        path.with_suffix(".new").write_text(json.dumps(told))
        os.replace(path.with_suffix(".new"), path)

    def calls(self) -> list[str]:
        """Return what was set."""
        return (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []

    def wait_for_calls(self, *expected: str) -> None:
        """Wait until these and no others were set."""
        wait_for(lambda: len(self.calls()) >= len(expected), 10.0)
        self.wait_for_steps()
        assert self.calls() == list(expected)

    def wait_for_steps(self) -> None:
        """Wait until the agent has looked several times."""
        until = self.asked + 4
        wait_for(lambda: self.asked > until, 10.0)

    def report(self) -> Any:
        """Return what the agent says of GPUs."""
        return json.loads((self.folder / "nodes/g1.lab.json").read_text())["jobs"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout key.pem -out ca.crt"
    name = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words.split(), *name], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def node(tmp_path: Path, certificate: Path) -> Iterator[Node]:
    """A node without pods; its agents end with the test."""
    node = Node(tmp_path)

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            node.asked += 1
            url = urlsplit(self.path)
            known = self.headers["Authorization"] == "Bearer secret" and url.path == "/api/v1/pods"
            assert parse_qs(url.query)["fieldSelector"] == [SELECTOR]
            assert "PartialObjectMetadataList" in self.headers["Accept"]
            body = json.dumps({"items": [{"metadata": one} for one in node.pods]}).encode()
            self.send_response(node.status if known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "ca.crt", certificate / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    node.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "ca.crt").write_bytes((certificate / "ca.crt").read_bytes())
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "node-key").write_bytes(NODE_KEY)
    (tmp_path / "kubelet_internal_checkpoint").write_text('{"Data": {"PodDeviceEntries": null}}')
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    files = {name: tmp_path / name for name in ("calls", "broken")}
    program.write_text(TOOL.format(first=FIRST, second=SECOND, **files))
    program.chmod(0o755)
    yield node
    for process in node.agents:
        process.terminate()
        process.wait(timeout=10)
    server.shutdown()
    server.server_close()


def launched(uid: str, node_key: bytes | None = NODE_KEY, **settings: Any) -> dict[str, Any]:
    """Metadata of a pod that was bound with settings, as we write them."""
    launch = Launch(uid=uid, gpus=1, power_w=250.0, **settings)
    return {"uid": uid, "annotations": Launches(KEY, node_key).sealed(launch).annotations()}


def test_it_sets_gpus_of_pods_and_resets_those_of_pods_that_are_gone(node: Node) -> None:
    node.pods = [launched("a", frequency_mhz=1005, power_limit_w=250.5, gang={"g1.lab": 1}), {"uid": "other"}]
    node.has("a", FIRST)
    node.has("other", SECOND, numa=False)
    agent = node.start()
    expected = [f"-i {FIRST} -lgc 1005,1005", f"-i {FIRST} -pl 250.5"]
    node.wait_for_calls(*expected)
    done = {"run": "a", "frequency_mhz": 1005, "power_limit_w": 250.5, "failed": None, "power_w": 250.1}
    assert node.report() == {FIRST: done}
    # Another agent after it does nothing again.
    agent.terminate()
    agent.wait(timeout=10)
    node.start()
    node.wait_for_calls(*expected)
    # Its GPU goes to another pod, of which kubelet tells in the old way.
    node.pods = [launched("b", power_limit_w=300.0), {"uid": "other"}]
    (node.folder / "kubelet_internal_checkpoint").write_text('{"Data": {"PodDeviceEntries": null}}')
    node.has("a", SECOND)
    node.has("b", FIRST, numa=False)
    expected += [f"-i {FIRST} -rgc", f"-i {FIRST} -pl 700.00", f"-i {FIRST} -pl 300"]
    node.wait_for_calls(*expected)
    node.pods = []
    node.wait_for_calls(*expected, f"-i {FIRST} -pl 700.00")
    assert node.report() == {}


def test_settings_stay_while_nothing_is_known_or_the_launch_is_taken_off(node: Node) -> None:
    node.pods = [launched("a", frequency_mhz=1005)]
    node.has("a", FIRST)
    node.start()
    expected = f"-i {FIRST} -lgc 1005,1005"
    node.wait_for_calls(expected)
    node.status, node.pods = 503, []
    node.wait_for_calls(expected)
    node.status, node.pods = 200, [{"uid": "a", "annotations": {LAUNCH: "null"}}]
    node.wait_for_calls(expected)
    for text in ("{", '{"Data": {"PodDeviceEntries": []}}'):
        (node.folder / "kubelet_internal_checkpoint").write_text(text)
        node.wait_for_calls(expected)
    assert node.report()[FIRST]["frequency_mhz"] == 1005


def test_a_gpu_that_cannot_be_reset_goes_to_nobody_else(node: Node) -> None:
    node.pods = [launched("a", frequency_mhz=1005)]
    node.has("a", FIRST)
    node.start()
    node.wait_for_calls(f"-i {FIRST} -lgc 1005,1005")
    (node.folder / "broken").touch()
    node.pods = [launched("b", frequency_mhz=1410)]
    node.has("b", FIRST)
    wait_for(lambda: len(node.calls()) > 3, 10.0)
    assert set(node.calls()[1:]) == {f"-i {FIRST} -rgc"}
    (node.folder / "broken").unlink()
    wait_for(lambda: node.calls()[-1] == f"-i {FIRST} -lgc 1410,1410", 10.0)


def test_annotations_that_we_did_not_seal_set_nothing(node: Node) -> None:
    ours = launched("a", frequency_mhz=1005)
    text = ours["annotations"][LAUNCH]
    forged = {
        "changed": text.replace("1005", "1980"),
        "of another pod": text,
        "by another key": launched("by another key", KEY, frequency_mhz=9)["annotations"][LAUNCH],
        "without a key": launched("without a key", None, frequency_mhz=9)["annotations"][LAUNCH],
        "hostile": json.dumps({"uid": "hostile", "frequency_mhz": "9; reboot", "node_seal": "\u00e9"}),
        "numbers": json.dumps({"uid": "numbers", "frequency_mhz": 10**400, "node_seal": 1}),
        "deep": "[" * 60_000,
        "large": '{"uid": "' + "x" * 200_000,
        "list": '["uid", "node_seal"]',
        "text": '"uid"',
    }
    node.pods = [{"uid": "none"}, {"uid": "null", "annotations": None}]
    node.pods.append({"uid": "odd", "annotations": {LAUNCH: 1}})
    for uid, written in forged.items():
        node.pods.append({"uid": uid, "annotations": {LAUNCH: written, "wattsched.io/frequency-mhz": "9"}})
    for one in node.pods:
        node.has(one["uid"], SECOND)
    node.start()
    node.wait_for_steps()
    node.pods.append(ours)
    node.has("a", FIRST)
    node.wait_for_calls(f"-i {FIRST} -lgc 1005,1005")


AGENT_OF_KEY = agent_module().PodAgent.launched, SimpleNamespace(key=NODE_KEY)


@given(
    st.text(min_size=1),
    st.none() | st.integers(1, 10**6),
    st.none() | st.floats(0, 10**6, exclude_min=True),
    st.integers(0, 400),
    st.characters(),
)
def test_it_reads_what_we_seal_and_nothing_else(
    uid: str, clock: int | None, limit: float | None, place: int, other: str
) -> None:
    """Whatever the numbers are, and whatever character of the launch is another one."""
    launched_of, agent = AGENT_OF_KEY
    pod = launched(uid, frequency_mhz=clock, power_limit_w=limit)
    wanted = {"frequency_mhz": clock, "power_limit_w": limit}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    assert launched_of(agent, pod) == wanted
    text = pod["annotations"][LAUNCH]
    pod["annotations"][LAUNCH] = text[:place] + other + text[place + 1 :]
    assert launched_of(agent, pod) in ({}, wanted)


def test_parts_of_boards_and_other_devices_are_left_alone(node: Node) -> None:
    node.pods = [launched("a", frequency_mhz=1005)]
    node.has("a", f"{SECOND}::1", FIRST.replace("GPU", "MIG"), "0:1", "$(reboot)", "-r", f"{SECOND}\n")
    node.has("a", "0", resource="nvidia.com/gpu.shared")
    node.has("a", "1")
    node.start()
    node.wait_for_calls("-i 1 -lgc 1005,1005")
    assert node.report()["1"]["power_w"] == 260.2


def test_a_dry_run_prints_and_a_server_that_is_not_known_is_not_asked(node: Node) -> None:
    node.pods = [launched("a", frequency_mhz=1005)]
    node.has("a", FIRST)
    assert node.start("--dry-run").stdout.readline() == f"nvidia-smi -i {FIRST} -lgc 1005,1005\n"
    assert not (node.folder / "nodes").exists()
    node.agents[0].terminate()
    other = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", "k"]
    subprocess.run([*other, "-out", "ca.crt"], cwd=node.folder, check=True, capture_output=True)
    assert "CERTIFICATE_VERIFY_FAILED" in node.start().stdout.readline()
    (node.folder / "node-key").write_bytes(b"short\n")
    assert node.start().wait(timeout=10) == 1
    assert node.calls() == []


def test_its_manifest_gives_it_what_it_needs() -> None:
    """It may list pods and nothing else, and its command is one that the agent takes."""
    documents = list(yaml.safe_load_all((AGENT.parent / "agent.yaml").read_text()))
    (role,) = (one for one in documents if one["kind"] == "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    spec = documents[-1]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in spec["volumes"]}
    mounted = [one["mountPath"] for one in container["volumeMounts"]]
    module = agent_module()
    command = container["command"]
    assert all(f'"{word}"' in AGENT.read_text() for word in command if word.startswith("--"))
    assert {os.path.dirname(word) or word for word in command if word.startswith("/opt")} <= set(mounted)
    assert module.GPU.fullmatch(FIRST)

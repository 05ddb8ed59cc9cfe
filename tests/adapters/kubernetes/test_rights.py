"""The process itself, as the service account of the manifests, on a real API server with RBAC."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.adapters.processes import wait_for
from wattsched.adapters.kubernetes.api import Api

PREEMPTIBLE = {"wattsched.io/preemptible": "true"}


def pod(api: Api, name: str) -> dict[str, Any]:
    found = api.pod("default", name)
    assert found is not None
    return found


def events(api: Api, name: str) -> list[dict[str, Any]]:
    found, _ = api.listed(api.core.list_event_for_all_namespaces)
    return [one for one in found if one["involvedObject"].get("name") == name]


def lease(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.call(api.leases.read_namespaced_lease, "wattsched", "wattsched")["spec"]
    return found


def test_the_rights_of_the_manifests_are_enough(
    api: Api, service_account: Path, submit: Callable[..., Any], tmp_path: Path
) -> None:
    """It holds a Lease, reads the ConfigMap, binds, says why a pod waits, and evicts when the cap is cut."""
    cap = {"metadata": {"name": "wattsched"}, "data": {"cap.json": '{"power_w": 9000}'}}
    api.call(api.core.create_namespaced_config_map, "wattsched", cap)
    submit("one", 4, annotations=PREEMPTIBLE)
    submit("odd", 1, annotations={"wattsched.io/weight": "x"})
    command = [sys.executable, "-m", "wattsched", "kubernetes", "--apply", "--every", "0.5", "--json"]
    command += ["--journal", str(tmp_path / "journal"), "--config-map", "wattsched/wattsched"]
    command += ["--kubeconfig", str(service_account)]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        wait_for(lambda: pod(api, "one")["spec"].get("nodeName"))
        assert "wattsched.io/launch" in pod(api, "one")["metadata"]["annotations"]
        (event,) = wait_for(lambda: events(api, "odd"))
        assert "wattsched.io/weight: must be a valid number" in event["message"]
        cap["data"] = {"cap.json": '{"power_w": 1300}'}
        api.call(api.core.patch_namespaced_config_map, "wattsched", "wattsched", cap)
        wait_for(lambda: pod(api, "one")["metadata"].get("deletionTimestamp"))
        assert "holderIdentity" in lease(api)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert "holderIdentity" not in lease(api)
    lines = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines() if line[:1] == "{"]
    assert not [line for line in lines if "error" in line]
    assert not [note for line in lines for note in line["notes"] if "forbidden" in note]

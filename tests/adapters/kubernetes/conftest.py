"""A real API server for tests, where it is there; without it they are skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kubernetes import utils

from tests.benchmarks.conftest import load_script
from wattsched.adapters.kubernetes.api import Api

__all__ = ["load_script"]
DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


@pytest.fixture(scope="session")
def programs(load_script: Any) -> ModuleType:
    """The module that starts control planes; skips where that does not work."""
    module: ModuleType = load_script("real_kubernetes")
    if why := module.missing():
        pytest.skip(why)
    return module


@pytest.fixture
def plane(programs: ModuleType, tmp_path: Path) -> Iterator[Any]:
    """Two nodes of eight GPUs."""
    with programs.real_kubernetes(tmp_path, 2) as running:
        yield running


@pytest.fixture
def api(plane: Any) -> Api:
    """A client of it."""
    return Api(str(plane.kubeconfig))


@pytest.fixture
def submit(programs: ModuleType, api: Api) -> Callable[..., Any]:
    """Makes a pod: its name, its GPUs, and what it says."""

    def make(name: str, gpus: int, **said: Any) -> Any:
        return api.call(api.core.create_namespaced_pod, "default", programs.pod_body(name, gpus, **said))

    return make


@pytest.fixture
def service_account(plane: Any, api: Api, tmp_path: Path) -> Path:
    """Configuration of a client with the rights of the manifests, and no more."""
    utils.create_from_yaml(api.core.api_client, str(DEPLOY / "rbac.yaml"))
    asked = {"spec": {"audiences": ["https://kubernetes.default.svc"]}}
    made = api.call(api.core.create_namespaced_service_account_token, "wattsched", "wattsched", asked)
    document = json.loads(plane.kubeconfig.read_text())
    document["users"][0]["user"]["token"] = made["status"]["token"]
    path = tmp_path / "service-account"
    path.write_text(json.dumps(document))
    return path

"""One process acts on a cluster: Leases on a real API server, also those that are left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.processes import entered_together, left_behind
from wattsched.adapters.kubernetes.api import Api, KubernetesError
from wattsched.adapters.kubernetes.lease import Lease
from wattsched.instances.errors import InputError


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of two seconds."""
    for name, value in {"duration_s": 2, "renewed_s": 0.3, "trusted_s": 1.2, "look_s": 0.1}.items():
        monkeypatch.setattr(Lease, name, value)


@pytest.fixture
def made(plane: Any) -> Callable[..., Lease]:
    """Makes a Lease of a process of its own."""

    def make(identity: str, namespace: str = "default") -> Lease:
        api = Api(str(plane.kubeconfig))
        return Lease(identity, lambda _: None, api=api, namespace=namespace, name="wattsched")

    return make


@pytest.mark.usefixtures("short")
def test_one_holds_it_until_it_is_given_back(made: Callable[..., Lease]) -> None:
    with made("a") as first:
        first.require()
        with pytest.raises(InputError, match="'a' holds the Lease default/wattsched"):
            made("b").__enter__()
        first.require()
    with made("b") as second:
        second.require()


@pytest.mark.usefixtures("short")
def test_of_many_at_the_same_moment_one_holds_it(made: Callable[..., Lease]) -> None:
    several = [made(f"process-{i}") for i in range(6)]
    refused = entered_together(several)
    held = [one for one in several if one._thread is not None]
    assert (len(held), len(refused)) == (1, 5)
    assert all(f"'{held[0].identity}' holds" in told for told in refused)
    held[0].__exit__()


@pytest.mark.usefixtures("short")
def test_one_that_is_left_behind_expires_and_is_its_own_again_at_once(made: Callable[..., Lease]) -> None:
    left_behind(made("a").__enter__())
    with made("a") as again:
        again.require()
        left_behind(again)
        told = list[str]()
        other = made("b")
        other.tell = told.append
        with other:
            other.require()
            with pytest.raises(KubernetesError, match="could not be renewed"):
                again.require()
            again._renew()
            with pytest.raises(KubernetesError, match="'b' holds the Lease"):
                again.api.bind("default", "pod", "uid", "gpu-1", {})
            other.require()
        assert "'a' holds" in told[0]


@pytest.mark.usefixtures("short")
def test_nothing_is_changed_while_it_cannot_be_renewed(plane: Any, made: Callable[..., Lease]) -> None:
    with made("a") as held:
        plane.stop_server()
        time.sleep(Lease.trusted_s)
        with pytest.raises(KubernetesError, match="could not be renewed"):
            held.api.bind("default", "pod", "uid", "gpu-1", {})
        plane.start_server()
        until = time.monotonic() + 30
        while not held._held and time.monotonic() < until:
            time.sleep(0.1)
        held.require()


def test_a_namespace_that_is_not_there_is_named(made: Callable[..., Lease]) -> None:
    with pytest.raises(InputError, match="no namespace 'nowhere'"):
        made("a", "nowhere").__enter__()


def test_a_second_process_is_refused_and_a_killed_one_goes_on_at_once(plane: Any, tmp_path: Path) -> None:
    def begin(journal: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "wattsched", "kubernetes", "--apply", "--every", "0.5", "--json"]
        command += ["--journal", str(tmp_path / journal), "--lease-namespace", "default"]
        command += ["--kubeconfig", str(plane.kubeconfig)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    first = begin("a")
    try:
        assert first.stdout is not None
        assert '"number": 1' in first.stdout.readline()
        with begin("b") as second:
            _, said = second.communicate(timeout=60)
        assert (second.returncode, f"{tmp_path}/a#" in said, "Traceback" in said) == (2, True, False)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        first = begin("a")
        assert first.stdout is not None
        assert "number" in first.stdout.readline()
        first.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=30)
        assert (first.returncode, "waiting" in said) == (0, False)
    finally:
        first.kill()
        first.communicate()

"""The key that seals how pods were started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wattsched.adapters.kubernetes.launches import Launch, Launches, key_beside
from wattsched.adapters.kubernetes.reading import KubePod, read_pod
from wattsched.instances.errors import InputError


def bound(launch: Launch, uid: str = "one") -> KubePod:
    """A pod of four GPUs that is bound with a launch."""
    about = {"name": "a", "uid": uid, "annotations": launch.annotations()}
    asked = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return read_pod({"metadata": about, "spec": {"nodeName": "n0", "containers": [asked]}})


def test_a_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    key = key_beside(tmp_path / "journal")
    assert key_beside(tmp_path / "journal") == key
    assert os.stat(tmp_path / "journal-key").st_mode & 0o777 == 0o600
    (tmp_path / "journal-key").write_bytes(b"short")
    with pytest.raises(InputError, match=r"journal-key: must have 32 bytes, has 5"):
        key_beside(tmp_path / "journal")
    with pytest.raises(InputError, match="cannot be used"):
        key_beside(tmp_path / "nowhere" / "journal")


def test_a_launch_is_believed_as_we_wrote_it() -> None:
    ours, launch = Launches(b"k" * 32), Launch(uid="one", gpus=4, power_w=0.1 + 0.2, rate=1 / 3)
    sealed = ours.sealed(launch)
    assert Launches(b"k" * 32).of(bound(sealed)) == sealed
    assert Launches(b"other".ljust(32)).of(bound(sealed)) is None
    assert Launches(b"k" * 32).of(bound(launch)) is None
    assert Launches(b"k" * 32).of(bound(sealed.model_copy(update={"power_w": 0.0}))) is None
    assert Launches(b"k" * 32).of(bound(sealed, uid="another")) is None
    assert Launches().of(bound(launch)) == launch
    # What a pod says later changes nothing, until it is gone.
    assert ours.of(bound(sealed.model_copy(update={"power_w": 0.0}))) == sealed
    ours.forget(())
    assert ours.of(bound(sealed.model_copy(update={"power_w": 0.0}))) is None

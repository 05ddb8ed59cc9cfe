"""Names that the cluster does not have: faults at the start of ``--apply``, with the nearest one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.kubernetes.test_plan import SNAPSHOT as KUBE
from tests.adapters.slurm.test_plan import SNAPSHOT as SLURM
from tests.cli.conftest import run
from wattsched.adapters.kubernetes import options as kube_options
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.reading import read as kube_read
from wattsched.adapters.options import Stated, require_names
from wattsched.adapters.slurm import options as slurm_options
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.reading import read
from wattsched.instances.errors import InputError

__all__ = ["run"]
KNOWN = {"account": {"physics", "lab"}, "qos": {"normal", "urgent"}}


def told(names: list[Stated]) -> tuple[str, list[str]]:
    """The faults at the start of ``--apply``, and the notes."""
    notes = list[str]()
    try:
        require_names(names, notes.append, apply=True)
    except InputError as error:
        return str(error), notes
    return "", notes


def feed(*members: str) -> dict[str, Any]:
    return {"power_domains": [{"name": "feed", "members": list(members), "power_cap_w": 1e4}]}


@pytest.mark.parametrize(
    ("document", "ours", "expected"),
    [
        (feed("r1", "g1"), Ours(partitions=["gpu"]), ""),
        ({}, Ours(partitions=["gpus"]), "--partition: 'gpus' is not there (did you mean 'gpu'?)"),
        ({}, Ours(partitions=["x"]), "--partition: 'x' is not there"),
        ({}, Ours(accounts=["phisics"]), "--account: 'phisics' is not there (did you mean 'physics'?)"),
        ({}, Ours(qos=["normla"]), "--qos: 'normla' is not there (did you mean 'normal'?)"),
        ({"accounts": {"labs": {}}}, Ours(), "accounts of the site's file: 'labs'"),
        ({"qos": {"urgnt": {}}}, Ours(), "qos of the site's file: 'urgnt' is not there (did you"),
        ({"tenants": {"nobody": {}}}, Ours(), "tenants of the site's file: 'nobody' is not there"),
        (feed("rooot"), Ours(), "power_domains of the site's file: 'rooot' is not there (did"),
        (feed("g9", "cooling"), Ours(), ""),
    ],
)  # fmt: skip
def test_names_that_slurm_does_not_have(document: dict[str, Any], ours: Ours, expected: str) -> None:
    options, site = SiteOptions.model_validate(document), read(SLURM)
    fault, _ = told(slurm_options.stated_names(site, options, ours, KNOWN))
    assert fault.startswith(expected)
    assert bool(fault) == bool(expected)


def test_without_accounting_only_what_is_spelt_nearly_alike_is_noted() -> None:
    options = SiteOptions.model_validate({"accounts": {"phisics": {}, "elsewhere": {}}})
    fault, notes = told(slurm_options.stated_names(read(SLURM), options, Ours(qos=["any"]), None))
    assert (fault, len(notes)) == ("", 1)
    assert "did you mean 'physics'" in notes[0]


def test_names_that_kubernetes_does_not_have() -> None:
    document = {**feed("gpu-1", "gpu-9", "r11"), "namespaces": {"defautl": {}, "elsewhere": {}}}
    options = KubernetesOptions.model_validate(document)
    fault, notes = told(kube_options.stated_names(kube_read(KUBE), options))
    assert fault == ""
    assert ["did you mean 'default'" in note for note in notes] == [True]
    misspelt = KubernetesOptions.model_validate(feed("gpu1x"))
    fault, _ = told(kube_options.stated_names(kube_read(KUBE), misspelt))
    assert "'gpu1x' is not there (did you mean 'gpu-1'?)" in fault


def test_shadow_goes_on_and_says_so(run: Any, tmp_path: Path) -> None:
    (tmp_path / "slurm.json").write_text(json.dumps(SLURM))
    done = run("slurm", "--shadow", "--snapshot", tmp_path / "slurm.json", "--partition", "gpus")
    assert done.exit_code == 0
    assert "--partition: 'gpus' is not there (did you mean 'gpu'?)" in done.output

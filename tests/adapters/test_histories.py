"""The cap is kept in random histories of both adapters: after one round from a cut, whatever else happens.

``WATTSCHED_HISTORIES`` says how many of each there are, from the number ``WATTSCHED_FIRST`` on.
"""

from __future__ import annotations

import os

import pytest

from tests.adapters.histories import World, history
from tests.adapters.kubernetes.emulator import KubernetesWorld
from tests.adapters.slurm.emulator import SlurmWorld, patched
from tests.strategies.effort import examples

FIRST = int(os.environ.get("WATTSCHED_FIRST", 0))
SEEDS = range(FIRST, FIRST + int(os.environ.get("WATTSCHED_HISTORIES", examples(10))))

TOLERANT = {
    "job*1": {"pausable": True},
    "job*[2-4]": {"pausable": True, "paused_power_w": 90.0},
    "job*[4-6]": {"checkpoint_signal": "USR1", "grace_s": 40.0},
    "job*7": {"checkpoint_signal": "B:TERM"},
}
"""What the site says of jobs of Slurm by their numbers: some may be paused, or signalled, or both."""


@pytest.mark.parametrize("scheduler", ["slurm", "kubernetes"])
def test_the_cap_is_kept_in_random_histories(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world: type[World] = patched(monkeypatch) if scheduler == "slurm" else KubernetesWorld
    monkeypatch.setattr(SlurmWorld, "site_jobs", TOLERANT)
    found = [history(world, seed) for seed in SEEDS]
    print(scheduler, {name: sum(one[name] for one in found) for name in found[0]})
    assert sum(one["rounds"] for one in found) > 5 * len(found)

"""The cap is kept in random histories of both adapters: after one round from a cut, whatever else happens.

``WATTSCHED_HISTORIES`` says how many of each there are.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from adapters.histories import history
from adapters.slurm.emulator import patched

SEEDS = range(int(os.environ.get("WATTSCHED_FIRST", 0)), int(os.environ.get("WATTSCHED_HISTORIES", 10)))


def test_the_cap_is_kept_in_random_histories_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    world = patched(monkeypatch)
    found: list[Any] = [history(world, seed) for seed in SEEDS]
    print({name: sum(one[name] for one in found) for name in found[0]})

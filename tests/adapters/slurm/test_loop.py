"""Rounds on a recorded cluster, with actions that are only noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.snapshot import Snapshot, load
from wattsched.serve.journal import Journal

SNAPSHOT = load(Path(__file__).resolve().parents[3] / "examples" / "slurm.json")


class Noted(Actions):
    """Refuses to start and to stop, and notes how often Slurm was to count anew."""

    recounts = 0

    def start(self, *_: Any) -> str:
        return "not here"

    stop = hold = start

    def recount(self) -> str:
        self.recounts += 1
        return ""


@pytest.mark.parametrize(("recount_s", "expected"), [(None, 0), (0.0, 6), (25.0, 1), (1000.0, 0)])
def test_slurm_counts_anew_what_it_has_mislaid_for_long(
    tmp_path: Path, recount_s: float | None, expected: int
) -> None:
    nodes = json.loads(SNAPSHOT["nodes"])
    nodes["nodes"][3]["gres_used"] = "gpu:A100:3(IDX:1-2,4)"
    mislaid = {**SNAPSHOT, "nodes": json.dumps(nodes), "reservations": "No reservations in the system"}
    shown: list[Snapshot] = []

    def look(_: float) -> Snapshot:
        return shown[-1]

    policy = Policy(Ours(), SiteOptions(), recount_s=recount_s, apply=True)
    with Journal(tmp_path / "journal") as journal:
        rounds = Rounds(policy, Budget(power_w=20_000.0), journal, look, Noted)
        told = []
        for second in (0, 10, 20, 30, 40, 50):
            shown.append({**mislaid, "time": str(float(SNAPSHOT["time"]) + second)})
            told += [note for note in rounds.round().notes if "counts anew" in note]
        assert isinstance(rounds.actions, Noted)
        assert rounds.actions.recounts == len(told) == expected
        # Once nothing is mislaid any more, the time begins again.
        shown.append({**SNAPSHOT, "reservations": mislaid["reservations"]})
        rounds.round()
        assert rounds._mislaid_since_s == float("inf")

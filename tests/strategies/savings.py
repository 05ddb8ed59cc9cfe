"""A small list of jobs of a site, and what is saved on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.savings import savings
from wattsched.report.saved import Savings


def dated_list(folder: Path) -> JobSource:
    """A list over the end of a month, of two accounts, whose first jobs' watts and waits were recorded."""
    file = folder / "jobs.csv"
    rows = ["job,arrival,duration,gpus,watts,wait,account,model"]
    rows += [
        f"j{j},2026-10-31 2{2 + j // 4}:{15 * (j % 4):02},3000,4,{1000 + j},{60 * j},{'ab'[j % 2]},bert"
        for j in range(8)
    ]
    file.write_text("\n".join(rows) + "\n")
    return JobSource(file, elasticity=1)


def study(source: JobSource, **more: Any) -> Savings:
    """What a policy saves on eight GPUs."""
    options: dict[str, Any] = {"policies": ("backfill+zeus",), "levels": (1.0, 0.5), "inputs": ()}
    options["settings"] = ReplaySettings(period_s=3600.0, carbon=300.0, tariff=0.2)
    return savings(source, homogeneous_cluster(1, 8, "A100"), **{**options, **more})

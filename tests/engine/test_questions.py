"""Questions that people ask of schedulers, each as a small round: the page has the very sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import wattsched
from wattsched.instances.sizing.instance import Instance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explain.md"


def cluster(*nodes: tuple[str, str, int], closed: str = "") -> dict[str, Any]:
    """Nodes by name, GPU type and number of GPUs; those of one of them may be closed."""
    rows: list[dict[str, Any]] = [{"name": name, "gpu_type": kind, "gpus": n} for name, kind, n in nodes]
    for row in rows:
        if row["name"] == closed:
            row["unavailable"] = list(range(row["gpus"]))
    return {
        "capacity": "nodes",
        "gpu_types": {kind: {"idle_power_w": 50} for _, kind, _ in nodes},
        "nodes": rows,
    }


def waits(name: str, *gpus: int, pools: tuple[str, ...] = ("A100",), **said: Any) -> dict[str, Any]:
    """A job that has an option for each number of GPUs in each pool."""
    rows = [(pool, n) for pool in pools for n in gpus]
    table = {
        "pool": [pool for pool, _ in rows],
        "gpus": [n for _, n in rows],
        "power_w": [350.0 * n for _, n in rows],
        "rate": [n**0.9 for _, n in rows],
    }
    return {"name": name, "options": table, **said}


def runs(name: str, pool: str = "A100", *, stays: bool = True, gpus: Any, **said: Any) -> dict[str, Any]:
    """A job on some GPUs of each node, which may not be stopped if it `stays`."""
    n = sum(map(len, gpus.values()))
    fixed = {"preemptible": False, "can_wait": False} if stays else {}
    return {
        **waits(name, n, pools=(pool,), **said),
        "current": {"gpus": n, "pool": pool, "nodes": gpus},
        **fixed,
    }


EIGHT, TWO = list(range(8)), cluster(("g1", "A100", 8), ("g2", "A100", 8))
ROUNDS: dict[str, dict[str, Any]] = {
    "My 8-GPU job is pending even though 8 GPUs are free": {
        "cluster": TWO,
        "jobs": [
            runs("a", gpus={"g1": [0, 1, 2, 3]}),
            runs("b", gpus={"g2": [0, 1, 2, 3]}),
            waits("train", 8),
        ],
    },
    "Only 7 of my 8 workers could start": {
        "cluster": TWO,
        "jobs": [runs("a", gpus={"g1": [0]}), waits("train", 8, 16, min_gpus=16)],
    },
    "The gang needs 4 x 8 GPUs, and most nodes are empty": {
        "cluster": cluster(*((f"g{i}", "A100", 8) for i in range(1, 5))),
        "jobs": [runs("a", gpus={"g1": [0]}), waits("train", 32)],
    },
    "Which jobs are before mine?": {
        "cluster": cluster(("g1", "A100", 8)),
        "jobs": [waits("urgent", 8, weight=4), waits("train", 8)],
    },
    "Has my team used up its quota?": {
        "cluster": TWO,
        "tenants": {"vision": {"gpus": 8}},
        "jobs": [runs("a", gpus={"g1": EIGHT}, tenant="vision"), waits("train", 4, tenant="vision")],
    },
    "GPUs are idle, and nothing starts on them": {
        "cluster": TWO,
        "budgets": {"power_w": 4000},
        "jobs": [runs("a", gpus={"g1": EIGHT}), waits("train", 4)],
    },
    "Did I ask for the wrong kind of GPU?": {
        "cluster": cluster(("g1", "A100", 8), ("h1", "H100", 8)),
        "jobs": [
            runs("a", "H100", gpus={"h1": EIGHT}),
            waits("train", 8, pools=("A100", "H100")) | {"pools": ["H100"]},
        ],
    },
    "How many nodes are left out, and why?": {
        "cluster": cluster(("g1", "A100", 8), ("g2", "A100", 8), closed="g1"),
        "jobs": [runs("a", gpus={"g2": [0, 1]}), waits("train", 8)],
    },
    "Can my job ever run here?": {"cluster": TWO, "jobs": [waits("train", 64)]},
    "Will it meet its deadline?": {
        "cluster": TWO,
        "jobs": [waits("train", 4, 8, deadline_s=600, remaining_work=10_000)],
    },
    "Why was my job stopped?": {
        "cluster": cluster(("g1", "A100", 8)),
        "jobs": [waits("urgent", 8, weight=4), runs("train", stays=False, gpus={"g1": EIGHT})],
    },
}


def table() -> dict[str, str]:
    """Questions and answers of the page."""
    section = PAGE.read_text().split("## Questions that people ask")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) (?:\([^|]*\) )?\| `(.+)` \|$", section, re.MULTILINE)
    return dict(rows)


@pytest.mark.parametrize("question", ROUNDS)
def test_the_page_has_the_sentence(question: str) -> None:
    round = {"name": "question", "objective": "goodput", **ROUNDS[question]}
    instance = Instance.model_validate(round)
    found = wattsched.explain(instance, wattsched.solve(instance, gap=1e-6), "train")
    assert found.sentence == table()[question]


def test_the_page_has_all_questions() -> None:
    assert table().keys() == ROUNDS.keys()

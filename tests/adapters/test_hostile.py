"""Hostile users on both adapters: rounds go on in time, and others get what they would without them.

``WATTSCHED_HOSTILE`` is how many kinds are tried on each; a release tries 5,000.
"""

from __future__ import annotations

import copy
import json
import os
import time
from contextlib import nullcontext, suppress
from functools import cache
from random import Random
from typing import Any

import pytest

from tests.adapters import hostile_kinds as kinds
from tests.adapters.kubernetes import test_plan as kube
from tests.adapters.slurm import test_plan as slurm
from tests.adapters.trust import session_of, tell_job
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.plan import plan_of as kube_plan_of
from wattsched.adapters.kubernetes.plan import round_of as kube_round_of
from wattsched.adapters.kubernetes.reading import read as kube_read
from wattsched.adapters.quarantine import Clock
from wattsched.adapters.slurm.load import load_of
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.plan import plan_of, round_of
from wattsched.adapters.slurm.reading import read
from wattsched.instances.errors import InputError

KINDS = int(os.environ.get("WATTSCHED_HOSTILE", "100"))
BATCH = 50
CAP_W, DEADLINE_S = 12_000.0, 30.0
ROWS = {"gpus": [2, 2], "pool": ["A100", "A100"], "rate": [1.0, 0.9], "power_w": [700.0, 480.0]}
SITE = {
    "tables": {"small": {**ROWS, "frequency_mhz": [1410, 1005]}},
    "jobs": {"*sweep": {"options": "small", "weight": 2.0}, "vision-*": {"options": "small"}},
}
GENEROUS = {
    "own_options": True,
    "pools": True,
    "weight": [0.5, 1.0],
    **{name: [1, 10_000] for name in ("gpu_counts", "batch_sizes", "frequencies_mhz", "max_gpus")},
}
CROWD = 4
"""Jobs of each kind where a crowd comes."""

QUEUE = json.loads(slurm.SNAPSHOT["jobs"])
(HELD,) = (row for row in QUEUE["jobs"] if row["name"] == "plain")
HONEST = [{**row, "comment": '{"wattsched": {}}'} if row["name"] == "sweep" else row for row in QUEUE["jobs"]]
SITES = [SITE, {**SITE, "allow": GENEROUS}]
SLURM_OPTIONS = [*map(SiteOptions.model_validate, SITES)]
KUBE_OPTIONS = [*map(KubernetesOptions.model_validate, SITES)]
(POD,) = (one for one in kube.SNAPSHOT["pods"] if one["metadata"]["name"] == "plain")


def slurm_round(rows: list[dict[str, Any]], place: int) -> Any:
    """The round with more held jobs."""
    site = read({**slurm.SNAPSHOT, "jobs": json.dumps({**QUEUE, "jobs": [*HONEST, *rows]})})
    return round_of(load_of(site, SLURM_OPTIONS[place], Ours()), Ours(), 60.0, None, Clock(DEADLINE_S))


def kube_round(pods: list[dict[str, Any]], place: int) -> Any:
    """The round with more pods."""
    site = kube_read({**kube.SNAPSHOT, "pods": [*kube.SNAPSHOT["pods"], *pods]})
    return kube_round_of(kube.load_at(site, KUBE_OPTIONS[place]), None, Clock(DEADLINE_S))


def decided(round: Any) -> Any:
    """The decision under a cap that leaves room for some of the jobs."""
    session = session_of(round, CAP_W, "work-value")
    for job in round.jobs:
        # What no session can compare waits, as `tell` lets it.
        with nullcontext() if "current" in job else suppress(InputError):
            tell_job(session, job)
    decision = session.solve(deadline_s=5.0)
    assert decision.solved
    assert decision.result.totals["power_w"] <= CAP_W + 1e-6
    return decision


@cache
def without(adapter: str, place: int = 0) -> Any:
    """The round that nobody attacks."""
    return slurm_round([], place) if adapter == "slurm" else kube_round([], place)


def attacked(adapter: str, rng: Random, place: int) -> tuple[Any, list[str]]:
    """A round with a hostile kind, alone or in a crowd, and the names of its jobs."""
    crowd = rng.choice([1, 1, 1, CROWD])
    if adapter == "slurm":
        row = {**HELD, "user_name": "eve", "name": "evil", **kinds.slurm_row(rng)}
        numbers = range(500, 500 + crowd)
        return slurm_round([{**row, "job_id": number} for number in numbers], place), [*map(str, numbers)]
    pods, metadata, gpus = [], kinds.pod_metadata(rng), kinds.pod_gpus(rng)
    for i in range(crowd):
        pod = copy.deepcopy(POD)
        pod["metadata"] |= {"name": f"evil-{i}", "uid": f"evil-{i}", "namespace": "eve", **metadata}
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        pods.append(pod)
    return kube_round(pods, place), [f"eve/evil-{i}" for i in range(crowd)]


def believed(record: dict[str, Any]) -> bool:
    """Whether a job is told with nothing that shifts a decision in its favour."""
    table = record["options"]
    idle = all(w >= 50.0 * gpus for gpus, w in zip(table["gpus"], table["power_w"], strict=True))
    told = {"restart_s", "deadline_s", "can_wait", "change_cost", "tenant"} & record.keys()
    return idle and not told and record.get("weight", 1.0) <= 1.0


@pytest.mark.parametrize("adapter", ["slurm", "kubernetes"])
@pytest.mark.parametrize("batch", range(-(-KINDS // BATCH)))
def test_whatever_a_user_says_others_get_what_they_would_have_got(adapter: str, batch: int) -> None:
    names_of = {"slurm": int, "kubernetes": str}[adapter]
    for seed in range(batch * BATCH, min(KINDS, (batch + 1) * BATCH)):
        begun, quiet = time.monotonic(), without(adapter, seed % 2)
        round, names = attacked(adapter, Random(seed), seed % 2)
        assert time.monotonic() - begun < DEADLINE_S, seed
        others = [job for job in round.jobs if job["name"] not in names]
        assert others == quiet.jobs, seed
        # Each job of the kind is told or has a reason, or is no job of ours.
        mine = [job for job in round.jobs if job["name"] in names]
        waits = [name for name in names if names_of(name) in round.left_out]
        assert len(mine) + len(waits) in (0, len(names)), seed
        assert all(map(believed, mine)), (seed, mine)
        assert round.cluster == quiet.cluster, seed
    # Of those that are told, one is decided with: the caps are kept by the site's watts.
    rng = Random(batch)
    while True:
        round, names = attacked(adapter, rng, batch % 2)
        if any(job["name"] in names for job in round.jobs):
            break
    plan = (plan_of if adapter == "slurm" else kube_plan_of)(round, decided(round))
    assert set(plan.stops) <= {names_of(job["name"]) for job in without(adapter).jobs}


@pytest.mark.parametrize("adapter", ["slurm", "kubernetes"])
def test_what_runs_counts_as_launched_whatever_is_said_of_it_later(adapter: str) -> None:
    for seed in range(min(KINDS, 100) if KINDS == 100 else KINDS):
        rng = Random(seed)
        if adapter == "slurm":
            rows = [row | ({"comment": kinds.text(rng)} if row["name"] == "large" else {}) for row in HONEST]
            site = read({**slurm.SNAPSHOT, "jobs": json.dumps({**QUEUE, "jobs": rows})})
            round = round_of(load_of(site, SLURM_OPTIONS[seed % 2], Ours(partitions=["gpu"])), Ours(), 60.0)
            record = next(job for job in round.jobs if job["name"] == "22")
        else:
            pods = copy.deepcopy(kube.SNAPSHOT["pods"])
            for pod in pods:
                if pod["metadata"]["name"] == "old":
                    more = kinds.pod_metadata(rng)["annotations"]
                    kept = {"wattsched.io/launch", "wattsched.io/preemptible"}
                    pod["metadata"]["annotations"] |= {n: t for n, t in more.items() if n not in kept}
            round = kube_round_of(
                kube.load_at(kube_read({**kube.SNAPSHOT, "pods": pods}), KUBE_OPTIONS[seed % 2])
            )
            record = next((job for job in round.jobs if job["name"] == "default/old"), None)
            if record is None:  # it is another gang, or counts as others' load
                assert round.load.power_w == without(adapter).load.power_w
                continue
        current, table = record["current"], record["options"]
        own = [w for gpus, w in zip(table["gpus"], table["power_w"], strict=True) if gpus == current["gpus"]]
        assert own == [400.0 * current["gpus"]], seed
        assert record.get("weight", 1.0) <= 1.0
        assert not {"deadline_s", "change_cost"} & record.keys(), seed
        assert round.load.power_w == without(adapter).load.power_w

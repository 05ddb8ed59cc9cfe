"""Tables that benchmarks write, each into a file of its own: docs/tables/NAME.md.

    python benchmarks/tables.py

writes the list of them, docs/tables/README.md. The pages of the documentation link to the tables.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from wattsched.topology.arrays import FloatArray

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "tables"


@dataclass(frozen=True)
class Table:
    """What a table shows, the command that makes it, and the part of a page that explains it."""

    title: str
    command: str
    page: str


ONE_CORE = "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks"
TABLES = {
    "build-times": Table(
        "Time to build a program",
        f"{ONE_CORE}/build.py --write",
        "performance.md#building-a-program",
    ),
    "price-profile": Table(
        "Where the solver `price` spends its time",
        f"{ONE_CORE}/price_profile.py --write",
        "performance.md#solving-with-price",
    ),
    "large-rounds": Table(
        "Rounds of up to a million jobs: seconds and bytes, whole and by phase",
        "python benchmarks/large_rounds.py --write",
        "performance.md#large-rounds",
    ),
    "large-seeds": Table(
        "Large rounds over many seeds: whole commands from file to file",
        "python benchmarks/large_seeds.py --write",
        "performance.md#large-rounds",
    ),
    "capacity": Table(
        "Rounds on pools of blocks, nodes and counts: how long they take, and what jobs gain",
        f"{ONE_CORE}/capacity.py --write",
        "model.md#placement-nodes-and-counts",
    ),
    "sleeping": Table(
        "Rounds of least energy for a goodput, on nodes that are always awake and on nodes that sleep",
        f"{ONE_CORE}/sleeping.py --write",
        "model.md#nodes-that-sleep",
    ),
    "sessions": Table(
        "What a decision of a session costs, against HiGHS on arrays that are ready",
        f"{ONE_CORE}/sessions.py --write",
        "session.md#what-a-decision-costs",
    ),
    "service": Table(
        "The service under load, faulty requests, kills and a day of rounds",
        f"{ONE_CORE}/service.py --write",
        "service.md#what-it-takes",
    ),
    "slurm": Table(
        "A Slurm cluster in minutes: budget halved, nodes drained, everything restarted",
        "python benchmarks/slurm.py --seeds 3 --write",
        "slurm.md#measured",
    ),
    "kubernetes": Table(
        "A Kubernetes cluster in minutes: cap halved, nodes cordoned, everything restarted",
        "python benchmarks/kubernetes_cluster.py --seeds 2 --write",
        "kubernetes.md#measured",
    ),
    "simulators": Table(
        "Gavel's simulator under its own policies and under ours",
        "python benchmarks/simulators.py --gavel gavel/scheduler --seeds 3 --jobs 80 --write",
        "simulators.md#in-its-simulator",
    ),
    "sia-simulator": Table(
        "Sia's simulator under its own policy and under ours",
        "python benchmarks/sia_simulator.py --sia sia/sia-simulator --jobs 40 --write",
        "simulators.md#in-sias-simulator",
    ),
    "extender": Table(
        "The extender of Kubernetes under load: how long an answer takes",
        "python benchmarks/extender.py --write",
        "kubernetes.md#measured-the-extender",
    ),
    "sharded-round": Table(
        "One round in shards on a local Dask cluster of two processes",
        "python benchmarks/sharded_round.py --write",
        "cluster.md#one-large-round",
    ),
    "warm-rounds": Table(
        "A second round from arrays, with the answer to the first",
        f"{ONE_CORE}/warm_rounds.py --write",
        "python.md#round-after-round-from-arrays",
    ),
    "deadlines": Table(
        "Calls with a time limit: how late they are",
        "python benchmarks/deadlines.py --solves 10000 --processes 2 --write",
        "performance.md#calls-with-a-time-limit",
    ),
    "time-limits": Table(
        "Commands with a time limit that were once late",
        "python benchmarks/time_limits.py --write",
        "performance.md#calls-with-a-time-limit",
    ),
    "small-proofs": Table(
        "What certificates of small instances prove by themselves",
        "OMP_NUM_THREADS=1 python benchmarks/small_proofs.py --write",
        "model.md#certificate-trees",
    ),
    "library": Table(
        "Who solves what of the library of instances",
        "python benchmarks/library.py --folder DIR --write",
        "library.md#what-is-known-of-it",
    ),
    "suite": Table(
        "All solvers and their peers on the same programs",
        "python benchmarks/suite.py --write",
        "benchmarks.md",
    ),
    "seeds": Table(
        "Solvers over many seeds of each family",
        f"{ONE_CORE}/seeds.py --write",
        "benchmarks.md#over-many-seeds",
    ),
    "real-rounds": Table(
        "Two real rounds by several formulations and solvers",
        "python benchmarks/real_rounds.py --write",
        "real-rounds.md#solving-them",
    ),
    "round-objectives": Table(
        "Whole replays under each objective of a round",
        "python benchmarks/round_objectives.py --write",
        "model.md#rounds-in-sequence",
    ),
    "savings": Table(
        "What policies would save against backfilling, and who would be served later",
        "python benchmarks/savings.py --write",
        "operator.md#what-would-be-saved",
    ),
    "first-hour": Table(
        "From a cluster to a report of what it would save: seconds of each command",
        "python benchmarks/first_hour.py --write",
        "operator.md#what-would-be-saved",
    ),
    "new-gpus": Table(
        "Today's GPUs: published rates and watts, and ours",
        "python benchmarks/new_gpus.py --write",
        "performance-models.md#todays-gpus",
    ),
    "replay-bounds": Table(
        "What no schedule of public traces is below, and how far policies are above",
        f"{ONE_CORE}/replay_bounds.py --write --seeds 2",
        "bound.md#public-traces",
    ),
    "powerflow": Table(
        "PowerFlow's rule, baselines and `sizing` under energy budgets",
        "python benchmarks/budgets.py --part powerflow --write",
        "results.md#powerflow",
    ),
    "grounds": Table(
        "`sizing` against PowerFlow's rule where nothing was chosen",
        "python benchmarks/grounds.py --write",
        "results.md#new-grounds",
    ),
    "online-price": Table(
        "`sizing` under one budget for a month: spent evenly, at a price that it learns, and with hindsight",
        "python benchmarks/online_price.py --write",
        "results.md#one-budget-for-a-month",
    ),
    "greenflow": Table(
        "GreenFlow's rule, a baseline and `sizing` under carbon budgets",
        "python benchmarks/budgets.py --part greenflow --write",
        "results.md#greenflow",
    ),
    "eaco": Table(
        "EaCO's simulation: published figures, its rule, ours, and bounds",
        "python benchmarks/eaco.py --write",
        "results.md#eaco",
    ),
    "sidecar": Table(
        "SideCar: published figures, its rule and ours",
        "python benchmarks/elastic.py --headline --write",
        "results.md#sidecar",
    ),
    "elastic": Table(
        "Elastic policies on 16 GPUs: completion time, makespan and energy",
        "python benchmarks/elastic.py --write",
        "elastic.md#makespan-and-completion-time-on-16-gpus",
    ),
    "elastic-values": Table(
        "`elastic` on clusters of two GPU types: jobs valued by GPU seconds, and by their slowest option",
        "python benchmarks/elastic_values.py --write",
        "elastic.md#what-a-round-should-minimise",
    ),
    "itp-512": Table(
        "Two months of ITP jobs on 512 A100 under ten policies",
        "wattsched replay $WATTSCHED_DATA/itp-elasticflow-2021/raw/cluster04.csv --format itp --nodes 64 "
        "--policy fifo,srtf,tiresias-2dlas,gavel-max-min,gandiva,eaco,sia,elastic,powerflow,sizing --json",
        "elastic.md#a-cluster-of-512-gpus-for-two-months",
    ),
    "shifting-savings": Table(
        "Grams of carbon that a forecast saves",
        "python benchmarks/shifting.py --only savings --write",
        "shifting.md#measured-what-the-forecast-is-worth",
    ),
    "shifting-budgets": Table(
        "Completion time within a carbon budget",
        "python benchmarks/shifting.py --only budgets --write",
        "shifting.md#measured-time-within-a-budget",
    ),
    "shifting-sizes": Table(
        "Large horizons of `shifting`",
        "python benchmarks/shifting.py --only sizes --write",
        "shifting.md#measured-large-horizons",
    ),
    "sharing-measured": Table(
        "EaCO's measurements, and what the model and the laws say of them",
        "python benchmarks/sharing.py --part measured --write",
        "sharing.md#eacos-measurements",
    ),
    "sharing-rounds": Table(
        "Rounds of 2,000 jobs of Gavel's trace",
        "python benchmarks/sharing.py --part rounds --write",
        "sharing.md#rounds-of-2000-jobs",
    ),
    "sharing-policies": Table(
        "Sharing policies over time",
        "python benchmarks/sharing.py --part policies --write",
        "sharing.md#policies-over-time",
    ),
    "sizing-sets": Table(
        "Rounds of `sizing` with and without sets of jobs that share GPUs",
        "python benchmarks/sizing_sets.py --write",
        "sharing.md#sets-in-sizing",
    ),
    "placement-reproduction": Table(
        "FGD's published results, reproduced",
        "python benchmarks/placement.py --write",
        "placement.md#reproduction-of-the-published-results",
    ),
    "placement-curves": Table(
        "FGD's published curves at every 5 % of arrivals",
        "python benchmarks/placement_curves.py --write",
        "placement.md#reproduction-of-the-published-results",
    ),
    "placement-power": Table(
        "Power saved with respect to FGD",
        "python benchmarks/placement.py --write",
        "placement.md#power-saved",
    ),
    "placement-lists": Table(
        "The policy `bid` against FGD and PWR on every list",
        "python benchmarks/placement_lists.py --write",
        "placement.md#our-policies-paying-for-capacity",
    ),
    "placement-bids": Table(
        "The policies `bid` and `bid-reserve` against the published ones and the bound",
        "python benchmarks/placement_bids.py --write",
        "placement.md#our-policies-paying-for-capacity",
    ),
}
"""By the name of the file. That of ``wattsched replay`` is put together by hand, all others are written."""


def asked_over_seeds(doc: str | None, seeds: int = 20) -> argparse.Namespace:
    """Arguments of a benchmark over seeds: how many, whether it is a quick one, and whether to write."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=seeds, metavar="N")
    parser.add_argument("--quick", action="store_true", help="small rounds, for the tests")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tables")
    return parser.parse_args()


def write(name: str, content: str, folder: Path | None = None) -> Path:
    """Write a table of `TABLES` with its heading, by default into docs/tables."""
    path = (folder or FOLDER) / f"{name}.md"
    path.write_text(f"{heading(name)}\n{content.strip()}\n", encoding="utf-8")
    return path


def heading(name: str) -> str:
    """Title of a table, the command that makes it, and a link to the text about it."""
    made = TABLES[name]
    page = made.page.partition("#")[0]
    return f"# {made.title}\n\nMade by `{made.command}`. Explained in [{page}](../{made.page}).\n"


def index() -> str:
    """List of all tables."""
    rows = [f"| [{made.title}]({name}.md) | `{made.command}` |" for name, made in TABLES.items()]
    about = "Results of the programs in `benchmarks/`. The pages in `docs/` refer to them."
    return "\n".join(["# Tables", "", about, "", "| table | made by |", "| :-- | :-- |", *rows, ""])


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown table; every column but the first is aligned to the right."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def interval(values: FloatArray, digits: int = 2, sign: str = "") -> str:
    """Mean over the seeds, and half of the 95 % confidence interval of Student's t; `sign` may be ``+``."""
    mean = f"{values.mean():{sign}.{digits}f}"
    if len(values) < 2:
        return mean
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{mean} ± {half:.{digits}f}"


def machine() -> str:
    """Describe the machine in one line."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(index(), encoding="utf-8")

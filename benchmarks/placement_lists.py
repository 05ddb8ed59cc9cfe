"""Our placement policies against FGD's GRAR and PWR's power, on every list of Alibaba's tasks that is there.

    WATTSCHED_DATA=... python benchmarks/placement_lists.py [--runs FILE] [--processes N] [--seeds A-B]
    [--write]

FILE keeps the runs, those of benchmarks/placement.py too; ``--write`` puts the table into docs/tables.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from placement import SEEDS, Runs, lists_in, run_missing
from placement_bids import HOSTS_ALL
from tables import table, write

from wattsched.replay.placement.curves import Curves, mean, saving_pct

POLICIES = ("fgd", "pwr", "bid")
SAVED_AT = (0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)


def hosted_until(curves: Curves) -> int:
    """Position of the first point of the grid, behind 0, at which a policy does not host everything."""
    refuses = curves.grar < HOSTS_ALL
    return int(refuses.argmax()) if refuses.any() else len(refuses)


def most_above_pct(bid: Curves, pwr: Curves) -> float:
    """Most that a run of `bid` draws above that of `pwr` of the same tasks until that refuses one."""
    return float(np.max(100 * (bid.eopc_w / pwr.eopc_w - 1)[1 : hosted_until(pwr)], initial=-np.inf))


def row_of(name: str, runs: Mapping[str, Sequence[Curves]]) -> list[str]:
    """One list: GRAR at the end of the capacity, power above PWR's, power saved with respect to FGD."""
    fgd, pwr, bid = (mean(runs[policy]) for policy in POLICIES)
    end, saved = fgd.at(1.0), saving_pct(bid, fgd)
    refuses = [run.arrived[until] for run in runs["pwr"] if (until := hosted_until(run)) < len(run.arrived)]
    above = [most_above_pct(*pair) for pair in zip(runs["bid"], runs["pwr"], strict=True)]
    return [
        f"`{name}`",
        *(f"{of.grar[end]:.4f}" for of in (pwr, fgd, bid)),
        f"{bid.grar[end] - fgd.grar[end]:+.4f}",
        f"{np.mean(refuses):.2f}" if refuses else "never",
        f"{np.mean(above):+.2f} %",
        f"{np.max(above):+.2f} %",
        *(f"{saved[bid.at(x)]:.1f}" for x in SAVED_AT),
    ]


def seeds_of(text: str) -> Sequence[int]:
    """Seeds from A to B, of ``A-B``."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("placement-runs.jsonl"), metavar="FILE")
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    parser.add_argument("--seeds", type=seeds_of, default=SEEDS, metavar="A-B")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tables")
    arguments = parser.parse_args()
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    traces = Path(os.environ["WATTSCHED_DATA"]) / "alibaba-gpu-2023"
    runs, seeds = Runs(arguments.runs), arguments.seeds
    rows = []
    for name in lists_in(traces):
        run_missing(runs, traces, name, POLICIES, arguments.processes, seeds)
        rows.append(row_of(name, {policy: runs.of(name, policy, seeds) for policy in POLICIES}))
    header = ["list", "GRAR(1) of `pwr`", "`fgd`", "`bid`", "`bid` less `fgd`", "`pwr` refuses from x ="]
    header += ["most that `bid` draws above `pwr` until then", "worst seed"]
    header += [f"power saved to `fgd`, %, at {x:g}" for x in SAVED_AT]
    told = f"Means over the seeds {seeds[0]} to {seeds[-1]}; PWR refuses from a GRAR below {HOSTS_ALL} on."
    text = f"{table(header, rows)}\n\n{told}"
    print(text)
    if arguments.write:
        write("placement-lists", text)


if __name__ == "__main__":
    main()

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

from placement import SEEDS, Runs, lists_in, run_missing
from placement_bids import HOSTS_ALL
from tables import table, write

from wattsched.replay.placement.curves import Curves, saving_pct

POLICIES = ("fgd", "pwr", "bid")
SAVED_AT = (0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)


def hosted_until(curves: Curves) -> int:
    """Position of the first point of the grid, behind 0, at which a policy does not host everything."""
    refuses = curves.grar < HOSTS_ALL
    return int(refuses.argmax()) if refuses.any() else len(refuses)


def row_of(name: str, curves: Mapping[str, Curves]) -> list[str]:
    """One list: GRAR at the end of the capacity, power above PWR's, power saved with respect to FGD."""
    fgd, pwr, bid = (curves[policy] for policy in POLICIES)
    until, end = hosted_until(pwr), fgd.at(1.0)
    above = 100 * (bid.eopc_w / pwr.eopc_w - 1)[1:until]
    saved = saving_pct(bid, fgd)
    return [
        f"`{name}`",
        *(f"{of.grar[end]:.4f}" for of in (pwr, fgd, bid)),
        f"{bid.grar[end] - fgd.grar[end]:+.4f}",
        f"{pwr.arrived[until]:.2f}" if until < len(pwr.arrived) else "never",
        f"{above.max():+.2f} %" if above.size else "-",
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
        rows.append(row_of(name, {policy: runs.mean(name, policy, seeds) for policy in POLICIES}))
    header = ["list", "GRAR(1) of `pwr`", "`fgd`", "`bid`", "`bid` less `fgd`", "`pwr` refuses from x ="]
    header += ["most that `bid` draws above `pwr` until then"]
    header += [f"power saved to `fgd`, %, at {x:g}" for x in SAVED_AT]
    text = table(header, rows) + f"\n\nMeans over the seeds {seeds[0]} to {seeds[-1]}."
    print(text)
    if arguments.write:
        write("placement-lists", text)


if __name__ == "__main__":
    main()

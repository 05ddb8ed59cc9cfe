"""``wattsched capacity``: which GPUs and which power cap to have for a load that grows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.completion import completing, replay_policies
from wattsched.cli.failures import INFEASIBLE, refusing
from wattsched.cli.files import counting, save_plot, write_json
from wattsched.cli.importing import ClusterOptions, cluster_options
from wattsched.cli.outputs import ParamType, json_option, plot_option
from wattsched.cli.parameters import (
    Described,
    FileName,
    Number,
    file_option,
    filling,
    seeds_option,
)
from wattsched.cli.replay_options import (
    MOST_GPUS_PER_NODE,
    MOST_NODES,
    TIMES,
    policies_known,
    site_of,
    source_options,
)
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.report.capacity import reasons_against, tables_of, verdict
from wattsched.report.terminal import console, heading, line, table

if TYPE_CHECKING:
    from wattsched.replay.jobs.simulation import Replay

MOST_NUMBERS = 1_000
OTHERS = (
    *("carbon", "zone", "start", "budget", "period_s", "pacing", "tariff", "least_price", "signal", "wishes"),
    *("sleep_after_s", "sleep_power_w", "wake_s"),
)
"""Settings that are none of the command's: the price sheet tells what energy costs, and no node sleeps."""


class Numbers(ParamType):
    """Whole numbers and ranges between commas, ``0,2,4`` or ``20-40:5``; `of` a pool, ``POOL=NUMBERS``."""

    name = "numbers"

    def __init__(self, *, of: bool = False) -> None:
        self.of = of

    def read(self, value: Any) -> Any:
        """Read the numbers, ascending, and the pool."""
        pool, equals, numbers = str(value).rpartition("=")
        if self.of != bool(pool and equals):
            raise ValueError(f"'{value}' is not POOL=NUMBERS" if self.of else f"'{value}' names a pool")
        found = set[int]()
        for part in numbers.split(","):
            ends = re.fullmatch(r"\s*(\d{1,12})(?:-(\d{1,12})(?::(\d{1,12}))?)?\s*", part)
            first, last, step = (
                (0, 0, 0) if ends is None else map(int, (ends[1], ends[2] or ends[1], ends[3] or 1))
            )
            if last < first:
                raise ValueError(f"'{part}' ends before it begins")
            if not step:
                raise ValueError(f"'{part}' is neither a whole number nor a range such as 2-8 or 2-8:2")
            if (last - first) // step >= MOST_NUMBERS:
                raise ValueError(f"'{part}' has more than {MOST_NUMBERS:,} numbers; a step makes it fewer")
            found.update(range(first, last + 1, step))
        return (pool, sorted(found)) if self.of else sorted(found)


@click.command("capacity", cls=Described, sections=policies_known)
@click.argument("file", metavar="TRACE", type=FileName())
@source_options()
@cluster_options(most_nodes=MOST_NODES, most_gpus_per_node=MOST_GPUS_PER_NODE)
@file_option("--prices", "What nodes, energy, the cap and the time of jobs cost (.json).")
@click.option(
    "--try",
    "tried",
    type=Numbers(of=True),
    metavar="POOL=N-M:STEP",
    multiple=True,
    help="Numbers of nodes to consider of a pool, or of a GPU type of the prices; others stay as they are.",
)
@click.option(
    "--caps", "caps_w", type=Numbers(), metavar="N-M:STEP", help="Watts of the power caps to consider."
)
@click.option("--growth", type=Number(0, most=1_000), default=0.0, help="Percent of jobs that come on top.")
@click.option(
    "--policy", default="sizing", metavar="P", shell_complete=completing(replay_policies), help="Who decides."
)
@filling("settings", ReplaySettings, OTHERS, **TIMES, gap={"type": Number(0), "default": 1e-2})
@seeds_option("0-2", "They draw the new jobs, and models where the trace does not tell.")
@plot_option("Draw the costs of the candidates: .png, .svg or .pdf.")
@json_option("all candidates")
def command(
    source: JobSource,
    cluster: ClusterOptions,
    prices: str,
    tried: tuple[tuple[str, list[int]], ...],
    caps_w: list[int] | None,
    growth: float,
    policy: str,
    settings: ReplaySettings,
    seeds: list[int],
    plot: str | None,
    as_json: bool,
) -> int | None:
    """Say which GPUs to buy or power down, and which power cap to ask for, for a load that grows.

    Numbers of nodes and caps are candidates. Bounds show which of them cannot be the cheapest, and replays of
    TRACE find the best of the others. --power-w is the cap of today.
    """
    from wattsched.replaying.capacity import capacity
    from wattsched.replaying.price_sheet import read_prices

    with refusing():
        site, settings = site_of(cluster, settings)
        sheet = read_prices(prices)
    nodes: dict[str, list[int]] = {}
    for pool, counts in tried:
        nodes[pool] = sorted({*nodes.get(pool, ()), *counts})
    with counting() as show, refusing(options={"nodes": "--try"}):

        def progress(replay: Replay, seed: int, resumed: bool) -> None:
            show(f"replay under {replay.name}, seed {seed}", replay.complete, len(replay.trace))

        plan = capacity(
            source,
            site,
            sheet,
            nodes=nodes,
            caps_w=[float(cap_w) for cap_w in caps_w or ()],
            growth=growth / 100,
            policy=policy,
            seeds=seeds,
            settings=settings,
            progress=progress,
        )
    cluster.tell()
    if plot is not None:
        from wattsched.plot.capacity import capacity_figure

        save_plot(capacity_figure(plan), plot)
    if as_json:
        write_json(plan.as_dict())
    else:
        out = console()
        line(out, verdict(plan))
        for title, note, columns, rows in tables_of(plan):
            heading(out, title, note)
            table(out, columns, rows)
        for reason in reasons_against(plan):
            line(out, f"cannot run: {reason}")
    return INFEASIBLE if plan.best is None else None

"""``wattsched place``: arriving tasks under placement policies, as curves over the arrived demand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.completion import placement_policies
from wattsched.cli.executors import dask_option, spread
from wattsched.cli.failures import refusing
from wattsched.cli.files import counting, save_plot, write
from wattsched.cli.outputs import json_option, plot_option, report_option, write_page
from wattsched.cli.parameters import (
    Described,
    Number,
    Whole,
    file_option,
    listed_policies,
    refuse_given,
    seeds_option,
)
from wattsched.environment.extras import late
from wattsched.replay.placement.curves import Curves, saving_pct
from wattsched.report.terminal import console, heading, line, table
from wattsched.report.wording import count

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.replay.placement.bounds import Distances
    from wattsched.replay.placement.stream import Experiment
    from wattsched.replaying.placements import PlacementTrial
    from wattsched.topology.arrays import FloatArray


MOST_ARRIVALS = 10.0
MOST_PROCESSES = 256
DECIMALS = 6
CURVES = ("arrived", "allocated_pct", "grar", "eopc_w", "eopc_cpu_w", "eopc_gpu_w", "frag_pct", "failed")
"""Curves of a policy, in the order of the JSON document; those of the bound are among them."""


def _policies() -> dict[str, str]:
    return {"Policies": f"{', '.join(placement_policies())}, and weighted sums such as pwr+fgd:100/900."}


@click.command("place", cls=Described, sections=_policies)
@file_option("--nodes", "Nodes: sn, cpu_milli, memory_mib, gpu, model (.csv).")
@file_option("--tasks", "Tasks: cpu_milli, memory_mib, num_gpu, gpu_milli and, if wanted, gpu_spec (.csv).")
@click.option(
    "--arrivals",
    type=Number(0.01, most=MOST_ARRIVALS),
    default=1.3,
    metavar="X",
    help="GPU to ask for, as a part of the capacity.",
)
@click.option(
    "--cpu-model",
    type=click.Choice(["uniform", "mapped"]),
    default="uniform",
    help="One for all nodes, as published, or the one that usually goes with the GPU.",
)
@listed_policies(
    placement_policies,
    late("replay.placement.policies:policy_factory"),
    "fgd",
    "Who places the tasks; named below.",
)
@seeds_option("42-51", "One run for each.")
@click.option("--bound/--no-bound", default=True, help="Say how far from any placement's best they are.")
@click.option("--processes", type=Whole(1, MOST_PROCESSES), default=1, metavar="N", help="Runs at a time.")
@click.option(
    "--bound-gap",
    type=Number(1e-6, below=1),
    default=0.01,
    metavar="G",
    help="How loose the bound may be; 0.001 takes some ten times as long.",
)
@dask_option("the runs")
@plot_option("Draw the curves: .png, .svg or .pdf.")
@report_option("the curves")
@json_option("the curves")
def command(
    nodes: str,
    tasks: str,
    arrivals: float,
    cpu_model: str,
    policies: list[str],
    seeds: list[int],
    bound: bool,
    processes: int,
    bound_gap: float,
    dask: str | None,
    plot: str | None,
    report: str | None,
    as_json: bool,
) -> None:
    """Submit a list of tasks to a cluster, one after another, under each policy.

    Each task goes at once to a node and GPUs of it, and stays, or fails. For every seed the list is shuffled
    and inflated until it asks for X times the GPUs; the curves are means over the seeds.
    """
    from wattsched.replaying.placements import place_tasks, read_experiment

    if not bound:
        refuse_given(("bound_gap",), "changes nothing with --no-bound")
    if dask is not None:
        refuse_given(("processes",), "does not go with --dask")
    with refusing():
        experiment = read_experiment(
            nodes, tasks, arrivals=arrivals, mapped_cpus=cpu_model == "mapped", seed=seeds[0]
        )
    with counting() as show, spread(dask) as executor:
        placed = place_tasks(
            experiment,
            policies,
            seeds=seeds,
            processes=processes,
            bound_gap=bound_gap if bound else None,
            executor=executor,
            progress=show,
        )
    if plot is not None:
        from wattsched.plot.placements import placement_figure

        save_plot(placement_figure(placed), plot)
    told, most = _about(experiment, len(seeds)), placed.bound and placed.bound.allocated_pct
    write_page(report, late("replay.page:placement_page"), told, placed.curves, MEASURES, most)
    if as_json:
        return write(None, _document(placed))
    return print_curves(console(), experiment, placed.curves, len(seeds), placed.bound)


def _document(placed: PlacementTrial) -> str:
    """JSON with one curve per line."""
    policies = {policy: _curves(of) for policy, of in placed.curves.items()}
    bound = {} if placed.bound is None else {**_curves(placed.bound), "floor_w": placed.bound.floor_w}
    return _laid_out({"policies": policies, "bound": bound}) + "\n"


def _curves(of: object) -> dict[str, FloatArray]:
    return {name: getattr(of, name) for name in CURVES if hasattr(of, name)}


def _laid_out(value: Any, indent: str = "") -> str:
    """JSON of curves by name; null where one is infinite."""
    if not isinstance(value, Mapping):
        rounded = (round(one, DECIMALS) if math.isfinite(one) else None for one in value.tolist())
        return json.dumps([*rounded])
    lines = [f"{indent} {json.dumps(name)}: {_laid_out(of, indent + ' ')}" for name, of in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}" if lines else "{}"


POINTS = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.3)
REFERENCE = "fgd"
ABOVE = "% above the least power of any placement that hosts as much"
MEASURES: tuple[tuple[str, str, Callable[[Curves], FloatArray], str], ...] = (
    ("Allocated GPU", "% of the capacity", lambda of: of.allocated_pct, "{:.2f}"),
    ("GRAR", "allocated GPU per GPU asked for", lambda of: of.grar, "{:.3f}"),
    ("Power", "kW", lambda of: of.eopc_w / 1000, "{:,.1f}"),
    ("Power of the CPUs", "kW of it", lambda of: of.eopc_cpu_w / 1000, "{:,.1f}"),
    ("Fragmentation", "% of the capacity", lambda of: of.frag_pct, "{:.2f}"),
)
"""Title, unit, curve and form of each table."""


def print_curves(
    out: Console,
    experiment: Experiment,
    curves: Mapping[str, Curves],
    seeds: int,
    bound: Distances | None = None,
) -> None:
    """Print the mean curves over so many seeds, at some points, and how far from the bound they are."""
    line(out, _about(experiment, seeds))
    line(out, ("Columns: GPU asked for so far, percent of the capacity", "dim"))

    def section(title: str, note: str, values: Mapping[str, FloatArray], form: str) -> None:
        if values:
            heading(out, title, note)
            rows = [[name, *(form.format(of[at]) for at in points.values())] for name, of in values.items()]
            table(out, ["policy", *(f">{percent} %" for percent in points)], rows)

    points = _points(next(iter(curves.values())))
    for title, note, measure, form in MEASURES:
        if title == "Fragmentation" and (reference := curves.get(REFERENCE)) is not None:
            saved = {name: saving_pct(of, reference) for name, of in curves.items() if of is not reference}
            section("Power saved", f"% of that of {REFERENCE}", saved, "{:.1f}")
        section(title, note, {name: measure(of) for name, of in curves.items()}, form)
    if bound is not None:
        note = "% of the capacity that any placement can allocate"
        section("Bound on the allocation", note, {"most of any placement": bound.allocated_pct}, "{:.2f}")
        above = {name: bound.above_pct(name, of) for name, of in curves.items()}
        section("Power above the bound", ABOVE, above, "{:.1f}")


def _about(experiment: Experiment, seeds: int) -> str:
    """Nodes, tasks and runs in words."""
    nodes, gpus = len(experiment.nodes), int(experiment.nodes.gpus.sum())
    site = f"{count(nodes, 'node')} with {count(gpus, 'GPU')}"
    return f"{site}, {count(len(experiment.tasks), 'task')} in the list; means over {count(seeds, 'seed')}"


def _points(curves: Curves) -> dict[int, int]:
    """Index in the curves by the point to print, in percent of the capacity asked for; the last is one."""
    last = round(100 * float(curves.arrived[-1]))
    points = sorted({*(round(100 * point) for point in POINTS if round(100 * point) < last), last})
    return {percent: curves.at(percent / 100) for percent in points}

"""``wattsched place``: arriving tasks under placement policies, as curves over the arrived demand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import BadInput, reason, refusing
from wattsched.cli.files import refuse_overwriting, write
from wattsched.cli.files import written as say_written
from wattsched.cli.parameters import Number, ParamType, Whole
from wattsched.cli.replay_options import input_file, refuse_given
from wattsched.report.wording import printable

if TYPE_CHECKING:
    from wattsched.replay.placement.bounds import Distances
    from wattsched.replay.placement.curves import Curves
    from wattsched.replay.placement.stream import Experiment

MOST_SEEDS = 1000
LARGEST_SEED = 2**32 - 1
MOST_ARRIVALS = 10.0
PLOT_SUFFIXES = (".png", ".svg", ".pdf")


class Policies(click.Command):
    """A command whose help ends with the names of the policies."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the names, from the registry."""
        from wattsched.replay.placement.policies import names

        with formatter.section("Policies"):
            formatter.write_text(f"{', '.join(names())}, and weighted sums such as pwr+fgd:100/900.")


class Seeds(ParamType):
    """Seeds and ranges of them between commas: ``42-51`` or ``1,7,42-44``."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Read the seeds."""
        seeds: list[int] = []
        for part in str(value).split(","):
            ends = re.fullmatch(r"\s*([0-9]{1,10})(?:-([0-9]{1,10}))?\s*", part)
            if not ends:
                self.fail(f"'{part}' is neither a seed nor a range such as 42-51", param, ctx)
            first, last = int(ends[1]), int(ends[2] or ends[1])
            if last < first:
                self.fail(f"'{part}' ends before it begins", param, ctx)
            if last > LARGEST_SEED:
                self.fail(f"must be at most {LARGEST_SEED:,}, got {last:,}", param, ctx)
            if len(seeds) + last - first >= MOST_SEEDS:
                self.fail(f"'{value}' has more than {MOST_SEEDS:,} seeds", param, ctx)
            seeds += range(first, last + 1)
        _refuse_twice(seeds, "the seed", param, ctx)
        return seeds


def _policies(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    from wattsched.replay.placement.policies import policy_factory

    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise click.BadParameter(f"'{text}' has an empty name between its commas", ctx, param)
    _refuse_twice(names, "the policy", param, ctx)
    for name in names:
        with refusing():
            policy_factory(name)
    return names


def _refuse_twice(
    values: list[Any], what: str, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise click.BadParameter(f"{what} '{value}' is named twice", ctx, param)
        seen.add(value)


def _arrivals(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if value > MOST_ARRIVALS:
        raise click.BadParameter(f"must be at most {MOST_ARRIVALS:g}, got {value:g}", ctx, param)
    return value


def _bound_gap(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if value >= 1:
        raise click.BadParameter(f"must be below 1, got {value:g}", ctx, param)
    return value


def plot_file(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Check the name of a plot before any work is done."""
    if name is None:
        return None
    if not name.endswith(PLOT_SUFFIXES):
        raise click.BadParameter(f"'{name}' must end in {', '.join(PLOT_SUFFIXES)}", ctx, param)
    if Path(name).is_dir():
        raise click.BadParameter(f"'{name}' is a folder", ctx, param)
    if not Path(name).parent.is_dir():
        raise click.BadParameter(f"the folder '{Path(name).parent}' does not exist", ctx, param)
    if find_spec("matplotlib") is None:
        raise BadInput("--plot needs matplotlib, which is not installed (pip install 'wattsched[plot]')")
    return name


@click.command("place", cls=Policies)
@click.option(
    "--nodes",
    required=True,
    metavar="FILE",
    callback=input_file,
    help="Nodes: sn, cpu_milli, memory_mib, gpu, model (.csv).",
)
@click.option(
    "--tasks",
    required=True,
    metavar="FILE",
    callback=input_file,
    help="Tasks: cpu_milli, memory_mib, num_gpu, gpu_milli and, if wanted, gpu_spec (.csv).",
)
@click.option(
    "--policy",
    "policies",
    default="fgd",
    show_default=True,
    metavar="P,P",
    callback=_policies,
    help="Who places the tasks; named below.",
)
@click.option(
    "--arrivals",
    type=Number(0.01),
    default=1.3,
    show_default=True,
    metavar="X",
    callback=_arrivals,
    help="GPU to ask for, as a part of the capacity.",
)
@click.option("--seeds", type=Seeds(), default="42-51", show_default=True, metavar="A-B", help="Runs.")
@click.option(
    "--cpu-model",
    type=click.Choice(["uniform", "mapped"]),
    default="uniform",
    show_default=True,
    help="One for all nodes, as published, or the one that usually goes with the GPU.",
)
@click.option(
    "--processes", type=Whole(1, 256), default=1, show_default=True, metavar="N", help="Runs at a time."
)
@click.option(
    "--bound/--no-bound",
    default=True,
    show_default=True,
    help="Say how far from any placement's best they are.",
)
@click.option(
    "--bound-gap",
    type=Number(1e-6),
    default=0.01,
    show_default=True,
    metavar="G",
    callback=_bound_gap,
    help="How loose the bound may be; 0.001 takes some ten times as long.",
)
@click.option("--plot", metavar="FILE", callback=plot_file, help="Draw the curves: .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print the curves as JSON, alone, on standard output.")
def command(
    nodes: str,
    tasks: str,
    policies: list[str],
    arrivals: float,
    seeds: list[int],
    cpu_model: str,
    processes: int,
    bound: bool,
    bound_gap: float,
    plot: str | None,
    as_json: bool,
) -> None:
    """Submit a list of tasks to a cluster, one after another, under each policy.

    Each task goes at once to a node and GPUs of it, and stays, or fails. For every seed the list is shuffled
    and inflated until it asks for X times the GPUs; the curves are means over the seeds.
    """
    refuse_overwriting(plot, nodes, tasks)
    if not bound:
        refuse_given(("bound_gap",), "changes nothing with --no-bound")
    experiment = read_experiment(nodes, tasks, arrivals, cpu_model == "mapped", seeds[0])
    curves = _mean_curves(experiment, policies, seeds, processes)
    if plot is not None:
        _plot(curves, plot)
    beyond = _distances(experiment, curves, seeds, bound_gap) if bound else None
    if as_json:
        from wattsched.cli.place_document import document

        write(None, document(curves, beyond))
        return
    from wattsched.cli.tables.place import print_curves
    from wattsched.report.terminal import console

    print_curves(console(), experiment, curves, len(seeds), beyond)


def read_experiment(nodes: str, tasks: str, arrivals: float, mapped_cpus: bool, seed: int) -> Experiment:
    """Read the files, and find out now what a run would trip over."""
    from wattsched.instances.traces.openb import read_nodes, read_tasks
    from wattsched.replay.placement.stream import Experiment

    with refusing(nodes):
        cluster = read_nodes(nodes)
    with refusing(tasks):
        experiment = Experiment(cluster, read_tasks(tasks), arrivals, mapped_cpus)
        experiment.arriving(seed)
    with refusing(nodes):
        experiment.context(seed)
    _say_unknown_models(experiment)
    return experiment


def _say_unknown_models(experiment: Experiment) -> None:
    """Say on standard error which models that no node has tasks ask for, and how many ask for no others."""
    known, tasks = set(experiment.nodes.models), experiment.tasks
    unknown = sorted({model for models in tasks.specs for model in models} - known)
    if not unknown:
        return
    from wattsched.report.wording import count, listed

    nowhere = [number for number, models in enumerate(tasks.specs) if models and not models & known]
    lost = sum(int((tasks.spec == number).sum()) for number in nowhere)
    told = f"gpu_spec names models that no node has: {listed(unknown)}"
    if lost:
        told += f"; {count(lost, 'task')} can go nowhere"
    click.echo(printable(told), err=True)


def _mean_curves(
    experiment: Experiment, policies: list[str], seeds: list[int], processes: int
) -> dict[str, Curves]:
    from wattsched.replay.placement.curves import mean
    from wattsched.replay.placement.stream import run_all

    runs: dict[str, list[Curves]] = {policy: [] for policy in policies}
    with _bar(len(policies) * len(seeds)) as show:
        show(policies[0])
        for policy, _seed, curves in run_all(experiment, policies, seeds, processes):
            runs[policy].append(curves)
            show(policy)
    return {policy: mean(curves) for policy, curves in runs.items()}


@contextmanager
def _bar(runs: int) -> Iterator[Callable[[str], None]]:
    """Progress bar on standard error, on a terminal only."""
    from wattsched.report.terminal import counted_progress

    with counted_progress() as bar:
        if bar is None:
            yield lambda policy: None
            return
        task = bar.add_task("", total=runs, completed=-1)
        yield lambda policy: bar.update(task, description=policy, advance=1)


def _plot(curves: Mapping[str, Curves], file: str) -> None:
    from wattsched.replay.placement.curves import plot_curves
    from wattsched.replay.plots import save

    try:
        save(plot_curves(curves), file)
    except OSError as error:
        raise BadInput(f"cannot write '{file}': {reason(error)}") from None
    say_written(file)


def _distances(
    experiment: Experiment, curves: Mapping[str, Curves], seeds: list[int], gap: float
) -> Distances:
    from wattsched.replay.placement.bounds import distances
    from wattsched.report.terminal import progress

    with progress("bounding any placement"):
        return distances(experiment, curves, seeds, gap)

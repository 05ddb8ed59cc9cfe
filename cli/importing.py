"""``wattsched import``: public traces as instances; a format's parameters are its options."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import JSON_SUFFIXES, cluster_of, output_option, refuse_overwriting, write
from wattsched.cli.parameters import Number, Whole, descriptions, option_name, parameter_option
from wattsched.cli.replay_options import refuse_given

if TYPE_CHECKING:
    from wattsched.instances.placement.instance import PlacementInstance
    from wattsched.instances.sizing.instance import Instance
    from wattsched.instances.traces import Format, TraceJob
    from wattsched.topology.cluster import Cluster


MOST_NODES = 1_000_000
MOST_TASKS = 10_000
MOST_ARRIVED = 2.0
MOST_GPUS = 10_000_000


class Formats(click.Group):
    """One command per trace format, made from the parameters of its reader."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the formats."""
        from wattsched.instances.traces import formats

        return list(formats())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Command that imports a format."""
        from wattsched.instances.traces import formats

        known = formats()
        if cmd_name not in known:
            raise click.UsageError(f"unknown format '{cmd_name}'; known: {', '.join(known)}", ctx)
        return _format(known[cmd_name])


@click.command(
    "import", cls=Formats, subcommand_metavar="FORMAT FILES... [OPTIONS]...", invoke_without_command=True
)
@click.option("--list", "as_list", is_flag=True, help="List the formats.")
@click.pass_context
def command(ctx: click.Context, as_list: bool) -> None:
    """Turn a public trace into an instance: the scheduling round of one moment.

    'wattsched import FORMAT --help' shows a format's options.
    """
    if not as_list:
        if ctx.invoked_subcommand is None:
            raise click.UsageError("a format is missing, 'wattsched import --list' lists them", ctx)
        return
    from wattsched.instances.traces import formats
    from wattsched.report.terminal import console, table

    rows = [(form.name, form.yields, form.description) for form in formats().values()]
    table(console(), ["format", "gives", "file"], rows)
    ctx.exit()


class Moment(Number):
    """Seconds on the trace's clock, or ``busiest``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the number or the word."""
        if value == "busiest":
            return value
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"'{value}' is neither a number of seconds nor 'busiest'", param, ctx)


def _round_options() -> list[click.Parameter]:
    """Options of the formats that give jobs."""
    count = Whole(1, MOST_NODES)
    moment = "Seconds on the trace's clock, or the full hour with the largest demand."
    cluster = "An instance or node-link graph (.json), an openb node list (.csv) or a Slurm topology (.conf)."
    return [
        click.Option(["--at"], type=Moment(), default="busiest", metavar="T|busiest", help=moment),
        click.Option(["--cluster", "cluster_file"], metavar="FILE", help=cluster),
        click.Option(["--nodes"], type=count, default=64, help="Without --cluster."),
        click.Option(["--gpus-per-node"], type=count, default=8, help="Without --cluster, or of a .conf."),
        click.Option(["--gpu-type"], default="A100", help="Without --cluster, or of a .conf."),
        click.Option(["--power-fraction"], type=Number(), help="Cap on the site's power, of its full draw."),
        click.Option(["--objective"], default="total-completion", help="Goal of the instance."),
        click.Option(["--round", "round_s"], type=Number(above=0), default=300.0, help="Seconds."),
        click.Option(["--restart", "restart_s"], type=Number(0), default=30.0, help="Seconds lost."),
        click.Option(["--seed"], type=Whole(0), default=0, help="Of the choice of models."),
    ]


def _window_options() -> list[click.Parameter]:
    """Options of the formats of which a window of tasks can be made."""
    window = "Make a window of N tasks for 'placement' of two files, nodes and tasks."
    arrived = "GPU asked for before the window, as a part of the capacity."
    placed_by = "Policy that placed what arrived before."
    return [
        click.Option(["--window"], type=Whole(1, MOST_TASKS), metavar="N", help=window),
        click.Option(["--arrived"], type=Number(0, most=MOST_ARRIVED), default=0.8, help=arrived),
        click.Option(["--placed-by"], default="fgd", metavar="P", help=placed_by),
        click.Option(["--seed"], type=Whole(0), default=42, help="Of the order of arrivals and nodes."),
    ]


def _require_no_size(ctx: click.Context) -> None:
    """Refuse options that say what the file of ``--cluster`` says already."""
    file = ctx.params.get("cluster_file")
    if file is None:
        return
    told = ["nodes"] if file.endswith(".conf") else ["nodes", "gpus_per_node", "gpu_type"]
    for name in told:
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise BadInput(f"{option_name(name)} does not go with --cluster, whose file tells it; give one")


def _format(form: Format) -> click.Command:
    own = list(inspect.signature(form.read).parameters.values())[1:]
    params: list[click.Parameter] = [click.Argument(["files"], nargs=-1, required=True)]
    told = descriptions(form.read)
    params += [parameter_option(parameter, told.get(parameter.name)) for parameter in own]
    if form.yields == "jobs":
        params += _round_options()
    if form.windows:
        params += _window_options()
    callback = _import(form, [parameter.name for parameter in own])
    made = click.Command(
        form.name,
        params=params,
        callback=callback,
        help=f"Import {form.description}.",
        context_settings={"show_default": True},
    )
    return output_option(*JSON_SUFFIXES, help="The instance file (default: standard output).")(made)


def _import(form: Format, own: list[str]) -> Any:
    def callback(files: tuple[str, ...], output: str | None, **values: Any) -> None:
        from wattsched.instances.io import document_text
        from wattsched.report.terminal import progress

        refuse_overwriting(output, *files, values.get("cluster_file"))
        _require_no_size(click.get_current_context())
        _require_distinct_files(files)
        options = {name: values.pop(name) for name in own}
        size = values.pop("window", None)
        if size is not None:
            refuse_given(tuple(own), "does not go with --window")
            write(output, document_text(_window(files, size, **values)))
            return
        if form.windows:
            refuse_given(tuple(values), "changes nothing without --window")
        with progress(f"reading {', '.join(files)}"):
            read = []
            for file in files:
                # What is wrong with an option is not the fault of the file.
                with refusing(options={name: option_name(name) for name in own}):
                    read.append(form.read(file, **options))
            if form.numbered and len(files) > 1:
                read = _told_apart(read, files)
            instance = _round(read, files, values) if form.yields == "jobs" else _bare(read, files)
            text = document_text(instance)
        write(output, text)

    return callback


def _bare(clusters: list[Cluster], files: tuple[str, ...]) -> Instance:
    """Instance of a cluster without jobs."""
    from wattsched.instances.sizing.instance import Instance

    if len(clusters) > 1:
        raise BadInput(f"one cluster makes an instance, not {len(files)}")
    return Instance(name=clusters[0].name, cluster=clusters[0], jobs=[])


def _window(
    files: tuple[str, ...], tasks: int, arrived: float, placed_by: str, seed: int
) -> PlacementInstance:
    """Window of tasks on a cluster that other tasks have come to before."""
    from wattsched.cli.place import read_experiment
    from wattsched.replay.placement.policies import policy_factory
    from wattsched.replay.placement.stream import window_at
    from wattsched.report.terminal import progress

    if len(files) != 2:
        raise BadInput(f"--window: takes two files, nodes and tasks, got {len(files)}")
    with refusing():
        policy_factory(placed_by)
    with progress(f"placing what arrives before the window by {placed_by}"):
        return window_at(read_experiment(*files, arrived, False, seed), placed_by, seed, tasks)


def _round(traces: list[list[Any]], files: tuple[str, ...], values: dict[str, Any]) -> Instance:
    """Round of the jobs of all files."""
    from wattsched.instances.traces import round_at
    from wattsched.problems import problem

    size = {name: values.pop(name) for name in ("nodes", "gpus_per_node", "gpu_type")}
    cluster = _cluster(values.pop("cluster_file"), **size)
    name = Path(files[0]).name.partition(".")[0]
    _require_distinct_names(traces, files)
    with refusing(options={name: option_name(name) for name in values}):
        values["objective"] = problem("sizing").objective(values["objective"])
        return round_at(
            [job for trace in traces for job in trace], values.pop("at"), cluster, name=name, **values
        )


def _require_distinct_files(files: tuple[str, ...]) -> None:
    for number, file in enumerate(files):
        if any(Path(file).resolve() == Path(other).resolve() for other in files[:number]):
            raise BadInput(f"{file}: the file is named twice")


def _told_apart(traces: list[list[TraceJob]], files: tuple[str, ...]) -> list[list[TraceJob]]:
    """Jobs with the names of their files before their numbers; each file keeps its own clock."""
    labels = [Path(file).name.partition(".")[0] for file in files]
    if len(set(labels)) < len(labels):
        labels = [f"{label}-{number}" for number, label in enumerate(labels, start=1)]
    return [
        [replace(job, name=f"{label}:{job.name}") for job in trace]
        for label, trace in zip(labels, traces, strict=True)
    ]


def _require_distinct_names(traces: list[list[TraceJob]], files: tuple[str, ...]) -> None:
    """Refuse a job that is in two files; the readers have refused one that is in a file twice."""
    found: dict[str, str] = {}
    for file, trace in zip(files, traces, strict=True):
        for job in trace:
            if job.name in found:
                raise BadInput(f"{file}: the job '{job.name}' is in {found[job.name]} too")
        found |= {job.name: file for job in trace}


def _cluster(file: str | None, nodes: int, gpus_per_node: int, gpu_type: str) -> Cluster:
    from wattsched.instances.clusters import homogeneous_cluster, known_gpu_type

    if file is None:
        if nodes * gpus_per_node > MOST_GPUS:
            raise BadInput(f"--nodes times --gpus-per-node must be at most {MOST_GPUS:,}")
        with refusing(options={"gpu_type": "--gpu-type"}):
            return homogeneous_cluster(nodes, gpus_per_node, gpu_type)
    with refusing(file):
        if file.endswith(".csv"):
            from wattsched.instances.traces.openb import read_openb

            return read_openb(file)
        if file.endswith(".conf"):
            from wattsched.topology.exchange import from_slurm

            text = Path(file).read_text(encoding="utf-8")
            kind = known_gpu_type(gpu_type)
            cluster = from_slurm(
                text, gpu_type=gpu_type, gpus_per_node=gpus_per_node, idle_power_w=kind.idle_power_w
            )
            return cluster.model_copy(update={"gpu_types": {gpu_type: kind}})
        return _from_json(file)


def _from_json(file: str) -> Cluster:
    """Cluster of an instance or of a node-link graph."""
    from wattsched.documents import instance_of
    from wattsched.instances.io import read_json
    from wattsched.topology.exchange import from_node_link

    document = read_json(file)
    if isinstance(document, dict) and "cluster" in document:
        return cluster_of(instance_of(document, source=file), file)
    return from_node_link(Path(file).read_text(encoding="utf-8"))

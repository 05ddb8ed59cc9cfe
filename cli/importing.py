"""``wattsched import``: traces as instances, a format's parameters as options; and what others import.

What schedulers and solvers give is in `importing_sources`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import DOCUMENT_SUFFIXES, STANDARD, content_of, named_input, progress, shown, write
from wattsched.cli.outputs import FC, Command, output_option
from wattsched.cli.parameters import (
    Family,
    Number,
    Whole,
    descriptions,
    filling,
    given,
    parameter_option,
    refuse_given,
)
from wattsched.reading.inputs import notice
from wattsched.report.wording import count

if TYPE_CHECKING:
    from wattsched.files.exchange import File
    from wattsched.topology.cluster import Cluster

MOST_NODES = 1_000_000
MOST_TASKS = 10_000
MOST_ARRIVED = 2.0
MOST_GPUS = 10_000_000


@dataclass(frozen=True)
class ClusterOptions:
    """A cluster of a file, or of equal nodes.

    Parameters
    ----------
    cluster_file : str, optional
        The cluster: an instance or node-link graph (.json), an openb node list (.csv) or a Slurm topology
        (.conf).
    nodes : int
        Number of nodes, without --cluster.
    gpus_per_node : int
        GPUs of each node, without --cluster or of a .conf.
    gpu_type : str
        Type of the GPUs, without --cluster or of a .conf: A100, H100 and so on; TYPE=KNOWN for one that
        counts as another.
    """

    cluster_file: File | None = None
    nodes: int = 2
    gpus_per_node: int = 8
    gpu_type: str = "A100"

    def __post_init__(self) -> None:
        if self.cluster_file is not None:
            told = ["nodes"] if self._of_slurm else ["nodes", "gpus_per_node", "gpu_type"]
            refuse_given(told, "does not go with --cluster, whose file tells it; give one")
        elif self.nodes * self.gpus_per_node > MOST_GPUS:
            raise BadInput(f"--nodes times --gpus-per-node must be at most {MOST_GPUS:,}")

    @property
    def _of_slurm(self) -> bool:
        from wattsched.files.exchange import cluster_form

        assert self.cluster_file is not None
        with refusing(str(self.cluster_file)):
            return cluster_form(self.cluster_file) == ".conf"

    def site(self) -> tuple[Cluster, float | None]:
        """Read the cluster, or make it, and the watts to which its file limits the whole site."""
        from wattsched.files.exchange import read_site
        from wattsched.instances.clusters import homogeneous_cluster
        from wattsched.instances.gpu_names import stated_gpu_type

        with refusing("" if self.cluster_file is None else str(self.cluster_file)):
            if self.cluster_file is None:
                name, kind = stated_gpu_type(self.gpu_type)
                return homogeneous_cluster(self.nodes, self.gpus_per_node, name, kind=kind), None
            return read_site(self.cluster_file, self.gpu_type, self.gpus_per_node)

    def tell(self) -> list[str]:
        """Say which cluster was made where nobody told its size, once nothing can be refused any more."""
        if self.cluster_file is not None or given("nodes"):
            return []
        from wattsched.instances.clusters import spelt_as_known

        kind = spelt_as_known(self.gpu_type.partition("=")[0])
        told = f"assumed: {count(self.nodes, 'node')} with {self.gpus_per_node} {kind} each"
        notice(told)
        return [told]


def cluster_options(*, most_nodes: int, most_gpus_per_node: int) -> Callable[[FC], FC]:
    """``--cluster``, ``--nodes``, ``--gpus-per-node`` and ``--gpu-type``: `ClusterOptions` as `cluster`."""
    return filling(
        "cluster",
        ClusterOptions,
        cluster_file={"name": "--cluster", "metavar": "FILE"},
        nodes={"type": Whole(1, most_nodes)},
        gpus_per_node={"type": Whole(1, most_gpus_per_node)},
    )


def _round_options() -> list[click.Parameter]:
    """Options of the formats that give jobs."""
    moment = "Seconds on the trace's clock, or the full hour with the largest demand."
    at, restart = Number(word="busiest"), "Seconds that a running job loses when it changes or stops."
    return [
        click.Option(["--at"], type=at, default="busiest", metavar="T|busiest", help=moment),
        click.Option(["--power-fraction"], type=Number(), help="Cap on the site's power, of its full draw."),
        click.Option(["--objective"], default="total-completion", help="Objective of the instance."),
        click.Option(
            ["--round", "round_s"], type=Number(above=0), default=300.0, help="Seconds of the round."
        ),
        click.Option(["--restart", "restart_s"], type=Number(0), default=30.0, help=restart),
        click.Option(["--seed"], type=Whole(0), default=0, help="Seed of the choice of models."),
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
        click.Option(["--seed"], type=Whole(0), default=42, help="Seed of the order of arrivals and nodes."),
    ]


def _known() -> Any:
    from wattsched.cli.importing_sources import SOURCES
    from wattsched.instances.traces import formats

    return {**formats(), **SOURCES}


def _command(name: str) -> click.Command:
    """Command of a scheduler or solver, or of a format, made from the parameters of its reader."""
    from wattsched.cli.importing_sources import Source
    from wattsched.files.exchange import reading_of

    form = _known()[name]
    if isinstance(form, Source):
        return form.command
    own, told = reading_of(form), descriptions(form.read)
    params: list[click.Parameter] = [click.Argument(["files"], nargs=-1, required=True)]
    params += [parameter_option(parameter, told.get(parameter.name)) for parameter in own]
    callback: Any = _import(name, [parameter.name for parameter in own])
    if form.yields == "jobs":
        params += _round_options()
        callback = cluster_options(most_nodes=MOST_NODES, most_gpus_per_node=MOST_NODES)(callback)
    if form.windows:
        params += _window_options()
    made = click.command(name, cls=Command, params=params, help=f"Import {form.description}.")(callback)
    return output_option(*DOCUMENT_SUFFIXES, help="The instance file (default: standard output).")(made)


def _import(name: str, own: list[str]) -> Any:
    """Callback of the command of a format; `own` are the parameters of its reader, which no window takes."""

    def callback(
        files: tuple[str, ...], output: str | None, cluster: ClusterOptions | None = None, **values: Any
    ) -> None:
        from wattsched.files.exchange import imported
        from wattsched.report.imports import table_of
        from wattsched.report.terminal import console, table

        if values.get("window") is not None:
            refuse_given(own, "does not go with --window")
            values = {key: value for key, value in values.items() if key not in own}
        elif "window" in values:
            refuse_given([key for key in values if key not in own], "changes nothing without --window")
            values = {key: value for key, value in values.items() if key in own}
        if cluster is not None:
            values["cluster"], _ = cluster.site()
        if files.count(STANDARD) > 1:
            raise BadInput("standard input is named twice")
        with progress(f"reading {', '.join(map(shown, files))}"), refusing(), ExitStack() as stack:
            paths = [stack.enter_context(named_input(file)) for file in files]
            made, entries = imported(name, *paths, **values)
            text = content_of(made, output)
            if cluster is not None:
                cluster.tell()
        write(output, text)
        table(console(stderr=output in (None, STANDARD)), *table_of(entries, "record"))

    return callback


def _rows() -> tuple[list[str], list[tuple[str, str, str]]]:
    rows = [(name, form.yields, form.description) for name, form in _known().items()]
    return ["format", "gives", "file"], rows


command = Family(
    "import",
    noun="format",
    known=_known,
    make=_command,
    rows=_rows,
    subcommand_metavar="FORMAT FILES... [OPTIONS]...",
    help="""Turn a trace into an instance, the scheduling round of one moment; a cluster's records into a
    trace; or a solver's solution of an exported program into a result.

    'wattsched import FORMAT --help' shows a format's options.
    """,
)

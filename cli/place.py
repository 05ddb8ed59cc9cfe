"""``wattsched place``: arriving tasks under placement policies, as curves over the arrived demand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from wattsched.cli.failures import refusing
from wattsched.cli.files import counting, save_plot, write
from wattsched.cli.outputs import plot_option
from wattsched.cli.parameters import Described, FileName, Listed, Number, Seeds, Whole, filling, refuse_given

if TYPE_CHECKING:
    from wattsched.placements import PlacementTrial
    from wattsched.replay.placement.stream import Experiment
    from wattsched.topology.arrays import FloatArray

MOST_ARRIVALS = 10.0
MOST_PROCESSES = 256
DECIMALS = 6
CURVES = ("arrived", "allocated_pct", "grar", "eopc_w", "eopc_cpu_w", "eopc_gpu_w", "frag_pct", "failed")
"""Of a policy, in the order of the JSON document; those of the bound are among them."""


def _policies() -> dict[str, str]:
    from wattsched.replay.placement.policies import names

    return {"Policies": f"{', '.join(names())}, and weighted sums such as pwr+fgd:100/900."}


def _require_policy(name: str) -> None:
    from wattsched.replay.placement.policies import policy_factory

    policy_factory(name)


@dataclass(frozen=True)
class Stream:
    """Tasks that come to a cluster.

    Parameters
    ----------
    arrivals : float
        GPU to ask for, as a part of the capacity.
    cpu_model : str
        One for all nodes, as published, or the one that usually goes with the GPU.
    """

    nodes: str
    tasks: str
    arrivals: float = 1.3
    cpu_model: Literal["uniform", "mapped"] = "uniform"

    def read(self, seed: int) -> Experiment:
        """Read the files, and find out now what a run would trip over."""
        from wattsched.placements import read_experiment

        mapped = self.cpu_model == "mapped"
        with refusing():
            return read_experiment(
                self.nodes, self.tasks, arrivals=self.arrivals, mapped_cpus=mapped, seed=seed
            )


@dataclass(frozen=True)
class Trial:
    """How the tasks are placed.

    Parameters
    ----------
    processes : int
        Runs at a time.
    bound_gap : float
        How loose the bound may be; 0.001 takes some ten times as long.
    """

    policies: list[str]
    seeds: list[int]
    bound: bool
    processes: int = 1
    bound_gap: float = 0.01


@click.command("place", cls=Described, sections=_policies)
@click.option(
    "--nodes",
    required=True,
    metavar="FILE",
    type=FileName(),
    help="Nodes: sn, cpu_milli, memory_mib, gpu, model (.csv).",
)
@click.option(
    "--tasks",
    required=True,
    metavar="FILE",
    type=FileName(),
    help="Tasks: cpu_milli, memory_mib, num_gpu, gpu_milli and, if wanted, gpu_spec (.csv).",
)
@filling("stream", Stream, arrivals={"type": Number(0.01, most=MOST_ARRIVALS), "metavar": "X"})
@click.option(
    "--policy",
    "policies",
    default="fgd",
    show_default=True,
    metavar="P,P",
    type=Listed("policy", _require_policy),
    help="Who places the tasks; named below.",
)
@click.option("--seeds", type=Seeds(), default="42-51", show_default=True, metavar="A-B", help="Runs.")
@click.option(
    "--bound/--no-bound",
    default=True,
    show_default=True,
    help="Say how far from any placement's best they are.",
)
@filling(
    "trial",
    Trial,
    processes={"type": Whole(1, MOST_PROCESSES), "metavar": "N"},
    bound_gap={"type": Number(1e-6, below=1), "metavar": "G"},
)
@plot_option("Draw the curves: .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print the curves as JSON, alone, on standard output.")
def command(stream: Stream, trial: Trial, plot: str | None, as_json: bool) -> None:
    """Submit a list of tasks to a cluster, one after another, under each policy.

    Each task goes at once to a node and GPUs of it, and stays, or fails. For every seed the list is shuffled
    and inflated until it asks for X times the GPUs; the curves are means over the seeds.
    """
    from wattsched.placements import place_tasks

    if not trial.bound:
        refuse_given(("bound_gap",), "changes nothing with --no-bound")
    experiment = stream.read(trial.seeds[0])
    with counting() as show:
        placed = place_tasks(
            experiment,
            trial.policies,
            seeds=trial.seeds,
            processes=trial.processes,
            bound_gap=trial.bound_gap if trial.bound else None,
            progress=show,
        )
    if plot is not None:
        from wattsched.replay.placement.curves import plot_curves

        save_plot(plot_curves(placed.curves), plot)
    if as_json:
        return write(None, _document(placed))
    from wattsched.cli.tables.place import print_curves
    from wattsched.report.terminal import console

    return print_curves(console(), experiment, placed.curves, len(trial.seeds), placed.bound)


def _document(placed: PlacementTrial) -> str:
    """JSON with one curve per line."""
    bound = placed.bound
    policies = {policy: _curves(of, "   ") for policy, of in placed.curves.items()}
    lines = []
    if bound is not None:
        lines = [*_curves(bound, "  "), _object("floor_w", _arrays(bound.floor_w, "   "))]
    inside = "{\n" + ",\n".join(lines) + "\n }" if lines else "{}"
    objects = ",\n".join(_object(policy, lines) for policy, lines in policies.items())
    return f'{{\n "policies": {{\n{objects}\n }},\n "bound": {inside}\n}}\n'


def _curves(of: object, indent: str) -> list[str]:
    return _arrays({name: getattr(of, name) for name in CURVES if hasattr(of, name)}, indent)


def _arrays(arrays: Mapping[str, FloatArray], indent: str) -> list[str]:
    """One curve per line; null where it is infinite."""
    return [
        f"{indent}{json.dumps(name)}: "
        + json.dumps([round(value, DECIMALS) if math.isfinite(value) else None for value in array.tolist()])
        for name, array in arrays.items()
    ]


def _object(name: str, lines: list[str]) -> str:
    return f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }"

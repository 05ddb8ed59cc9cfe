"""Wrong arguments of public functions are refused in a sentence that names the argument."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wattsched
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.generators import builder
from wattsched.instances.io import write_json
from wattsched.instances.traces import round_at

from .test_public import ITP, JOBS, NODES, TASKS

STEPS = "gpus,local_batch,step_time_s,power_w\n1,32,0.1,200\n2,32,0.12,190\n4,32,0.13,180\n"
SOLUTION = "# Objective value = 7200\njob0_wait 1\njob1_wait 1\n"
NAN = math.nan
OBJECT = object()

# What is given, and the words of an annotation under which it may be right.
GIVEN: list[tuple[object, tuple[str, ...]]] = [
    (OBJECT, ()), (NAN, ()), (b"x", ()), (True, ("bool",)), (None, ("None",)), (5, ("int", "float")),
    (1.5, ("float",)), ("nonsense", ("str", "Path", "File")), ([OBJECT], ()), ({"gap": 1}, ("object]",)),
]  # fmt: skip

# Values of the right type that are out of range.
BEYOND: dict[tuple[str, str], tuple[object, ...]] = {
    ("solve", "gap"): (-1, 1, 10**400),
    ("solve", "time_limit"): (0, -1, 10**400),
    ("solve", "threads"): (0,),
    ("solve", "seed"): (-1, 2**31),
    ("solve", "prove"): (-1, math.inf, 10**400),
    ("import_solution", "gap"): (-1, 1, 10**400),
    ("import_solution", "prove"): (-1, math.inf, 10**400),
    ("pareto", "time_limit"): (0, -1, 10**400),
    ("what_if", "time_limit"): (0, -1, 10**400),
    ("sweep", "time_limit"): (0, -1, 10**400),
    ("sweep", "field"): ("watts",),
    ("sweep", "values"): ((), (1.0,) * 201),
    ("solve", "conflict"): (-1, math.inf, 10**400),
    ("pareto", "points"): (1, -3),
    ("k_best", "count"): (0, -1, 101),
    ("k_best", "differ"): (0, -1),
    ("solve", "tolerance"): (-1.0, math.inf),
    ("marginal_prices", "time_limit"): (0, -1, 10**400),
    ("offer", "at_s"): (-1.0, 1e9, math.inf, math.nan, 10**400),
    ("offer", "lasts_s"): ((0.0,), (-1.0,), (math.inf,), (math.nan,), ("1h",)),
    ("offer", "points"): (0, -3),
    ("offer", "time_limit"): (0, -1, 10**400),
    ("defragment", "time_limit"): (0, -1, 10**400),
    ("defragment", "size"): (0, -1, 10**6),
    ("defragment", "count"): (0, -1),
    ("defragment", "pools"): (("nowhere",),),
    ("defragment", "jobs"): (("nobody",),),
    ("explain", "time_limit"): (0, -1, 10**400),
    ("explain", "job"): ("nobody",),
    ("generate", "jobs"): (0, 10**8),
    ("generate", "gpus"): (0, 10**8),
    ("generate", "seed"): (-1,),
    ("generate", "power_fraction"): (-1.0, 0.0),
    ("fit_profile", "gpus_per_node"): (0, -8),
    ("fit_profile", "samples_per_epoch"): (0, -1.0, math.inf),
    ("fit_profile", "folds"): (-1,),
    ("import_trace", "at"): (math.inf,),
    ("import_trace", "round_s"): (0, -1.0, math.inf),
    ("import_trace", "restart_s"): (-1.0, math.inf),
    ("import_trace", "power_fraction"): (-1.0,),
    ("read_cluster", "gpus_per_node"): (0,),
    ("read_experiment", "arrivals"): (-1.0, math.inf),
    ("read_experiment", "seed"): (-1,),
    ("place_tasks", "policies"): ([], "fgd"),
    ("place_tasks", "seeds"): ([], [-1], "42"),
    ("place_tasks", "processes"): (0,),
    ("place_tasks", "bound_gap"): (-1.0, 1.0),
    ("replay_bound", "completion_s"): ([0.0], [math.inf], [NAN], ["1"]),
    ("replay_bound", "time_limit"): (0, -1.0),
    ("replay_jobs", "policies"): ([], "fifo"),
    ("replay_jobs", "traces"): ({},),
    ("ReplaySettings", "budget"): (("energy_j",), ("energy_j", "1"), ("energy_j", NAN), ["energy_j", 5.0]),
    ("ReplaySettings", "carbon"): (-1.0, math.inf),
    ("Journal", "checkpoint_s"): (-1.0,),
    ("JobSource", "to_day"): (0.0,),
    ("JobSource", "elasticity"): (0, 65),
    ("time_shares", "power_cap_w"): (0.0, -1.0, math.inf),
    ("plot.completion_times", "outcomes"): ([],),
    ("plot.frontier", "found"): ([], {}),
    ("plot.gap_over_time", "found"): ([], {}, {"a": ([1.0], [0.1, 0.2])}, {"a": ([2.0, 1.0], [0.1, 0.0])}),
    ("plot.gap_profile", "found"): ([], {}, {"a": {"p": -0.1}}),
    ("plot.gap_profile", "gap"): (-1.0,),
    ("plot.gap_profile", "time_limit_s"): (-1.0,),
    ("plot.occupancy", "outcomes"): ([],),
    ("plot.performance_profile", "found"): ([], {}, {"a": {"p": 0.0}}),
    ("plot.performance_profile", "gap"): (-1.0,),
    ("plot.performance_profile", "time_limit_s"): (-1.0,),
    ("plot.placement_curves", "trial"): ({}, {"fgd": []}),
    ("plot.power", "cap_w"): (0.0, -1.0, math.inf),
    ("plot.power", "outcomes"): ([],),
    ("plot.price_history", "names"): ([],),
    ("plot.price_history", "rounds"): ([], [{}], [{"power_w": NAN}]),
    ("plot.price_history", "time_s"): ([], [1.0], [2.0, 1.0], [0.0, math.inf]),
}  # fmt: skip


def calls(folder: Path) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments with which each public function does its work."""
    for name, text in {"itp": ITP, "jobs": JOBS, "nodes": NODES, "tasks": TASKS, "steps": STEPS}.items():
        (folder / f"{name}.csv").write_text(text)
    instance, day = wattsched.generate("uniform", jobs=2), wattsched.generate("shifting", jobs=2)
    write_json(folder / "round.json", instance)
    result = wattsched.solve(instance)
    write_json(folder / "result.json", result)
    (folder / "round.sol").write_text(SOLUTION)
    experiment = wattsched.read_experiment(folder / "nodes.csv", folder / "tasks.csv")
    traces = wattsched.JobSource(folder / "jobs.csv").traces(homogeneous_cluster(2, 8))
    outcomes = [outcome for _, outcome in wattsched.replay_jobs(traces, ["fifo"])]
    write_json(folder / "bound.json", wattsched.replay_bound(traces[0]))
    trial = wattsched.place_tasks(experiment, ["fgd"], seeds=[1], bound_gap=None)
    plots = {
        "cluster_map": ((instance, result), {}),
        "completion_times": ((outcomes,), {}),
        "frontier": ((outcomes,), {}),
        "gap_over_time": (({"price": ([0.1, 2.0], [0.3, 0.0])},), {}),
        "gap_profile": (({"price": {"p": 0.1}},), {}),
        "occupancy": ((outcomes,), {}),
        "performance_profile": (({"price": {"p": 0.1}},), {}),
        "placement_curves": ((trial,), {}),
        "power": ((outcomes,), {}),
        "price_history": (([{"power_w": 3.0}, {"power_w": 4.0}],), {}),
        "save": ((wattsched.plot.power(outcomes), folder / "power.png"), {}),
        "schedule": ((outcomes[0],), {}),
    }
    return {f"plot.{name}": given for name, given in plots.items()} | {
        "check": ((instance, result), {}),
        "compare": ((instance,), {}),
        "dask_executor": (("local",), {}),
        "defragment": ((instance,), {"size": 1}),
        "explain": ((instance, result, "job0"), {}),
        "export_program": ((instance,), {}),
        "export_solution": ((instance, result), {}),
        "export_topology": ((instance,), {}),
        "fit_profile": ((folder / "steps.csv", "m", "G"), {}),
        "generate": (("uniform",), {"jobs": 2}),
        "import_solution": ((instance, folder / "round.sol"), {}),
        "import_trace": (("itp", folder / "itp.csv"), {}),
        "json_schema": ((), {}),
        "marginal_prices": ((instance,), {}),
        "offer": ((day, 0.0, (3600.0,)), {}),
        "k_best": ((instance, 2), {}),
        "pareto": ((day, 3), {}),
        "sweep": ((folder / "round.json", "power_w", (5000.0,)), {}),
        "what_if": ((folder / "round.json",), {}),
        "place_tasks": ((experiment,), {"seeds": (1,), "bound_gap": None}),
        "read_cluster": ((folder / "round.json",), {}),
        "read_experiment": ((folder / "nodes.csv", folder / "tasks.csv"), {}),
        "read_instance": ((folder / "round.json",), {}),
        "read_result": ((folder / "result.json",), {}),
        "write_document": ((folder / "again.json", result), {}),
        "read_replay_bound": ((folder / "bound.json",), {}),
        "replay_bound": ((traces[0],), {}),
        "replay_jobs": ((traces, ["fifo"]), {}),
        "solve": ((instance,), {}),
        "JobSource": ((folder / "jobs.csv",), {}),
        "Journal": ((folder / "out",), {}),
        "ReplaySettings": ((), {}),
        "Session": ((instance.cluster,), {}),
        "time_shares": (({"A": 2}, ["a", "b"]), {"pool": "A", "gpus": 1, "rate": [1.0, 2.0]}),
    }


MODELS = {
    "AssignmentColumns", "Coded", "Decision", "InputError", "Instance", "JobColumns", "Result",
    "SessionDecision", "TimeShares",
}  # fmt: skip
"""Public names that pydantic looks after, an exception, and arrays that are looked at when they are used."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    return calls(tmp_path_factory.mktemp("arguments"))


def parameters(name: str) -> dict[str, str]:
    """Parameters of a public function and their annotations, those that `**options` stand for included."""
    function = attrgetter(name)(wattsched)
    told = dict(inspect.signature(function).parameters)
    if told.pop("options", None) is not None or name == "Journal":
        more: Callable[..., Any] | None = {"generate": builder("uniform"), "import_trace": round_at}.get(name)
        told |= {} if more is None else dict(inspect.signature(more).parameters)
    told.pop("trace", None)  # of `round_at`
    return {one.name: str(one.annotation) for one in told.values()}


def wrong_values(name: str) -> Iterator[tuple[str, object]]:
    """Parameters of a public function, each with values that it cannot take."""
    for parameter, annotation in parameters(name).items():
        given = [value for value, words in GIVEN if not any(word in annotation for word in words)]
        for value in [*given, *BEYOND.get((name, parameter), ())]:
            if "Any" not in annotation:
                yield parameter, value


FUNCTIONS = {*wattsched.__all__, *(f"plot.{name}" for name in wattsched.plot.__all__)}


@pytest.mark.parametrize("name", sorted(FUNCTIONS - MODELS - {"__version__", "plot"}))
def test_wrong_arguments_are_refused_by_name(name: str, known: Any) -> None:
    arguments, options = known[name]
    function = attrgetter(name)(wattsched)
    positional = [one.name for one in inspect.signature(function).parameters.values() if one.kind <= 2]
    faults = []
    for parameter, value in wrong_values(name):
        given, keywords = list(arguments), {**options, parameter: value}
        if parameter in positional[: len(given)]:
            given[positional.index(parameter)] = keywords.pop(parameter)
        told = f"{name}({parameter}={value!r})"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                function(*given, **keywords)
        except (ValueError, TypeError) as error:
            if parameter not in str(error):
                faults.append(f"{told}: {type(error).__name__}: {error}")
        except Exception as error:
            faults.append(f"{told}: {type(error).__name__}: {error}")
        else:
            faults.append(f"{told}: nothing was said")
    assert not faults, "\n".join(faults)


def test_an_unknown_family_is_told_before_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"family: 'unifrm' is not known \(did you mean 'uniform'\?\)"):
        wattsched.generate("unifrm")
    with pytest.raises(ValueError, match="racs: the family 'hetero' has no such option"):
        wattsched.generate("hetero", racs=2)
    with pytest.raises(ValueError, match="jobs: say how many"):
        wattsched.generate("uniform")


def test_numbers_of_numpy_are_taken_without_a_warning() -> None:
    instance = wattsched.generate("uniform", jobs=np.int64(3), seed=np.int32(1), round_s=np.float32(600))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in (np.float16, np.float32, np.float64):
            assert wattsched.solve(instance, time_limit=number(30), prove=number(1), gap=number(0)).solved
        wattsched.ReplaySettings(round_s=np.float32(3), carbon=np.float32(2))

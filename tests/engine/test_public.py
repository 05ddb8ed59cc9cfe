"""The public functions give what the commands write, and all that the commands can do."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner

import wattsched
from wattsched.cli import main
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.io import document_text
from wattsched.replay.jobs.outcome import summary

JOBS = "job,arrival_s,work,requested_gpus,model\na,0,400000,2,resnet50\nb,100,300000,4,bert\n"
ITP = "job_id,submission_time,duration,num_gpu\nx,0,4000,1\ny,500,2000,8\nz,900,3000,2\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,32000,9000,2,T4\nb,96000,9000,8,G2\n"
TASKS = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n1000,10,1,500,\n4000,10,0,0,\n3000,10,2,1000,G2\n"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"jobs.csv": JOBS, "itp.csv": ITP, "nodes.csv": NODES, "tasks.csv": TASKS}
    for name, text in texts.items():
        Path(name).write_text(text)


def printed(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_name_is_there_and_documented_and_no_module() -> None:
    for name in wattsched.__all__:
        assert name == "__version__" or getattr(wattsched, name).__doc__, name
    script = "import sys, wattsched; print(*sys.modules, *dir(wattsched))"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert set(wattsched.__all__) <= set(loaded)
    assert not {"numpy", "pydantic", *(f"wattsched.{name}" for name in wattsched.__all__)} & set(loaded)


def figures(document: dict[str, Any]) -> dict[str, Any]:
    """Figures without the wall clock."""
    return {name: value for name, value in document.items() if not name.startswith("decision_")}


def test_replays_are_those_of_the_command() -> None:
    options = ("--policy", "fifo,elastic", "--round", 0, "--carbon", 300, "--budget", "carbon_g=20000")
    shown = json.loads(printed("replay", "jobs.csv", *options, "--json"))["policies"]
    source = wattsched.JobSource("jobs.csv")
    settings = wattsched.ReplaySettings(round_s=0, carbon=300.0, budget=("carbon_g", 20000.0))
    traces = source.traces(homogeneous_cluster(2, 8, "A100"))
    for seed, outcome in wattsched.replay_jobs(traces, ["fifo", "elastic"], settings=settings):
        assert seed == 0
        assert figures(summary(outcome).as_dict()) == figures(shown[outcome.policy][0])


def test_a_journal_goes_on_and_refuses_other_settings() -> None:
    traces = wattsched.JobSource("jobs.csv").traces(homogeneous_cluster(2, 8, "A100"))
    first = [
        outcome for _, outcome in wattsched.replay_jobs(traces, ["fifo"], journal=wattsched.Journal("out"))
    ]
    again = wattsched.Journal("out", resume=True)
    steps: list[int] = []
    [(_, kept)] = wattsched.replay_jobs(
        traces, ["fifo"], journal=again, progress=lambda replay, seed, resumed: steps.append(seed)
    )
    assert steps == []
    assert kept.jct_s.tolist() == first[0].jct_s.tolist()
    with pytest.raises(ValueError, match=r"are of `gap` 0\.005, not 0\.1"):
        wattsched.replay_jobs(traces, ["fifo"], journal=again, settings=wattsched.ReplaySettings(gap=0.1))


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"gap": 1.0}, "gap: must be below 1"),
        ({"round_s": 1e-9}, "round_s: must be 0 or at least 0.001"),
        ({"budget": ("money", 1.0)}, "budget: money needs `tariff`"),
        ({"budget": ("carbon_g", 1.0)}, "budget: carbon_g needs `carbon`"),
        ({"budget": ("joules", 1.0)}, "there is no budget 'joules' .did you mean 'energy_j'"),
        ({"tariff": float("nan")}, "tariff: must be finite"),
        ({"pacing": "price"}, "`pacing` needs `budget`"),
    ],
)
def test_settings_that_contradict_one_another(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        wattsched.ReplaySettings(**values)


def test_placement_is_that_of_the_command() -> None:
    experiment = wattsched.read_experiment("nodes.csv", "tasks.csv", arrivals=0.9)
    placed = wattsched.place_tasks(experiment, ["fgd", "pwr"], seeds=(1, 2))
    command = (
        "place",
        "--nodes",
        "nodes.csv",
        "--tasks",
        "tasks.csv",
        "--policy",
        "fgd,pwr",
        "--seeds",
        "1-2",
    )
    shown = json.loads(printed(*command, "--arrivals", 0.9, "--json"))
    assert placed.bound is not None
    assert shown["bound"]["allocated_pct"] == pytest.approx(placed.bound.allocated_pct.tolist(), abs=1e-6)
    for policy, curves in placed.curves.items():
        assert shown["policies"][policy]["eopc_w"] == pytest.approx(curves.eopc_w.tolist(), abs=1e-6)
    assert wattsched.place_tasks(experiment, seeds=(1,), bound_gap=None).bound is None


def test_models_that_no_node_has_are_a_warning() -> None:
    Path("tasks.csv").write_text(TASKS + "1000,10,1,300,A9\n")
    with pytest.warns(UserWarning, match="gpu_spec names models that no node has: A9; 1 task can go nowhere"):
        wattsched.read_experiment("nodes.csv", "tasks.csv")


def test_imports_are_those_of_the_command() -> None:
    cluster = homogeneous_cluster(4, 8, "A100")
    made = wattsched.import_trace("itp", "itp.csv", at=1000, cluster=cluster, round_s=60.0)
    assert document_text(made) == printed(
        "import", "itp", "itp.csv", "--at", 1000, "--nodes", 4, "--round", 60
    )
    window = wattsched.import_trace("openb", "nodes.csv", "tasks.csv", window=2, arrived=0.5, seed=3)
    options = ("--window", 2, "--arrived", 0.5, "--seed", 3)
    assert document_text(window) == printed("import", "openb", "nodes.csv", "tasks.csv", *options)
    bare = wattsched.import_trace("openb", "nodes.csv", cpu_load=0.5)
    assert document_text(bare) == printed("import", "openb", "nodes.csv", "--cpu-load", 0.5)
    assert bare.cluster == wattsched.read_cluster("nodes.csv").model_copy(
        update={"nodes": bare.cluster.nodes}
    )


@pytest.mark.parametrize(
    ("form", "options", "fault"),
    [
        ("slurm", {}, "form: 'slurm' is not known, choose one of csv, openb, itp"),
        ("itp", {"window": 3}, "`window` does not go with the format itp"),
        ("itp", {"virtual_cluster": "v"}, "`virtual_cluster` does not go with the format itp"),
        ("itp", {"objective": "joy"}, "unknown objective 'joy'"),
    ],
)
def test_imports_that_are_refused(form: str, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        wattsched.import_trace(form, "itp.csv", **options)


def test_exports_and_schemas_are_those_of_the_command() -> None:
    instance = wattsched.generate("uniform", jobs=3, seed=1)
    Path("round.json").write_text(document_text(instance))
    programs: tuple[Literal["mps", "lp"], ...] = ("mps", "lp")
    for program in programs:
        printed("export", "round.json", "-o", f"program.{program}")
        assert Path(f"program.{program}").read_text() == wattsched.export_program(instance, program)
    trees: tuple[Literal["json", "conf"], ...] = ("json", "conf")
    for tree in trees:
        printed("export", "round.json", "--topology", "-o", f"tree.{tree}")
        assert Path(f"tree.{tree}").read_text() == wattsched.export_topology(instance, tree)
    assert wattsched.read_cluster("tree.json").nodes == instance.cluster.nodes
    documents: tuple[tuple[Literal["instance", "result", "frontier"], str], ...] = (
        ("instance", "sharing"),
        ("result", "placement"),
        ("frontier", "shifting"),
    )
    for document, problem in documents:
        made = wattsched.json_schema(document, problem)
        assert json.loads(printed("schema", document, "--problem", problem)) == json.loads(json.dumps(made))
    assert json.loads(printed("schema", "frontier")) == json.loads(json.dumps(made))
    assert "first" in wattsched.json_schema("frontier", "sizing")["properties"]


@pytest.mark.parametrize("ending", ["json", "json.gz", "csv", "conf"])
def test_a_file_that_cannot_be_opened_is_an_oserror_everywhere(ending: str) -> None:
    file, cluster = f"nowhere.{ending}", homogeneous_cluster(1, 8, "A100")
    readers: list[Callable[[], object]] = [
        lambda: wattsched.read_instance(file),
        lambda: wattsched.read_result(file),
        lambda: wattsched.solve(file),
        lambda: wattsched.check(file, file),
        lambda: wattsched.compare(file),
        lambda: wattsched.export_program(file),
        lambda: wattsched.read_cluster(file),
        lambda: wattsched.import_trace("itp", file),
        lambda: wattsched.read_experiment(file, file),
        lambda: wattsched.JobSource(file).traces(cluster),
    ]
    for read in readers:
        with pytest.raises(OSError, match=r"(?i)no such file") as caught:
            read()
        assert caught.value.filename == file


@pytest.mark.parametrize("text", ["", "NodeName=a1 Gres=gpu:2", "{"])
def test_what_is_no_cluster_is_told_what_is(text: str) -> None:
    Path("nodes.txt").write_text(text)
    with pytest.raises(
        wattsched.InputError, match=r"nodes\.txt.*; a cluster is read of an instance .*import slurm"
    ):
        wattsched.read_cluster("nodes.txt")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: wattsched.json_schema("instance", ""), "problem: must be one of sizing, .*, got ''"),
        (lambda i: wattsched.solve(i, formulation=""), "unknown formulation ''"),
        (lambda i: wattsched.solve(i, objective=""), "unknown objective ''"),
        (lambda i: wattsched.pareto(wattsched.generate("shifting", jobs=2), 3, tradeoff=""), "tradeoff: ''"),
    ],
)
def test_unknown_names_are_refused_with_the_argument(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(wattsched.generate("uniform", jobs=3))


def test_a_program_of_generated_columns_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from wattsched.formulations.placement import outcome_search

    monkeypatch.setattr(outcome_search, "MOST_NEAR", 1)
    window = wattsched.generate("placement", jobs=60, gpus=80, seed=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wattsched.export_program(window)
    assert any("generated columns only" in str(one.message) for one in told)

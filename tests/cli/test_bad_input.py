"""Every way to spoil an instance file ends in readable lines and exit code 2."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from wattsched import solve

from .conftest import DEMO, refused

Document = dict[str, Any]


def _cycle(document: Document) -> None:
    groups = [{"name": "r1", "parent": "r2"}, {"name": "r2", "parent": "r1"}]
    document["cluster"]["groups"] = groups


def _job(**fields: Any) -> Callable[[Document], None]:
    return lambda document: document["jobs"][0].update(fields)


def _node(**fields: Any) -> Callable[[Document], None]:
    return lambda document: document["cluster"]["nodes"][0].update(fields)


LARGE = [{"gpus": 8, "pool": "G", "power_w": 1.0, "completion_s": 1.0}]
# What is wrong -> the whole text, or how a document is changed, and what the message must speak of.
SPOILT: dict[str, tuple[str | Callable[[Document], object], str]] = {
    "empty": ("", "empty"),
    "truncated": ('{"name": "tiny", "jobs": [', "not valid JSON"),
    "nested brackets": ("[" * 100_000, "nested"),
    "binary": ("\0\1\2\3", "binary"),
    "a list": ("[1, 2]", "must be an object"),
    "duplicate key": ('{"name": "tiny", "name": "again"}', "more than once"),
    "another format": (lambda d: d.update(format="wattsched-instance/9"), "wattsched-instance/1"),
    "not a number": (_job(weight=float("nan")), "jobs[0].weight"),
    "infinite": (lambda d: d.update(round_s=float("inf")), "round_s"),
    "negative watts": (lambda d: d["cluster"]["gpu_types"]["G"].update(idle_power_w=-5.0), "idle_power_w"),
    "duplicate job": (_job(name="b"), "duplicate job name 'b'"),
    "cyclic tree": (_cycle, "cycle"),
    "unknown field": (_job(wieght=2.0), "wieght"),
    "unknown parent": (_node(parent="rack9"), "rack9"),
    "unknown model": (lambda d: d["jobs"].append({"name": "c", "model": "bort"}), "'bort'"),
    "job that may not wait, larger than the cluster": (_job(options=LARGE, can_wait=False), "8 GPUs"),
    "no nodes": (lambda d: d["cluster"].update(nodes=[]), "cluster.nodes: must not be empty"),
    "a fraction of a GPU": (_node(gpus=1.5), "nodes[0].gpus: must be a whole number, got 1.5"),
    "unknown objective": (lambda d: d.update(objective="joy"), "'joy'"),
    "terminal codes in a name": (
        lambda d: d.update(jobs=[job | {"name": "\x1b[2J"} for job in d["jobs"]]),
        r"jobs[1].name: must have no control characters, got '\x1b[2J'",
    ),
    "a NUL in the name of a node": (_node(name="n\0"), r"cluster.nodes[0].name: must have no control"),
    "a line break in the name of a GPU type": (
        lambda d: d["cluster"]["gpu_types"].update({"a\nb": {"idle_power_w": 1.0}}),
        "must have no control characters",
    ),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_bad_instances_are_refused_by_name(run, tiny, write, fault):
    spoil, word = SPOILT[fault]
    if not isinstance(spoil, str):
        spoil(tiny)
    path = write(spoil if isinstance(spoil, str) else tiny)
    result = run("solve", path, code=2)
    assert result.stdout == ""
    assert word in result.stderr
    assert "\x1b" not in result.stderr
    assert all(line.startswith("error: ") for line in result.stderr.splitlines())


def test_every_fault_has_its_line(run, tiny, write):
    tiny["jobs"][0]["weight"] = -1.0
    tiny["jobs"][1]["restart_s"] = "soon"
    tiny["round_s"] = 0
    lines = run("show", write(tiny)).stderr.splitlines()
    assert len(lines) == 3
    assert all(word in "".join(lines) for word in ("jobs[0].weight", "jobs[1].restart_s", "round_s"))


@pytest.mark.parametrize("command", [["solve"], ["show"], ["export", "-o", "x.lp"]], ids=lambda c: c[0])
def test_times_that_cannot_be_compared_are_refused_alike(run, tiny, write, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    tiny["jobs"][0]["remaining_work"] = 1e-300
    path = write(tiny)
    result = run(*command[:1], path, *command[1:])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {path}: job 'a': completion times must be from 1e-06 to")


@pytest.mark.parametrize("command", ["solve", "show"])
def test_missing_files_and_folders(run, tmp_path, command):
    for path, word in ((tmp_path / "nowhere.json", "no such file"), (tmp_path, "directory")):
        refused(run(command, path), word)


@pytest.mark.parametrize(("name", "text"), [("bin", "\0\1"), ("empty", "")])
@pytest.mark.parametrize("command", ["import slurm {} -o out", "fit {} --jobs {}", "fit {}", "solve {}"])
def test_a_file_is_named_though_its_name_is_a_word_of_the_sentence(
    run, tmp_path, monkeypatch, command, name, text
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    told = run(*command.replace("{}", name).split(), code=2).stderr
    assert re.search(rf"^error: {name}(:| is no log)", told, re.MULTILINE)


def test_standard_input_is_named_in_messages(run):
    result = run("solve", "-", stdin="{", code=2)
    assert "standard input" in result.stderr
    assert "/tmp" not in result.stderr


def test_names_in_a_file_are_no_markup(run, tiny, write):
    tiny["jobs"][0]["name"] = "[red]job[/red] :smile: \u202e[31m"
    assert "[red]job[/red] :smile: \\u202e[31m" in run("solve", write(tiny)).stdout


LOOPS = (
    "solve loop.json", "solve demo.json --warm loop.json", "solve demo.json --formulation loop.py:f",
    "solve demo.json -o loop.json", "solve demo.json -o loop/result.json", "show loop.json",
    "check demo.json loop.json", "compare loop.json", "compare demo.json -o loop",
    "compare demo.json -o loop/out",
    "export demo.json -o loop.lp", "fit loop.csv", "import itp loop.csv", "import itp loop.csv other.csv",
    "import itp trace.csv --cluster loop.json", "generate uniform -o loop.json",
    "generate shifting --carbon loop.csv", "place --nodes loop.csv --tasks loop.csv",
    "place --nodes n.csv --tasks n.csv --plot loop.png", "replay loop.csv", "replay trace.csv -o loop",
    "replay trace.csv --format itp -o loop/out", "replay trace.csv --format itp --carbon loop.csv",
    "schema -o loop.json",
)  # fmt: skip


@pytest.mark.parametrize("command", LOOPS)
def test_loops_of_symbolic_links_are_refused(run, tmp_path, monkeypatch, command):
    (tmp_path / "demo.json").write_text(DEMO.read_text())
    (tmp_path / "trace.csv").write_text("job_id,submission_time,duration,num_gpu\na,0,100,1\n")
    loops = [tmp_path / f"loop{ending}" for ending in ("", ".json", ".csv", ".py", ".png", ".lp")]
    for loop in loops:
        loop.symlink_to(loop.name)
    monkeypatch.chdir(tmp_path)
    refused(run(*command.split()))
    assert all(loop.is_symlink() for loop in loops)


@pytest.mark.parametrize("name", ["time_limit", "gap", "seed"])
def test_endless_integers_are_refused_in_python_too(name):
    with pytest.raises(ValueError, match=name):
        solve(DEMO, **{name: 10**400})


@pytest.mark.parametrize(
    "command",
    [
        "solve {}",
        "solve demo.json --warm {}",
        "solve demo.json --formulation {}.py:build",
        "compare {}",
        "check {} {}",
        "show {}",
        "convert {} -o out.parquet",
        "export {} -o out.lp",
        "import openb {}",
        "import itp {}",
        "import philly {}",
        "import pai {}",
        "import gavel {}",
        "generate shifting --carbon {} --zone DE",
        "place --nodes {} --tasks {}",
        "replay {} --format itp --policy fifo",
        "fit {} --model x --gpu-type A100 --watts 1 1 1",
        "slurm --shadow --snapshot {}",
        "slurm --shadow --options {}",
        "slurm --shadow --budget {}",
        "kubernetes --shadow --snapshot {}",
        "kubernetes --shadow --options {}",
        "kubernetes --shadow --kubeconfig {}",
        "serve --port 0 {}",
        "serve --port 0 j.db --tokens {}",
        "journal {}",
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "folder", "/dev/zero"])
def test_what_is_no_file_is_refused_at_once(run, tiny, tmp_path, monkeypatch, command, kind):
    """Whoever read it would wait for ever, or would never see its end."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.json").write_text(json.dumps(tiny))
    for name in ("pipe", "pipe.py"):
        os.mkfifo(name)
    for name in ("folder", "folder.py"):
        os.mkdir(name)
    monkeypatch.setattr("wattsched.cli.files.PIPE_WAIT_S", 0.02)
    before = sorted(os.listdir())
    signal.alarm(30)  # the one who waits is ended
    try:
        result = run(*command.format(kind, kind).split())
    finally:
        signal.alarm(0)
    assert result.exit_code in (2, 4)
    told = ("is no regular file", "is a pipe into which nobody writes", "/dev/zero.py: no such file")
    assert any(one in result.stderr for one in (("s a directory",) if kind == "folder" else told))
    assert sorted(os.listdir()) == before

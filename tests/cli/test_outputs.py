"""Outputs never replace an input, and a written file is announced on standard error."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from wattsched.cli import main
from wattsched.cli.outputs import Output
from wattsched.cli.parameters import descriptions
from wattsched.plot import save

from .conftest import DEMO, Run, refused, wattsched

STEPS = "gpus,local_batch,step_time_s,power_w\n" + "".join(
    f"{gpus},{batch},{0.01 + 0.002 * batch},200\n" for gpus in (1, 2) for batch in (8, 16)
)
TRACE = "job_id,submission_time,duration,num_gpu\na,0,100,1\n"


@pytest.fixture
def folder(write, tmp_path, monkeypatch):
    """Folder with an input of every command."""
    write(DEMO.read_text(), "demo.json")
    write(STEPS, "steps.csv")
    write(TRACE, "trace.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve", "demo.json", "--solver", "greedy", "-o", "made.json"],
        ["solve", "demo.json", "--solver", "greedy", "--json", "-o", "made.json"],
        ["generate", "uniform", "--jobs", 3, "-o", "made.json.gz"],
        ["import", "itp", "trace.csv", "--nodes", 2, "--at", 5, "-o", "made.json"],
        ["export", "demo.json", "-o", "made.mps"],
        ["export", "demo.json", "--topology", "-o", "made.json"],
        ["fit", "steps.csv", "-o", "made.json"],
        ["schema", "-o", "made.json"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_a_written_file_is_announced_on_standard_error(run, folder, arguments):
    result = run(*arguments, code=0)
    assert result.stderr == f"Written to {arguments[-1]}\n"
    assert "Written" not in result.stdout


def test_a_folder_that_takes_no_files_is_noticed_before_any_work(run, folder):
    result = run("solve", "missing.json", "-o", "/dev/fd/made.json", code=2)
    assert result.stderr.startswith("error: -o '/dev/fd/made.json': the folder '/dev/fd' takes no files: ")


def test_a_file_that_is_too_large_to_be_read_is_called_that(run, folder, monkeypatch):
    monkeypatch.setenv("WATTSCHED_INPUT_MB", "1")
    result = run("generate", "hetero", "--jobs", 3_000, "-o", "made.json", code=0)
    _, note = result.stderr.splitlines()
    (needed,) = re.fullmatch(r"note: too large to be read, unless (\S+) is set", note).groups()
    run("show", "made.json", code=2)
    monkeypatch.setenv(*needed.split("="))
    run("show", "made.json", code=0)


def commands(
    command: click.Command = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[click.Parameter]]]:
    """Names and parameters of all commands, those of families and formats included."""
    if not isinstance(command, click.Group):
        yield path, command.params
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), (*path, name))


PARAMETERS = dict(commands())


def name_for(param: click.Parameter, folder: Path) -> str | None:
    """Name that this parameter takes, of a file in the folder; None where it takes no name of a file."""
    if isinstance(param.type, Output) or param.name == "help":
        return None
    for ending in (".csv", ".json", ".py:f"):
        name = str(folder / f"in{ending}")
        try:
            value = param.process_value(click.Context(main), (name,) if param.nargs == -1 else name)
        except click.UsageError:
            continue
        if value in (name, (name,), [name]):
            return name
    return None


def pairs() -> list[tuple[tuple[str, ...], str, str]]:
    """Every command with each of its outputs and everything else that may name a file."""
    return [
        (path, str(output.name), str(param.name))
        for path, parameters in PARAMETERS.items()
        for output in parameters
        if isinstance(output.type, Output)
        for param in parameters
        if name_for(param, Path()) is not None
    ]


@pytest.mark.parametrize("path", PARAMETERS, ids=" ".join)
def test_every_command_explains_itself_and_each_of_its_options(run, path):
    told = run(*path, "--help", code=0).stdout.splitlines()
    assert told[0].startswith(f"Usage: main {' '.join(path)}")
    for line, after in zip(told, [*told[1:], ""], strict=True):
        if line.startswith("  -") and len(line.split()) < 3:
            assert after.startswith("      "), line


def test_descriptions_come_from_the_docstring():
    def function(a, b, c):
        """Do it.

        Parameters
        ----------
        a, b : int
            Both of `them`,
            on two lines.
        c : str
            The last.

        Raises
        ------
        ValueError
            Never.
        """

    assert descriptions(function) == {
        "a": "Both of them, on two lines.",
        "b": "Both of them, on two lines.",
        "c": "The last.",
    }
    assert descriptions(int) == {}


def words(param: click.Parameter, value: object) -> list[str]:
    return [str(value)] if isinstance(param, click.Argument) else [param.opts[-1], str(value)]


def asked(run: Run, path: tuple[str, ...], output: tuple[str, object], given: dict[str, str]) -> Result:
    """Run a command with an output, what it cannot do without, and what is given."""
    arguments: list[str] = []
    for param in PARAMETERS[path]:
        if param.name == output[0]:
            arguments += words(param, output[1])
        elif param.name in given:
            arguments += words(param, given[param.name])
        elif param.required:
            arguments += words(param, DEMO)
    return run(*path, *arguments)


def content(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_all_that_reads_files_is_known_to_this_test():
    """At least as many outputs, and inputs, as there were; nothing else is to be done for a new one."""
    found = pairs()
    assert {path for path, _, _ in found} >= {("solve",), ("compare",), ("place",), ("replay",), ("fit",)}
    reads = {(path[0], param) for path, _, param in found}
    assert reads >= {
        ("solve", "file"), ("solve", "warm"), ("solve", "formulation"), ("compare", "files"),
        ("compare", "formulations"), ("export", "file"), ("export", "formulation"), ("place", "nodes"),
        ("place", "tasks"), ("replay", "file"), ("replay", "tables"), ("replay", "throughputs"),
        ("replay", "profiles"), ("savings", "profiles"),
        ("replay", "cluster_file"), ("replay", "carbon"), ("replay", "tariff"), ("import", "files"),
        ("import", "cluster_file"), ("import", "throughputs"), ("fit", "files"), ("fit", "jobs"),
        ("generate", "carbon"),
    }  # fmt: skip


@pytest.mark.parametrize("same", ["link", "symlink", "symlink to the input"])
@pytest.mark.parametrize(("path", "output", "param"), pairs(), ids=lambda part: str(part).strip("(),'"))
def test_no_output_replaces_any_input(run, tmp_path, same, path, output, param):
    """Under another name of the file, be it a hard link or a symbolic one, either way round."""
    of = {one.name: one for one in PARAMETERS[path]}
    name = name_for(of[param], tmp_path)
    file = Path(name.removesuffix(":f"))
    kind = of[output].type
    out = tmp_path / "out"
    if not kind.suffixes:
        out.mkdir()
    target = out / "runs.json" if not kind.suffixes else out.with_suffix(kind.suffixes[0])
    if same == "symlink to the input":
        file.write_text("input")
        target.symlink_to(file)
    else:
        target.write_text("input")
        os.link(target, file) if same == "link" else file.symlink_to(target)
    before = content(tmp_path)
    result = asked(run, path, (output, out if not kind.suffixes else target), {param: name})
    assert result.exit_code == 2
    assert "would replace the input" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("path", "output", "param"),
    [one for one in pairs() if next(p for p in PARAMETERS[one[0]] if p.name == one[1]).metavar == "DIR"],
    ids=lambda part: str(part).strip("(),'"),
)
def test_no_folder_of_outputs_holds_an_input(run, tmp_path, path, output, param):
    """Wherever in it, and whatever the folder is called."""
    deep = tmp_path / "out" / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (tmp_path / "also").symlink_to("out")
    name = name_for({one.name: one for one in PARAMETERS[path]}[param], deep)
    Path(name.removesuffix(":f")).write_text("input")
    for folder in ("out", "also", "also/../out", "out/a/b/c", "."):
        before = content(tmp_path)
        result = asked(run, path, (output, tmp_path / folder), {param: name})
        assert result.exit_code == 2
        assert "would replace the input" in result.stderr
        assert content(tmp_path) == before


def test_what_standard_input_is_read_from_is_an_input(tmp_path):
    file = shutil.copy(DEMO, tmp_path)
    with open(file) as stdin:
        done = wattsched("solve", "-", "-o", file, stdin=stdin)
    assert done.returncode == 2
    assert "would replace the input 'standard input'" in done.stderr
    assert Path(file).read_bytes() == DEMO.read_bytes()


@pytest.mark.parametrize("table", ["oracle_pair_throughputs.json", "simulation_throughputs.json"])
@pytest.mark.parametrize("below", [(), ("lists",)])
def test_tables_that_a_list_names_by_its_place_are_inputs(run, tmp_path, table, below):
    file = tmp_path.joinpath(*below, "jobs.csv")
    file.parent.mkdir(exist_ok=True)
    file.write_text("job_type,total_steps,scale_factor,arrival_time_s\n")
    (tmp_path / table).write_text("{}")
    before = content(tmp_path)
    refused(
        run("import", "gavel", file, "--at", 0, "-o", tmp_path / table),
        f"would replace the input '{tmp_path / table}'",
    )
    assert content(tmp_path) == before


def test_a_plot_is_whole_or_not_there(tmp_path, monkeypatch):
    """What fails while it is drawn leaves the old plot, and nothing beside it."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    file = tmp_path / "plot.svg"
    save(figure(), file)
    before = file.read_bytes()

    def fails(self: object, target: object, **options: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(figure, "savefig", fails)
    with pytest.raises(OSError, match="no space"):
        save(figure(), file)
    assert content(tmp_path) == {file: before}

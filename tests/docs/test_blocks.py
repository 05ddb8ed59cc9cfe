"""Every example of the documentation runs: Python and shell blocks in order, JSON blocks are validated."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.docs.markdown import Block, blocks_of, commands_of, first_difference
from tests.strategies.forked import run_module
from wattsched.adapters.agents import NodeReport
from wattsched.adapters.budget import Caps
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.slurm.options import SiteOptions
from wattsched.instances.signals import Signal
from wattsched.instances.sizing import instance as instance_models
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.perfmodels.profile import Profile
from wattsched.results.documents import instance_of, is_result, result_of, verdict_on
from wattsched.topology import cluster as cluster_models

pytestmark = pytest.mark.usefixtures("explained")

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
COMMANDS = ROOT / "docs" / "commands.md"
PAGES = [*sorted((ROOT / "docs").glob("*.md")), README]
LINKING = [*PAGES, *sorted((ROOT / "docs").glob("*/*.md")), *ROOT.glob("[CS]*.md")]
DATA = Path(os.environ.get("WATTSCHED_DATA", ROOT.parent / "shared" / "data"))

DEMO = "examples/demo.json"
SNAPSHOTS = tuple(
    f"examples/{name}.json" for name in ("slurm", "slurm-site", "kubernetes", "kubernetes-site")
)
SITE = ("examples/site/nodes.txt", "examples/site/sacct.txt", "examples/site/topology.conf")
SETUP = re.compile(r"#|git |pip |make\b|source |sudo |apt|python3? -m venv ")
"""Comments, and commands that set up the machine."""

OURS = re.compile(r"wattsched (\\\n|[^\\|&;<>*?`'(){}])*")
"""A command that needs nothing of the shell but variables."""

OPTIONAL = ("cbc", "glpsol")
"""Programs that a machine may lack."""

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder with the bundled instance, in which `wattsched` is this package's command.

    With ``--jitter SEED``, numbers change in the command's process as they do in this one.
    """
    tools, work = tmp_path / "bin", tmp_path / "work"
    tools.mkdir()
    (work / DEMO).parent.mkdir(parents=True)
    (work / SITE[0]).parent.mkdir()
    scripts = [f"examples/{script.name}" for script in (ROOT / "examples").glob("*.py")]
    for example in (DEMO, *SNAPSHOTS, *SITE, *scripts):
        shutil.copy(ROOT / example, work / example)
    main = "-m wattsched"
    if (seed := request.config.getoption("--jitter")) is not None:
        begin = tools / "jittered.py"
        begin.write_text(
            f"import sys\nsys.path[0] = {str(ROOT)!r}\nfrom tests.conftest import changed_digits\n"
            f"from wattsched.cli import main\nif __name__ == '__main__':\n    with changed_digits({seed}):\n"
            "        main(prog_name='wattsched')\n"
        )
        main = f'"{begin}"'
    for name, command in (("wattsched", main), ("python", "")):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        tool.chmod(0o755)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "120")
    if DATA.is_dir():
        monkeypatch.setenv("WATTSCHED_DATA", str(DATA))
    return work


@pytest.mark.slow
@pages
def test_examples_run(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": page.stem}
    printed, left_out = "", []
    for block in blocks_of(page):
        if block.skipped or (block.needs_data and not DATA.is_dir()):
            left_out.append(block.where)
        elif block.language == "python":
            printed = run_python(block, names)
        elif block.language in ("console", "bash", "sh"):
            run_commands(block, folder)
        elif (
            block.language == "json" and "name" in (content := json.loads(block.text)) and "format" in content
        ):
            # "Save this as lab.json": an instance is at hand under its name from there on.
            (folder / f"{content['name']}.json").write_text(block.text)
        elif block.language == "text" and block.tag == "output":
            missing = first_difference(block.text.splitlines(), printed, block.tolerance)
            assert missing is None, f"{block.where}: {missing!r} was not printed, but:\n{printed}"
    if left_out:
        print("not run:", ", ".join(left_out))


def run_python(block: Block, names: dict[str, Any]) -> str:
    code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def run_commands(block: Block, folder: Path) -> None:
    for command in commands_of(block):
        program = command.text.split()[0]
        if SETUP.match(command.text) or (program in OPTIONAL and shutil.which(program) is None):
            continue
        done = run_command(command.text, folder)
        printed = done.stdout
        told = f"{block.where}: '{command.text}'"
        assert done.returncode == command.exit_code, f"{told} ended with {done.returncode}:\n{printed}"
        missing = first_difference(command.shown, printed, block.tolerance)
        assert missing is None, f"{told} did not print {missing!r}, but:\n{printed}"


def run_command(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ours in a forked process; others, and those that need a shell, by a shell."""
    if OURS.fullmatch(text) and not (folder.parent / "bin" / "jittered.py").exists():
        words = shlex.split(os.path.expandvars(text.replace("\\\n", "")), comments=True)
        return run_module(*words, folder=folder, together=True)
    return subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


@pages
def test_json_examples_are_valid(page: Path) -> None:
    """A document says what it is by its format; a part of one names its class after the fence.

    A result belongs to an instance above it on the page, and has to pass its check.
    """
    parts = (
        Profile,
        Decision,
        JobColumns,
        AssignmentColumns,
        SiteOptions,
        KubernetesOptions,
        Caps,
        Signal,
        NodeReport,
    )
    models = {**vars(cluster_models), **vars(instance_models), **{part.__name__: part for part in parts}}
    instances = {}
    for block in blocks_of(page):
        if block.language != "json" or block.skipped:
            continue
        content = json.loads(block.text)
        if is_result(content):
            result_of(content)
            verdict = verdict_on(instances[content["instance"]], content)
            assert not verdict.faults, f"{block.where}: {verdict.faults}"
        elif "format" in content and block.tag not in models:
            instances[content["name"]] = instance_of(content, source=block.where)
        else:
            assert block.tag in models, f"{block.where}: name the class of this part after the fence"
            TypeAdapter(models[block.tag]).validate_json(block.text)


@pytest.mark.slow
def test_commands_in_the_table_of_all_commands_run(folder: Path) -> None:
    text = COMMANDS.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `wattsched ")]
    commands = re.findall(r"`(wattsched [^`]+)`", "\n".join(rows))
    assert len(commands) > len(rows) > 8
    for command in commands:
        block = Block(COMMANDS, 1, "console", "", f"$ {command}", "")
        if DATA.is_dir() or not block.needs_data:
            run_commands(block, folder)


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)?(#[^)\s]+)?\)", text):
        path, anchor = target
        if "://" in path:
            continue
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name} links to {path}, which does not exist"
        if anchor and linked.suffix == ".md":
            headings = re.findall(r"^#+\s+(.*)$", linked.read_text(encoding="utf-8"), flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
            assert anchor[1:] in slugs, f"{page.name} links to {path}{anchor}, which has no such heading"

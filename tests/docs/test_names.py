"""Files, options and public names that the pages mention exist, and the Python page has every public name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import click
import pytest

import wattsched
from wattsched.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
FOLDERS = tuple(path.name for path in ROOT.iterdir() if path.is_dir())
OTHERS = {"--help", "--lp", "--host", "--port", "--nthreads", "--nworkers", "--dashboard-address"}
OTHERS |= {"--hold", "--requeue", "--gres", "--comment", "--gpus", "--gpus-per-node", "--gpu-freq", "--begin"}
OTHERS |= {"--nodelist", "--exclude", "--constraint", "--unix-socket"}
OTHERS |= {"--rm", "--user", "--query-gpu", "--starttime"}
OTHERS |= {"--lock-gpu-clocks", "--power-limit", "--from-file", "--allusers", "--duplicates", "--parsable2"}
OTHERS |= {"--settings", "--node", "--every", "--dry-run"}
"""Options of other commands: click's own, the agent's, those of glpsol, dask, Slurm, docker and others."""

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def options_of(command: click.Command) -> set[str]:
    """Options of a command and of all commands below it."""
    options = {name for parameter in command.params for name in parameter.opts + parameter.secondary_opts}
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = [command.get_command(context, name) for name in command.list_commands(context)]
        options.update(*(options_of(one) for one in below if one is not None))
    return options


@pytest.fixture(scope="module")
def options() -> set[str]:
    """All options of the command line and of the programs in `benchmarks`."""
    programs = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py"))
    own = re.findall(r"(\w+)=", " ".join(re.findall(r"\(__doc__, TABLES, (.*)\)", programs)))
    return (
        options_of(main)
        | set(re.findall(r'"(--[a-z-]+)"', programs))
        | {f"--{name}" for name in own}
        | OTHERS
    )


@pages
def test_files_and_options_exist(page: Path, options: set[str]) -> None:
    text = page.read_text(encoding="utf-8")
    paths = [path for path in re.findall(r"`([\w./-]+/[\w./-]*)`", text) if path.startswith(FOLDERS)]
    assert not [path for path in paths if not (ROOT / path).exists()]
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) <= options


@pages
def test_modules_and_their_names_exist(page: Path) -> None:
    written = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"(?!wattsched\.io/)wattsched(?:\.[A-Za-z_]\w*)+", written)):
        found, *rest = name.split(".")
        value = importlib.import_module(found)
        for part in rest:
            found = f"{found}.{part}"
            value = getattr(value, part) if hasattr(value, part) else importlib.import_module(found)


def test_the_python_page_has_every_public_name() -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert not [name for name in wattsched.__all__ if name != "__version__" and f"`{name}`" not in text]

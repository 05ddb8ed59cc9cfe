"""A command ends with one of the codes that the docs list, and by Ctrl-C with 130, whatever it is at."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from wattsched.cli.failures import EXIT_CODES, exit_code_of

from .conftest import DEMO

ROOT = Path(__file__).resolve().parents[2]

INTERRUPTED = """
import builtins, os, runpy, signal, sys
imports, begun, nth = builtins.__import__, [0], int(sys.argv.pop(1))
def counted(name, *rest, **more):
    if begun[0] or name == "wattsched.cli":
        begun[0] += name not in sys.modules
    if begun[0] == nth:
        begun[0] += 1
        os.kill(os.getpid(), signal.SIGINT)
    return imports(name, *rest, **more)
builtins.__import__ = counted
runpy.run_module("wattsched", run_name="__main__", alter_sys=True)
"""


def test_the_docs_list_all_codes():
    said = " ".join((ROOT / "docs" / "commands.md").read_text().split())
    sentence = said.partition("Exit codes are ")[2].partition(". ")[0]
    short = {int(code) for code in re.findall(r"(?:^|, )(\d+):", sentence)}
    table = (ROOT / "docs" / "file-format.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)}
    assert short == listed == set(EXIT_CODES)


def test_help_lists_all_codes(run):
    told = " ".join(run("--help").stdout.split())
    assert all(f"{code} {meaning}" in told for code, meaning in EXIT_CODES.items())


@pytest.mark.parametrize(
    "told",
    [
        "scipy/_sparsetools.so: failed to map segment from shared object",
        "IMPORTANT: READ THIS\n\nOriginal error was: numpy.so: failed to map segment from shared object",
        "highspy.so: cannot allocate memory",
    ],
)
def test_a_library_without_room_is_a_lack_of_memory(capsys, told):
    def load() -> None:
        raise ImportError(told)

    assert exit_code_of(load) == 4
    assert capsys.readouterr().err == "error: out of memory: a library could not be loaded\n"


@pytest.mark.parametrize(
    "raised",
    [
        SystemExit(55), SystemExit("bye"), SystemExit(None), KeyboardInterrupt(), MemoryError(),
        RecursionError(), BrokenPipeError(), FileNotFoundError(2, "no"), ValueError("x"), OSError(),
        click.UsageError("x"), click.Abort(), GeneratorExit(), click.exceptions.Exit(9),
    ],
    ids=repr,
)  # fmt: skip
def test_whatever_happens_the_code_is_a_listed_one(monkeypatch, raised):
    def fails() -> None:
        raise raised

    monkeypatch.setattr("wattsched.cli.failures._forget_output", lambda: None)
    assert exit_code_of(fails) in set(EXIT_CODES) - {0}


def test_a_library_that_hides_ctrl_c_in_its_import_is_seen_through():
    def fails() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    assert exit_code_of(fails) == 130


@pytest.mark.parametrize(
    "nth", [1, 20, 120, 500, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5, 50, 200, 300, 800))]
)
def test_ctrl_c_during_imports(nth):
    """At the n-th module that is imported, from the command's own first one to those of the solvers."""
    command = [sys.executable, "-P", "-c", INTERRUPTED, str(nth), "solve", str(DEMO), "--time-limit", "inf"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() in ("", "interrupted")
    assert done.stdout == ""


def test_interrupts_come_from_the_module_that_the_command_runs():
    script = (ROOT / "pyproject.toml").read_text()
    assert 'wattsched = "wattsched.__main__:main"' in script

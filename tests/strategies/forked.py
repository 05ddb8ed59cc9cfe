"""Modules that run in processes forked from one that has imported the package: others take a second more."""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import get_context, set_start_method
from pathlib import Path
from subprocess import CompletedProcess

import wattsched

FORKING = get_context("forkserver")
PACKAGE = Path(wattsched.__file__).parent
FORKING.set_forkserver_preload(
    [
        "matplotlib.pyplot",
        *(
            ".".join(["wattsched", *path.relative_to(PACKAGE).with_suffix("").parts])
            for folder, _, names in os.walk(PACKAGE, followlinks=True)
            for path in (Path(folder, name) for name in names if name.endswith(".py") and name[0] != "_")
        ),
    ]
)
"""Nothing is solved there: a solver's threads would be missing in the copies."""


def run_module(
    name: str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] = os.environ,
    together: bool = False,
    timeout_s: float = 300.0,
) -> CompletedProcess[str]:
    """Run ``python -m name`` in a folder; `together` standard output has the errors, too, in their order."""
    with tempfile.TemporaryDirectory() as made:
        printed = (Path(made, "stdout"), Path(made, "stdout" if together else "stderr"))
        process = FORKING.Process(target=_run, args=(name, arguments, folder, dict(environment), printed))
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        stdout, stderr = (path.read_text(encoding="utf-8") for path in printed)
        return CompletedProcess([name, *arguments], process.exitcode, stdout, "" if together else stderr)


def _run(
    name: str, arguments: Sequence[str], folder: Path, environment: dict[str, str], printed: tuple[Path, Path]
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(printed, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    set_start_method(None, force=True)  # of its own processes
    sys.argv[1:] = arguments
    runpy.run_module(name, run_name="__main__", alter_sys=True)

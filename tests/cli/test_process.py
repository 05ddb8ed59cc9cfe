"""What only a process of its own shows: streams, signals, speed."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import resource
import shlex
import signal
import subprocess
import sys

import pytest

import wattsched as package
from wattsched.cli import COMMANDS

from .conftest import COMMAND, DEMO, wattsched

NOISY = """
import ctypes, os, sys
import wattsched.solving.engine as engine
solve = engine.solve
def noisy(*args, **kwargs):
    ctypes.CDLL(None).printf(b"stray words of a library\\n")
    os.write(1, b"more of them\\n")
    print("and from Python")
    return solve(*args, **kwargs)
engine.solve = noisy
from wattsched.cli import main
main(["solve", sys.argv[1], "--json"])
"""


def test_stray_output_of_libraries_stays_off_standard_output():
    done = wattsched(DEMO, script=NOISY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["instance"] == "demo"
    for words in ("stray words of a library", "more of them", "and from Python"):
        assert words in done.stderr


def test_nothing_heavy_is_imported_for_help_and_version():
    script = "import sys; from wattsched.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    done = wattsched(script=script)
    loaded = set(done.stdout.split())
    assert all(name in done.stdout for name in COMMANDS)
    assert not loaded & {"numpy", "pydantic", "rich", "highspy", "scipy", "wattsched.solving.engine"}
    assert wattsched("--version").stdout == f"wattsched {package.__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["--help"], ["schema"], ["solve", str(DEMO)], ["show", str(DEMO)]], ids=" ".join
)
def test_reader_that_has_gone_ends_a_command_quietly(arguments):
    # With a pipe whose other end is closed already there is no race.
    reader, writer = os.pipe()
    os.close(reader)
    command = [*COMMAND, *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141


def test_file_is_written_though_the_reader_has_gone(tmp_path):
    command = shlex.join([*COMMAND, "solve", str(DEMO), "--solver", "greedy", "-o", "result.json"])
    done = subprocess.run(["bash", "-c", f"{command} | true"], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 0
    assert json.loads((tmp_path / "result.json").read_text())["instance"] == "demo"


def test_interrupt_ends_quietly():
    command = [*COMMAND, "solve", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", ["solve", "show", "check"])
def test_too_little_memory_to_begin_is_one_line(command):
    files = [DEMO] * (1 + (command == "check"))
    asked = shlex.join([*COMMAND, command, *map(str, files)])
    done = subprocess.run(["sh", "-c", f"ulimit -v 256000; exec {asked}"], capture_output=True, text=True)
    said = "error: out of memory: 'ulimit -v' allows 250 MiB of address space, and every command needs 500\n"
    assert (done.returncode, done.stdout, done.stderr) == (4, "", said)


@pytest.mark.parametrize("arguments", [["solve", str(DEMO)], ["solve", str(DEMO), "--json"], ["schema"]])
def test_closed_standard_output_is_one_line(arguments):
    command = shlex.join([*COMMAND, *arguments])
    done = subprocess.run(
        ["bash", "-c", f"{command} >&-"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard output is closed")
    assert len(done.stderr.splitlines()) == 1


def test_closed_standard_error_does_not_matter():
    command = shlex.join([*COMMAND, "generate", "uniform", "--jobs", "0"])
    done = subprocess.run(["bash", "-c", f"{command} 2>&-"], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_ascii_terminals_get_escapes_instead_of_an_error(tiny, write):
    tiny["jobs"][0]["name"] = "Größe"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = wattsched("solve", write(tiny), env=environment)
    assert done.returncode == 0
    assert "Gr\\xf6\\xdfe" in done.stdout
    assert json.loads(wattsched("solve", write(tiny), "--json", env=environment).stdout.encode())


def _on_a_terminal(*arguments: object, **environment: str) -> str:
    """Output of a command on a terminal of 80 columns."""
    leader, follower = pty.openpty()
    command = [*COMMAND, *map(str, arguments)]
    settings = {"TERM": "xterm-256color", "COLUMNS": "80", **environment}
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(command, stdout=follower, stderr=subprocess.DEVNULL, env={**clean, **settings}):
        os.close(follower)
        chunks = []
        # Reading from a terminal that nobody writes to any more is an error on Linux.
        with contextlib.suppress(OSError):
            while chunk := os.read(leader, 1 << 16):
                chunks.append(chunk)
    os.close(leader)
    return b"".join(chunks).decode()


def test_colours_are_for_terminals_that_want_them():
    assert "\x1b[" in _on_a_terminal("show", DEMO)
    plain = _on_a_terminal("show", DEMO, NO_COLOR="1")
    assert not re.search(r"\x1b\[[\d;]*3\dm", plain)
    assert max(map(len, plain.splitlines())) <= 80 or "\x1b" in plain


def test_full_disk_is_one_line(tmp_path):
    """A file that may not grow is to a program what a full disk is."""
    command = [sys.executable, "-P", "-B", "-m", "wattsched", "schema"]
    with open(tmp_path / "full", "w") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "error: standard output: file too large\n"

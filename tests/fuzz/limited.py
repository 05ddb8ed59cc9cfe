"""Read hostile files in a process of its own, with limits of time and memory, and say what came of it.

``python -m fuzz.limited FOLDER`` takes a JSON object per line, ``{"reader": index, "file": path, "commands":
bool}``, and answers each with a `Verdict`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import select
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.readers import READERS, Reader
from tests.fuzz.valid_files import valid_files

MOST_S = 20.0
MOST_MIB = 400
ROOM_MIB = 220
"""A process that keeps more is replaced, so that each file is judged alone."""
HEADROOM = 4 << 30
"""Address space for a reader that asks for more than it may, so that the machine lives on."""
WALL_S = 300.0
CODES = (0, 1, 2, 3, 4)
JSON_COMMANDS = ("import", "generate")
LONGEST_LINE = 2_000


@dataclass
class Verdict:
    """What a file did to its reader.

    Attributes
    ----------
    told : str
        What the reader raised; empty where it read the file.
    faults : list of str
        What no reader and no command may do.
    cpu_s : float
    peak_mib, left_mib : float
        Of the whole process, and what it still holds.
    """

    told: str = ""
    faults: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    left_mib: float = 0.0


class Child:
    """A process that reads files; one that dies is replaced.

    Parameters
    ----------
    valid : Path
        Folder of the valid files.
    """

    def __init__(self, valid: Path) -> None:
        self._valid, self._process = valid, None

    def tried(self, reader: Reader, file: Path, *, commands: bool = True) -> Verdict:
        """Let a file be read."""
        if self._process is None:
            self._process = self._started()
        process = self._process
        asked = {"reader": READERS.index(reader), "file": str(file), "commands": commands}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], WALL_S)
        line = process.stdout.readline() if ready else ""
        if line:
            verdict = Verdict(**json.loads(line))
            if verdict.left_mib > ROOM_MIB:
                self.close()
            return verdict
        self.close()
        how = f"ended with {process.returncode}" if ready else f"did not end in {WALL_S:g} s"
        return Verdict(faults=[f"the process {how} (limits: {MOST_S:g} s of CPU, {HEADROOM >> 30} GiB more)"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> Any:
        here = Path(__file__).resolve().parents[2]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "COLUMNS": "100"}
        command = [
            sys.executable,
            "-P",
            "-c",
            f"import sys; sys.path.append({str(here)!r})\n"
            "from tests.fuzz.limited import main; main(sys.argv[1])",
            str(self._valid),
        ]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )


def main(valid: str) -> None:
    """Answer until there are no more questions."""
    answers, sys.stdout = sys.stdout, io.StringIO()
    warm_up(Path(valid))
    space = int(_status("VmSize")) << 10
    resource.setrlimit(resource.RLIMIT_AS, (space + HEADROOM, space + HEADROOM))
    for line in sys.stdin:
        asked = json.loads(line)
        verdict = judged(READERS[asked["reader"]], Path(asked["file"]), Path(valid), asked["commands"])
        verdict.left_mib = _status("VmRSS") / 1024
        answers.write(json.dumps(asdict(verdict)) + "\n")
        answers.flush()


def warm_up(valid: Path) -> None:
    """Read every valid file, so that what is imported is not counted."""
    for reader in READERS:
        for command in reader.commands:
            code, _, err = run(reader.words(command, valid / reader.file, valid))
            assert code in (0, 1, 4), (command, code, err)
        reader.read(valid / reader.file, valid)


def judged(reader: Reader, file: Path, valid: Path, commands: bool) -> Verdict:
    """Read a file, run the commands that take it, and judge what they do."""
    verdict = Verdict()
    with counted(verdict):
        try:
            reader.read(file, valid)
        except Exception as error:
            verdict.told = f"{type(error).__name__}: {error}"
            verdict.faults += faults_of_error(error)
    verdict.faults += faults_of_cost(verdict)
    if commands and not verdict.faults:
        for command in reader.commands:
            verdict.faults += [
                f"{command}: {fault}" for fault in faults_of_command(reader, command, file, valid)
            ]
    return verdict


@contextlib.contextmanager
def counted(verdict: Verdict) -> Iterator[None]:
    """Count CPU seconds and the peak of the memory."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    begun_s = used.ru_utime + used.ru_stime
    allow_cpu(begun_s + MOST_S)
    Path("/proc/self/clear_refs").write_text("5")
    try:
        yield
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        verdict.cpu_s = used.ru_utime + used.ru_stime - begun_s
        verdict.peak_mib = _status("VmHWM") / 1024


def allow_cpu(until_s: float) -> None:
    """End this process when it has used so many seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(until_s) + 1, hard))


def _status(name: str) -> int:
    return int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def faults_of_error(error: Exception) -> Iterator[str]:
    """What a reader may not raise: anything but an input error, in readable lines."""
    from pydantic import ValidationError

    from wattsched import InputError

    if not (isinstance(error, InputError | OSError) or type(error) in (ValueError, ValidationError)):
        yield f"raised {type(error).__name__}: {str(error)[:300]}"
    lines = error.faults if isinstance(error, InputError) else [str(error)]
    if type(error) is not ValidationError and max(map(len, lines), default=0) > LONGEST_LINE:
        yield f"has a line of {max(map(len, lines)):,} characters: {lines[0][:100]}"


def faults_of_cost(verdict: Verdict) -> Iterator[str]:
    """What is above the limits."""
    if verdict.cpu_s > MOST_S:
        yield f"took {verdict.cpu_s:.1f} s"
    if verdict.peak_mib > MOST_MIB:
        yield f"took {verdict.peak_mib:.0f} MiB ({verdict.told[:200]})"


def faults_of_command(reader: Reader, command: str, file: Path, valid: Path) -> Iterator[str]:
    """What a command may not do: fail in another way, print what is no JSON, or characters that steer."""
    allow_cpu(time.process_time() + 3 * MOST_S)
    code, out, err = run(reader.words(command, file, valid))
    if code not in CODES:
        yield f"exit code {code}: {err[-300:]}"
    for name, text in (("output", out), ("standard error", err)):
        if steering := sorted({c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"}):
            yield f"{name} holds {steering!r}"
    if max(map(len, err.splitlines()), default=0) > LONGEST_LINE:
        yield f"standard error has a line of {max(map(len, err.splitlines())):,} characters"
    is_json = "--json" in command or command.split()[0] in JSON_COMMANDS
    if is_json and out:
        try:
            json.loads(out, parse_constant=_no_json)
        except ValueError as error:
            yield f"prints what is no JSON: {error}"


def _no_json(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process."""
    from click.testing import CliRunner

    from wattsched.cli import main

    result = CliRunner().invoke(main, words)
    return result.exit_code, result.stdout, result.stderr


def write_valid_files(folder: Path) -> None:
    """Write what the readers read without a fault."""
    for name, content in valid_files().items():
        (folder / name).write_bytes(content)

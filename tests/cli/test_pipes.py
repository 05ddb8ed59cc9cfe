"""Whatever a command reads, it reads from pipes and standard input as from a file of the same name."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import DEMO, EXAMPLES, Run
from wattsched.instances.io import document_text
from wattsched.instances.parquet import parquet_bytes
from wattsched.results.documents import instance_of

LOG = "timestamp, index, power.draw [W], utilization.gpu [%]\n" + "".join(
    f"2026/11/03 08:00:{s:02}.000, 0, 300.00 W, 98 %\n" for s in range(30)
)
CARBON = "time,g\n" + "".join(f"2026-11-02T0{h}:00Z,{100 + h}\n" for h in range(9))
TABLE = "job,batch_size,step_time_s\n*,64,0.1\n*,256,0.33\n"
TEXTS = {
    "trace": "job,arrival,duration,gpus,model\na,0,7200,8,resnet50\nb,60,60,1,bert\n",
    "carbon.csv": CARBON,
    "log": LOG,
    "table": TABLE,
    "site": DEMO.read_text(),
    "tree": "SwitchName=s1 Nodes=n[1-4]\n",
    "rack": "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\n",
    "sacct": (EXAMPLES / "site" / "sacct.txt").read_text(),
    "nodes": (EXAMPLES / "site" / "nodes.txt").read_text(),
}
COMMANDS = (
    "show demo",
    "show parquet",
    "check demo result",
    "convert parquet -o out.json",
    "export demo -o out.lp",
    "compare demo --solvers greedy --json",
    "solve demo --warm result -o out.json",
    "fit log --jobs table",
    "replay trace --nodes 1 --policy fifo --carbon carbon.csv --json",
    "replay trace --cluster site --policy fifo --json",
    "replay trace --cluster tree --gpus-per-node 4 --policy fifo --json",
    "savings trace --nodes 1 --no-inputs --seeds 0 --policy powerflow --json",
    "import openb rack",
    "import slurm sacct nodes --time-zone UTC -o out",
)


def contents(tiny: dict[str, object], run: Run) -> dict[str, bytes]:
    """Content of every file that commands name."""
    instance = instance_of(tiny)
    Path("made.json").write_text(document_text(instance))
    result = run("solve", "made.json", "--json", code=0).stdout
    texts = TEXTS | {"demo": json.dumps(tiny), "result": result}
    return {name: text.encode() for name, text in texts.items()} | {"parquet": parquet_bytes(instance)}


@contextmanager
def piped(files: dict[str, bytes]) -> Iterator[None]:
    """Pipes of these names, into each of which its content is written once."""
    for name in files:
        os.mkfifo(name)
    writers = [threading.Thread(target=Path(n).write_bytes, args=(c,), daemon=True) for n, c in files.items()]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.join(10)
        assert not any(writer.is_alive() for writer in writers), "every pipe has been read"
        for name in files:
            os.unlink(name)


def answer(run: Run, command: list[str], **given: object) -> tuple[int, object]:
    """Exit code and figures, without times that were taken."""
    done = run(*command, **given)
    if "--json" in command and done.exit_code == 0:
        return 0, _steady(json.loads(done.stdout))
    return done.exit_code, "" if command[0] == "solve" else done.stdout


def _steady(value: object) -> object:
    if isinstance(value, dict):
        passing = ("_s", "decision", "key", "trajectory")
        return {k: _steady(v) for k, v in value.items() if not any(w in k for w in passing)}
    return [_steady(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("command", COMMANDS)
def test_pipes_and_standard_input_are_read_as_files(run, tiny, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    words, known = command.split(), contents(tiny, run)
    named = {word: known[word] for word in words[1 + (words[0] == "import") :] if word in known}
    for name, content in named.items():
        Path(name).write_bytes(content)
    code, told = answer(run, words)
    assert code == 0
    for name in named:
        os.unlink(name)
    with piped(named):
        assert answer(run, words) == (0, told)
    first, *others = named
    with piped({name: named[name] for name in others}):
        code, _ = answer(
            run, ["-" if word == first and n else word for n, word in enumerate(words)], stdin=named[first]
        )
    assert code == 0


def test_a_pipe_that_never_ends_is_left(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WATTSCHED_INPUT_MB", "1")
    done = run("show", "-", stdin=b"[" * 1_000_001, code=2)
    assert "standard input: is larger than 1,000,000 bytes" in done.stderr

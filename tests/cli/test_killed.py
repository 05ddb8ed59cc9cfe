"""Long commands that a signal ends: at any moment whole files or none, nothing beside them, no process."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from wattsched.instances.generators import generate
from wattsched.instances.io import write_json

from .conftest import COMMAND

MOMENTS = 6
LONGEST_S = 5.0
"""After which none of the commands has ended by itself, or it has and must have written all."""
GONE_S = 20.0
"""In which all processes of a command are gone; they are at once, but the machine may be busy."""
OLD = '{"old": true}\n'

COMMANDS = {
    "solve": "solve hard.json --solver highs --gap 0 --time-limit 60 -o out/result.json",
    "replay": "replay jobs.csv --policy elastic,fifo --checkpoint 0 -o out/replay --plot out/replay.png",
    "compare": "compare hard.json easy.json --solvers greedy,price,highs --gap 0 -o out/compare",
    "spread": "compare hard.json easy.json --solvers price,highs --gap 0 -o out/compare --dask local:2",
    "place": "place --nodes nodes.csv --tasks tasks.csv --seeds 0-99 --processes 2 --plot out/place.png",
}
ENDINGS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    write_json(folder / "hard.json", generate("uniform", jobs=150, seed=1))
    write_json(folder / "easy.json", generate("uniform", jobs=5, seed=1))
    rows = [f"j{i},{40 * i},{200_000 * (1 + i % 7)},{1 << i % 4},bert,16\n" for i in range(300)]
    (folder / "jobs.csv").write_text("job,arrival_s,work,requested_gpus,model,max_gpus\n" + "".join(rows))
    nodes = [f"n{i},64000,262144,8,T4\n" for i in range(40)]
    (folder / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\n" + "".join(nodes))
    tasks = [f"{1000 * (1 + i % 9)},1024,1,{100 * (1 + i % 10)}\n" for i in range(200)]
    (folder / "tasks.csv").write_text("cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(tasks))
    return folder


def moments() -> Iterator[object]:
    """Every command at seeded moments, under one signal after the other; most of them are left to CI."""
    for number in range(MOMENTS):
        for place, command in enumerate(COMMANDS):
            ending = ENDINGS[(number + place) % len(ENDINGS)]
            after_s = round(random.Random(f"{command}{number}").uniform(0.0, LONGEST_S), 2)
            marks = [] if number == 0 else [pytest.mark.slow]
            yield pytest.param(command, ending, after_s, marks=marks, id=f"{command}-{ending.name}-{after_s}")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "ending", "after_s"), list(moments()))
def test_what_a_signal_leaves(inputs, tmp_path, command, ending, after_s):
    for file in inputs.iterdir():
        (tmp_path / file.name).symlink_to(file)
    out = tmp_path / "out"
    out.mkdir()
    (out / "result.json").write_text(OLD)
    words = [*COMMAND, *COMMANDS[command].split()]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        time.sleep(after_s)
        process.send_signal(ending)
        deadline = time.monotonic() + GONE_S
        while (left := session(process.pid)) and time.monotonic() < deadline:
            process.poll()
            time.sleep(0.05)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        _, said = process.communicate()
    assert left == []
    # An interpreter that has no handler yet ends by the signal, or cannot start; to shells all are 130.
    unready = ending == signal.SIGINT and any(part in said for part in (b"init_import_site", b"import runpy"))
    assert unready or process.returncode in ((0, 130, -ending) if ending == signal.SIGINT else (0, -ending))
    # What dask begins when its parent is gone has nothing to read.
    orphan = b"in spawn_main" in said and said.count(b"Traceback") == said.count(b"in spawn_main")
    assert unready or orphan or b"Traceback" not in said or process.returncode == -signal.SIGINT
    assert (out / "result.json").read_text().endswith("}\n")
    for file in out.rglob("*"):
        # SIGKILL alone can come between a file's first name and its own.
        assert whole(file) or (ending == signal.SIGKILL and file.match(".*.tmp")), file


def session(leader: int) -> list[int]:
    """Processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # ended meanwhile, or not ours to look at
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


ENDS = {".md": b"\n", ".tex": b"\n", ".parquet": b"PAR1", ".png": b"IEND\xaeB`\x82"}
"""What files end with, by their names' ends."""


def whole(file: Path) -> bool:
    """Whether a file is what a command writes under this name, from its beginning to its end."""
    content = b"" if file.is_dir() else file.read_bytes()
    if file.is_dir():
        return not file.name.startswith(".")
    if file.suffix == ".json":
        return bool(json.loads(content))
    if file.suffix == ".csv":
        return len({line.count(b",") for line in content.splitlines()}) == 1 and content.endswith(b"\n")
    if file.suffix in ENDS:
        return content.endswith(ENDS[file.suffix])
    if file.suffix in (".running", ".done"):
        head, _, body = content.partition(b"\n")
        return bool(json.loads(head)["sha256"] == hashlib.sha256(body).hexdigest())
    return False

"""The guard that a site lets Slurm ask of every job: in Lua alone, and in a real slurmctld."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.processes import wait_for
from wattsched.adapters.slurm.options import Ours
from wattsched.adapters.slurm.reading import marked, read
from wattsched.adapters.slurm.snapshot import take

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "job_submit.lua"
PLUGINS = list(Path("/usr/lib").glob("*/slurm-wlm/job_submit_lua.so"))
ASK = """
slurm = {SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294, log_user = function() end}
dofile(arg[1])
local partitions = {gpu = {name = "gpu", flag_default = 1}, cpu = {name = "cpu", flag_default = 0}}
local job = load("return " .. arg[2])()
local record = load("return " .. arg[3])()
local code
if record == nil then code = slurm_job_submit(job, partitions, 1000)
else code = slurm_job_modify(job, record, partitions, tonumber(arg[4])) end
print(code, job.priority, job.comment or "")
"""
GPUS = 'tres_per_node = "gres:gpu:A100:2"'


def asked(job: str, record: str = "nil", user: int = 1000) -> tuple[str, str, str]:
    """Code, priority and comment of a job after the guard has seen it."""
    lua = shutil.which("lua5.3") or shutil.which("lua")
    if lua is None:
        pytest.skip("there is no Lua")
    command = [lua, "-", str(SCRIPT), f"{{{job}}}", record, str(user)]
    done = subprocess.run(command, input=ASK, text=True, capture_output=True, check=True)
    code, priority, comment = done.stdout.rstrip("\n").split("\t")
    return code, priority, comment


@pytest.mark.parametrize(
    ("job", "held"),
    [
        (GPUS, True),
        (f'{GPUS}, partition = "gpu"', True),
        (f'{GPUS}, partition = "cpu,gpu"', True),
        ('tres_per_job = "gres/gpu:8", partition = "gpu"', True),
        ('tres_per_task = "gres:gpu:1"', True),
        ('tres_per_node = "gres:shard:4"', True),
        ("shared = 0", True),
        ("shared = 65534", False),
        (f'{GPUS}, partition = "cpu"', False),
        ('partition = "gpu"', False),
        (f'{GPUS}, reservation = "maintenance"', False),
    ],
)
def test_gpu_jobs_of_the_partition_are_held_and_tagged_and_no_others(job: str, held: bool) -> None:
    code, priority, comment = asked(job)
    assert (code, priority, comment) == ("0", "0" if held else "nil", '{"wattsched": {}}' if held else "")


@pytest.mark.parametrize("comment", ["a project", 'with "quotes" and \\', "tab\tand {", '{"cost": 1}'])
def test_what_a_comment_says_is_kept_beside_the_tag(comment: str) -> None:
    escaped = comment.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    _, _, found = asked(f'{GPUS}, comment = "{escaped}"')
    assert json.loads(found) == {"wattsched": {}, "comment": comment}
    assert marked(found) == {}


def test_what_is_meant_for_us_stays_as_it_is() -> None:
    said = '{"wattsched": {"model": "bert"}}'
    assert asked(f"{GPUS}, comment = '{said}'") == ("0", "0", said)


def test_arrays_that_nobody_could_decide_on_are_refused() -> None:
    assert asked(f'{GPUS}, array_inx = "0-9"')[0] == "-1"


@pytest.mark.parametrize(
    ("job", "partition", "user", "expected"),
    [
        ("priority = 4294967295", "gpu", 1000, "-1"),
        ("priority = 4294967295", "gpu", 0, "0"),
        ("priority = 4294967295", "cpu", 1000, "0"),
        ("priority = 4294967294", "gpu", 1000, "0"),
        ("priority = 0", "gpu", 1000, "0"),
    ],
)
def test_only_operators_release_what_is_held(job: str, partition: str, user: int, expected: str) -> None:
    assert asked(job, f'{{priority = 0, partition = "{partition}"}}', user)[0] == expected


@pytest.mark.parametrize(
    ("change", "record", "held"),
    [
        ('partition = "gpu"', 'partition = "cpu"', True),  # what it asks for is not known
        ('partition = "gpu"', 'partition = "cpu", tres_fmt_req_str = "cpu=1,gres/gpu=2"', True),
        ('partition = "gpu"', 'partition = "cpu", tres_fmt_req_str = "cpu=1,mem=2G"', False),
        (GPUS, 'partition = "gpu"', True),
        (GPUS, 'partition = "cpu"', False),
        ('reservation = ""', f'partition = "gpu", {GPUS}', True),
        ("time_limit = 5", f'partition = "gpu", {GPUS}', False),
    ],
)
def test_what_a_change_makes_one_of_those_is_held_and_tagged(change: str, record: str, held: bool) -> None:
    found = asked(change, f'{{priority = 10, comment = "my project", {record}}}')
    expected = '{"wattsched": {}, "comment": "my project"}' if held else ""
    assert found == ("0", "0" if held else "nil", expected)


@pytest.mark.slow
def test_a_real_slurmctld_asks_the_guard(
    load_script: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated = load_script("emulated_slurm")
    if why := emulated.missing() or ("" if PLUGINS else "Slurm's plugin for Lua is not installed"):
        pytest.skip(why)
    cluster = emulated.EmulatedSlurm(folder, 1)
    with (folder / "slurm.conf").open("a") as conf:
        conf.write("JobSubmitPlugins=lua\n")
    shutil.copy(SCRIPT, folder / "job_submit.lua")
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    with emulated.started(cluster):
        plain = cluster.submit("sleep 60", "--gres=gpu:1", "--comment=my project")
        other = cluster.submit("sleep 60")
        later = cluster.submit("sleep 60", "--begin=now+1hour")
        found = wait_for(lambda: (jobs := read(take(time.time())).jobs) and jobs[other].running and jobs)
        assert (found[plain].held, found[plain].odd, Ours().has(found[plain])) == (True, "", True)
        assert not Ours().has(found[other])
        cluster.run("scontrol", "update", f"JobId={plain}", "TimeLimit=5")
        assert read(take(time.time())).jobs[plain].held
        assert not Ours().has(found[later])
        with pytest.raises(RuntimeError, match="arrays with GPUs"):
            cluster.submit("sleep 60", "--gres=gpu:1", "--array=0-3")

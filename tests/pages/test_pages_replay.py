"""Replays of random traces under power caps, against the events that their page promises.

PAGES_CASES=200 PAGES_SEED=7 pytest tests/pages/test_pages_replay.py is a campaign.
"""

import io
import json
import os
import re
import tempfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.pages.pages_replay import REQUESTED, Replay
from tests.pages.pages_replay_schedule import SIMULATED, Reading, Schedule, readings
from tests.pages.pages_replay_signal import Limits
from tests.pages.pages_replay_site import Site, close
from tests.pages.replay_cases import Case, a_case, write
from tests.strategies.effort import examples
from wattsched.cli import main

parquet = pytest.importorskip("pyarrow.parquet")

CASES, SEED = int(os.environ.get("PAGES_CASES", examples(10))), int(os.environ.get("PAGES_SEED", "0"))
CLOCKED = ("sizing", "clairvoyant", "powerflow", "greenflow")
CHOSEN = ("elastic", "elastic-makespan", "elastic-progress", "elastic-completion", "sidecar", "termination",
          "optimus", "elasticflow", "sia")  # fmt: skip
TUNED = ("srtf+zeus", "elastic+zeus")
RULES = (
    *REQUESTED,
    "elastic-makespan",
    "sidecar",
    "termination",
    "optimus",
    "elasticflow",
    "powerflow",
    "greenflow",
)
"""Policies that solve no program in which a cap that does not bind might break ties in another way."""
TABLES = ("jobs", "power", "segments")
OPEN: list[tuple[int, str, list[Reading]]] = []
"""Replays that the pages leave open, with the readings that fit."""
REFUSED: Counter[str] = Counter()
"""What is said where replays are refused, without names and numbers."""


def replayed(
    arguments: list[str], policy: str, folder: Path
) -> tuple[int, str, dict[str, Any], dict[str, Any]]:
    """The exit code and errors of a command, and the tables and figures that it wrote."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    silent = redirect_stdout(io.TextIOWrapper(io.BytesIO()))
    with silent, redirect_stderr(said), pytest.raises(SystemExit) as ended:
        main([*arguments, "--policy", policy, "-o", str(folder / policy), "--parquet"])
    code = int(ended.value.code or 0)
    if code:
        said.seek(0)
        return code, said.read(), {}, {}
    tables = {t: parquet.read_table(folder / policy / f"{policy}-0-{t}.parquet").to_pylist() for t in TABLES}
    figures = json.loads((folder / policy / "summary.json").read_text())
    return 0, "", tables, figures["policies"][policy][0]


def examine(case: Case, policy: str, arguments: list[str], folder: Path) -> tuple[str, list[str]]:
    """Replay a case under a policy; return how it ended and what is wrong with that."""
    site = Site(case)
    code, said, tables, figures = replayed(arguments, policy, folder)
    refused = site.verdict(policy.removesuffix("+zeus") in REQUESTED, policy in CLOCKED)
    if code == 2:
        REFUSED[re.sub(r"'[^']*'|[-\d.,]+|/\S+", "_", said.rsplit("error: ")[-1].strip())] += 1
        wrong = [f"refused: {said}"] * (refused is False) + [f"no sentence: {said}"] * ("error: " not in said)
        return "refused", wrong
    if code:
        return "failed", [f"exit code {code}: {said}"]
    if refused:
        return "not refused", ["replayed, but must be refused"]
    faults = Replay(site, policy, tables, figures).check()
    return "replayed", faults + schedule_faults(case, policy, tables["jobs"], figures)


def schedule_faults(
    case: Case, policy: str, records: list[dict[str, Any]], figures: dict[str, Any]
) -> list[str]:
    """Compare times, energy and peak with the page, where it tells them completely.

    Where a limit over time has effects that the page leaves open, one of its readings has to fit.
    """
    limits = Limits(case["signal"])
    if not case["plain"] or policy not in SIMULATED or "--sleep-after" in case["options"] or limits.ramps:
        return []
    told = {record["job"]: (record["first_start_s"], record["end_s"]) for record in records}
    found, right, answers = [], [], set()
    for reading in readings(policy, case["options"]["--round"]):
        schedule = Schedule(case, policy, reading)
        faults = differences(schedule, told, figures) if schedule.run() else ["some jobs never end"]
        answers.add(tuple(schedule.times().values()))
        found.append(faults)
        if not faults:
            right.append(reading)
    if len(answers) > 1:
        OPEN.append((case["seed"], policy, right))
    return [] if right else [*min(found, key=len), f"{len(answers)} ways to read the page, none of them so"]


def differences(schedule: Schedule, told: dict[str, Any], figures: dict[str, Any]) -> list[str]:
    right = schedule.times()
    differing = [name for name in right if not all(map(close, told[name], right[name]))]
    faults = [f"{name} starts and ends at {told[name]}, not at {right[name]}" for name in differing[:3]]
    for name, value in schedule.figures().items():
        if not close(figures[name], value):
            faults.append(f"{name} is {figures[name]!r}, not {value!r}")
    return faults


def examine_all(seeds: range) -> tuple[list[str], Counter[tuple[str, str]]]:
    """Replay cases under every policy; return what is wrong and how the replays ended."""
    wrong, ended = [], Counter()
    for seed in seeds:
        case = a_case(seed)
        for policy in (*REQUESTED, *CLOCKED, *CHOSEN, *(TUNED if seed % 5 == 1 else ())):
            with tempfile.TemporaryDirectory() as name:
                end, faults = examine(case, policy, write(case, Path(name)), Path(name))
            ended[policy, end] += 1
            if faults:
                wrong.append(f"seed {seed}, {policy}: {'; '.join(faults)}")
                print(wrong[-1], flush=True)
    return wrong, ended


@pytest.mark.slow
def test_replays_keep_every_cap_and_tell_what_happens() -> None:
    wrong, ended = examine_all(range(SEED, SEED + CASES))
    print(*OPEN, *REFUSED.items(), sep="\n")
    print(*(f"{policy}: {end} {count}" for (policy, end), count in sorted(ended.items())), sep="\n")
    assert not wrong, f"{len(wrong)} wrong replays:\n" + "\n".join(wrong[:10])


@pytest.mark.parametrize("seed", range(SEED, SEED + 1 + CASES // 20))
def test_a_cap_above_every_draw_changes_nothing(seed: int, tmp_path: Path) -> None:
    case = a_case(seed)
    case["cluster"]["power_domains"], case["signal"] = [], None
    for policy in RULES:
        found = []
        for limit in (None, 1e8):
            folder = tmp_path / f"{policy}-{limit}"
            folder.mkdir()
            case["power_w"], case["site_w"] = limit, None
            code, said, tables, figures = replayed(write(case, folder), policy, folder)
            assert code == 0, said
            found.append((tables, figures["energy_j"]))
        assert found[0] == found[1], policy


def test_a_signal_that_never_changes_is_a_cap(tmp_path: Path) -> None:
    case = a_case(0)
    signal = {"document": {"power_w": 1e4}, "kind": "json", "start": "2026-07-14T12:00:00Z", "dated": False}
    for policy in RULES:
        found = []
        for power_w, limits in ((1e4, None), (None, signal)):
            folder = tmp_path / f"{policy}-{power_w}"
            folder.mkdir()
            case |= {"power_w": power_w, "site_w": None, "signal": limits}
            code, said, tables, figures = replayed(write(case, folder), policy, folder)
            assert code == 0, said
            found.append((tables, figures["energy_j"]))
        assert found[0] == found[1], policy


def test_every_policy_of_the_help_is_replayed() -> None:
    said = CliRunner().invoke(main, ["replay", "--help"], terminal_width=80).stdout
    named = re.search(r"Policies:\s+(.*?);", said, re.DOTALL)
    assert named
    policies = re.sub(r"(?<=-)\s+", "", named[1]).split(",")
    assert {policy.strip() for policy in policies} == {*REQUESTED, *CLOCKED, *CHOSEN}


@pytest.mark.parametrize("policy", ["sizing", "clairvoyant"])
def test_a_lower_clock_is_chosen_where_only_it_keeps_the_cap(policy: str, tmp_path: Path) -> None:
    case = a_case(0)
    node = {"name": "n0", "gpu_type": "V", "gpus": 4}
    case["cluster"] = {"gpu_types": {"V": {"idle_power_w": 40}}, "nodes": [node], "power_domains": []}
    table = {"gpus": [1, 1], "pool": ["V", "V"], "power_w": [70, 160], "rate": [1.8, 2.4]}
    case["tables"] = {"t": table | {"frequency_mhz": [600, 1000]}}
    case["jobs"] = [{"job": "j00", "arrival_s": 0.0, "work": 800.0, "table": "t", "requested_gpus": 1}]
    case |= {"power_w": 260.0, "site_w": None, "signal": None}
    assert examine(case, policy, write(case, tmp_path), tmp_path) == ("replayed", [])

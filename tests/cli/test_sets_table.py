"""Sets of jobs that may share GPUs, at the command line."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from wattsched.cli import main

INSTANCE = {
    "format": "wattsched-instance/1",
    "name": "shared",
    "objective": "goodput",
    "cluster": {
        "gpu_types": {"A": {"idle_power_w": 50}},
        "nodes": [{"name": "n", "gpu_type": "A", "gpus": 1}],
    },
    "tables": {"all": {"gpus": [1], "pool": ["A"], "rate": [1], "power_w": [200]}},
    "jobs": [{"name": f"j{i}", "options": "all", "remaining_work": 400} for i in range(30)],
    "sets": [
        {"name": f"pair{i}", "pool": "A", "gpus": 1, "power_w": 240, "rates": {"j0": 0.9, f"j{i}": 0.5}}
        for i in range(1, 30)
    ]
    + [{"name": "best", "pool": "A", "gpus": 1, "power_w": 240, "rates": {"j29": 0.9, "j28": 0.8}}],
}


def test_sets_are_shown_solved_and_checked(tmp_path: Path) -> None:
    runner = CliRunner()
    instance, result = tmp_path / "shared.json", tmp_path / "result.json"
    instance.write_text(json.dumps(INSTANCE))
    shown = runner.invoke(main, ["show", str(instance)])
    assert "Sets: 30  jobs that may share GPUs" in shown.output
    assert "j0 0.9, j1 0.5" in shown.output
    assert "... 18 more" in shown.output
    solved = runner.invoke(main, ["solve", str(instance), "-o", str(result)])
    assert solved.exit_code == 0, solved.output
    lines = [line.split() for line in solved.output.splitlines() if "best" in line]
    assert [(job, gpus, pool, formed) for job, gpus, pool, formed, *_ in lines] == [
        ("j28", "1", "A", "best"),
        ("j29", "1", "A", "best"),
    ]
    assert runner.invoke(main, ["check", str(instance), str(result)]).exit_code == 0
    content = json.loads(result.read_text())
    content["decision"]["jobs"].pop()
    content["decision"]["waiting"].append("j29")
    result.write_text(json.dumps(content))
    refused = runner.invoke(main, ["check", str(instance), str(result)])
    assert refused.exit_code == 1
    assert "set 'best' is formed without its job 'j29'" in refused.output

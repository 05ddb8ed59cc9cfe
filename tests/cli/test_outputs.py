"""Outputs never replace an input, and a written file is announced on standard error."""

from __future__ import annotations

import pytest

from .conftest import DEMO

STEPS = "gpus,local_batch,step_time_s,power_w\n" + "".join(
    f"{gpus},{batch},{0.01 + 0.002 * batch},200\n" for gpus in (1, 2) for batch in (8, 16)
)
TRACE = "job_id,submission_time,duration,num_gpu\na,0,100,1\n"


@pytest.fixture
def folder(write, tmp_path, monkeypatch):
    """Folder with an input of every command, each under two names."""
    write(DEMO.read_text(), "demo.json")
    write(STEPS, "steps.csv")
    write(TRACE, "trace.csv")
    for name in ("demo.json", "steps.csv", "trace.csv"):
        (tmp_path / f"link-{name}.json").symlink_to(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve", "demo.json", "-o", "demo.json"],
        ["solve", "demo.json", "-o", "link-demo.json.json"],
        ["solve", "link-demo.json.json", "-o", "./demo.json"],
        ["solve", DEMO, "--warm", "demo.json", "-o", "demo.json"],
        ["export", "demo.json", "--topology", "-o", "demo.json"],
        ["import", "itp", "trace.csv", "--cluster", "demo.json", "-o", "demo.json"],
        ["import", "itp", "trace.csv", "-o", "link-trace.csv.json"],
        ["fit", "steps.csv", "-o", "link-steps.csv.json"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_an_output_that_is_an_input_is_refused(run, folder, arguments):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    result = run(*arguments)
    assert result.exit_code == 2
    assert "would replace the input" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve", "demo.json", "--solver", "greedy", "-o", "made.json"],
        ["solve", "demo.json", "--solver", "greedy", "--json", "-o", "made.json"],
        ["generate", "uniform", "--jobs", 3, "-o", "made.json.gz"],
        ["import", "itp", "trace.csv", "--at", 5, "-o", "made.json"],
        ["export", "demo.json", "-o", "made.mps"],
        ["export", "demo.json", "--topology", "-o", "made.json"],
        ["fit", "steps.csv", "-o", "made.json"],
        ["schema", "-o", "made.json"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_a_written_file_is_announced_on_standard_error(run, folder, arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == f"Written to {arguments[-1]}\n"
    assert "Written" not in result.stdout

"""Reports of commands: whole pages that hold what the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.strategies.browser import LOOKS, violations
from tests.strategies.pages import Page

from .conftest import DEMO

JOBS = """job,arrival_s,work,requested_gpus,model,max_gpus
vision,0,40000000,4,resnet50,16
language,600,2000000,2,bert,16
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,96000,262144,8,V100M16\n"
TASKS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
a,4000,1024,1,500,
b,8000,2048,2,1000,
c,2000,1024,1,250,
"""


@pytest.fixture
def jobs(write):
    return write(JOBS, "jobs.csv")


@pytest.fixture
def commands(write, tiny, jobs) -> dict[str, list[object]]:
    """Arguments of every command that writes reports."""
    site = ["--nodes", write(NODES, "nodes.csv"), "--tasks", write(TASKS, "tasks.csv")]
    return {
        "solve": [DEMO, "--gap", "1e-6"],
        "replay": [jobs, "--policy", "fifo,sizing", "--budget", "energy_j=2.6e7", "--period", "7200"],
        "savings": [jobs, "--policy", "powerflow", "--no-inputs", "--period", "hour"],
        "compare": [write(tiny), "--solvers", "highs,greedy"],
        "place": [*site, "--policy", "fgd,random", "--seeds", "1-2"],
    }


@pytest.fixture
def report(run, tmp_path, commands):
    """Write the report of a command, by default with its arguments above."""

    def written(command: str, *arguments: object) -> Path:
        file = tmp_path / "report.html"
        run(command, *(arguments or commands[command]), "--report", file, code=0)
        return file

    return written


@pytest.fixture
def page(report):
    """Read the report of a command, which names the command."""

    def read(command: str, *arguments: object) -> Page:
        found = Page(report(command, *arguments).read_text())
        assert f"wattsched {command} " in "".join(found.text)
        return found

    return read


def words(found: Page) -> str:
    return " ".join("".join(found.text).split())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["solve", "replay", "savings", "compare", "place"])
def test_anybody_can_read_it_on_any_screen(report, browser, command):
    file = report(command)
    assert file.stat().st_size < 1_000_000
    for width, theme in LOOKS:
        shown = browser.opened(file.as_uri(), width, theme)
        assert shown.evaluate("document.documentElement.scrollWidth") == width  # only tables scroll sideways
        assert not violations(shown)
    assert not browser.messages


def test_solve(page):
    found = page("solve")
    assert "Weighted completion time 197,409 s: optimal" in words(found)
    assert "one more GPU would save at most 962.9 s" in words(found)


def test_replay(page):
    found = page("replay")
    assert "Soonest under" in words(found)
    assert "even budget" in words(found)
    assert [words(found).count(f" {name} ") >= 2 for name in ("fifo", "sizing")] == [True, True]
    assert sum(attrs.get("class") == "chart" for _, attrs in found.seen) == 2


def test_replay_says_what_the_terminal_says_is_assumed(run, page, tmp_path, write):
    trace = write("job,arrival,duration,gpus\na,0,600,2\nb,60,600,1\n", "list.csv")
    said = run("replay", trace, "--policy", "fifo", "--report", tmp_path / "report.html").stderr.splitlines()
    assumed = [line for line in said if "assumed: " in line]
    assert len(assumed) == 3
    found = words(page("replay", trace, "--policy", "fifo"))
    for line in assumed:
        assert line in found


def test_savings(page):
    found = page("savings")
    assert (
        "at the mean completion time of backfill" in words(found) or "no policy saves" in words(found).lower()
    )
    assert sum(attrs.get("class") == "chart" for _, attrs in found.seen) == 1


def test_compare(page):
    assert "All answers agree" in words(page("compare"))


def test_place(page):
    assert "most of any placement" in words(page("place"))

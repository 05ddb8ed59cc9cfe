"""What is wrong with an option is said of the option, in a plain sentence."""

from __future__ import annotations

import pytest

from wattsched.cli.parameters import descriptions

from .conftest import DEMO

TRACE = "job_id,submission_time,duration,num_gpu\n"
STEPS = "gpus,local_batch,step_time_s,power_w\n1,8,0.1,200\n"


@pytest.fixture(autouse=True)
def folder(write, tmp_path, monkeypatch):
    write(DEMO.read_text(), "demo.json")
    write(TRACE + "a,0,100,1\n", "trace.csv")
    write(TRACE + "a,0,100,1\nb,0,100,1\na,0,100,1\n", "twice.csv")
    write(TRACE + "b,0,100,1\na,0,100,1\n", "other.csv")
    write("sn,cpu_milli,gpu,model\nn1,64000,2,P100\n", "nodes.csv")
    (tmp_path / "sub").mkdir()
    write(STEPS, "sub/steps.csv")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("generate uniform --jobs 99999999999", "--jobs: must be at most 10,000,000"),
        ("generate sia-like --gpus 99999999999", "--gpus: must be at most 10,000,000"),
        ("generate uniform --jobs x", "'--jobs': 'x' is not a whole number"),
        ("generate uniform --round-s 0", "--round-s: must be greater than 0"),
        ("generate uniform --round-s nan", "'--round-s': 'nan' is not a finite number"),
        ("generate philly-like --restart-s -1", "--restart-s: must be greater than or equal to 0"),
        ("generate uniform --power-fraction 0.01", "--power-fraction: must be at least"),
        ("generate hetero --rack-power-fraction 0.01", "--rack-power-fraction: must be at least"),
        ("generate hetero --racks 2.5", "'--racks': '2.5' is not a whole number"),
        ("import itp trace.csv --round -1", "'--round': must be above 0, got -1"),
        ("import itp trace.csv --restart -1", "'--restart': must be at least 0, got -1"),
        ("import itp trace.csv --at noon", "'noon' is neither a number of seconds nor 'busiest'"),
        ("import itp trace.csv --power-fraction 0.01", "--power-fraction: must be at least"),
        ("import itp trace.csv --nodes 1000000 --gpus-per-node 1000000", "must be at most 10,000,000"),
        ("import itp trace.csv --cluster demo.json --nodes 3", "--nodes does not go with --cluster"),
        ("import itp trace.csv --cluster demo.json --gpu-type V100", "--gpu-type does not go with --cluster"),
        ("import itp twice.csv", "twice.csv, line 4, column 'job_id': the job 'a' occurs twice"),
        ("import itp trace.csv other.csv", "other.csv: the job 'a' is in trace.csv too"),
        (
            "import openb nodes.csv nodes.csv",
            "one file of nodes, or with --window two, nodes and tasks",
        ),
        ("import openb nodes.csv --cpu-load 2", "--cpu-load: must be from 0 to 1"),
        ("import openb nodes.csv --cpu-load x", "'--cpu-load': 'x' is not a number"),
        ("fit sub/steps.csv --watts nan 1 1", "'--watts': 'nan' is not a finite number"),
        ("fit sub/steps.csv", "error: sub/steps.csv has 1 measurement"),
        ("solve demo.json --threads many", "'--threads': 'many' is not a whole number"),
    ],
)
def test_what_is_wrong_is_said_of_the_option_or_the_line(run, command, said):
    result = run(*command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    for words in ("Traceback", "could not convert", "integer range", "validation"):
        assert words not in result.stderr


def test_size_may_go_with_a_cluster_that_does_not_tell_it(run, tmp_path):
    conf = tmp_path / "topology.conf"
    assert run("export", "demo.json", "--topology", "-o", conf).exit_code == 0
    arguments = ["import", "itp", "trace.csv", "--at", 5, "--cluster", conf]
    assert run(*arguments, "--gpus-per-node", 4).exit_code == 0
    assert run(*arguments, "--nodes", 4).exit_code == 2


def test_every_option_of_families_and_formats_is_described(run):
    for command in ("generate hetero", "generate philly-like", "import openb", "import itp", "import philly"):
        told = run(*command.split(), "--help").stdout
        options = [line for line in told.splitlines() if line.startswith("  -")]
        following = [*told.splitlines()[1:], ""]
        for line, after in zip(told.splitlines(), following, strict=True):
            if line in options and len(line.split()) < 3:
                assert after.startswith("      "), line


def test_descriptions_come_from_the_docstring():
    def function(a, b, c):
        """Do it.

        Parameters
        ----------
        a, b : int
            Both of `them`,
            on two lines.
        c : str
            The last.

        Raises
        ------
        ValueError
            Never.
        """

    assert descriptions(function) == {
        "a": "Both of them, on two lines.",
        "b": "Both of them, on two lines.",
        "c": "The last.",
    }
    assert descriptions(int) == {}

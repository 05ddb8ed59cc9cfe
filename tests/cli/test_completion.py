"""What a shell completes, and which name is meant by one that is not known."""

from __future__ import annotations

import pytest

from .conftest import DEMO, wattsched


def completed(words: str) -> list[str]:
    """What bash is told of a line, whose last word is to be completed."""
    asked = {"_WATTSCHED_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    told = wattsched(environment=asked)
    assert told.returncode == 0, told.stderr
    return [line.partition(",")[2] for line in told.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("wattsched so", ["solve"]),
        ("wattsched --vers", ["--version"]),
        ("wattsched solve --solver hi", ["highs"]),
        ("wattsched solve --formulation mc", ["mckp"]),
        ("wattsched solve --objective total", ["total-completion"]),
        ("wattsched compare --solvers highs,cp", ["highs,cpsat"]),
        ("wattsched replay --policy sizing,s", ["sizing,sidecar", "sizing,srtf", "sizing,sia"]),
        ("wattsched place --policy fgd,best", ["fgd,best-fit"]),
        ("wattsched slurm --objective max", ["max-min"]),
    ],
)
def test_names_are_completed_as_the_registries_have_them(words, offered):
    assert completed(words) == offered


def test_the_script_for_a_shell_is_printed_alone():
    told = wattsched(environment={"_WATTSCHED_COMPLETE": "bash_source"})
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("_wattsched_completion()")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["slove"], "no such command 'slove' (did you mean 'solve'?)"),
        (["generate", "hetro"], "unknown family 'hetro' (did you mean 'hetero'?); known: uniform"),
        (["solve", DEMO, "--solver", "hihgs"], "unknown solver 'hihgs' (did you mean 'highs'?); known"),
        (["solve", DEMO, "--formulation", "mkcp"], "'mkcp' of problem 'sizing' (did you mean 'mckp'?)"),
        (["solve", DEMO, "--objective", "makespam"], "(did you mean 'makespan'?); known: total-completion"),
        (["replay", "x.csv", "--policy", "sizng"], "no policy 'sizng' (did you mean 'sizing'?); see"),
        (["replay", "x.csv", "--policy", "FIFO"], "no policy 'FIFO' (did you mean 'fifo'?); see"),
        (["replay", "x.csv", "--policy", "sizng+zeus"], "(did you mean 'sizing+zeus'?); see"),
        (["place", "--policy", "best-fti"], "no policy 'best-fti' (did you mean 'best-fit'?); see"),
        (["place", "--policy", "pwr+fdg:100/900"], "does not score (did you mean 'fgd'?); see"),
    ],
)
def test_a_name_that_is_not_known_is_told_the_nearest(run, arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_nothing_is_suggested_where_nothing_is_near(run):
    result = run("qqqqqq" * 100)
    assert result.exit_code == 2
    assert "mean" not in result.output

"""What a shell completes, and which name is meant by one that is not known."""

from __future__ import annotations

import pytest

from .conftest import refused, wattsched


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


def test_nothing_is_suggested_where_nothing_is_near(run):
    result = run("qqqqqq" * 100)
    refused(result)
    assert "mean" not in result.output

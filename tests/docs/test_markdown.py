"""The reader of the documentation's blocks notices what it is meant to notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import blocks_of, commands_of, first_difference

PRINTED = """Weighted completion time
  21,210 s  optimal, gap 0 %
Uses
  GPUs   8   of 8   100 %  ████
  a long line that is
  wrapped
"""


@pytest.mark.parametrize(
    "shown",
    [
        ["Weighted completion time", "...", "Uses"],
        ["21,211 s optimal, gap 0 %"],
        ["GPUs 8 of 8 100 % ██░░"],
        ["a long line that is wrapped"],
        [],
    ],
)
def test_what_was_printed_is_found(shown: list[str]) -> None:
    assert first_difference(shown, PRINTED) is None


@pytest.mark.parametrize(
    "shown",
    [
        ["22,210 s  optimal, gap 0 %"],
        ["21,210 s  feasible, gap 0 %"],
        ["Uses", "Weighted completion time"],
        ["completion time"],
        ["a long line"],
        ["wrapped and more"],
    ],
)
def test_what_was_not_printed_is_told(shown: list[str]) -> None:
    assert first_difference(shown, PRINTED) in shown


def test_numbers_may_differ_by_as_much_as_the_page_says(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- needs data, within 10 % -->\n```console\n$ one\n100 s\n```\n```console\n$ two\n```\n"
    )
    first, second = blocks_of(page)
    assert (first.tolerance, second.tolerance) == (0.1, 0.02)
    assert first_difference(["100 s"], "109 s", first.tolerance) is None
    assert first_difference(["100 s"], "112 s", first.tolerance) == "100 s"


def test_commands_with_their_outputs_and_exit_codes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n\n```console\n$ one   # exit code 3\nprinted\n$ two \\\n> more\n```\n\n"
        "```bash\ncat <<'END'\ninside\nEND\nthree\n```\n\n<!-- not run: too long -->\n```python\nx\n```\n"
    )
    console, bash, python = blocks_of(page)
    first, second = commands_of(console)
    assert (first.shown, first.exit_code) == (["printed"], 3)
    assert (second.text, second.exit_code) == ("two \\\nmore", 0)
    assert [command.text for command in commands_of(bash)] == ["cat <<'END'\ninside\nEND", "three"]
    assert python.skipped
    assert not bash.skipped
    assert not python.needs_data
    assert (python.language, python.line) == ("python", 19)

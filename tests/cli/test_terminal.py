"""Tables lose nothing, whatever the width: folded on a terminal, as wide as they are in a pipe."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from wattsched.report.terminal import line, table

UUID = "743f85e8-7b1b-5179-f61c-e9ea0ca075f1"
COLUMNS = ["job", ">GPUs", "pool", "now", "nodes"]
ROW = (UUID, "64", "V100M32x8", "restarts", "openb-node-0065:0-7 openb-node-0347:0-7 +5 nodes")

words = st.text("abcXYZ019-:é漢", min_size=1, max_size=30)


def printed(draw, *, width: int, terminal: bool) -> list[str]:
    out = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=terminal,
        color_system=None,
        highlight=False,
        markup=False,
    )
    draw(out)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@given(
    rows=st.lists(st.tuples(words, words, st.lists(words, min_size=1, max_size=4).map(" ".join)), min_size=1),
    width=st.integers(72, 120),
    terminal=st.booleans(),
)
def test_tables_keep_every_character_of_every_cell(rows, width, terminal):
    columns = ["name", ">count", "places"]
    lines = printed(lambda out: table(out, columns, rows), width=width, terminal=terminal)
    assert "".join("".join(lines).split()) == "".join(
        "".join(row).replace(" ", "") for row in [("name", "count", "places"), *rows]
    )
    if not terminal:
        assert len(lines) == 1 + len(rows)


def test_names_are_folded_at_blanks_and_get_a_line_of_their_own():
    for width in range(72, 140):
        lines = printed(lambda out: table(out, COLUMNS, [ROW]), width=width, terminal=True)
        assert max(map(len, lines)) <= width
        seen = " ".join(lines).split()
        assert {UUID, "restarts", "openb-node-0065:0-7", "openb-node-0347:0-7"} <= set(seen)


@given(st.lists(st.lists(words, min_size=8, max_size=8), min_size=1), st.integers(72, 120))
def test_tables_of_many_columns_break_no_word(rows, width):
    columns = ["policy", *(f">{title}" for title in "abcdefg")]
    named = [[f"p{number}", *row[1:]] for number, row in enumerate(rows)]
    lines = printed(lambda out: table(out, columns, named), width=width, terminal=True)
    assert {cell for row in named for cell in row} <= set(" ".join(lines).split())


def test_paragraphs_break_before_a_number_and_never_after_it():
    text = ", ".join(f"phase {n} ms" for n in range(100, 140))
    for width in range(72, 90):
        lines = printed(lambda out: line(out, text), width=width, terminal=True)
        assert " ".join(lines) == text
        assert not any(row[0].isalpha() and row.startswith("ms") for row in lines)
    assert printed(lambda out: line(out, text), width=72, terminal=False) == [text]


@given(st.integers(60, 99))
def test_no_number_is_parted_from_its_unit_however_narrow_the_terminal(width):
    rows = [
        ["backfill+zeus", "8.106 MJ (2.25 kWh)", "368.6 EUR", "27.8 %"],
        ["sizing", "11 MJ", "1 EUR", "0.135 %"],
    ]
    columns = ["policy", ">that is", ">money", ">sooner at equal energy and at the same price"]
    lines = printed(lambda out: table(out, columns, rows), width=width, terminal=True)
    assert max(map(len, lines)) <= width
    for policy, *_, sooner in rows:
        (line,) = (line for line in lines if line.endswith(sooner))
        assert policy in line or policy in lines[lines.index(line) - 1]

"""Files that are valid but for some changes at random: of bytes, of values, of how they are laid out."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.attacks import LONG, NUMBERS, WORDS, marked, unmarked

CHANGES = (1, 1, 1, 2, 5)
"""Of a file: with one, it is often still read."""
FEW = 1 / 8


def mutated(draw: random.Random, name: str, content: bytes) -> bytes:
    """A valid file, changed.

    Parameters
    ----------
    draw : random.Random
    name : str
        Its ending tells what it is.
    content : bytes
        The valid file.
    """
    kinds = {".json": mutated_document, ".csv": mutated_table, ".conf": mutated_lines, ".sol": mutated_lines}
    spoilt = kinds[Path(name).suffix](draw, content.decode())
    if draw.random() < FEW:
        spoilt = mutated_bytes(draw, spoilt)
    if draw.random() < FEW:
        spoilt = gzip.compress(spoilt, mtime=0)
        if draw.random() < FEW:
            spoilt = mutated_bytes(draw, spoilt)
    return spoilt


def mutated_bytes(draw: random.Random, content: bytes) -> bytes:
    """Bytes left out, put in, repeated, exchanged."""
    for _ in range(draw.choice(CHANGES)):
        at = draw.randrange(len(content) + 1)
        to = min(len(content), at + draw.choice((0, 1, 1, 5, 100)))
        piece = draw.choice(
            (
                b"",
                content[at:to] * draw.choice((2, 1000)),
                draw.randbytes(3),
                b"\0",
                b'"',
                b",",
                b"\n",
                b"[",
                b"}",
            )
        )
        content = content[:at] + piece + content[to:]
    return content


def mutated_document(draw: random.Random, text: str) -> bytes:
    """JSON with other values, fields and entries."""
    document: Any = json.loads(text)
    for _ in range(draw.choice(CHANGES)):
        owner, key = _place(draw, document)
        draw.choice(DOCUMENT_CHANGES)(draw, owner, key, document)
    spoilt = unmarked(json.dumps(document, indent=draw.choice((None, None, 1))))
    if draw.random() < FEW and b": " in spoilt:
        # A key twice.
        at = draw.choice([i for i in range(len(spoilt)) if spoilt[i : i + 1] == b"{"])
        spoilt = spoilt[: at + 1] + b'"name": 1, "name": 2' + b", " * draw.randrange(2) + spoilt[at + 1 :]
    return spoilt


def _place(draw: random.Random, document: Any) -> tuple[Any, Any]:
    """A value's object or list, and its key there, anywhere in a document."""
    owner, key = {"": document}, ""
    while isinstance(owner[key], dict | list) and owner[key]:
        if owner[key] is not document and draw.random() < FEW:
            break
        owner = owner[key]
        key = draw.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
    return owner, key


def _value(draw: random.Random, document: Any) -> Any:
    """A hostile value, or one from elsewhere in the document."""
    kind = draw.randrange(5)
    if kind == 0:
        owner, key = _place(draw, document)
        return json.loads(json.dumps(owner[key]))
    if kind == 1:
        return draw.choice(WORDS)
    if kind == 2:
        return draw.choice((None, True, [], {}, [[]], [None], {"": None}, draw.randrange(-3, 100)))
    if kind == 3:
        return draw.uniform(-1, 1) * 10.0 ** draw.randrange(-320, 308)
    return marked(draw.choice(NUMBERS))


def _replace(draw: random.Random, owner: Any, key: Any, document: Any) -> None:
    owner[key] = _value(draw, document)


def _scale(draw: random.Random, owner: Any, key: Any, document: Any) -> None:
    if isinstance(owner[key], int | float) and abs(owner[key]) < 1e100:
        owner[key] = owner[key] * draw.choice((-1, 0, 2, 10, 1e-9, 1e6, 1e12, 0.999))


def _leave_out(draw: random.Random, owner: Any, key: Any, document: Any) -> None:
    if isinstance(owner, list) or key:
        del owner[key]


def _repeat(draw: random.Random, owner: Any, key: Any, document: Any) -> None:
    if isinstance(owner, list):
        owner[key:key] = [owner[key]] * draw.choice((1, 2, 1000))


def _rename(draw: random.Random, owner: Any, key: Any, document: Any) -> None:
    if isinstance(owner, dict) and key:
        owner[draw.choice((*WORDS, *owner))] = owner.pop(key)


def _nest(draw: random.Random, owner: Any, key: Any, document: Any) -> None:
    for _ in range(draw.choice((1, 2, 400))):
        owner[key] = [owner[key]]


DOCUMENT_CHANGES: tuple[Callable[[random.Random, Any, Any, Any], None], ...] = (
    *(_replace,) * 4,
    *(_scale,) * 2,
    *(_leave_out, _repeat, _rename, _nest),
)


def mutated_table(draw: random.Random, text: str) -> bytes:
    """CSV with other cells, rows and columns."""
    rows = list(csv.reader(io.StringIO(text)))
    for _ in range(draw.choice(CHANGES)):
        if not rows:
            break
        row = draw.randrange(len(rows))
        cell = draw.randrange(len(rows[row]) or 1)
        kind = draw.randrange(8)
        if kind <= 2 and rows[row]:
            rows[row][cell] = _cell(draw, rows[row][cell])
        elif kind == 3:
            rows[row : row + 1] = [list(rows[row])] * draw.choice((0, 2, 2000))
        elif kind == 4:
            del rows[row][cell:][: draw.randrange(2)]
        elif kind == 5:
            rows[row].insert(cell, _cell(draw, ""))
        elif kind == 6 and len(rows[0]) > 1:
            for one in rows:
                del one[min(cell, len(one)) : cell + 1]
        elif kind == 7:
            other = draw.randrange(len(rows))
            rows[row], rows[other] = rows[other], rows[row]
    out = io.StringIO()
    quoting = draw.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    separator = draw.choice((",", ",", ",", ";", "\t"))
    csv.writer(
        out, quoting=quoting, delimiter=separator, lineterminator=draw.choice(("\n", "\r\n"))
    ).writerows(rows)
    return out.getvalue().encode(errors="surrogatepass")


def _cell(draw: random.Random, cell: str) -> str:
    """A hostile cell, or the same number scaled."""
    scaled = draw.uniform(-1, 2) * 10.0 ** draw.randrange(-20, 20)
    return draw.choice(
        (draw.choice(NUMBERS), draw.choice(WORDS), repr(scaled), str(draw.randrange(70)), cell * 2)
    )


TOKENS = (
    *(
        "SwitchName=",
        "Nodes=",
        "Switches=",
        "LinkSpeed=",
        "n[",
        "[1-",
        "0",
        "9",
        "]",
        ",",
        "-",
        "=",
        '"',
        "#",
        "\\\n",
    ),
    *("[1-1000]", "[0-99999]", "9" * 30, "s0", "s1", "\n", " ", "\x1b[1m", "é", "n" * LONG),
)


def mutated_lines(draw: random.Random, text: str) -> bytes:
    """Slurm's topology with pieces left out, put in and exchanged."""
    for _ in range(2 * draw.choice(CHANGES)):
        at = draw.randrange(len(text) + 1)
        to = min(len(text), at + draw.choice((0, 0, 1, 3, 20)))
        text = text[:at] + draw.choice((*TOKENS, text[to : to + 30])) * draw.choice((1, 1, 1, 3)) + text[to:]
    return text.encode()

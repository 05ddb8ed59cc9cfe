"""Files that once filled the memory, took hours or broke a terminal, made of the valid ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LONG = 100_000
MANY = 50_000
MB = 1_000_000
NUMBERS = (
    *("0", "-1", "0.5", "1e-320", "1e18", "1e308", "-1e308", "1e999", "1000000", "1000001"),
    *("9" * 15, "9" * 400, "9" * 5000, "NaN", "-Infinity"),
)
WORDS = (
    *("\x1b[2J\x07", "x" * LONG, "9" * LONG, "", "\ud800", "=1+1", "nan", "-inf", "a\u0000b", "\u202e\x9b"),
    *("[red]x[/red]", "../x", "n" * 201, "2022-07-01", "99999999999999"),
)

Attack = tuple[str, bytes]


def attacks(name: str, content: bytes) -> Iterator[Attack]:
    """Hostile files of a kind, with what they are called."""
    kinds = {".json": documents, ".csv": tables, ".conf": topologies, ".sol": solutions}
    of_kind = kinds[Path(name).suffix]
    yield from anything(content)
    yield from of_kind(content.decode())


def spoilt_values(name: str, content: bytes) -> Iterator[Attack]:
    """The valid file with each of its values replaced by each hostile one."""
    if name.endswith(".json"):
        yield from spoilt_fields(json.loads(content))
    elif name.endswith(".csv"):
        yield from spoilt_cells(content.decode())


def anything(content: bytes) -> Iterator[Attack]:
    """What no reader may take for its own."""
    half, packed = len(content) // 2, gzip.compress(content)
    yield "empty", b""
    yield "binary", bytes(range(256)) * 100
    yield "UTF-16", content.decode().encode("utf-16")
    yield "Latin-1", content[:half] + b"\xe9\xff" + content[half:]
    yield "gzip cut off", packed[:-10]
    yield "gzip in gzip", gzip.compress(packed)
    yield "gzip damaged", packed[:20] + b"\0\0\0" + packed[23:]
    for what, unit in {
        "zeros": b"\0",
        "spaces": b" ",
        "lines": b"\n",
        "quotes": b'"',
        "commas": b",",
    }.items():
        yield f"gzip of {what}", bomb(unit, 1000 * MB)


def bomb(unit: bytes, size: int, head: bytes = b"", tail: bytes = b"") -> bytes:
    """Compressed repetitions, in as many members as they need."""
    piece = unit * (MB // len(unit))
    return gzip.compress(head) + gzip.compress(piece) * (size // len(piece)) + gzip.compress(tail)


def documents(text: str) -> Iterator[Attack]:
    """Hostile JSON."""
    open_end, keys = text[:-1], ",".join(f'"k{i}":1' for i in range(MANY))
    plain = {
        "brackets": "[" * 10 * MB,
        "braces": '{"a":' * MB,
        "closed brackets": "[" * LONG + "]" * LONG,
        "brackets within": open_end + ', "deep": ' + "[" * 900 + "]" * 900 + "}",
        "a key twice": "{" + keys + ',"k0":2}',
        "a key twice at the end": "{" + keys + f',"k{MANY - 1}":2}}',
        "a long key": open_end + f', "{"k" * LONG}": 1}}',
        "many keys": open_end + "," + keys + "}",
        "a long number": "9" * 10 * MB,
        "a long fraction": open_end + f', "x": 0.{"9" * LONG}}}',
    }
    for what, spoilt in plain.items():
        yield what, spoilt.encode()
    bombs = {"lists": b"[],", "objects": b"{},", "fields": b'{"a":1},', "numbers": b"1,", "strings": b'"",'}
    for what, unit in bombs.items():
        yield f"gzip of {what}", bomb(unit, 60 * MB, b'{"jobs":[', b"0]}")
        yield f"a megabyte of {what}", b'{"jobs":[' + unit * (MB // len(unit)) + b"0]}"
    yield "gzip of a string", bomb(b"a", 1000 * MB, b'{"name":"', b'"}')
    yield "gzip of a number", bomb(b"9", 1000 * MB, b'{"name":', b"}")
    yield "gzip of a key", bomb(b"a", 1000 * MB, b'{"', b'":1}')
    yield from repeated(json.loads(text))


def repeated(document: Any, most: int = 5_000) -> Iterator[Attack]:
    """Lists whose entries come again and again, compressed, under one name and under many."""
    for name, entries in document.items():
        if isinstance(entries, list) and entries and isinstance(entries[0], dict):
            head, tail = json.dumps(document | {name: "HERE"}).split('"HERE"')
            unit = json.dumps(entries[0]).encode()
            within = f"{head}[".encode(), unit + f"]{tail}".encode()
            yield f"{name} again and again", bomb(unit + b",", 60 * MB, *within)
            yield f"a megabyte of {name}", within[0] + (unit + b",") * (MB // len(unit)) + within[1]
            many = [entries[0] | {"name": f"n{i}", "pool": f"p{i}"} for i in range(most)]
            yield f"{name} in number", json.dumps(document | {name: many}).encode()


def spoilt_fields(document: Any) -> Iterator[Attack]:
    """JSON with a hostile value in each place."""
    for place, put in places(document):
        for value in (*map(marked, NUMBERS), *WORDS, None, True, [], {}, {"a": 1}, [[]]):
            yield f"{place}: {str(value)[:20]!r}", unmarked(put(value))


def places(document: Any) -> Iterator[tuple[str, Callable[[Any], str]]]:
    """Every value of a document, and how it looks with another one there."""

    def inside(value: Any, path: str) -> Iterator[tuple[str, Callable[[Any], str]]]:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            kept = value[key]

            def put(other: Any, key: Any = key, kept: Any = kept) -> str:
                value[key] = other
                try:
                    return json.dumps(document)
                finally:
                    value[key] = kept

            yield f"{path}.{key}", put
            if isinstance(kept, dict | list):
                yield from inside(kept, f"{path}.{key}")

    yield from inside(document, "")


def marked(number: str) -> str:
    """A number that Python does not write."""
    return f"NUMBER:{number}:"


def unmarked(text: str) -> bytes:
    """Numbers as they are marked."""
    for number in NUMBERS:
        text = text.replace(f'"{marked(number)}"', number)
    return text.encode()


def tables(text: str) -> Iterator[Attack]:
    """Hostile CSV."""
    header, *rows = text.splitlines()
    names, first = ",".join(f"k{i}" for i in range(MANY)), f"{header}\n".encode()
    row = f"{rows[0]}\n".encode()
    yield "a row again and again", bomb(row, 300 * MB, first)
    yield "a megabyte of a row", first + row * (MB // len(row))
    yield "short rows", bomb(b"1\n", 60 * MB, first)
    yield "a long cell", bomb(b"a", 300 * MB, first)
    yield "an open quote", bomb(b"a\n", 300 * MB, first + b'"')
    yield "a long header", bomb(b"a,", 300 * MB)
    yield "a column twice", f"{names},k0\n{'1,' * MANY}1\n".encode()
    yield "many columns", f"{header},{names}\n{rows[0]}{',1' * MANY}\n".encode()
    few = ",".join(f"k{i}" for i in range(1000))
    yield "a thousand columns", f"{header},{few}\n{(rows[0] + ',1' * 1000 + chr(10)) * 200}".encode()
    yield "many rows", "\n".join([header, *rows * 5_000]).encode()


def spoilt_cells(text: str) -> Iterator[Attack]:
    """CSV with a hostile value in each column."""
    header, *rows = text.splitlines()
    for number, column in enumerate(header.split(",")):
        yield f"no {column}", "\n".join([header.replace(column, "x" * LONG), *rows]).encode()
        for value in (*NUMBERS, *WORDS):
            for row in (0, len(rows) - 1):
                cells = rows[row].split(",")
                cells[number] = value
                lines = [header, *rows[:row], ",".join(cells), *rows[row + 1 :]]
                yield (
                    f"{column} in row {row}: {value[:20]!r}",
                    "\n".join(lines).encode(errors="surrogatepass"),
                )


def solutions(text: str) -> Iterator[Attack]:
    """Hostile solutions of a program, in the forms of all solvers."""
    heads = {
        "HiGHS": text[: text.index("pattern")],
        "SCIP": "solution status: optimal\nobjective value: 1\n",
        "CBC": "Optimal - objective value 1\n",
        "GLPK": "s mip 8 11 o 1\n",
        "a report": "Problem: x\nStatus: OPTIMAL\nObjective: cost = 1\n   No. Column name\n----\n",
        "Gurobi": "# Objective value = 1\n",
    }
    lines = {
        **{f"a value {value[:9]}": f"pattern_0_ {value}\n" for value in NUMBERS},
        **{f"a name {word[:9]!r}": f"1 {word} 1 0\n{word} 1\n" for word in WORDS},
        "places": "".join(f"j {place} 1\n" for place in ("-1", "0", "9" * 5000, "x", "1.5")),
        "names": "".join(f"n{i} 1\n" for i in range(MANY)),
        "a long line": "x " * MB,
        "words": "1 * B NL\n" * LONG,
    }
    for solver, head in heads.items():
        yield f"{solver}, nothing", head.encode()
        for what, more in lines.items():
            yield f"{solver}, {what}", (head + more).encode("utf-8", "surrogatepass")


def topologies(text: str) -> Iterator[Attack]:
    """Hostile host lists."""
    lists = {
        "a range": "n[1-999999]",
        "ranges": ",".join(f"n{i}[1-99999]" for i in range(100)),
        "widths": f"n[{'0' * 5000}1-999999]",
        "a wide name": f"{'n' * LONG}[1-99999]",
        "digits": f"n[{'9' * 5000}-{'9' * 5001}]",
        "brackets": "n" + "[1-1000]" * 5,
        "nested": "n" + "[" * 10_000,
        "a long name": "n" * LONG,
        "commas": "," * LONG,
        "steering": "n\x1b[1-2]\x07",
        "names": ",".join(f"n{i}" for i in range(LONG)),
        "twice": "n1," * LONG + "n1",
    }
    for what, hosts in lists.items():
        yield what, f"SwitchName=s0 Nodes={hosts}\n".encode()
        yield f"{what} of switches", f"SwitchName=s0 Nodes=n1\nSwitchName=top Switches={hosts}\n".encode()
    chain = [f"SwitchName=s{i} Switches=s{i + 1}\n" for i in range(MANY)]
    lines = {
        "lines of ranges": "".join(f"SwitchName=s{i} Nodes=n{i}x[1-99999]\n" for i in range(1000)),
        "a chain": "".join([*chain, f"SwitchName=s{MANY} Nodes=n1\n"]),
        "a circle": "".join([*chain, f"SwitchName=s{MANY} Switches=s0\n"]),
        "a key": f"SwitchName=s0 {'K' * LONG}=1\n",
        "a switch": f"SwitchName={'s' * LONG} Nodes=n1\n",
        "a speed": f"SwitchName=s0 Nodes=n1 LinkSpeed={'9' * 400}\n",
        "continued": "\\\n" * LONG,
    }
    for what, spoilt in lines.items():
        yield what, spoilt.encode()
    yield "gzip of hosts", bomb(b"n1,", 300 * MB, b"SwitchName=s0 Nodes=")

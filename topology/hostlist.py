"""Slurm host list expressions: ``rack[0-1]n[08-11],login`` and back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby, product

MAX_HOSTS = 1_000_000
_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)


def expand(expression: str) -> list[str]:
    """Names that a host list expression stands for, in its order.

    Parameters
    ----------
    expression : str
        Names separated by commas; numbers, ranges and lists of them in brackets, several brackets to a name
        (the first varies slowest). The first number of a range states the width: ``n[08-11]``.

    Raises
    ------
    ValueError
        If the expression is malformed or stands for more than a million names.
    """
    names: list[str] = []
    position = 0
    while True:
        item = _ITEM.match(expression, position)
        if item is None:
            raise ValueError(f"malformed host list '{expression}' at character {position + 1}")
        names += _expand_item(item.group(), MAX_HOSTS - len(names))
        position = item.end()
        if position == len(expression):
            return names
        if expression[position] != ",":
            raise ValueError(f"malformed host list '{expression}' at character {position + 1}")
        position += 1


def _expand_item(item: str, limit: int) -> list[str]:
    choices: list[list[str]] = []
    total = 1
    for piece in _PIECE.finditer(item):
        in_brackets, literal = piece.groups()
        choices.append([literal] if literal is not None else _numbers(in_brackets, limit))
        total *= len(choices[-1])
        if total > limit:
            raise ValueError(f"host list '{item}' stands for too many names (more than {MAX_HOSTS} in all)")
    return ["".join(parts) for parts in product(*choices)]


def _numbers(ranges: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"'{text}' is no number or range in the host list brackets [{ranges}]")
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise ValueError(f"the range '{text}' in a host list runs backwards")
        if int(last) - int(first) >= limit - len(numbers):
            raise ValueError(f"the range '{text}' stands for too many names (more than {MAX_HOSTS} in all)")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers


def compress(names: Iterable[str]) -> str:
    """Short host list expression for names, in their order: ``expand(compress(names)) == names``.

    Neighbours that differ only in their last number share brackets.

    Raises
    ------
    ValueError
        If a name is empty or has a character that host lists use (comma, brackets).
    """
    parsed = [_parse(name) for name in names]
    pieces = []
    for (prefix, suffix), run in groupby(parsed, key=lambda p: (p[0], p[2])):
        numbers = [number for _, number, _ in run]
        if numbers[0] is None:
            pieces += [prefix] * len(numbers)
        else:
            ranges = _ranges([number for number in numbers if number is not None])
            joined = ",".join(ranges)
            pieces.append(f"{prefix}{joined if joined.isdigit() else f'[{joined}]'}{suffix}")
    return ",".join(pieces)


def _parse(name: str) -> tuple[str, str | None, str | None]:
    """Prefix, last number and suffix; a name without a number is all prefix."""
    if not name or set(name) & set(",[]"):
        raise ValueError(f"the name '{name}' cannot be written in a host list")
    match = _NUMBERED.fullmatch(name)
    return (name, None, None) if match is None else (match[1], match[2], match[3])


def _ranges(numbers: list[str]) -> list[str]:
    ranges: list[list[str]] = []
    for number in numbers:
        if ranges and number == f"{int(ranges[-1][-1]) + 1:0{len(ranges[-1][0])}d}":
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges]

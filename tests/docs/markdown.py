"""Fenced blocks of a Markdown page, and the commands and outputs in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
BAR = re.compile("[█░]+")
TOLERANCE = 0.02
NOT_RUN = "<!-- not run"


@dataclass(frozen=True)
class Block:
    """A fenced block.

    ``language`` and ``tag`` are the two words after the fence, ``skipped`` is the reason that a comment
    ``<!-- not run: reason -->`` above it gives, ``line`` is where its text begins.
    """

    page: Path
    line: int
    language: str
    tag: str
    text: str
    skipped: str

    @property
    def where(self) -> str:
        """Place of the block, for messages."""
        return f"{self.page.name}, line {self.line}"


@dataclass(frozen=True)
class Command:
    """A shell command with the output that the page shows below it and the exit code that it names."""

    text: str
    shown: list[str]
    exit_code: int


def blocks_of(page: Path) -> list[Block]:
    """Fenced blocks of a page, in order."""
    blocks, opened, above = [], None, ""
    fence, body = "", []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if opened is None:
            if match := re.match(r"\s*(`{3,})\s*(\w*)\s*(\w*)", line):
                fence, opened, body = match[1], (number + 1, match[2], match[3]), []
            elif line.strip():
                above = line.strip()
        elif line.strip() == fence:
            skipped = above.removeprefix(NOT_RUN).strip(" :->") if above.startswith(NOT_RUN) else ""
            blocks.append(Block(page, *opened, "\n".join(body), skipped))
            opened, above = None, ""
        else:
            body.append(line)
    return blocks


def commands_of(block: Block) -> Iterator[Command]:
    """Commands of a block: lines after ``$``, or every line of a block in which no line starts so.

    A here-document belongs to its command, and so does a line after one that ends with a backslash.
    """
    prompts = any(line.startswith("$ ") for line in block.text.splitlines())
    lines = iter(block.text.splitlines())
    command: list[str] = []
    shown: list[str] = []
    for line in lines:
        if prompts and not line.startswith("$ "):
            shown.append(line)
            continue
        if command:
            yield _command(command, shown)
        command, shown = [line.removeprefix("$ ")], []
        while command[-1].endswith("\\"):
            command.append(next(lines).removeprefix("> "))
        if end := re.search(r"<<\s*'?(\w+)'?", command[0]):
            while command[-1] != end[1]:
                command.append(next(lines))
    if command:
        yield _command(command, shown)


def _command(lines: list[str], shown: list[str]) -> Command:
    text = "\n".join(lines).strip()
    code = re.search(r"#\s*exit code (\d+)$", text)
    return Command(text, [line for line in shown if line.strip()], int(code[1]) if code else 0)


def first_difference(shown: list[str], printed: str) -> str | None:
    """First shown line that was not printed, None if all were, in this order.

    Lines that the page leaves out do not matter, nor does ``...``, the width of gaps and bars, and the last
    digits of numbers.
    """
    rest = iter([line for line in printed.splitlines() if line.strip()])
    for line in shown:
        if line.strip() != "..." and not any(_alike(line, other) for other in rest):
            return line
    return None


def _alike(shown: str, printed: str) -> bool:
    return _words(shown) == _words(printed) and all(
        math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-9)
        for a, b in zip(_numbers(shown), _numbers(printed), strict=False)
    )


def _words(line: str) -> list[str]:
    return NUMBER.sub("0", BAR.sub("", line)).split()


def _numbers(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]

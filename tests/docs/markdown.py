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
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    ``language`` and ``tag`` are the two words after the fence, ``note`` is the comment above it, such as
    ``not run: reason``, ``needs data`` or ``within 10 %``, and ``line`` is where its text begins.
    """

    page: Path
    line: int
    language: str
    tag: str
    text: str
    note: str

    @property
    def skipped(self) -> bool:
        """Whether the page says that nobody should run this."""
        return self.note.startswith("not run")

    @property
    def needs_data(self) -> bool:
        """Whether the public data sets are needed, here or for what comes before."""
        return "WATTSCHED_DATA" in self.text or self.note.startswith("needs data")

    @property
    def tolerance(self) -> float:
        """By how much, relative, a printed number may differ from the shown one."""
        within = re.search(r"within (\d+) %", self.note)
        return int(within[1]) / 100 if within else TOLERANCE

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
            comment = COMMENT.fullmatch(above)
            blocks.append(Block(page, *opened, "\n".join(body), comment[1] if comment else ""))
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


def first_difference(shown: list[str], printed: str, tolerance: float = TOLERANCE) -> str | None:
    """First shown line that was not printed, None if all were, in this order.

    Lines that the page leaves out do not matter, nor does ``...``, the width of gaps and bars, where lines
    are wrapped, and the last digits of numbers.
    """
    lines = [line.split() for line in BAR.sub("", printed).splitlines() if line.strip()]
    begin = 0
    for line in shown:
        if line.strip() == "...":
            continue
        words = BAR.sub("", line).split()
        found = next((i for i in range(begin, len(lines)) if _alike(words, lines[i:], tolerance)), None)
        if found is None:
            return line
        begin = found + 1
    return None


def _alike(words: list[str], lines: list[list[str]], tolerance: float) -> bool:
    """Whether the words are those of the first lines, as many as it takes."""
    rest = words
    for line in lines:
        if not all(_same(a, b, tolerance) for a, b in zip(rest, line, strict=False)) or len(rest) < len(line):
            return False
        rest = rest[len(line) :]
        if not rest:
            return True
    return False


def _same(shown: str, printed: str, tolerance: float) -> bool:
    if NUMBER.sub("0", shown) != NUMBER.sub("0", printed):
        return False
    pairs = zip(_numbers(shown), _numbers(printed), strict=True)
    return all(math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-9) for a, b in pairs)


def _numbers(word: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(word)]

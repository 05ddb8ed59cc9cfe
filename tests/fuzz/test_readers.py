"""Readers of files raise nothing but input errors, soon and in little memory; commands print what is safe.

``make fuzz SECONDS=3600 SEED=7`` goes on for longer, from another seed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.attacks import attacks, spoilt_values
from tests.fuzz.limited import Child, write_valid_files
from tests.fuzz.mutations import mutated
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.valid_files import valid_files

SECONDS = float(os.environ.get("FUZZ_SECONDS", "8"))
LONG = "FUZZ_SECONDS" in os.environ
SEED = int(os.environ.get("FUZZ_SEED", "0"))
SAMPLE = 8
"""Hostile values for each reader; all of them, in ten minutes, where FUZZ_SECONDS is set."""
HOSTILE = {
    reader.file: reader for reader in READERS if reader.file in ("sizing.json", "pai.csv", "topology.conf")
}
"""One reader of each kind, for the files that take long to make; all of them where FUZZ_SECONDS is set."""


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """The process that reads."""
    valid = tmp_path_factory.mktemp("valid")
    write_valid_files(valid)
    one = Child(valid)
    yield one
    one.close()


def judge(
    child: Child, reader: Reader, what: str, content: bytes, folder: Path, *, commands: bool = True
) -> None:
    """Let a file be read, and keep it where it does what none may do."""
    suffix = Path(reader.file).suffix
    file = folder / f"input{suffix}"
    file.write_bytes(content)
    verdict = child.tried(reader, file, commands=commands)
    if verdict.faults:
        kept = folder / f"{reader.file.partition('.')[0]}-failing{suffix}"
        file.rename(kept)
        pytest.fail(f"{reader.file}, {what}: {'; '.join(verdict.faults)}; the file is {kept}")


@pytest.mark.slow
def test_valid_files_are_read(child: Child, tmp_path: Path) -> None:
    for reader in READERS:
        judge(child, reader, "valid", valid_files()[reader.file], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("file", [reader.file for reader in READERS] if LONG else HOSTILE)
def test_attacks_are_refused(file: str, child: Child, tmp_path: Path) -> None:
    reader = next(reader for reader in READERS if reader.file == file)
    for what, content in attacks(file, valid_files()[file]):
        judge(child, reader, what, content, tmp_path, commands=LONG)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.file)
def test_hostile_values_are_refused(reader: Reader, child: Child, tmp_path: Path) -> None:
    spoilt = list(spoilt_values(reader.file, valid_files()[reader.file]))
    some = spoilt if LONG else random.Random(SEED).sample(spoilt, min(SAMPLE, len(spoilt)))
    for what, content in some:
        judge(child, reader, what, content, tmp_path)


@pytest.mark.slow
def test_mutations_are_read_or_refused(child: Child, tmp_path: Path) -> None:
    end, seed = time.monotonic() + SECONDS, SEED
    while time.monotonic() < end:
        draw = random.Random(seed)
        reader = draw.choice(READERS)
        judge(child, reader, f"seed {seed}", mutated(draw, reader.file, valid_files()[reader.file]), tmp_path)
        seed += 1

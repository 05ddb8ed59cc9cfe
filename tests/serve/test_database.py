"""The file of a journal: who may open it, what is none, and what is damaged."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched import InputError
from wattsched.serve.database import JournalError
from wattsched.serve.journal import Journal

from .victim import DOCUMENT, jobs


def test_one_process_writes_and_others_read(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    session = journal.create("s", DOCUMENT)
    session.upsert(jobs("a"))
    session.solve()
    code = f"from wattsched.serve.journal import Journal; Journal({str(path)!r})"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "journal.db: is open in another process, which writes it" in second.stderr
    with Journal(path, read_only=True) as reader:
        assert [line.number for line in reader.rounds("s")] == [1]


def test_files_that_are_no_journals(tmp_path: Path) -> None:
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_text("no journal" * 200)
    made = sqlite3.connect(other)
    made.execute("CREATE TABLE mine (x)")
    made.commit()
    made.close()
    for path in (text, other):
        path.chmod(0o644)
        content = path.read_bytes()
        with pytest.raises(InputError, match="is no journal"):
            Journal(path)
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (content, 0o644)
    with pytest.raises(InputError, match="cannot be written: no such file or directory"):
        Journal(tmp_path / "nowhere" / "deeper" / "j.db")
    with pytest.raises(InputError, match="no such file or directory"):
        Journal(tmp_path / "missing.db", read_only=True)
    os.mkfifo(tmp_path / "pipe")
    for read_only in (False, True):
        with pytest.raises(InputError, match="pipe: is no regular file"):
            Journal(tmp_path / "pipe", read_only=read_only)
        with pytest.raises(InputError, match="is a directory"):
            Journal(tmp_path, read_only=read_only)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other.db", "pipe", "text.db"]


@pytest.fixture
def nobody(as_root: None) -> Iterator[Path]:
    """A folder of root's that the one who asks can read only."""
    with TemporaryDirectory(prefix="wattsched-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        os.seteuid(0)


def test_a_folder_that_cannot_be_written_to(nobody: Path) -> None:
    """What is complete in the file is read there, and nothing is taken for the newest that is not."""
    path = nobody / "j.db"
    with Journal(path) as journal:
        journal.create("s", DOCUMENT).upsert(jobs("a", "b"))
        journal.open("s").solve()
    path.chmod(0o644)  # its owner lets others read it
    os.seteuid(65534)
    with pytest.raises(InputError, match="cannot be written: permission denied"):
        Journal(path)
    with pytest.raises(InputError, match="cannot be written: permission denied"):
        Journal(nobody / "new.db")
    with Journal(path, read_only=True) as reader:
        assert [line.number for line in reader.rounds("s")] == [1]
        assert reader.round("s", 1).decision.result.objective
    os.seteuid(0)
    (nobody / "j.db-wal").write_bytes(b"changes")
    os.seteuid(65534)
    with pytest.raises(InputError, match=r"its newest changes are in j.db-wal, .*; copy both"):
        Journal(path, read_only=True)


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_said_to_be_one(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Some bytes are others: what is read is refused in a sentence, or as it was."""
    path = tmp_path_factory.mktemp("damaged") / "j.db"
    with Journal(path) as journal:
        session = journal.create("s", DOCUMENT)
        session.upsert(jobs("a", "b"))
        session.apply(session.solve(deadline_s=10.0).number)
        session.update(power_w=4_000.0)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        length = data.draw(st.sampled_from([1, 8, 2000]))
        other = bytes([data.draw(st.sampled_from([0x00, 0x5A, 0x80, 0xFF]))])
        content[place : place + length] = other * min(length, len(content) - place)
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))])
    with suppress(InputError, JournalError), Journal(path) as journal:
        for name in journal.sessions():
            journal.open(name).rounds()


@pytest.mark.parametrize("name", [":memory:", "file::memory:?x=1", "a b#c?d%41.db"])
def test_a_journal_is_a_file_whatever_it_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Journal(name) as journal:
        journal.create("s", DOCUMENT)
    assert (tmp_path / name).stat().st_size > 0
    with Journal(name, read_only=True) as journal:
        assert journal.sessions() == ["s"]
    with pytest.raises(InputError, match="the file name is empty"):
        Journal("")
    assert not [file for file in tmp_path.iterdir() if file.name.startswith("-")]

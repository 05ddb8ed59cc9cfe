"""Who may read, write and lock what we keep; and links of others, which choose no file of ours."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from wattsched import InputError
from wattsched.instances.io import write_atomically
from wattsched.serve.journal import Journal
from wattsched.serve.permissions import published_folder

from .victim import DOCUMENT

NOBODY = 65534


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that everybody may write to, as /tmp."""
    with TemporaryDirectory(prefix="wattsched-") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


def test_a_journal_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Journal(tmp_path / "state" / "j.db") as journal:
            journal.create("s", DOCUMENT)
            found = modes(tmp_path / "state")
    finally:
        os.umask(before)
    assert found.keys() >= {"j.db", "j.db-wal", "j.db-shm", "j.db-lock"}
    assert set(found.values()) == {0o600}
    assert modes(tmp_path) == {"state": 0o700}
    for file in (tmp_path / "state").iterdir():
        file.chmod(0o666)
    with Journal(tmp_path / "state" / "j.db"):
        assert set(modes(tmp_path / "state").values()) == {0o600}
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(InputError, match=r"replace files in its folder \(mode 777\); 'chmod o-w "):
        Journal(tmp_path / "state" / "j.db")


@pytest.mark.usefixtures("as_root")
def test_nobody_locks_a_journal(shared_folder: Path) -> None:
    path = shared_folder / "j.db"
    with Journal(path) as journal:
        journal.create("s", DOCUMENT)
        with as_nobody():
            for part in ("", "-wal", "-shm", "-lock"):
                with pytest.raises(PermissionError):
                    os.open(f"{path}{part}", os.O_RDONLY)
    with Journal(path) as journal:
        assert journal.sessions() == ["s"]


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("part", ["", "-lock", "-wal", "-token"])
def test_what_somebody_else_laid_there_is_refused(shared_folder: Path, part: str) -> None:
    from wattsched.serve.tokens import Tokens

    path = shared_folder / "j.db"
    with Journal(path):
        pass
    laid = Path(f"{path}{part}")
    laid.unlink(missing_ok=True)
    with as_nobody():
        if part:
            laid.touch(0o666)
        else:
            sqlite3.connect(laid).close()
            laid.chmod(0o666)
    with pytest.raises(InputError, match=r"belongs to another user \(uid 65534\)"):
        Tokens.own(path) if part == "-token" else Journal(path)


@pytest.mark.usefixtures("as_root")
def test_settings_of_jobs_are_read_by_all_and_written_by_one(tmp_path: Path, shared_folder: Path) -> None:
    folder = tmp_path / "settings"
    folder.mkdir()
    for before in (0o777, 0o700, 0o775):
        folder.chmod(before)
        published_folder(folder)
        assert modes(tmp_path) == {"settings": 0o755}
    with as_nobody():
        (shared_folder / "settings").mkdir()
    with pytest.raises(InputError, match="belongs to another user"):
        published_folder(shared_folder / "settings")


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("where", ["file", "folder", "folder of a link"])
def test_links_of_others_are_not_written_through(tmp_path: Path, shared_folder: Path, where: str) -> None:
    (tmp_path / "mine").mkdir()
    ours = tmp_path / "mine" / "r.json"
    ours.write_text("ours")
    target = shared_folder / "r.json"
    with as_nobody():
        if where == "file":
            os.symlink(ours, target)
        else:
            target = shared_folder / "out" / "r.json"
            os.symlink(ours.parent, shared_folder / "out")
    if where == "folder of a link":
        (tmp_path / "short").symlink_to(shared_folder / "out")
        target = tmp_path / "short" / "r.json"
    with pytest.raises(PermissionError, match="another user made this link"):
        write_atomically(target, b"new")
    assert ours.read_text() == "ours"
    os.unlink(shared_folder / ("r.json" if where == "file" else "out"))
    os.symlink(
        ours if where == "file" else ours.parent, shared_folder / ("r.json" if where == "file" else "out")
    )
    write_atomically(target, b"new")
    assert ours.read_text() == "new"


@pytest.mark.usefixtures("as_root")
def test_a_file_keeps_its_owner_and_mode(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    file.chmod(0o640)
    os.chown(file, NOBODY, NOBODY)
    write_atomically(file, b"new")
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (NOBODY, NOBODY, 0o640)
    assert file.read_text() == "new"
    write_atomically(file, b"secret", mode=0o600)
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (0, 0o600)


def test_parts_above_a_link_are_those_of_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep/er")
    monkeypatch.chdir(tmp_path)
    write_atomically("./link/../a", b"1")
    assert (tmp_path / "deep" / "a").read_bytes() == b"1"


def test_a_journal_has_one_writer_whatever_it_is_called(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        journal.create("s", DOCUMENT)
        (tmp_path / "link.db").symlink_to(tmp_path / "j.db")
        with pytest.raises(InputError, match="is open in"):
            Journal(tmp_path / "link.db")
        os.link(tmp_path / "j.db", tmp_path / "hard.db")
        with pytest.raises(InputError, match="has another name"):
            Journal(tmp_path / "hard.db")

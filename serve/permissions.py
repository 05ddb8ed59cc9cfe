"""Keep the files of a process to their owner."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from wattsched.instances.errors import InputError

FILE, FOLDER = 0o600, 0o700
"""Modes of files and of the folder that is made for them."""


def keep_private(path: str | Path) -> bool:
    """Take the rights of others to a file of ours away; whether they had any."""
    require_own(path)
    if os.name != "posix" or not os.stat(path).st_mode & 0o077:
        return False
    os.chmod(path, FILE)
    return True


def private_file(path: str | Path) -> bool:
    """Make an empty file that its owner alone may use, in a folder of that kind; whether it is new.

    The folder is made where the one above it is there.
    """
    folder = Path(os.path.abspath(path)).parent
    if not folder.exists():
        folder.mkdir(FOLDER)
    mode = folder.stat().st_mode
    if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        text = f"everybody can replace files in its folder (mode {mode & 0o777:o})"
        raise InputError([f"{text}; 'chmod o-w {folder}', or choose another one"], str(path))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE))
    except FileExistsError:
        keep_private(path)
        return False
    return True


def published_folder(path: str | Path) -> Path:
    """Make a folder, or change the one that is there, so that everybody reads it and we alone change it."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_own(folder)
        folder.chmod(0o755)
    except OSError as error:
        raise InputError([f"cannot be used: {(error.strerror or str(error)).lower()}"], str(path)) from None
    return folder


def require_own(path: str | Path) -> None:
    """Refuse a file or a link that another user made."""
    for found in (os.lstat(path), os.stat(path)) if os.name == "posix" else ():
        if found.st_uid not in (0, os.geteuid()):
            text = f"belongs to another user (uid {found.st_uid}), who could write it or keep it locked"
            raise InputError([text], str(path))

"""Bearer tokens: who may read, and who may change; the file holds their digests only."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from base64 import b64decode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self, get_args

from wattsched.instances.errors import InputError, UnreadableError
from wattsched.instances.io import write_atomically
from wattsched.reading.inputs import open_file
from wattsched.serve.permissions import FILE, keep_private

Access = Literal["read", "write"]

_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,200}")
_LINE = re.compile(r"([A-Za-z0-9._-]{1,60}) (read|write) ([0-9a-f]{64})")


@dataclass(frozen=True)
class Client:
    """Whoever asks: its name, and what it may do."""

    name: str
    access: Access


class Tokens:
    """Tokens of a file, one line each: a name, ``read`` or ``write``, and the token's SHA-256.

    Tokens are random and long, so that a plain digest of them cannot be guessed.
    """

    def __init__(self, path: str | Path) -> None:
        self._known: list[tuple[str, Client]] = []
        for number, line in enumerate(_lines(Path(path)), 1):
            if not line or line.startswith("#"):
                continue
            if (found := _LINE.fullmatch(line)) is None:
                raise InputError([f"line {number}: must be NAME read|write DIGEST"], str(path))
            access: Access = "write" if found[2] == "write" else "read"
            self._known.append((found[3], Client(found[1], access)))

    @classmethod
    def own(cls, journal: str | Path) -> tuple[Path, Self]:
        """Path of the file beside a journal with a token, made at the first start, and that token, to write.

        Where others could read the file, it is made anew.
        """
        path = Path(f"{journal}-token")
        if os.path.lexists(path) and keep_private(path):
            path.unlink()
        if not os.path.lexists(path):
            write_atomically(path, f"{secrets.token_urlsafe(32)}\n".encode(), mode=FILE)
        (token, *more) = _lines(path) or [""]
        if more or not _TOKEN.fullmatch(token):
            raise InputError(["is no token; remove it, and a new one is made"], str(path))
        made = cls.__new__(cls)  # of no file of tokens
        made._known = [(_digest(token), Client("own", "write"))]
        return path, made

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self._known)

    def client(self, header: str | None) -> Client | None:
        """Whoever an ``Authorization`` header is of; None for nobody that is known.

        The token is a bearer's, or the password of basic authentication, for clients that know a token only
        as a part of an address (``http://NAME:TOKEN@HOST``). All digests are compared, each in the same time
        whatever they are.
        """
        given, found = _digest(_token_in(header or "")), None
        for digest, client in self._known:
            if hmac.compare_digest(digest, given):
                found = client
        return found


def add_token(path: str | Path, name: str, access: str) -> str:
    """Add a client to a file of tokens, which is made where it is not there, and return its token.

    The file is readable by its owner alone, and the token is nowhere else.
    """
    if access not in get_args(Access):
        raise InputError([f"access: must be 'read' or 'write', got '{access}'"])
    token, path = secrets.token_urlsafe(32), Path(path)
    line = f"{name} {access} {_digest(token)}"
    if not _LINE.fullmatch(line):
        raise InputError([f"name: must be 1 to 60 letters, digits, '.', '_' and '-', got '{name!s:.80}'"])
    if path.exists():
        Tokens(path)  # a file of something else is left alone
    lines = _lines(path) if path.exists() else []
    if any(known.split(" ")[0] == name for known in lines):
        raise InputError([f"name: there is a token of '{name}'"], str(path))
    write_atomically(path, "".join(f"{one}\n" for one in [*lines, line]).encode(), mode=FILE)
    return token


def _token_in(header: str) -> str:
    """The token of a header; empty, which is nobody's, where it has none."""
    scheme, _, value = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                return b64decode(value.strip(), validate=True).decode().partition(":")[2]
            except ValueError:
                return ""
    return ""


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _lines(path: Path) -> list[str]:
    """Lines of a file, without blanks around them."""
    try:
        with open_file(path) as file:
            return [line.strip() for line in file.read().decode("utf-8").splitlines()]
    except OSError as error:
        raise UnreadableError(error, str(path)) from None
    except UnicodeDecodeError:
        raise InputError(["is not text in UTF-8"], str(path)) from None

"""Functions that users bring along: ``path/to/file.py:NAME``, or an entry point of an installed package.

A file is executed only because its path stands in a call or on the command line; nothing here reads a path
out of an instance or a result.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from wattsched.instances.errors import InputError
from wattsched.reading.inputs import open_file

GROUP = "wattsched.formulations"
"""Entry point group in which installed packages offer formulations."""


@dataclass(frozen=True)
class External:
    """A user's formulation, solver or rule.

    Attributes
    ----------
    function : callable
    source : str
        File that messages name.
    """

    function: Callable[..., Any]
    source: str

    def __call__(self, *given: Any) -> Any:
        """Call the function on copies, so that what it changes of them changes nothing that is checked."""
        return self.function(*copy.deepcopy(given))


def find(name: str) -> External | None:
    """Function that ``FILE.py:NAME`` or an entry point stands for; None for any other name.

    Raises
    ------
    InputError
        When the file cannot be read or executed, or has no such name; with its line.
    """
    path, _, attribute = name.rpartition(":")
    if path.endswith(".py"):
        return _from_file(path, attribute)
    if name.endswith(".py"):
        raise InputError(["say which function or class of the file: FILE.py:NAME"], name)
    for entry in entry_points(group=GROUP, name=name):
        return _from_entry(entry)
    return None


def installed() -> list[str]:
    """Names of the formulations that installed packages offer."""
    return sorted(entry.name for entry in entry_points(group=GROUP))


def source_of(name: str) -> Path | None:
    """File of a function given by its path, None for other names."""
    path, _, _ = name.rpartition(":")
    return Path(path) if path.endswith(".py") else None


def _from_file(path: str, attribute: str) -> External:
    """Function of this name in a file."""
    file = Path(path)
    try:
        with open_file(file) as opened:
            changed_ns = os.fstat(opened.fileno()).st_mtime_ns
        module = _module(Path(os.path.realpath(file)), changed_ns, path)
    except OSError as error:
        raise InputError([(error.strerror or str(error)).lower()], path) from None
    if not hasattr(module, attribute):
        raise InputError([f"has no function or class '{attribute}'"], path)
    return _external(getattr(module, attribute), path, attribute)


@functools.lru_cache(maxsize=64)
def _module(file: Path, changed_ns: int, shown: str) -> ModuleType:
    """Execute a file once for each time of its last change; messages have it as `shown`."""
    name = f"wattsched_external_{abs(hash((file, changed_ns)))}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(["is no Python file"], shown)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    with blaming(shown):
        spec.loader.exec_module(module)
    return module


def _from_entry(entry: EntryPoint) -> External:
    with blaming(entry.value):
        target = entry.load()
    module = sys.modules.get(getattr(target, "__module__", ""))
    return _external(target, getattr(module, "__file__", None) or entry.value, entry.name)


def _external(target: Any, source: str, name: str) -> External:
    """A function, or an object of a class, that has this name in a user's code."""
    with blaming(source):
        function = target() if isinstance(target, type) else target
    if not callable(function):
        raise InputError([f"'{name}' is neither a function nor a class whose objects can be called"], source)
    return External(function, source)


@contextmanager
def blaming(source: str) -> Iterator[None]:
    """Turn what a user's code raises into one line that names its file and line.

    Meanwhile the files beside it can be imported, as if it were run by Python.

    Raises
    ------
    InputError
        In place of the exception.
    """
    pyomo = logging.getLogger("pyomo")
    level = pyomo.level
    # Pyomo logs what it raises as well.
    pyomo.setLevel(logging.CRITICAL)
    beside = os.path.dirname(os.path.abspath(source))
    sys.path.insert(0, beside)
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError([_line(error, source)], source) from error
    finally:
        pyomo.setLevel(level)
        with suppress(ValueError):
            sys.path.remove(beside)


def _line(error: BaseException, source: str) -> str:
    """Say in one line what was raised, with the last line of the source file that it came through."""
    text = " ".join(str(error).split())[:300]
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    file = Path(source).resolve()
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == file
    ]
    return f"line {lines[-1]}: {message}" if lines else message

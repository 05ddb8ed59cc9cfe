"""The links by which an editable install and the tests see the checkout as the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_part_of_the_package_has_its_link() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    stated = build["targets"]["wheel"]
    parts = [ROOT / folder for folder in stated["sources"] if folder != "engine"]
    parts += [path for path in (ROOT / "engine").iterdir() if path.name != "__pycache__"]
    links = list((ROOT / "src" / "wattsched").iterdir())
    assert {link.name: link.resolve() for link in links if link.name != "__pycache__"} == {
        path.name: path for path in parts
    }
    assert not any(link.readlink().is_absolute() for link in links if link.is_symlink())

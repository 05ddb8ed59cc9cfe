"""Names that would steer a terminal, or turn what follows around, are escaped wherever they are shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from wattsched import InputError
from wattsched.cli import main
from wattsched.instances.generators import generate
from wattsched.plot.style import axes_for, save
from wattsched.reading.inputs import echo

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
ODD = "a\x1b[31m\x1b]0;x\x07\u202eb\x9b2J\u2066"
TURNING = "a\u202eb\u2066\u200f"
"""A name that files may hold: control characters are refused, and the refusal is shown, too."""


@pytest.fixture(params=[ODD, TURNING], ids=["refused", "kept"])
def instance(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    document = generate("uniform", jobs=4, seed=1).model_dump(mode="json")
    document["name"] = request.param
    for number, job in enumerate(document["jobs"]):
        job["name"] = f"{request.param}{number}"
    (tmp_path / "i.json").write_text(json.dumps(document))
    return tmp_path / "i.json"


@pytest.mark.parametrize(
    "words",
    [
        ["solve", "i.json"],
        ["solve", "i.json", "--report", "r.html"],
        ["solve", "i.json", "--objective", ODD],
        ["show", "i.json"],
        ["check", "i.json", "i.json"],
        ["compare", "i.json", "--solvers", "greedy,price", "-o", "out"],
        ["solve", f"no{ODD}.json"],
        ["slurm", "--shadow", "--snapshot", "i.json", "--power-w", "1"],
    ],
    ids=lambda words: " ".join(words).encode("ascii", "replace").decode(),
)
def test_names_do_not_steer(instance: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(instance.parent)
    found = CliRunner().invoke(main, words)
    assert not STEERING.search(found.output), found.output
    for file in (
        *instance.parent.glob("*.svg"),
        *instance.parent.glob("*.html"),
        *instance.parent.glob("out/*"),
    ):
        if file.is_file() and file.suffix not in (".json", ".png", ".parquet"):
            assert not STEERING.search(file.read_text(encoding="utf-8")), file


def test_names_in_a_plot_are_characters_of_xml(tmp_path: Path) -> None:
    axes = axes_for(None)
    axes.set_title(ODD)
    save(axes, tmp_path / "p.svg")
    ElementTree.parse(tmp_path / "p.svg")
    assert not STEERING.search((tmp_path / "p.svg").read_text())


def test_what_is_said_of_a_text_is_printable() -> None:
    """Faults go to terminals, to logs, into comments of Slurm and events of Kubernetes."""
    assert not STEERING.search(echo(ODD))
    assert not STEERING.search(str(InputError([f"{ODD}: is not a known field"], "file")))

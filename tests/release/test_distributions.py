"""What is released can be built, installed and used, by itself and with its extras.

Packages come from wherever pip is told to get them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wattsched.environment.extras import EXTRAS, missing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
DATA = (
    *("py.typed", "perfmodels/catalogue.json", "report/html/page.html.jinja", "report/html/page.css"),
    *(f"library/{name}" for name in ("instances.json", "best_known.json", "results.zip")),
)
LEFT_OUT = ("tests", "benchmarks", "docs", "examples", "deploy")
LIST = "job,arrival,duration,gpus\na,0,100,2\nb,10,200,1\n"


@dataclass(frozen=True)
class Built:
    """A source distribution, the wheel that was made of it, and one of the checkout."""

    source: Path
    wheel: Path
    direct: Path


def built(*arguments: object) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", *map(str, arguments)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    built("--outdir", folder)
    built("--wheel", "--outdir", folder / "direct")
    [source], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    [direct] = (folder / "direct").glob("*.whl")
    return Built(source, wheel, direct)


class Place:
    """An environment of its own in a folder outside the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)

    def run(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run one of its programs there, without what tests add to the environment."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [str(self.folder / "venv" / "bin" / program), *map(str, arguments)]
        return subprocess.run(
            command, cwd=self.folder, env=known, capture_output=True, text=True, check=False
        )

    def install(self, what: str) -> None:
        done = self.run("pip", "install", "--quiet", "--no-compile", "-c", CONSTRAINTS, what)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def place(distributions: Built, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where the wheel is installed, without extras."""
    made = Place(tmp_path_factory.mktemp("user"))
    made.install(str(distributions.wheel))
    (made.folder / "jobs.csv").write_text(LIST)
    done = made.run("wattsched", "generate", "hetero", "--jobs", 8, "-o", "round.json")
    assert done.returncode == 0, done.stderr
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_the_package_and_nothing_else(distributions: Built, metadata: dict[str, Any]) -> None:
    found = contents(distributions.wheel)
    tops = {name.partition("/")[0] for name in found}
    own = metadata["project"]["version"]
    assert tops == {"wattsched", f"wattsched-{own}.dist-info"}
    parts = {name.split("/")[1] for name in found if name.startswith("wattsched/")}
    assert not parts & set(LEFT_OUT)
    assert {f"wattsched/{name}" for name in DATA} <= set(found)
    assert f"wattsched-{own}.dist-info/licenses/LICENSE" in found


def test_the_wheel_has_every_file_of_the_checkout(distributions: Built, metadata: dict[str, Any]) -> None:
    wheel = metadata["tool"]["hatch"]["build"]["targets"]["wheel"]
    expected = {
        f"{wheel['sources'][part]}/{path.relative_to(ROOT / part)}"
        for part in wheel["only-include"]
        for path in (ROOT / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in contents(distributions.wheel) if ".dist-info/" not in name} == expected


def test_of_the_source_distribution_comes_the_same_wheel(distributions: Built) -> None:
    assert contents(distributions.wheel) == contents(distributions.direct)


def test_the_source_distribution_can_be_tested(distributions: Built) -> None:
    with tarfile.open(distributions.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "README.md", "LICENSE", "tests/conftest.py"} <= names
    assert {
        "examples/demo.json",
        "docs/index.md",
        "benchmarks/harness.py",
        ".github/workflows/ci.yml",
    } <= names
    assert not {name for name in names if name.startswith((".venv", ".git/", "dist", "shared"))}


def test_what_is_installed_solves(place: Place, metadata: dict[str, Any]) -> None:
    own = metadata["project"]["version"]
    assert place.run("wattsched", "--version").stdout == f"wattsched {own}\n"
    done = place.run("wattsched", "solve", "round.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["termination"]["reason"] == "optimal"
    (place.folder / "elsewhere").mkdir()
    script = "import os; os.chdir('elsewhere'); import wattsched; print(wattsched.__version__)"
    assert place.run("python", "-c", script).stdout == f"{own}\n"


NEEDING = {
    "cluster": ("compare", "round.json", "--solvers", "greedy", "--dask", "local:1"),
    "kubernetes": ("kubernetes", "--shadow", "--once", "--power-w", 9500, "--kubeconfig", "none"),
    "parquet": ("convert", "round.json", "-o", "round.parquet"),
    "plot": ("replay", "jobs.csv", "--policy", "fifo", "--plot", "replay.png"),
    "report": ("solve", "round.json", "--report", "report.html"),
    "serve": ("serve", "none/none/journal"),
}
"""Commands that need an extra. Two end with an error also with it, another one: nothing is there to serve."""


def test_what_is_missing_is_said_in_a_sentence_and_works_once_it_is_there(place, distributions, monkeypatch):
    assert set(NEEDING) == set(EXTRAS)
    with monkeypatch.context() as patch:
        patch.setattr("wattsched.environment.extras.find_spec", lambda name: None)
        told = {extra: missing(extra) for extra in EXTRAS}
    for extra, command in NEEDING.items():
        done = place.run("wattsched", *command)
        assert done.returncode == 2, extra
        assert done.stderr.startswith("error: "), extra
        assert done.stderr.endswith(f" needs {told[extra]}\n"), extra
        assert done.stderr.count("\n") == 1 or extra == "plot", extra
    place.install(f"{distributions.wheel}[{','.join(EXTRAS)}]")
    for extra, command in NEEDING.items():
        done = place.run("wattsched", *command)
        assert "not installed" not in done.stderr, extra
        assert done.returncode == {"kubernetes": 4, "serve": 2}.get(extra, 0), done.stderr

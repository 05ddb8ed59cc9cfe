"""What stands in several files of the project is the same in all of them, and what they name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

import wattsched
from wattsched.environment.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
PLACEHOLDER, MARK = "example.invalid", "PLACEHOLDER"
IMAGE = re.compile(r"wattsched:(\d[\w.]*)")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read(name: str) -> Any:
    return yaml.safe_load(text_of(name))


def test_the_version_is_that_of_the_metadata(metadata: dict[str, Any]) -> None:
    assert wattsched.__version__ == version("wattsched") == metadata["project"]["version"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "wattsched", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"wattsched {wattsched.__version__}\n"


def test_nothing_quick_reads_the_metadata() -> None:
    script = "import sys, wattsched.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert not {"importlib.metadata", "wattsched.environment.version"} & set(done.stdout.split())


def test_every_file_tells_this_version(metadata: dict[str, Any]) -> None:
    own = metadata["project"]["version"]
    assert read("CITATION.cff")["version"] == own
    for name in (
        "Dockerfile",
        "docs/commands.md",
        "deploy/deployment.yaml",
        "deploy/agent.yaml",
        "docs/kubernetes.md",
    ):
        assert set(IMAGE.findall(text_of(name))) == {own}, name
    assert f"## [{own}]" in text_of("CHANGELOG.md")


def test_extras_are_those_of_the_messages(metadata: dict[str, Any]) -> None:
    extras = metadata["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"bench", "dev", "docs"}
    for extra, modules in EXTRAS.items():
        stated = {re.split(r"[^\w-]", one)[0].replace("-", "_") for one in extras[extra]}
        assert set(modules) <= stated, extra


def test_the_workflow_runs_the_commands_of_the_readme_on_every_python(metadata: dict[str, Any]) -> None:
    workflow = read(".github/workflows/ci.yml")
    assert list(workflow["jobs"]) == ["test"]
    job = workflow["jobs"]["test"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    said = re.search(r"## Try it.*?```console\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert said is not None
    assert commands == [
        *(line.partition("#")[0].strip() for line in said[1].splitlines()),
        "make check",
        "make dist",
    ]
    targets = re.findall(r"^([\w-]+):", text_of("Makefile"), re.MULTILINE)
    assert {command.removeprefix("make ") for command in commands} <= set(targets)
    pythons = [f"Programming Language :: Python :: {one}" for one in job["strategy"]["matrix"]["python"]]
    stated = [one for one in metadata["project"]["classifiers"] if "Python ::" in one]
    assert pythons == stated
    assert metadata["project"]["requires-python"] == f">={job['strategy']['matrix']['python'][0]}"


@pytest.mark.parametrize("python", ["python3.12", "nonsense"])
def test_make_takes_the_python_of_the_environment(python: str) -> None:
    done = subprocess.run(
        ["make", "--silent", "--dry-run", "--always-make", ".venv/bin/python"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHON": python},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'"{python}" -m venv' in done.stdout


def test_the_image_has_extras_that_there_are_and_all_that_is_built() -> None:
    """No daemon is needed to see what would be copied, and installed."""
    [installed] = re.findall(r"'/src\[([\w,]+)\]'", text_of("Dockerfile"))
    assert set(installed.split(",")) == set(EXTRAS)
    kept = {line[1:] for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)


def test_the_build_copies_every_part_of_the_package(metadata: dict[str, Any]) -> None:
    parts = set(metadata["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    kept = {line[1:] for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    needed = {"pyproject.toml", "constraints.txt", metadata["project"]["readme"]}
    assert kept == parts | needed | set(metadata["project"]["license-files"])


def test_hooks_run_what_is_installed_and_pinned() -> None:
    """Nothing is fetched: the hooks are local, and their ruff is that of `make lint`."""
    [repository] = read(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    lint = text_of("Makefile")
    for hook in repository["hooks"]:
        program, *words = hook["entry"].split()
        assert (program, hook["language"]) == (".venv/bin/ruff", "system")
        assert f"$(BIN)/ruff {words[0]}" in lint
    assert re.search(r"^ruff==", text_of("constraints.txt"), re.MULTILINE)


def test_who_cites_it_finds_what_is_needed() -> None:
    """The keys that the Citation File Format 1.2.0 asks for, and no others than it knows."""
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    known = {"cff-version", "message", "title", "authors", "type", "abstract", "version", "license"}
    assert set(citation) <= known | {"keywords", "repository-code", "doi", "date-released", "url"}
    assert citation["authors"]
    assert all({"name"} <= set(one) or {"family-names"} <= set(one) for one in citation["authors"])


def test_what_only_the_owner_can_fill_in_is_marked() -> None:
    """Every file with a placeholder says so, and CONTRIBUTING lists it."""
    places = [*ROOT.glob("*.*"), *(ROOT / ".github").rglob("*.*"), *(ROOT / "deploy").glob("*")]
    found = [path for path in places if path.is_file() and PLACEHOLDER in path.read_text(encoding="utf-8")]
    for path in found:
        assert MARK in path.read_text(encoding="utf-8"), path.name
        assert f"`{path.relative_to(ROOT)}`" in text_of("CONTRIBUTING.md")


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_forms_of_issues_are_forms(form: Path) -> None:
    """As GitHub asks: a name, a description, and fields with an id and a label each."""
    said = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(said)
    names = [field["id"] for field in said["body"]]
    assert len(set(names)) == len(names) > 0
    for field in said["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes")
        assert field["attributes"]["label"]


def test_there_are_forms_for_faults_questions_and_proposals() -> None:
    assert [path.stem for path in FORMS] == ["bug", "proposal", "question"]

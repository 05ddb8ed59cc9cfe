"""Files of problems with decisions of their own follow the schemas that are printed for them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from .conftest import Run


@pytest.mark.parametrize("problem", ["sizing", "shifting", "sharing", "placement"])
def test_files_follow_the_schemas_of_their_problem(run: Run, tmp_path: Path, problem: str) -> None:
    instance = tmp_path / "instance.json"
    family, other = ("uniform", "sharing") if problem == "sizing" else (problem, "sizing")
    run("generate", family, "--jobs", 3, "-o", instance, code=0)
    rule = {"sharing": "eaco"}.get(problem, "greedy")
    result = json.loads(run("solve", instance, "--solver", rule, "--json").stdout)
    assert result["decision"] is not None
    for document, content in (("instance", json.loads(instance.read_text())), ("result", result)):
        schema = json.loads(run("schema", document, "--problem", problem).stdout)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(content, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(content | {"problem": other}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(result | {"decision": {"jobs": 3}}, schema)

"""``wattsched schema``: the JSON Schemas of the file formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import click

from wattsched.cli.failures import BadInput
from wattsched.cli.files import output_option, write

if TYPE_CHECKING:
    from pydantic import BaseModel

DRAFT = "https://json-schema.org/draft/2020-12/schema"


@click.command("schema")
@click.argument("document", type=click.Choice(["instance", "result", "frontier"]), default="instance")
@click.option(
    "--problem",
    type=click.Choice(["sizing", "shifting", "sharing"]),
    default="sizing",
    show_default=True,
    help="The problem that the file is of.",
)
@output_option(".json", help="The schema file (default: standard output).")
def command(document: str, problem: str, output: str | None) -> None:
    """Print the JSON Schema of an instance (default), a result, or a frontier of shifting."""
    if document == "frontier" and problem != "shifting":
        raise BadInput(f"frontier: is of --problem shifting, not {problem}")
    schema = _of_sizing(document) if problem == "sizing" else _of_plan(document, problem)
    write(output, json.dumps(schema, indent=2) + "\n")


def _of_sizing(document: str) -> dict[str, Any]:
    from wattsched.instances.io import instance_schema
    from wattsched.result import Result

    if document == "instance":
        return instance_schema()
    return {"$schema": DRAFT, "$id": "wattsched-result/1", **Result.model_json_schema()}


def _of_plan(document: str, problem: str) -> dict[str, Any]:
    model = {"instance": _instance_model, "result": _result_model, "frontier": _frontier_model}[document](
        problem
    )
    return {"$schema": DRAFT, "$id": f"wattsched-{document}/1/{problem}", **model.model_json_schema()}


def _instance_model(problem: str) -> type[BaseModel]:
    from wattsched.instances.problems import instance_model_of

    return instance_model_of(problem)


def _frontier_model(problem: str) -> type[BaseModel]:
    """Frontiers whose results are of the problem."""
    from pydantic import create_model

    from wattsched.frontier_result import FrontierPoint, FrontierResult

    fields: dict[str, Any] = {"result": (_result_model(problem), ...)}
    point = create_model("FrontierPoint", __base__=FrontierPoint, __doc__=FrontierPoint.__doc__, **fields)
    points: dict[str, Any] = {"points": (list[point], ...)}  # type: ignore[valid-type]  # a type made here
    doc = FrontierResult.__doc__
    return create_model("FrontierResult", __base__=FrontierResult, __doc__=doc, **points)


def _result_model(problem: str) -> type[BaseModel]:
    """Results whose decisions are of the problem; the class of all of them leaves decisions open."""
    from pydantic import create_model

    from wattsched.instances.problems import decision_model_of, senses_of
    from wattsched.plan_result import PlanResult

    fields: dict[str, Any] = {
        "problem": (Literal[problem], ...),
        "objective_name": (Literal[tuple(senses_of(problem))], ...),
        "decision": (decision_model_of(problem) | None, None),
    }
    name = f"{problem.title()}Result"
    return create_model(name, __base__=PlanResult, __doc__=PlanResult.__doc__, **fields)

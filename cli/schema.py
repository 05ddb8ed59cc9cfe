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


def _one_of_problems(ctx: click.Context, param: click.Parameter, name: str) -> str:
    from wattsched.problems import PROBLEMS

    if name not in PROBLEMS:
        raise click.BadParameter(f"'{name}' is not one of {', '.join(PROBLEMS)}", ctx, param)
    return name


@click.command("schema")
@click.argument("document", type=click.Choice(["instance", "result", "frontier"]), default="instance")
@click.option(
    "--problem",
    default="sizing",
    show_default=True,
    metavar="NAME",
    callback=_one_of_problems,
    help="The problem that the file is of.",
)
@output_option(".json", help="The schema file (default: standard output).")
def command(document: str, problem: str, output: str | None) -> None:
    """Print the JSON Schema of an instance (default), a result, or a frontier of shifting."""
    from wattsched.problems import problem as find_problem

    rules = find_problem(problem)
    if document == "frontier" and not rules.traces_pareto:
        raise BadInput(f"frontier: is of --problem shifting, not {problem}")
    models = {"instance": _instance, "result": _result, "frontier": _frontier}
    model = models[document](rules)
    name = model.model_fields["format"].default
    schema = {"$schema": DRAFT, "$id": f"{name}/{problem}", **model.model_json_schema()}
    write(output, json.dumps(schema, indent=2) + "\n")


def _instance(rules: Any) -> type[BaseModel]:
    model: type[BaseModel] = rules.instance
    return model


def _result(rules: Any) -> type[BaseModel]:
    """Results whose decisions are of the problem; the class of all of them leaves decisions open."""
    from pydantic import create_model

    from wattsched.result import Result

    fields: dict[str, Any] = {
        "problem": (Literal[rules.name], ...),
        "objective_name": (Literal[tuple(rules.objectives)], ...),
        "decision": (rules.decision | None, None),
    }
    return create_model(f"{rules.name.title()}Result", __base__=Result, __doc__=Result.__doc__, **fields)


def _frontier(rules: Any) -> type[BaseModel]:
    """Frontiers whose results are of the problem."""
    from pydantic import create_model

    from wattsched.tradeoffs import ParetoPoint, ParetoResult

    fields: dict[str, Any] = {"result": (_result(rules), ...)}
    point = create_model("ParetoPoint", __base__=ParetoPoint, __doc__=ParetoPoint.__doc__, **fields)
    points: dict[str, Any] = {"points": (list[point], ...)}  # type: ignore[valid-type]  # a type made here
    return create_model("ParetoResult", __base__=ParetoResult, __doc__=ParetoResult.__doc__, **points)

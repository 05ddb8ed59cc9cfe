"""``wattsched show``: an instance or a result in words."""

from __future__ import annotations

from importlib import import_module

import click

from wattsched.cli.files import answer_of, is_answer, read_document, shown
from wattsched.cli.frontier import frontier_of, is_frontier, print_frontier


@click.command("show")
@click.argument("file")
def command(file: str) -> None:
    """Describe FILE, an instance, a result or a frontier ('-' is standard input)."""
    document = read_document(file)
    if is_frontier(document):
        print_frontier(frontier_of(document, shown(file)))
        return
    from wattsched.cli.plans import is_plan_answer, plan_answer_of, print_plan
    from wattsched.cli.terminal import console

    if is_plan_answer(document):
        print_plan(console(), plan_answer_of(document, shown(file)))
        return
    if not is_answer(document):
        from wattsched.cli.overview import print_instance
        from wattsched.instances.problems import any_instance_of

        instance = any_instance_of(document, source=shown(file))
        if instance.problem == "sizing":
            print_instance(console(), instance)
        else:
            overview = import_module(f"wattsched.cli.{instance.problem}_table").print_instance
            overview(console(), instance)
        return
    from wattsched.cli.decision_table import print_decision
    from wattsched.cli.summary import print_result
    from wattsched.instances.sizing.decision import Decision

    answer = answer_of(document, shown(file))
    if isinstance(answer, Decision):
        print_decision(console(), answer)
    else:
        print_result(console(), answer)

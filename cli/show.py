"""``wattsched show``: an instance or a result in words."""

from __future__ import annotations

import click

from wattsched.cli.files import read_document, shown


@click.command("show")
@click.argument("file")
def command(file: str) -> None:
    """Describe FILE, an instance, a result, a frontier or a bare decision ('-' is standard input)."""
    from wattsched.cli.tables.pareto import print_pareto
    from wattsched.documents import decision_of, instance_of, is_decision, is_result, result_of
    from wattsched.report.summary import print_result
    from wattsched.report.terminal import console
    from wattsched.report.views import view
    from wattsched.tradeoffs import is_pareto, pareto_of

    document, out = read_document(file), console()
    if is_pareto(document):
        print_pareto(out, pareto_of(document, shown(file)))
    elif is_result(document):
        print_result(out, result_of(document, shown(file)))
    elif is_decision(document):
        problem, decision = decision_of(document, shown(file))
        view(problem).print_decision(out, decision, None)
    else:
        instance = instance_of(document, source=shown(file))
        view(instance.problem).print_instance(out, instance)

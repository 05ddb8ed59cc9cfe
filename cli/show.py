"""``wattsched show``: an instance or a result in words."""

from __future__ import annotations

import click

from wattsched.cli.files import answer_of, is_answer, read_document, shown


@click.command("show")
@click.argument("file")
def command(file: str) -> None:
    """Describe FILE, an instance or a result ('-' is standard input)."""
    document = read_document(file)
    from wattsched.cli.terminal import console

    if not is_answer(document):
        from wattsched.cli.overview import print_instance
        from wattsched.instances.files import instance_of

        print_instance(console(), instance_of(document, source=shown(file)))
        return
    from wattsched.cli.decision_table import print_decision
    from wattsched.cli.summary import print_result
    from wattsched.instances.decision import Decision

    answer = answer_of(document, shown(file))
    if isinstance(answer, Decision):
        print_decision(console(), answer)
    else:
        print_result(console(), answer)

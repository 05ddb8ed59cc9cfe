"""``python -m wattsched``, and the ``wattsched`` command."""


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends it like any other."""
    try:
        from wattsched.cli import main as command_line

        command_line(prog_name="wattsched")
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()

"""``python -m wattsched``: the same as the ``wattsched`` command."""

from wattsched.cli import main

if __name__ == "__main__":
    main(prog_name="wattsched")

"""``python -m wattsched``, and the ``wattsched`` command."""

import os
import signal

from wattsched.environment.interrupts import interrupted, watch_interrupts


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends it like any other."""
    # Nothing here multiplies dense matrices: OpenBLAS's threads would only take memory.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        watch_interrupts()
        from wattsched.cli import main as command_line

        command_line(prog_name="wattsched")
    except (KeyboardInterrupt, Exception) as error:  # libraries make errors of their own of it
        if isinstance(error, KeyboardInterrupt) or interrupted():
            raise SystemExit(130) from None
        raise
    finally:
        # All work is done, or given up: what the interpreter still does is not to be interrupted.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()

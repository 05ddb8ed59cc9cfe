"""The other side of `campaign`: ``python -m wattsched.replay.placement.campaign_process``."""

from __future__ import annotations

import os
import pickle
import sys
import traceback

from wattsched.replay.placement.campaign import Pair
from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment, run


def main() -> None:
    """Run the pairs that come by standard input; write the curves, or what was raised, to standard output."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries may print
    try:
        experiment, share = pickle.load(sys.stdin.buffer)
        for pair in share:
            pickle.dump(_answer(experiment, pair), out, protocol=5)
            out.flush()
    except (EOFError, pickle.UnpicklingError, BrokenPipeError):
        # The caller is gone, so nobody needs an answer.
        os._exit(1)


def _answer(experiment: Experiment, pair: Pair) -> Curves | Exception:
    try:
        return run(experiment, *pair)
    except Exception as error:
        error.add_note(traceback.format_exc())
        return error


if __name__ == "__main__":
    main()

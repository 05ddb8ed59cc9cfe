"""`powerflow` and `greenflow`: how PowerFlow and GreenFlow choose GPU counts and clocks in a replay.

Both are PowerFlow's ratio rule on the program of `sizing` (`solvers.powerflow`): every job's GPU count, batch
size and clock change, by relative time saved per relative energy spent, until the GPUs or the round's budget
are used up. How the publications (Gu et al., arXiv 2304.06381, 2023; Gu et al., IEEE TPDS 36(2), 2025) spread
a budget over time is not known. Here `powerflow` spends what is left evenly in watts, and `greenflow` in
proportion to time, so that its watts follow the price or the carbon intensity of the moment.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from wattsched.formulations.timer import Timer
from wattsched.replay.jobs.policies.rounds import RoundOptions, efficient
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.solvers.powerflow import choose


class PowerFlow:
    """Relative time saved per relative energy spent.

    Parameters
    ----------
    name : str
        For messages.
    within : str
        What of the `Allowance` the cluster may draw in a round.
    """

    def __init__(self, context: PolicyContext, name: str = "powerflow", within: str = "even_w") -> None:
        self.restart_s = context.restarts.process_s
        self._rows = efficient(context.trace)
        self._context, self._name, self._within = context, name, within

    def decide(self, state: State) -> Decision:
        """Apply the rule."""
        options = RoundOptions.of(state, self._rows, max(self._context.round_s, 1.0))
        most_w, again_s = np.inf, np.inf
        if state.allowance is not None:
            most_w = getattr(state.allowance, self._within)
            again_s = self._context.next_review_s(state.time_s)
        point, detail, _ = choose(options.program(options.completion_s, most_w=most_w), Timer(None))
        if point is None:
            raise ValueError(f"policy '{self._name}': {detail}")
        return Decision(options.chosen(point), again_s=again_s)


greenflow = partial(PowerFlow, name="greenflow", within="in_proportion_w")

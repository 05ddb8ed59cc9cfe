"""`powerflow`: PowerFlow's ratio rule on the sizing program of every round (`solvers.powerflow`)."""

from __future__ import annotations

from wattsched.replay.jobs.menus import fastest
from wattsched.replay.jobs.policies.rounds import columns_of, program_of
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.solvers.powerflow import solve
from wattsched.solvers.solution import Limits


class PowerFlow:
    """Relative time saved per relative energy spent, GPU counts only, without a budget."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s
        self._counts = fastest(setting.trace.menus, setting.trace.menus.standard)
        self._wait_s = max(setting.round_s, 1.0)

    def decide(self, view: View) -> Decision:
        """Apply the rule."""
        columns = columns_of(view, self._counts, self._wait_s)
        program = program_of(view, columns, columns.completion_s)
        solution = solve(program, Limits())
        if solution.x is None:
            raise ValueError(f"policy 'powerflow': {solution.termination.detail}")
        return Decision(columns.chosen(solution.x))

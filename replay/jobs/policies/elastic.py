"""`elastic`: the sizing program, solved whenever a job arrives or ends, restart costs included."""

from __future__ import annotations

from wattsched.replay.jobs.menus import fastest
from wattsched.replay.jobs.policies.round_solver import RoundSolver
from wattsched.replay.jobs.policies.rounds import columns_of, program_of
from wattsched.replay.jobs.policies.worth import Worth, rank
from wattsched.replay.jobs.policy import Decision, Setting, View


class Elastic:
    """Chooses every job's GPU count anew, at default batch size, clock and power limit.

    Parameters
    ----------
    worth : callable
        What a round minimises, see `worth`.
    solver : str
        Solver of the registry that closes the gap where the rule leaves more than `Setting.gap`.
    """

    def __init__(self, setting: Setting, worth: Worth = rank, solver: str = "auto") -> None:
        self.restart_s = setting.restarts.process_s
        self._counts = fastest(setting.trace.menus, setting.trace.menus.standard)
        self._wait_s = max(setting.round_s, 1.0)
        self._worth = worth
        self._solver = RoundSolver("elastic", solver, setting.gap)

    def decide(self, view: View) -> Decision:
        """Solve the round to the gap asked for."""
        columns = columns_of(view, self._counts, self._wait_s)
        return self._solver.decide(columns, program_of(view, columns, self._worth(view, columns)))

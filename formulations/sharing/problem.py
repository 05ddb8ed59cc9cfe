"""`sharing` as the engine sees it."""

from __future__ import annotations

from wattsched.formulations.problem import Problem
from wattsched.formulations.sharing import matching, patterns
from wattsched.formulations.sharing.heuristics import eaco, fifo, fifo_packed, gandiva
from wattsched.instances.sharing.instance import OBJECTIVES
from wattsched.verification.sharing.bound import prove
from wattsched.verification.sharing.checker import check

PROBLEM = Problem(
    name="sharing",
    formulations={"patterns": patterns.build, "matching": matching.build},
    objectives=OBJECTIVES,
    rules={"eaco": eaco, "fifo": fifo, "fifo-packed": fifo_packed, "gandiva": gandiva},
    check=check,
    prove=prove,
)

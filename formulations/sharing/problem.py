"""`sharing` as the engine sees it."""

from __future__ import annotations

from wattsched.formulations.problem import Problem
from wattsched.formulations.sharing import matching, patterns
from wattsched.formulations.sharing.eaco import eaco
from wattsched.formulations.sharing.fifo import fifo, fifo_packed
from wattsched.formulations.sharing.gandiva import gandiva
from wattsched.instances.sharing.certificate import prove
from wattsched.instances.sharing.checker import check
from wattsched.instances.sharing.instance import OBJECTIVES

PROBLEM = Problem(
    name="sharing",
    formulations={"patterns": patterns.build, "matching": matching.build},
    objectives=OBJECTIVES,
    rules={"eaco": eaco, "fifo": fifo, "fifo-packed": fifo_packed, "gandiva": gandiva},
    check=check,
    prove=prove,
)

"""What is short where prices prove that an instance has no decision."""

from __future__ import annotations

from collections.abc import Mapping

from wattsched.formulations.problem import Impossible
from wattsched.instances.shifting.certificate import BUDGETS, prove
from wattsched.instances.shifting.impossible import excess
from wattsched.instances.shifting.instance import ShiftingInstance

SCALES = (1e6, 1e3)
"""What prices are multiplied by: the dearer what is short, the less the objective blurs by how much."""


def impossible(instance: ShiftingInstance, prices: Mapping[str, float]) -> Impossible | None:
    """Proof that an instance has no decision, if prices give one.

    Parameters
    ----------
    prices : mapping of str to float
        As `wattsched.instances.shifting.certificate.prove` takes them.
    """
    for scale in SCALES:
        charged = {name: scale * price for name, price in prices.items() if price}
        bound = prove(instance, charged)
        if (over := excess(instance, charged, bound)) > 0:
            return Impossible(charged, bound, _short(charged, over))
    return None


def _short(prices: Mapping[str, float], over: float) -> str:
    """What of each budget is missing if no other limit is changed, or which pools are too small."""
    budgets = [
        f"{BUDGETS[name]} is short by at least {-over / price:.6g}"
        for name, price in prices.items()
        if name in BUDGETS
    ]
    pools = dict.fromkeys(n.removeprefix("gpus:").rpartition("@")[0] for n in prices if n not in BUDGETS)
    if not budgets:
        return f"the GPUs of {', '.join(pools)} are too few for the work that must end in time"
    return " or ".join(budgets) + (" with these GPUs" if pools else "")

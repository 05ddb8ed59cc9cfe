"""Certificate trees of any shape whose splits count, and answers that are proven in full."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from wattsched.results.documents import verdict_on
from wattsched.results.result import Result
from wattsched.verification.verdict import Verdict

FACTORS = st.sampled_from([1.0, 1.0, 1.0, 0.0, 0.9, 1.1])


@st.composite
def counting_trees(
    draw: st.DrawFn,
    splits: st.SearchStrategy[dict[str, Any]],
    prices: st.SearchStrategy[dict[str, float]],
    sense: str,
    scale: float,
) -> list[dict[str, Any]]:
    """Trees of up to 13 nodes; leaves price some of the splits above, by the signs that their sides allow."""
    nodes: list[dict[str, Any]] = [{}]
    above: list[list[tuple[int, bool]]] = [[]]
    for number in range(6):
        if number < len(nodes) and draw(st.booleans()):
            children = {"inside": len(nodes), "outside": len(nodes) + 1}
            nodes[number] = {"split": draw(splits), **children}
            nodes += [{}, {}]
            above += [[*above[number], (number, inside)] for inside in (True, False)]
    sign = -1.0 if sense == "min" else 1.0
    for node, sides in zip(nodes, above, strict=True):
        if not node:
            node["prices"] = draw(prices)
            for number, inside in sides:
                size = scale * draw(st.sampled_from([0.0, 0.1, 1.0, 3.0, 1e6]))
                node["prices"][f"split:{number}"] = sign * size if inside else -sign * size
    return nodes


@st.composite
def disturbed(draw: st.DrawFn, tree: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A tree that proves something, with other prices of the same signs, and other limits of its counts."""
    nodes = []
    for node in tree:
        if node.get("split") is not None:
            most = max(0, node["split"]["at_most"] + draw(st.sampled_from([0, 0, -1, 1])))
            nodes.append({**node, "split": {**node["split"], "at_most": most}})
        else:
            prices = {name: price * draw(FACTORS) for name, price in node["prices"].items()}
            nodes.append({**node, "prices": prices})
    return nodes


def require_proven(instance: Any, result: Result, gap: float, nothing: float = 1e-12) -> Verdict:
    """Require that an answer passes, and is proven to a gap that was asked for."""
    verdict = verdict_on(instance, result.model_dump(mode="json"))
    assert not verdict.faults
    assert verdict.proof is not None
    assert verdict.proof.bound is not None
    assert result.objective is not None
    allowed = (gap + 2e-9) * abs(result.objective) + nothing
    assert abs(result.objective - verdict.proof.bound) <= allowed
    return verdict

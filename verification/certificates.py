"""Proofs that the certificate of a result leads to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattsched.verification.report import CLAIM_TOLERANCE as TOLERANCE
from wattsched.verification.report import Proof, is_finite, number
from wattsched.verification.tree import ProveLeaf, prove_tree


def self_evident(prove: ProveLeaf) -> Proof | None:
    """Return the proof, without prices, that some job can neither run nor wait; None if there is none."""
    proof = prove({}, ())
    return proof if proof.excess > 0 else None


def proofs_of(prove: ProveLeaf, sense: str, certificate: Any) -> dict[str, Proof]:
    """Return the proofs of a certificate, by the field that claims each, the best last."""
    prices = certificate.get("prices") if isinstance(certificate, dict) else None
    if not isinstance(prices, dict) or number(certificate, "bound") is None:
        return {"bound": Proof(["certificate: needs 'prices', an object, and 'bound', a finite number"])}
    by_prices = _require_finite(prove(prices, ()))
    if not (tree := certificate.get("tree")):
        fault = "certificate: 'price_bound' is what prices prove beside a tree, and there is none"
        return {"bound": by_prices if certificate.get("price_bound") is None else Proof([fault])}
    if not isinstance(tree, list) or number(certificate, "price_bound") is None:
        form = "a tree is a list of nodes, beside 'price_bound', a number"
        return {"bound": Proof([f"certificate: {form}"])}
    by_tree = _require_finite(prove_tree(prove, tree, sense))
    return {"price_bound": by_prices, "bound": by_tree}


def beyond_proof(proofs: Mapping[str, Proof], certificate: Any, sense: str) -> str | None:
    """Return what is wrong with the bounds that a certificate claims, None where its proofs reach them."""
    sign = 1.0 if sense == "min" else -1.0
    for field, proof in proofs.items():
        claimed, reach = number(certificate, field), proof.bound if proof.reach is None else proof.reach
        if proof.faults or claimed is None or reach is None:
            continue
        if sign * (claimed - reach) > TOLERANCE * abs(reach):
            return f"certificate: claims the {field} {claimed:.12g}, its prices prove {proof.bound:.12g}"
    return None


def _require_finite(proof: Proof) -> Proof:
    """Return the proof, or a fault where its bound is not finite though it does not prove infeasibility."""
    if not proof.faults and not is_finite(proof.bound) and not proof.excess > 0:
        return Proof([f"certificate: its prices lead to {proof.bound}, which proves nothing"])
    return proof

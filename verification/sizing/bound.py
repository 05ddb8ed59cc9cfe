r"""Proving the bound of a certificate again: row prices, and one pass over the options of every job.

Prices :math:`\lambda_r \ge 0` of the rows :math:`a_r x \le U^r` leave jobs that do not interact. Whatever the
prices are,

.. math:: L = \sum_j \min_{o \in O_j} \Big(c_{jo} + \sum_r \lambda_r a_{r,jo}\Big) - \sum_r \lambda_r U^r

is not above the cost of any decision. Rows that hold a set of jobs together are equalities: their prices have
either sign. A bottleneck objective minimises a variable :math:`z`, at least
:math:`z_0 = \max_j \min_o c_{jo}`, under rows :math:`c_j x_j \le z` with prices :math:`m_j`. With
:math:`s = \sum_j m_j`, and L as above but for :math:`m_j c_{jo}` in place of :math:`c_{jo}`, the bound is
:math:`L + (1 - s) z_0` when :math:`s \le 1`; otherwise all prices are divided by s, and it is :math:`L / s`.

No code of formulations, solvers, the options' arrays or the topology's pools takes part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from wattsched.instances.sizing.instance import Instance
from wattsched.verification.claims import is_finite
from wattsched.verification.interval import Enclosure, float_above, float_below
from wattsched.verification.report import Proof
from wattsched.verification.sizing.cluster import places_of
from wattsched.verification.sizing.configurations import Menus
from wattsched.verification.sizing.doubles import cheapest_in_doubles, in_range
from wattsched.verification.sizing.exact import cheapest_exactly
from wattsched.verification.sizing.outcomes import OBJECTIVES
from wattsched.verification.sizing.prices import BOTTLENECK, Row, Tariff, rows_of, tariff_of

EXACT_OPTIONS = 10_000
"""Rational arithmetic takes 40 to 100 microseconds for an option; larger rounds are proven in doubles."""

NEGLIGIBLE = 1e-40
"""Smaller prices, the dust of a solver, count as 0: prices may be chosen freely, these cannot matter."""

LARGEST_PRICE = 1e100
"""Larger prices leave the range of doubles when they are multiplied with uses, and prove nothing."""

CLAIM_TOLERANCE = 1e-9
"""By how much a claimed bound may exceed what is proven, relative to the numbers that it is the sum of."""


def prove(
    instance: Instance,
    prices: Mapping[str, object],
    *,
    exact: bool = False,
) -> Proof:
    """Bound on the instance's objective that row prices prove.

    Parameters
    ----------
    instance : Instance
        Validated, free of faults as `validity.faults_of` finds them, with a known objective.
    prices : mapping of str to number
        Derivative of the objective by the bound of a row: not positive for ``min``, not negative for ``max``.
        Of either sign for rows of sets, which are equalities. Rows that are not named have price 0.
    exact : bool
        Ask for rational arithmetic whatever it takes. Otherwise it is used for small rounds and for numbers
        near the ends of the range of doubles, and doubles with a bound on their rounding for the rest.
    """
    menus = Menus(instance, places_of(instance.cluster))
    rows = rows_of(instance, menus)
    sense = OBJECTIVES[instance.objective]
    charged, faults = _charged(prices, rows, sense)
    if faults:
        return Proof(faults)
    tariff = tariff_of(rows, charged, menus.places)
    try:
        for job in instance.jobs:
            if not menus.of(job).listed:
                raise ValueError(f"job '{job.name}' has no configuration that it could run as")
        exact = exact or _is_small(instance, menus) or not in_range(instance, menus, tariff)
        cheapest = cheapest_exactly if exact else cheapest_in_doubles
        total, worst, size = cheapest(instance, menus, tariff)
    except ValueError as error:
        return Proof([f"certificate: {error}"])
    bound = _bound(instance, tariff, total, worst)
    return _proof(bound, size + tariff.terms, tariff.leeway, sense, exact)


def _charged(
    prices: Mapping[str, object], rows: Mapping[str, Row], sense: str
) -> tuple[dict[str, Fraction], list[str]]:
    """What a unit of each row costs, and what is wrong with the prices."""
    charged: dict[str, Fraction] = {}
    faults = []
    for name, price in prices.items():
        told = f"certificate: the price {price!r:.40} of row '{name}'"
        if not is_finite(price):
            faults.append(f"{told} is not a finite number")
        elif abs(price) > LARGEST_PRICE:
            faults.append(f"{told} is beyond {LARGEST_PRICE:g}: it proves nothing")
        elif name not in rows:
            faults.append(f"{told} is of no row that this round has")
        elif rows[name].kind != "share" and ((price > 0) if sense == "min" else (price < 0)):
            wrong, right = ("positive", "min") if sense == "min" else ("negative", "max")
            faults.append(f"{told} is {wrong}: more of it cannot make a {right} objective worse")
        elif abs(price) >= NEGLIGIBLE:
            charged[name] = -Fraction(price) if sense == "min" else Fraction(price)
    return charged, faults


def _is_small(instance: Instance, menus: Menus) -> bool:
    sizes = (len(menus.of(job).listed) + len(menus.in_sets(job.name)) for job in instance.jobs)
    return sum(sizes) <= EXACT_OPTIONS


def _bound(instance: Instance, tariff: Tariff, total: Enclosure, worst: Enclosure) -> Enclosure:
    """Lower bound on the cost."""
    bound = total - tariff.capacity
    if instance.objective not in BOTTLENECK:
        return bound
    shares = sum(tariff.worst.values(), Fraction(0))
    if shares > 1:
        return bound * (1 / shares)
    rest = worst * (1 - shares)
    return Enclosure(bound.low + rest.low, bound.high + rest.high)


def _proof(bound: Enclosure, terms: Fraction, leeway: Fraction, sense: str, exact: bool) -> Proof:
    """What a bound proves; `terms` is the size of the numbers that it is the sum of."""
    size = max(Fraction(1, 10**6), abs(bound.high) + terms)
    reach = bound.high + Fraction(CLAIM_TOLERANCE) * size
    proven, honest = float_below(bound.low), float_above(reach)
    if sense == "max":
        proven, honest = -proven, -honest
    return Proof([], proven, honest, float_above(leeway), exact=exact)

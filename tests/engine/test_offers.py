"""Offers against every plan of tiny horizons, wishes against theirs, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wattsched
from tests.pages import pages_shifting as brute
from tests.strategies.shifting import tiny
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance
from wattsched.instances.signals import Signal
from wattsched.solving import offers
from wattsched.solving.offers import Offer
from wattsched.topology.fields import LARGEST

SAME = 1e-6
START = "2026-07-14T12:00Z"


def under(instance: ShiftingInstance, limit_w: list[float]) -> dict[str, Any]:
    """Document of an instance under a limit in each slot, infinite for none."""
    caps = [min(watts, LARGEST) for watts in limit_w]
    return instance.model_dump(mode="json", exclude_none=True) | {"power_w": caps}


def least_under(instance: ShiftingInstance, limit_w: list[float]) -> float | None:
    """Least average completion time of plans that draw no more in each slot; None without one."""
    document = under(instance, limit_w)
    best, _ = brute.optimum(document, brute.decisions(document))
    return None if best is None else float(best)


def horizon(seed: int, must_finish: bool = False) -> ShiftingInstance:
    """One of the tiny ones, for completion alone."""
    instance = tiny(seed)
    jobs = [job.model_copy(update={"must_finish": must_finish or job.must_finish}) for job in instance.jobs]
    free = {"budgets": HorizonBudgets(), "objective": "mean-completion", "jobs": jobs}
    return instance.model_copy(update=free)


@pytest.mark.parametrize("must_finish", [False, True])
@pytest.mark.parametrize("seed", [1, 4, 7, 8, 9, 11, 12])
def test_every_cut_loses_what_the_best_plan_under_it_loses(seed: int, must_finish: bool) -> None:
    instance = horizon(seed, must_finish)
    found = wattsched.offer(instance, 0.0, instance.begin_s[1:3].tolist(), points=3, gap=SAME)
    free = least_under(instance, [math.inf] * instance.slots)
    if free is None:
        assert found.termination.reason == "infeasible"
        assert found.cuts == []
        return
    assert found.plan.objective == pytest.approx(free, rel=SAME)
    most_w = drawn(instance, found)
    for slots in (1, 2):
        cuts = [cut for cut in found.cuts if cut.slots == slots]
        for cut in cuts:
            cut_w = [w - (cut.power_w or 0.0) for w in most_w[:slots]]
            best = least_under(instance, [*cut_w, *[math.inf] * (instance.slots - slots)])
            assert (best is None) == (cut.loss is None)
            if best is not None:
                assert cut.loss == pytest.approx(best - free, abs=SAME * free * 2)
                assert cut.least_loss <= best - free + SAME * free
        losses = [cut.loss for cut in cuts if cut.loss is not None]
        assert losses == sorted(losses)
        assert [cut.power_w for cut in cuts] == sorted(cut.power_w for cut in cuts)


def drawn(instance: ShiftingInstance, found: Offer) -> list[float]:
    """Watts of the first plan by slot, as the brute force counts them."""
    document = under(instance, [math.inf] * instance.slots)
    _, chosen = brute.totals_of(document, found.plan.decision.model_dump(mode="json"))
    idle_w = sum(pool.gpus * pool.idle_power_w for pool in instance.pools.values())
    return [idle_w + float(sum(each)) for each in zip(*(one.watts for one in chosen), strict=True)]


def one_job(**job: Any) -> ShiftingInstance:
    """A job of three hours at full watts on four slots of an hour."""
    table = {"pool": ["a"] * 2, "gpus": [2] * 2, "power_limit_w": [200.0, 400.0]}
    job = {"name": "j", "options": "t", "remaining_work": 3 * 3600.0, **job}
    document = {
        "problem": "shifting",
        "slots": 4,
        "pools": {"a": {"gpus": 2, "idle_power_w": 50.0}},
        "tables": {"t": {**table, "power_w": [400.0, 800.0], "rate": [0.5, 1.0]}},
        "jobs": [job],
    }
    return ShiftingInstance.model_validate(document)


def test_the_figures_of_a_cut_by_hand() -> None:
    """Half the watts for an hour: half an hour later, and 0.4 kWh less. The most is all beyond idle GPUs."""
    found = wattsched.offer(one_job(), 3600.0, [3600.0], points=7, gap=SAME)
    cuts = {round(cut.power_w): cut for cut in found.cuts}
    assert [*cuts] == [100, 200, 300, 400, 500, 600, 700]
    for watts, loss_s, kwh in (
        (100, 1800.0, 0.4),
        (400, 1800.0, 0.4),
        (500, 3600.0, 0.7),
        (700, 3600.0, 0.7),
    ):
        assert cuts[watts].loss == pytest.approx(loss_s)
        assert cuts[watts].not_drawn_j == pytest.approx(kwh * 3.6e6)
        assert cuts[watts].least_loss == pytest.approx(loss_s, rel=1e-3)


def test_the_most_that_can_be_kept_is_found_and_the_rest_refused_with_proof() -> None:
    """Three hours of work, an hour at half speed at most: a second hour below 800 W is one too many."""
    found = wattsched.offer(one_job(must_finish=True), 0.0, [7200.0], points=2, gap=SAME)
    kept = [cut.power_w for cut in found.cuts if cut.loss is not None]
    refused = [cut for cut in found.cuts if cut.loss is None]
    assert kept[-1] <= 400.0 < refused[0].power_w <= kept[-1] + 700 / 32
    assert all(cut.result.termination.reason == "infeasible" for cut in refused)


def test_what_a_wish_earns_and_costs() -> None:
    firm = {"from": "2026-07-14T12:00Z", "to": "2026-07-14T13:00Z", "power_w": 500.0}
    wish = {"from": "2026-07-14T14:00Z", "to": "2026-07-14T15:00Z", "power_w": 450.0, "worth_per_kwh": 0.5}
    later = wish | {"from": "2026-07-20T14:00Z", "to": "2026-07-20T15:00Z"}
    signal = Signal.model_validate({"limits": [firm, wish, later]})
    found = wattsched.offer(one_job(), signal=signal, start=START, gap=SAME)
    assert found.plan.objective == pytest.approx(3.5 * 3600)
    [taken] = found.cuts
    assert taken.wish == signal.limits[1]
    assert taken.not_drawn_j == pytest.approx(0.4 * 3.6e6)
    assert (taken.loss, taken.least_loss) == (pytest.approx(1800.0), pytest.approx(1800.0, rel=1e-3))


@pytest.mark.parametrize(
    ("begin", "end", "parts"), [("13:15", "14:30", [0.75, 0.5]), ("13:10", "13:20", [1 / 6])]
)
def test_a_wish_within_slots_is_paid_for_its_own_time(begin: str, end: str, parts: list[float]) -> None:
    """Its slots draw 0.4 kWh less each, of which the part from its begin to its end counts."""
    wish = {
        "from": f"2026-07-14T{begin}Z",
        "to": f"2026-07-14T{end}Z",
        "power_w": 450.0,
        "worth_per_kwh": 1.0,
    }
    signal = Signal.model_validate({"limits": [wish]})
    [cut] = wattsched.offer(one_job(must_finish=True), signal=signal, start=START, gap=SAME).cuts
    assert (cut.first_slot, cut.slots) == (1, len(parts))
    assert cut.not_drawn_j == pytest.approx(0.4 * 3.6e6 * sum(parts))


def test_a_wish_is_paid_for_all_of_its_time_also_under_lower_firm_limits() -> None:
    """By hand: without the wish both are slow, .6 kWh, then fast, .5; with it one is fast, .7 and .35 kWh."""
    options = {"gpus": [2, 2], "pool": ["a", "a"], "power_w": [300, 600], "rate": [0.6, 1.0]}
    jobs = [{"name": name, "options": "t", "remaining_work": 7200} for name in "xy"]
    site = {
        "problem": "shifting",
        "name": "two",
        "slots": 5,
        "slot_s": [3600, 3600, 1800, 1800, 3600],
        "pools": {"a": {"gpus": 4, "idle_power_w": 50}},
        "tables": {"t": options | {"power_limit_w": [150, 300]}},
        "jobs": jobs,
    }
    firm = {"from": "2026-07-14T13:00Z", "to": "2026-07-14T14:00Z", "power_w": 700.0}
    wish = {"from": "2026-07-14T13:00Z", "to": "2026-07-14T14:30Z", "power_w": 800.0, "worth_per_kwh": 1.0}
    signal = Signal.model_validate({"power_w": 1200.0, "limits": [firm, wish]})
    instance = ShiftingInstance.model_validate(site)
    [cut] = wattsched.offer(instance, signal=signal, start=START, gap=SAME).cuts
    assert (cut.first_slot, cut.slots) == (1, 2)
    assert cut.not_drawn_j == pytest.approx(0.05 * 3.6e6)


def test_slots_are_split_where_a_wish_begins_and_ends() -> None:
    """Half the watts for five quarters of an hour, in slots of an hour: as long later as half of that."""
    wish = {"from": "2026-07-14T13:15Z", "to": "2026-07-14T14:30Z", "power_w": 450.0, "worth_per_kwh": 1.0}
    lower = wish | {"from": "2026-07-14T14:45Z", "to": "2026-07-14T16:00Z", "power_w": 440.0}
    signal = Signal.model_validate({"limits": [wish, lower]})
    found = wattsched.offer(one_job(), signal=signal, start=START, shortest_slot_s=60.0, gap=SAME)
    assert found.slot_s == [3600.0, 900.0, 2700.0, 1800.0, 900.0, 900.0, 3600.0]
    first, second = found.cuts
    assert (first.first_slot, first.slots, second.first_slot, second.slots) == (2, 2, 5, 2)
    assert [first.not_drawn_j, second.not_drawn_j] == pytest.approx([0.5 * 3.6e6, (0.1 - 0.075) * 3.6e6])
    assert [first.loss, second.loss] == pytest.approx([2250.0, 900.0])


def test_a_wish_with_a_ramp_is_paid_for_its_own_time() -> None:
    """The cap stays low while the ramp rises in the slot after it, whose watts are none of the wish."""
    wish = {"from": "2026-07-14T13:00Z", "to": "2026-07-14T13:40Z", "power_w": 450.0, "worth_per_kwh": 1.0}
    signal = Signal.model_validate({"baseline_w": 800.0, "limits": [wish | {"ramp_w_per_s": 0.2}]})
    found = wattsched.offer(one_job(), signal=signal, start=START, shortest_slot_s=600.0, gap=SAME)
    begin_s = np.cumsum([0.0, *found.slot_s])
    assert {3600.0, 6000.0} <= {*begin_s.tolist()}
    [cut] = found.cuts
    assert cut.not_drawn_j == pytest.approx(400.0 * 2400.0)


def test_slots_of_ramps_do_not_count_again_for_every_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for slots of 1.5 s in the horizon as it came: its parts are not counted once more."""
    ramp = {"from": "2026-07-14T13:00Z", "power_w": 100.0, "ramp_w_per_s": 0.2}
    wish = {"from": "2026-07-14T12:15Z", "to": "2026-07-14T12:30Z", "power_w": 450.0, "worth_per_kwh": 1.0}
    signal = Signal.model_validate({"baseline_w": 800.0, "limits": [ramp, wish]})
    planned = list[ShiftingInstance]()

    def solve(instance: ShiftingInstance, **_: Any) -> None:
        planned.append(instance)
        raise StopIteration

    monkeypatch.setattr(offers, "solve", solve)
    with pytest.raises(StopIteration):
        wattsched.offer(one_job(), signal=signal, start=START, shortest_slot_s=1.5)
    [instance] = planned
    # The last part of the ramp goes on to the end of its hour, at the same watts.
    assert instance.slots == 3 + 2333 + 2
    assert instance.lengths_s.min() >= 1.5 * (1 - 1e-9)


def test_slots_are_cut_where_an_event_begins_and_ends() -> None:
    how = {"points": 1, "shortest_slot_s": 60.0, "gap": SAME}
    found = wattsched.offer(one_job(), 5400.0, [1800.0], **how)
    assert {(cut.first_slot, cut.slots) for cut in found.cuts} == {(2, 1)}
    assert found.slot_s[:3] == [3600.0, 1800.0, 1800.0]


@pytest.mark.parametrize(
    ("at_s", "lasts_s", "slots"),
    [
        (0.0, 60.0, range(1)),
        (60.0, 200.0, range(1, 2)),
        (60.0, 201.0, range(1, 3)),
        (59.0, 2.0, range(2)),
        (860.0, 10.0, range(3, 4)),
    ],
)
def test_an_event_takes_the_slots_that_it_touches(at_s: float, lasts_s: float, slots: range) -> None:
    instance = one_job(remaining_work=300.0).model_copy(update={"slot_s": [60.0, 200.0, 600.0, 700.0]})
    cuts = wattsched.offer(instance, at_s, [lasts_s], points=1, gap=SAME).cuts
    assert {(cut.first_slot, cut.slots) for cut in cuts} == {(slots.start, len(slots))}


def test_a_horizon_begins_at_a_time_with_a_zone() -> None:
    signal = Signal.model_validate({"power_w": 500.0})
    odd: list[tuple[Any, str]] = [
        ("2026-07-14T12:00", "start: must have a zone"),
        ("noon", "noon"),
        (5, "'5' is neither seconds since 1970 nor a date"),
    ]
    for start, told in odd:
        with pytest.raises(ValueError, match=told):
            one_job().under(signal, start)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ([], "a wish below"),
        (
            [{"from": "2026-07-14T12:00Z", "power_w": 9.0, "worth_per_kwh": 1.0, "domain": "feed"}],
            "there is none",
        ),
        ([{"from": "2026-07-20T12:00Z", "power_w": 9.0, "worth_per_kwh": 1.0}], "below its firm limits"),
    ],
)
def test_signals_without_a_wish_that_can_be_taken_are_refused(limits: list[Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        wattsched.offer(one_job(), signal=Signal.model_validate({"limits": limits}), start=START)


@pytest.mark.parametrize(("at_s", "lasts_s"), [(-1.0, 10.0), (3600.0, 4 * 3600.0), (0.0, 0.0)])
def test_events_beyond_the_horizon_are_refused(at_s: float, lasts_s: float) -> None:
    with pytest.raises(ValueError, match=r"^(at|lasts)_s: must be"):
        wattsched.offer(one_job(), at_s, [lasts_s])

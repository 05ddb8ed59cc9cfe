"""Profiles, gaps, prices, frontiers and curves of placement show the numbers that they are given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wattsched
from tests.strategies.effort import examples
from wattsched import plot
from wattsched.comparisons.compare import Comparison
from wattsched.comparisons.run import Run, Settings
from wattsched.comparisons.statistics import LEAST_GAP, MOST_GAP
from wattsched.results.result import Result, TerminationReport
from wattsched.solving.offers import Cut, Offer

from .cases import curves, outcome, saved, tradeoff

pytest.importorskip("matplotlib")

GAPS = st.one_of(st.just(0.0), st.floats(1e-12, 50.0), st.just(math.inf))


def shares(axes: Any, name: str, at: float) -> float:
    """What a line of steps says at a place, percent."""
    line = next(line for line in axes.lines if line.get_label() == name)
    x, y = line.get_data()
    return float(np.array(y)[np.searchsorted(np.array(x), at, side="right") - 1])


@settings(max_examples=examples(60))
@given(
    st.integers(1, 8).flatmap(
        lambda n: st.lists(st.lists(GAPS, min_size=n, max_size=n), min_size=1, max_size=4)
    )
)
def test_a_gap_profile_counts_the_instances_within_a_gap(table: list[list[float]]) -> None:
    found = {f"s{i}": {f"p{j}": gap for j, gap in enumerate(row)} for i, row in enumerate(table)}
    axes = plot.gap_profile(found, gap=1e-4)
    low, high = axes.get_xlim()
    assert low == 0.0
    for name, by_instance in found.items():
        values = list(by_instance.values())
        for at in (0.0, *(gap for gap in values if LEAST_GAP < gap < MOST_GAP)):
            within = sum(gap <= max(at, LEAST_GAP) for gap in values)
            assert shares(axes, name, at) == pytest.approx(100 * within / len(values))
        assert shares(axes, name, high) == pytest.approx(100 * sum(map(math.isfinite, values)) / len(values))
    cut = any(MOST_GAP <= gap < math.inf for row in table for gap in row)
    assert ("10 stands for more" in axes.get_xlabel()) == cut


def test_no_gap_is_drawn_as_none() -> None:
    """Not as 1e-9, which would stretch the axes."""
    axes = plot.gap_over_time({"price": ([0.5, 1.0, 2.0], [math.inf, 1e-3, 1e-13])})
    assert [y for y in axes.lines[0].get_ydata() if y == y] == [1e-3, 0.0, 0.0]
    assert axes.get_ylim()[0] == 0.0
    assert min(tick for tick in axes.get_yticks() if tick > 0) == pytest.approx(1e-4)
    profile = plot.gap_profile({"price": {"p": 0.0, "q": 0.02}})
    assert shares(profile, "price", 0.0) == 50.0
    assert min(tick for tick in profile.get_xticks() if tick > 0) == pytest.approx(1e-2)
    assert plot.gap_profile({"price": {"p": 0.0}}).get_xlim()[0] == 0.0


def test_what_solve_logs_is_a_course() -> None:
    lines: list[str] = []
    result = wattsched.solve(wattsched.generate("uniform", jobs=60, seed=3), solver="highs", log=lines.append)
    axes = plot.gap_over_time({"highs": lines})
    assert axes.lines[0].get_ydata()[-1] <= 1e-4 >= result.gap
    with pytest.raises(ValueError, match="found: lines of 'a': must be of a decision with a gap"):
        plot.gap_over_time({"a": ["    0.10 s  solver 'highs'"]})


def run_of(solver: str, instance: str, **known: Any) -> Run:
    names = {"key": "k", "content": "c", "formulation": "f", "objective_name": "goodput", "version": "1"}
    settings = {"gap_asked": 1e-3, "time_limit_s": 60.0, "threads": 1, "seed": 0, "checked": True}
    known = {"solver_status": known["status"], **known}
    return Run(**names, **settings | known, instance=instance, solver=solver)


def test_profiles_say_of_how_many_instances_under_which_limit_and_gap() -> None:
    runs = [
        run_of("highs", "p", status="optimal", solve_s=2.0, solver_gap=0.0),
        run_of("price", "p", status="optimal", solve_s=1.0, solver_gap=1e-4),
        run_of("highs", "q", status="feasible", solve_s=60.0, solver_gap=0.2),
        run_of("price", "q", status="optimal", solve_s=3.0, solver_gap=5e-4),
        run_of("cpsat", "q", status="skipped"),
    ]
    profile, ends = plot.performance_profile(runs), plot.gap_profile(runs)
    for axes in (profile, ends):
        assert axes.get_xlabel().endswith("2 instances, limit 60 s, gap 0.001")
        assert [line.get_label() for line in axes.lines] == ["f highs", "f price"]
    assert [shares(profile, name, 1.0) for name in ("f highs", "f price")] == [0.0, 100.0]
    assert [shares(profile, name, 2.0) for name in ("f highs", "f price")] == [50.0, 100.0]
    with pytest.raises(ValueError, match="found: must be with a run at least that was not skipped, got none"):
        plot.gap_profile(runs[-1:])
    again = [
        run_of("highs", "p", status="optimal", solve_s=2.0, solver_gap=0.0, seed=seed) for seed in (1, 2)
    ]
    assert "1 instance, 2 seeds, limit" in plot.gap_profile(again).get_xlabel()
    compared = wattsched.compare(
        wattsched.generate("uniform", jobs=3), settings=Settings(gap=0.01, time_limit_s=None)
    )
    assert plot.performance_profile(compared).get_xlabel().endswith("1 instance, gap 0.01")


def test_gaps_of_a_comparison_are_bands_over_its_runs() -> None:
    """The middle one of three runs is the line, and the last has no gap before 5 s."""
    known = {"status": "optimal", "objective": 1.0}
    runs = [
        run_of("highs", f"p{i}", trajectory=((0.1, 2.0, None), (begin_s, 2.0, 1.0), (9.0, 2.0, 2.0)), **known)
        for i, begin_s in enumerate((0.5, 1.0, 5.0))
    ]
    runs.append(run_of("cpsat", "p0", status="skipped"))
    axes = plot.gap_over_time(Comparison(Settings(), runs, 0, {}))
    (line,), (band,) = axes.lines, axes.collections
    when, gaps = line.get_xdata(), line.get_ydata()
    assert when.tolist() == [0.1, 0.5, 1.0, 5.0, 9.0]
    assert np.isnan(gaps[:2]).all()
    assert gaps[2:].tolist() == [0.5, 0.5, 0.0]
    top = max(y for x, y in band.get_paths()[0].vertices if x < 4.0)
    assert top == axes.get_ylim()[1]
    assert axes.get_xlabel().endswith("median and 10 to 90 % of 3 runs")
    nothing = run_of("highs", "p0", status="no_solution", solve_s=3.0)
    assert plot.gap_over_time(Comparison(Settings(), [nothing], 0, {})).get_xlim() == (1.0, 10.0)
    with pytest.raises(ValueError, match="a run at least that was not skipped"):
        plot.gap_over_time(Comparison(Settings(), runs[-1:], 0, {}))


def test_bands_go_from_the_least_to_the_most() -> None:
    axes = plot.placement_curves({"fgd": [curves(80.0), curves(90.0), curves(94.0)], "pwr": curves(70.0)})
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(88.0)
    (band,) = axes.collections
    edges = band.get_paths()[0].vertices
    assert {80.0, 94.0} <= set(np.round(edges[np.isclose(edges[:, 0], 130.0), 1], 6).tolist())
    assert axes.get_xlabel().endswith("mean, least and most of 3 seeds")
    with pytest.raises(ValueError, match="reference: 'best-fit' is not known, choose one of fgd, pwr"):
        plot.placement_curves({"fgd": curves(1.0), "pwr": curves(2.0)}, "saving", reference="best-fit")
    saved = plot.placement_curves({"fgd": curves(80.0), "pwr": curves(70.0)}, "saving")
    assert saved.lines[0].get_ydata() == pytest.approx(0.0)
    assert saved.lines[1].get_ydata()[-1] == pytest.approx(100 * 400 / (40 * 80 + 1400))


def test_a_price_alone_has_its_unit_and_several_their_largest() -> None:
    results = [
        wattsched.solve(
            wattsched.generate("uniform", jobs=6 * jobs, seed=jobs, gpus=16, budget="power"), time_limit=5
        )
        for jobs in (1, 2, 3)
    ]
    name = max(results[-1].prices, key=lambda name: results[-1].prices[name])
    alone = plot.price_history(results, names=[name], time_s=[0.0, 3600.0, 10_800.0])
    assert alone.lines[0].get_ydata() == pytest.approx([one.prices.get(name, 0.0) for one in results])
    assert alone.get_xlabel() == "time from the first round, hours"
    assert ", s per " in alone.get_ylabel().replace("\n", " ")
    several = plot.price_history([{"gpus:A": 2.0, "power_w": 0.0}, {"gpus:A": 4.0, "power_w": 0.5}])
    assert [line.get_ydata().tolist() for line in several.lines] == [[50.0, 100.0], [0.0, 100.0]]
    assert [line.get_label() for line in several.lines] == [
        "A GPUs: 100 % = 4 per GPU", "power cap: 100 % = 0.5 per W",
    ]  # fmt: skip
    goodput = results[0].model_copy(update={"objective_name": "goodput", "sense": "max"})
    with pytest.raises(ValueError, match="rounds: must be of one objective, got goodput, total-completion"):
        plot.price_history([*results, goodput])


@pytest.mark.slow
def test_a_frontier_has_the_totals_of_its_points() -> None:
    axes = plot.frontier(tradeoff())
    (line,) = axes.lines
    totals = [point.result.totals for point in tradeoff().points]
    assert line.get_ydata() == pytest.approx([each["carbon_g"] / 1000 for each in totals])
    assert axes.get_ylabel() == "CO2, kg"
    assert axes.get_legend() is None
    empty = tradeoff().model_copy(update={"points": []})
    with pytest.raises(ValueError, match="found: must be with points, got 'b' without any"):
        plot.frontier({"a": tradeoff(), "b": empty})
    energy = tradeoff().model_copy(update={"tradeoff": "energy"})
    with pytest.raises(ValueError, match="found: must be of one criterion, got carbon, energy"):
        plot.frontier({"a": tradeoff(), "b": energy})


def test_a_frontier_of_replays_leaves_out_what_another_beats_in_both() -> None:
    replays = [outcome("fifo"), outcome("srtf"), outcome("elastic")]
    axes = plot.frontier(replays)
    points = [(float(one.jct_s.mean()), one.meter.energy_j) for one in replays]
    best = [p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)]
    lines = [line for line in axes.lines if line.get_label() == "none is better in both"]
    assert sum(len(line.get_xdata()) for line in lines) == (len(best) if len(best) > 1 else 0)


def test_cuts_are_steps_over_what_no_plan_beats() -> None:
    def offer(*cuts: Cut) -> Offer:
        about = {"objective": "mean-completion", "slot_s": 1800.0, "weight": 2.0}
        return Offer.model_construct(**about, cuts=[*cuts])

    def cut(slots: int, k: int, **more: Any) -> Cut:
        ended = TerminationReport.model_construct(reason="feasible" if k == 2 else "optimal")
        loss = {"loss": 3600.0 * k * slots, "least_loss": 900.0 * k}
        loss["result"] = Result.model_construct(termination=ended)
        about = {"first_slot": 1, "slots": slots, "lasts_s": [1800.0 * slots], "power_w": 500.0 * k}
        return Cut.model_construct(**(about | loss | more))

    cuts = [*(cut(slots, k) for slots in (1, 2) for k in (1, 2)), cut(2, 4, loss=None)]
    axes = plot.frontier(offer(*cuts))
    names = [str(line.get_label()) for line in axes.lines]
    assert [name for name in names if name[0] != "_"] == ["30 min", "1 h", "no plan loses less"]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [[[*values] for values in line.get_data()] for line in hollow] == [[[1.0], [4.0]], [[1.0], [8.0]]]
    shown = [line.get_data() for line in axes.lines[:5] if line not in hollow]
    assert [[*x] for x, _ in shown] == [[0.0, 0.5, 1.0]] * 4
    assert [[*y] for _, y in shown] == [[0.0, 2.0, 4.0], [0.0, 0.5, 1.0], [0.0, 4.0, 8.0], [0.0, 0.5, 1.0]]
    assert (axes.lines[0].get_drawstyle(), axes.lines[1].get_drawstyle()) == ("steps-pre", "steps-post")
    with pytest.raises(ValueError, match="found: must be with cuts"):
        plot.frontier(offer())


def test_a_frontier_of_savings_is_relative_to_the_baseline() -> None:
    axes = plot.frontier(saved(2))
    own, *lines = [line for line in axes.lines if line.get_marker() not in ("None", "|", "_")]
    assert (list(own.get_xdata()), list(own.get_ydata())) == ([100.0], [100.0])
    for i, line in enumerate(lines):
        assert line.get_ydata() == pytest.approx([92.0, 72.0, 52.0])
        assert line.get_xdata() == pytest.approx([63.0 + 10 * i, 83.0 + 10 * i, 103.0 + 10 * i])
    assert axes.get_xlabel().endswith("mean, least and most of 3 seeds")
    assert axes.get_ylabel() == "energy, % of fifo"

"""Capacity plans: costs by hand, all candidates replayed one by one, price sheets, and loads that grow."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from wattsched.cli import main
from wattsched.instances.clusters import homogeneous_cluster, idle_power_w
from wattsched.instances.errors import InputError, NoticeWarning
from wattsched.instances.traces.recorded import TraceJob, grown
from wattsched.replay.jobs.caps import CapError
from wattsched.replaying.candidates import Site
from wattsched.replaying.capacity import capacity
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.price_sheet import PriceSheet, read_prices
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import replay_jobs
from wattsched.report.capacity import CapacityPlan, tables_of, verdict

NODES = {"V100": {"owned_year": 3000.0, "bought_year": 6000.0}, "A100": {"bought_year": 9000.0}}
TRIED = {"V100": [1, 2, 3], "A100": [0, 1]}
CAPS_W = [1100.0, 2000.0]
SETTINGS = ReplaySettings(gap=1e-2, power_w=2000.0)


def sheet(**more: object) -> PriceSheet:
    given = {"nodes": NODES, "kwh": 0.3, "cap_kw_year": 200.0} | (more or {"job_h": 1.0})
    return PriceSheet.model_validate(given)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> JobSource:
    draw = np.random.default_rng(5)
    file = tmp_path_factory.mktemp("capacity") / "jobs.csv"
    rows = ["job,arrival,duration,gpus,model"]
    rows += [
        f"j{j},{1200 * j},{draw.integers(600, 7200)},{2 ** draw.integers(3)},{['bert', 'resnet50'][j % 2]}"
        for j in range(10)
    ]
    file.write_text("\n".join(rows) + "\n")
    return JobSource(file)


def planned(source: JobSource, prices: PriceSheet, **more: object) -> CapacityPlan:
    options = {"nodes": TRIED, "caps_w": CAPS_W, "growth": 0.5, "seeds": (0, 1), "settings": SETTINGS}
    return capacity(source, homogeneous_cluster(2, 4, "V100"), prices, **{**options, **more})


def tried(source: JobSource, prices: PriceSheet) -> dict[tuple[tuple[int, ...], float], tuple[float, float]]:
    """Cost of every candidate that can run the jobs, and hours of the mean completion, over two seeds."""
    today = homogeneous_cluster(2, 4, "V100")
    site, trace_on = Site(today, prices), source.elsewhere(today, 0.5)
    found = {}
    for nodes in product(*TRIED.values()):
        cluster = site.with_nodes(nodes)
        idle_w, traces = idle_power_w(cluster, cluster.nodes), {s: trace_on(cluster, s) for s in (0, 1)}
        for cap_w in CAPS_W:
            settings = ReplaySettings(gap=1e-2, power_w=cap_w, least_price=prices.joule_s)
            try:
                runs = [run for _, run in replay_jobs(traces, ["sizing"], settings=settings)]
            except CapError:
                continue
            kwh = np.mean([r.meter.energy_j - idle_w * (r.end_s - r.begin_s) for r in runs]) / 3.6e6
            hours = np.mean([r.jct_s.sum() for r in runs]) / 3600
            owned, bought, other = min(2, nodes[0]), max(0, nodes[0] - 2), nodes[1]
            year = 8766 * 3600 / np.ptp(traces[0].arrival_s)
            cost = 3000 * owned + 6000 * bought + 9000 * other + 0.2 * cap_w + 0.3 * idle_w * 8.766
            cost += year * (0.3 * kwh + (prices.job_h or 0.0) * hours)
            found[nodes, cap_w] = float(cost), float(hours / len(traces[0]))
    return found


@pytest.mark.parametrize(
    "more",
    [
        {"job_h": 1.0},
        pytest.param({"job_h": 0.05}, marks=pytest.mark.slow),
        pytest.param({"most_mean_h": 0.75}, marks=pytest.mark.slow),
    ],
)
def test_a_plan_is_as_good_as_trying_all(source: JobSource, more: dict[str, float]) -> None:
    plan, costs = planned(source, sheet(**more)), tried(source, sheet(**more))
    most_h = more.get("most_mean_h", math.inf)
    in_time = {name: cost for name, (cost, mean_h) in costs.items() if mean_h <= most_h}
    assert plan.best is not None
    best = in_time[tuple(plan.best.nodes.values()), plan.best.power_w]
    assert best <= min(in_time.values()) * 1.02
    assert plan.best.estimate == pytest.approx(best)
    assert sum(one.seeds for one in plan.options) < 2 * len(plan.options)
    for one in plan.options:
        name = tuple(one.nodes.values()), one.power_w
        assert (name in costs) or one.status in ("cannot run", "cannot win", "unlikely")
        if name in costs:
            cost, mean_h = costs[name]
            assert one.bound <= (cost if mean_h <= most_h else math.inf) * (1 + 1e-9)
            assert one.status != "cannot run"
            if one.cost is not None:
                assert one.cost.mean == pytest.approx(cost)
                assert sum(one.parts.values()) == pytest.approx(cost)
                assert one.mean_completion_s == pytest.approx(mean_h * 3600)


def test_what_no_candidate_reaches_is_said(source: JobSource) -> None:
    plan = planned(source, sheet(most_mean_h=0.01), nodes={"V100": [1, 2]}, caps_w=[2000.0])
    assert plan.best is None
    assert verdict(plan) == "no candidate has a mean completion time of 0.01 h or less"
    (_, _, _, candidates), (_, _, _, costs), *_ = tables_of(plan)
    assert costs
    assert [row[1] for row in candidates] == ["too late"] * 2
    assert json.loads(json.dumps(plan.as_dict(), allow_nan=False))["best"] is None


def test_caps_that_nobody_can_keep_are_told(source: JobSource) -> None:
    plan = planned(source, sheet(), nodes={"V100": [1, 2]}, caps_w=[300.0, 700.0, 3000.0], seeds=(0,))
    why = {(one.nodes["V100"], one.power_w): one.why for one in plan.options if one.why}
    assert "when idle" in why[2, 300.0]
    assert plan.best is not None


def test_growth_keeps_the_hour_of_day() -> None:
    draw = np.random.default_rng(3)
    jobs = [
        TraceJob(f"j{i}", float(draw.uniform(5e4, 4e5)), 60.0, 1 + i % 3, user=f"u{i}") for i in range(50)
    ]
    more = grown(jobs, 0.5, 7)
    assert more[:50] == jobs
    assert len({one.name for one in more}) == len(more) == 75
    assert grown(jobs, 0.5, 7) == more != grown(jobs, 0.5, 8)
    first_s, last_s = (end(one.submitted_s for one in jobs) for end in (min, max))
    known = {job.name: job for job in jobs}
    for copy in more[50:]:
        model = known[copy.name.partition("+")[0]]
        assert first_s <= copy.submitted_s <= last_s
        assert int(copy.submitted_s / 3600) % 24 == int(model.submitted_s / 3600) % 24
        assert (copy.duration_s, copy.gpus, copy.user) == (model.duration_s, model.gpus, model.user)
    assert len({int(copy.submitted_s / 86400) for copy in more[50:]}) > 1
    assert grown(jobs[:1], 2.0, 0)[1].submitted_s == jobs[0].submitted_s


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kwh": -1}, "kwh: must be greater than or equal to 0, got -1"),
        ({"kwh": "0.2"}, "kwh: must be a valid number"),
        ({"kwh": float("nan")}, "kwh"),
        ({"kwh": 1e300}, "kwh"),
        ({"job_h": None}, "give job_h or most_mean_h, one of the two, found neither"),
        ({"most_mean_h": 3.0}, "give job_h or most_mean_h, one of the two, found both"),
        ({"nodes": {}}, "nodes: must not be empty"),
        ({"nodes": {"V100": {"owned": 3}}}, "nodes.V100.owned"),
        ({"nodes": {"V100": 5}}, "nodes.V100"),
        ({"gpus": 3}, "gpus"),
    ],
)
def test_a_malformed_price_sheet_is_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"nodes": NODES, "kwh": 0.3, "job_h": 1.0} | change))
    with pytest.raises((InputError, ValueError)) as error:
        read_prices(file)
    assert said in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"nodes": {"H100": [1]}}, "nodes: pool of the cluster or the price sheet: 'H100' is not known"),
        ({"nodes": {"V100": [-1]}}, "nodes: V100: must be 0 or more"),
        ({"nodes": {"V100": []}}, "nodes: V100: must be 0 or more"),
        (
            {"nodes": {"V100": [*range(100)], "A100": [*range(99)]}},
            "nodes: must be 10,000 candidates at most",
        ),
        ({"caps_w": [0.0]}, "caps_w: must be above 0 and finite"),
        ({"growth": -0.1}, "growth: must be at least 0"),
        ({"seeds": ()}, "seeds: must be one at least"),
        ({"policy": "eaco"}, "policy: under 'eaco' jobs share GPUs"),
        ({"policy": "best"}, "there is no policy 'best'"),
        ({"settings": ReplaySettings()}, "`power_w`: the prices have cap_kw_year"),
        ({"settings": ReplaySettings(power_w=3e3, sleep_after_s=5.0)}, "settings: neither a budget nor"),
        ({"settings": ReplaySettings(power_w=100.0)}, "cluster: that of today cannot run the jobs: its cap"),
        ({"settings": ReplaySettings(power_w=650.0)}, "cannot run the jobs: power_w: is too low for policy"),
    ],
)
def test_what_cannot_be_planned_is_refused(source: JobSource, more: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        planned(source, sheet(), **more)


def test_prices_of_all_that_is_there_are_needed(source: JobSource) -> None:
    prices = PriceSheet.model_validate({"nodes": {"A100": {}}, "job_h": 1.0})
    with pytest.raises(ValueError, match="prices: nodes lacks the cluster's 'V100'"):
        planned(source, prices)
    prices = PriceSheet.model_validate({"nodes": {"V100": {}, "A100": {}}, "job_h": 1.0})
    with pytest.raises(ValueError, match="nodes: A100: there are 0, and the prices have no bought_year"):
        planned(source, prices, nodes={"A100": [0, 1]})


def test_what_would_mislead_a_buyer_is_said(tmp_path: Path) -> None:
    """GPUs that no model runs on, jobs that are cut to what there is, and sizes of nodes that differ."""
    file = tmp_path / "jobs.csv"
    file.write_text("job,arrival,duration,gpus,model\na,0,3600,64,bert\nb,1000,3600,4,bert\n")
    nodes = {"A100": {"owned_year": 1.0}, "H100": {"bought_year": 1.0}}
    today, tried = homogeneous_cluster(1, 8, "A100"), {"H100": [0, 1]}
    with pytest.warns(NoticeWarning) as told:
        capacity(JobSource(file), today, PriceSheet(nodes=nodes, job_h=1.0), nodes=tried, seeds=(0,))
    said = "\n".join(str(one.message) for one in told)
    assert "no job of the trace can run on H100" in said
    assert "'a', which asks for most, runs on 8 instead of 64" in said
    nodes["A100"]["gpus"] = 4
    with pytest.raises(
        ValueError, match=r"nodes\.A100\.gpus is 4, and the cluster's nodes of this pool have 8"
    ):
        capacity(JobSource(file), today, PriceSheet(nodes=nodes, job_h=1.0), nodes=tried, seeds=(0,))


def test_the_command_says_what_to_do(source: JobSource, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"nodes": NODES, "kwh": 0.3, "job_h": 1.0, "currency": "EUR"}))
    line = ["capacity", str(source.file), "--prices", str(prices), "--gpu-type", "V100", "--seeds", "0-1"]
    line += ["--gpus-per-node", "4", "--try", "V100=1", "--try", "V100=3"]
    found = CliRunner().invoke(main, [*line, "--plot", str(tmp_path / "costs.svg")])
    assert found.exit_code == 0, found.output
    assert "EUR a year, between" in found.output
    assert "Candidates" in found.output
    assert (tmp_path / "costs.svg").read_bytes().startswith(b"<?xml")
    as_json = CliRunner().invoke(main, [*line, "--json"])
    assert len(json.loads(as_json.stdout)["options"]) == 3
    for wrong, said in (
        ("V100", "'V100' is not POOL=NUMBERS"),
        ("V100=3-1", "'3-1' ends before it begins"),
        ("V100=1-3:0", "'1-3:0' is neither a whole number nor a range"),
        ("V100=0-99999", "has more than 1,000 numbers"),
        ("V100=x", "'x' is neither a whole number nor a range"),
    ):
        refused = CliRunner().invoke(main, [*line, "--try", wrong])
        assert refused.exit_code == 2
        assert said in refused.stderr

"""What a cluster would save: replays counted to the same end, its record, its groups and fixed limits."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.strategies.savings import dated_list, study
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.replay.jobs.outcome import RECORDS
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import Journal, replay_jobs
from wattsched.replaying.savings import INPUTS, Input, savings
from wattsched.report.saved import Interval, PolicySavings, Savings, best_within, group_name
from wattsched.report.savings import best_of, sensitivity, tables_of, verdict


def test_users_of_several_jobs_are_told_of(tmp_path) -> None:
    file = tmp_path / "jobs.csv"
    rows = [f"j{j},{600 * j},1800,2,{'ann' if j % 2 else 'bo' if j < 8 else 'cy'}" for j in range(12)]
    file.write_text("job,arrival,duration,gpus,user\n" + "\n".join(rows) + "\n")
    settings, cluster = ReplaySettings(period_s=3600.0, gap=1e-2), homogeneous_cluster(1, 4, "V100")
    source = JobSource(file, elasticity=1)
    found = savings(
        source, cluster, policies=("fifo",), levels=(1.0, 0.5), seeds=(0,), settings=settings, inputs=()
    )
    _, (point,), untried = found.policies[0].points
    assert not untried
    (trace,) = source.traces(cluster, [0]).values()
    ((_, base),) = replay_jobs({0: trace}, ["backfill"], settings=settings)
    budget = ("energy_j", found.power_w[1] * 3600.0)
    ((_, run),) = replay_jobs({0: trace}, ["fifo"], settings=replace(settings, budget=budget))
    ann = [j for j, user in enumerate(trace.users) if user == "ann"]
    assert point.users == {"ann": pytest.approx(run.jct_s[ann].mean() / base.jct_s[ann].mean())}
    assert list(RECORDS["jobs"](run)["user"]) == [*trace.users]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    file = tmp_path_factory.mktemp("savings") / "jobs.csv"
    rows = ["job,arrival_s,work,requested_gpus,model,max_gpus"]
    models = ("resnet50,4e6", "bert,2e5", "deepspeech2,1.5e5")
    for j in range(9):
        model, work = models[j % 3].split(",")
        rows.append(f"j{j},{300 * j},{float(work) * (1 + j % 4):g},{2 ** (j % 4)},{model},16")
    file.write_text("\n".join(rows) + "\n")
    return JobSource(file)


SETTINGS = ReplaySettings(period_s=3600.0, gap=1e-2, carbon=300.0)


@pytest.fixture(scope="module")
def found(source):
    cluster = homogeneous_cluster(2, 8, "A100")
    return savings(
        source, cluster, policies=("powerflow", "sizing"), levels=(1.0, 0.6, 0.3), seeds=(0,),
        settings=replace(SETTINGS, tariff=0.2), inputs=INPUTS[:1],
    )  # fmt: skip


@pytest.mark.slow
def test_every_run_keeps_to_its_budget_and_is_counted_to_the_same_end(source, found) -> None:
    cluster = homogeneous_cluster(2, 8, "A100")
    traces = source.traces(cluster)
    ((_, base),) = replay_jobs(traces, ["backfill"], settings=SETTINGS)
    assert found.energy_j.mean == pytest.approx(base.meter.energy_j)
    idle_w = base.meter.power.values[-1]
    for one in found.policies:
        runs = []
        for power_w in found.power_w:
            budget = None if power_w is None else ("energy_j", power_w * 3600.0)
            settings = ReplaySettings(period_s=3600.0, gap=1e-2, carbon=300.0, budget=budget)
            ((_, run),) = replay_jobs(traces, [one.policy], settings=settings)
            runs.append(run)
        if one.energy is not None:
            assert one.energy_j.mean == pytest.approx(one.energy.mean * found.energy_j.mean)
        for power_w, run, (point,) in zip(found.power_w, runs, one.points, strict=True):
            end_s = max(base.end_s, run.end_s)
            base_j, run_j = (one.meter.energy_j + idle_w * (end_s - one.end_s) for one in (base, run))
            assert (1.0 - point.energy) * base.meter.energy_j == pytest.approx(base_j - run_j)
            assert point.completion == pytest.approx(run.jct_s.mean() / base.jct_s.mean())
            assert power_w is None or run.budget_used()[0].max() <= 1.0 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("pacing", ["price", "plan", "none"])
def test_budgets_are_spent_as_asked_for(source, pacing) -> None:
    cluster = homogeneous_cluster(2, 8, "A100")
    told, replays = [], []
    found = savings(
        source, cluster, policies=("sizing",), levels=(1.0, 0.3), seeds=(0,), settings=SETTINGS,
        pacing=pacing, inputs=(), planned=lambda *counts: told.append(counts),
        progress=lambda replay, seed, resumed: replays.append(replay),
    )  # fmt: skip
    assert told == [(len({id(replay) for replay in replays}), 0)]
    traces, amount_j = source.traces(cluster), found.power_w[-1] * 3600.0
    settings = replace(SETTINGS, budget=("energy_j", amount_j), pacing=pacing)
    ((_, base),), ((_, run),) = (
        replay_jobs(traces, [name], settings=one)
        for name, one in (("backfill", SETTINGS), ("sizing", settings))
    )
    ((*_, (point,)),) = (one.points for one in found.policies)
    assert point.completion == pytest.approx(run.jct_s.mean() / base.jct_s.mean())
    told = "pacing: 'often' is not known, choose one of even, price, plan, none"
    with pytest.raises(ValueError, match=told):
        savings(source, cluster, pacing="often")


@pytest.mark.slow
def test_amounts_follow_from_the_part_that_is_saved(found) -> None:
    for one in found.policies:
        if one.energy is None:
            continue
        assert one.money.mean == pytest.approx(one.energy_j.mean / 3.6e6 * 0.2)
        assert one.carbon_g.mean == pytest.approx(one.energy_j.mean / 3.6e6 * 300.0)
    assert any(one.energy is not None for one in found.policies)


@pytest.mark.slow
def test_a_policy_that_keeps_the_mean_only_without_a_budget_saves_what_it_does_then(source) -> None:
    """No budget that is tried keeps it: what is said is of the policy, not of the budgets."""
    cluster = homogeneous_cluster(2, 8, "A100")
    (one,) = savings(
        source, cluster, policies=("sizing",), levels=(0.05, 0.02), seeds=(0,), settings=SETTINGS, inputs=()
    ).policies
    (free,), (within,), untried = one.points
    assert within.completion > 1.0
    assert not untried
    assert free.completion < 1.0
    assert one.energy is not None
    assert one.energy.mean >= 1.0 - free.energy


@pytest.mark.slow
def test_an_input_at_its_ends_saves_what_a_study_with_it_does(source, found) -> None:
    """Though only budgets around the mean are tried, beginning at one that may be far from it by then."""
    cluster = homogeneous_cluster(2, 8, "A100")
    slow = Input(
        "seconds of a restart",
        "as now",
        "900 s",
        lambda cluster, settings, end: (
            cluster,
            replace(settings, process_restart_s=900.0) if end > 0 else settings,
        ),
    )

    def study(settings: ReplaySettings, inputs: list[Input]) -> Savings:
        options = {"policies": ("sizing",), "levels": (1.0, 0.6, 0.3), "seeds": (0,)}
        return savings(source, cluster, **options, settings=settings, inputs=inputs)

    kept = []
    told = study(SETTINGS, [slow])
    (known,) = told.inputs
    assert told.as_it_is == known.at_low
    for end, part in ((-1, known.at_low), (1, known.at_high)):
        (whole,) = study(slow.vary(cluster, SETTINGS, end)[1], []).policies
        assert part == (None if whole.energy is None else pytest.approx(whole.energy.mean))
        kept.append([level[0].completion <= 1.0 for level in filter(None, whole.points)])
    assert kept[0] != kept[1]
    assert [row[0] for row in sensitivity(found)[3]] == ["as it is", INPUTS[0].name]


@pytest.fixture
def dated(tmp_path):
    return dated_list(tmp_path)


@pytest.mark.parametrize("by", [("month",), ("account",), ("account", "month")])
def test_groups_sum_to_the_whole(dated, by) -> None:
    found = study(dated, by=by)
    assert sum(one.energy_j for one in found.groups) == pytest.approx(found.energy_j.mean)
    assert sum(one.carbon_g for one in found.groups) == pytest.approx(found.energy_j.mean / 3.6e6 * 300.0)
    assert sum(one.money for one in found.groups) == pytest.approx(found.energy_j.mean / 3.6e6 * 0.2)
    months = {one.month for one in found.groups}
    assert months == ({"2026-10", "2026-11"} if "month" in by else {""})
    accounts = {one.account for one in found.groups}
    assert accounts == ({"a", "b", "idle GPUs and nodes"} if "account" in by else {""})
    # What a policy saves of all groups is what it saves, at every point.
    energy_j = {group_name(one.month, one.account): one.energy_j for one in found.groups}
    for point, *_ in filter(None, found.policies[0].points):
        total_j = sum(part * energy_j[name] for name, part in point.group_energy.items())
        assert total_j == pytest.approx(point.energy * found.energy_j.mean)
        assert point.group_completion.keys() <= energy_j.keys()
    assert len(found.policies[0].points) == 3


def test_the_baseline_is_held_against_the_record(dated, tmp_path) -> None:
    found = study(dated)
    # The last of them came at 23:45, waited 7 minutes and took 50; the cluster idles at 200 + 8 * 50 W.
    seconds = 6300.0 + 420.0 + 3000.0
    busy_j = sum((1000.0 + j - 4 * 50.0) * 3000.0 for j in range(8))
    assert found.record.energy_j.mean == pytest.approx(600.0 * seconds + busy_j)
    assert found.record.completion_s == pytest.approx(3000.0 + 210.0)
    assert found.record.p99_s == pytest.approx(np.percentile(3000.0 + 60.0 * np.arange(8), 99))
    assert (found.record.waits, found.record.baseline_s) == (1.0, pytest.approx(found.completion_s.mean))
    assert found.record.measured == 1.0
    # Eight jobs of 4 GPUs in that time are more than 8 GPUs can do.
    assert found.record.utilisation == pytest.approx(32 * 3000.0 / (8 * seconds))
    (doubt,) = found.doubts
    assert "by the record 123.5 % of the cluster's GPU time were in use" in doubt


def test_waits_of_some_jobs_are_held_against_the_same_jobs(dated) -> None:
    file = Path(dated.file)
    file.write_text(file.read_text().replace(",0,a,", ",,a,"))  # that of j0
    found = study(dated)
    assert found.record.waits == 7 / 8
    assert found.record.completion_s == pytest.approx(3000.0 + 240.0)
    ((_, base),) = replay_jobs(dated.traces(homogeneous_cluster(1, 8, "A100")), ["backfill"])
    assert found.record.baseline_s == pytest.approx(base.jct_s[1:].mean())


def test_a_fixed_limit_saves_what_backfilling_with_it_does(dated) -> None:
    found, cluster = study(dated, seeds=(0,)), homogeneous_cluster(1, 8, "A100")
    traces = dated.traces(cluster, [0])
    ((_, base),) = replay_jobs(traces, ["backfill"])
    assert [one.limit_w for one in found.limits] == sorted(
        {one.limit_w for one in found.limits}, reverse=True
    )
    assert found.limits
    for one in found.limits:
        ((_, run),) = replay_jobs(traces, ["backfill"], settings=ReplaySettings(gpu_limit_w=one.limit_w))
        assert one.points[0].completion == pytest.approx(run.jct_s.mean() / base.jct_s.mean())
        assert one.points[0].completion >= 1.0
        (best,) = (
            best_within([p for (p,) in found.policies[0].points], "completion", one.points[0].completion),
        )
        assert one.instead == Interval(1.0 - best.energy)


def test_what_is_deployed_of_plain_requests_saves_nothing_but_an_operators_limits_do(dated) -> None:
    file = Path(dated.file)
    file.write_text(file.read_text().replace(",bert", ",").replace("model", "note"))
    free = JobSource(file, elasticity=1)
    (kept, asked) = (study(one, seeds=(0,)) for one in (replace(free, as_deployed=True, elasticity=4), free))
    (point,), *_ = kept.policies[0].points
    assert (point.energy, point.completion) == (1.0, 1.0)
    assert asked.policies[0].points[0][0].energy < 1.0
    assert [one.points for one in kept.limits] == [one.points for one in asked.limits]
    assert any("as deployed" in told for told in kept.assumptions)


def test_errors_of_models_widen_what_seeds_leave_alone(dated) -> None:
    """All jobs train the model that the list names: without errors all seeds are one."""
    sure, unsure = (study(replace(dated, model_errors=one), seeds=(0, 1, 2)) for one in (False, True))
    assert sure.energy_j.high == pytest.approx(sure.energy_j.low)
    assert unsure.energy_j.high > 1.02 * unsure.energy_j.low
    assert study(replace(dated, model_errors=True)).seeds == [0, 1, 2]
    assert any("are in no interval" in told for told in sure.assumptions)


@pytest.mark.slow
def test_with_limits_alone_known_a_row_says_what_exact_durations_are_worth(dated) -> None:
    with_limits = (
        Path(dated.file).read_text().replace(",model", ",model,time_limit").replace(",bert", ",bert,86400")
    )
    Path(dated.file).write_text(with_limits)
    found = study(dated, policies=("powerflow", "sizing"))
    assert [one.policy for one in found.policies] == ["powerflow", "sizing+exact", "sizing"]
    assert not best_of(found).policy.endswith("+exact")
    assert any("durations by time limits" in told for told in found.assumptions)
    exact = study(
        dated,
        policies=("sizing",),
        settings=ReplaySettings(period_s=3600.0, carbon=300.0, tariff=0.2, knows="exact"),
    )
    assert [one.policy for one in exact.policies] == ["sizing"]
    pairs = [*zip(exact.policies[0].points, found.policies[1].points, strict=True)]
    assert all(one == other or not other for one, other in pairs)
    assert sum(bool(other) for _, other in pairs) > 1


def test_watts_that_no_gpus_draw_are_pointed_at(tmp_path) -> None:
    file = tmp_path / "jobs.csv"
    rows = "a,2026-03-01T00:00:00Z,3600,4,1500\nb,2026-03-01T01:00:00Z,3600,4,{}\n"
    for watts, strange in ((1500, 0), (0, 1), (3000, 1), ("", 0)):
        file.write_text("job,arrival,duration,gpus,watts\n" + rows.format(watts))
        found = study(JobSource(file))
        assert found.record.strange == strange
        assert any("draw less than idle GPUs, or more" in doubt for doubt in found.doubts) == bool(strange)


def test_an_interrupted_study_goes_on(dated, tmp_path) -> None:
    options, journal = {"inputs": INPUTS[:1]}, Journal(tmp_path / "kept", resume=True)
    whole, stepped = study(dated, journal=replace(journal, resume=False), **options), []
    told = {"progress": lambda replay, seed, resumed: stepped.append(replay)}
    assert study(dated, journal=journal, **told, **options) == whole == study(dated, **options)
    assert not stepped  # All were complete.
    with pytest.raises(ValueError, match=r"resume: .* are of `baseline` backfill, not fifo"):
        study(dated, journal=journal, baseline="fifo")
    for file in (tmp_path / "kept" / "backfill+zeus").glob("*/checkpoints/*.done"):
        file.unlink()
    assert study(dated, journal=journal, **options) == whole


def test_parts_that_a_trace_does_not_tell_are_refused(source) -> None:
    for by, said in (
        (("account",), "names no account"),
        (("month",), "needs a list whose arrivals are dates"),
    ):
        with pytest.raises(ValueError, match=f"by: .*{said}"):
            study(source, by=by)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"levels": (1.0,)}, "levels: must be two at least"),
        ({"levels": (1.0, -1.0)}, "levels: must be two at least"),
        ({"settings": ReplaySettings(budget=("energy_j", 1e9))}, "settings: budgets follow from the levels"),
        ({"settings": ReplaySettings(sleep_after_s=60.0)}, "no node may sleep"),
        ({"policies": ("nobody",)}, "there is no policy 'nobody'"),
    ],
)
def test_what_cannot_be_compared_is_refused(source, wrong, said) -> None:
    with pytest.raises(ValueError, match=said):
        savings(source, homogeneous_cluster(2, 8, "A100"), **wrong)


@pytest.mark.parametrize("at", ["2026-11-01T08:00:00Z", "2026-11-01 08:00", "0"])
def test_more_gpus_than_there_are_are_pointed_at_in_a_list_of_ones_own(tmp_path, at) -> None:
    rows = [f"j{n},{at},7200,4,A100,{wait}" for n, wait in enumerate((0, 0, 3600, ""))]
    file = tmp_path / "jobs.csv"
    file.write_text("\n".join(["job,arrival,duration,gpus,gpu_type,wait", *rows, ""]), encoding="utf-8")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        JobSource(file).traces(homogeneous_cluster(1, 8, "A100"))
        JobSource(file).traces(homogeneous_cluster(2, 8, "A100"))
    when = {"0": "at 3,600 s", "2026-11-01 08:00": "on 2026-11-01 09:00:00"}
    moment = when.get(at, "on 2026-11-01 09:00:00 UTC")
    found = [str(one.message) for one in told if "doubtful" in str(one.message)]
    assert found == [f"{file}: doubtful: jobs hold 12 GPUs {moment}, of 8 that there are, 4 GPU h"]


def test_where_no_energy_is_saved_the_verdict_says_who_completes_sooner(dated) -> None:
    found = study(dated, seeds=(0,))
    kept, sooner = (
        PolicySavings(name, Interval(0.0), False, Interval(part), None, None, None, [], None)
        for name, part in (("sizing+exact", 0.5), ("sizing", 0.25))
    )
    text, more = verdict(replace(found, policies=[kept, sooner]))
    assert text.endswith("no policy saves energy at the completion time of backfill")
    assert more == "with the same energy jobs would complete 25 % sooner under sizing"


def test_tables_tell_limits_and_what_policies_save_of_each_group(dated) -> None:
    found = study(dated, by=("account",), seeds=(0, 1))
    tables = {title: (columns, rows) for title, _, columns, rows in tables_of(found)}
    assert [row[0] for row in tables["Fixed power limits"][1]] == [
        f"{one.limit_w:g} W" for one in found.limits
    ]
    columns, rows = tables["Saved by account"]
    assert columns == ["account", "policy", ">energy saved", ">completion"]
    assert [row[0] for row in rows] == ["a", "b", "idle GPUs and nodes"]
    assert all("±" in row[2] for row in rows)
    assert tables["Recorded"][1][0][3] == "56.9 min"

"""The brute force of `shifting` on instances of which the answers were worked out on paper."""

import pytest

from tests.pages import pages_shifting as brute


def least(instance):
    loose, _ = brute.optimum(instance, brute.decisions(instance))
    return None if loose is None else float(loose)


def clocks(cap, with_slow=True):
    """Two jobs of 6 units over three slots of 1 s; 100 W idle, 200 or 100 W more for 2 or 1 units per s."""
    options = {"gpus": [1, 1], "pool": ["p", "p"], "power_w": [250.0, 150.0], "rate": [2.0, 1.0]}
    options["frequency_mhz"] = [1400, 700]
    if not with_slow:
        options = {name: values[:1] for name, values in options.items()}
    job = {"options": options, "remaining_work": 6.0, "restart_s": 0.5}
    instance = {"slots": 3, "slot_s": 1.0, "pools": {"p": {"gpus": 2, "idle_power_w": 50.0}}, "tables": {}}
    instance["jobs"] = [{"name": name} | job for name in ("a", "b")]
    return instance | {"power_w": cap}


@pytest.mark.parametrize(
    ("cap", "with_slow", "mean"),
    [
        (500.0, True, 3.0),  # both at 2 per s to the end
        ([500.0, 300.0, 500.0, 0.0], True, 3.5),  # both at 1 per s in the middle, 1 unit left for 0.5 s
        ([500.0, 300.0, 500.0], False, 3.75),  # one ends at 3; the other does 2 + 0 + 1, and 3 more in 1.5 s
        ([500.0, 300.0 * (1 - 9e-10), 500.0], True, 3.5),
        ([500.0, 300.0 * (1 - 2e-9), 500.0], True, 4.0),  # 2 + 1 + 2 and 2 + 0 + 1 units, so 3.5 and 4.5 s
        ([500.0, 100.0, 500.0], True, 4.5),  # 2 + 0 + 1 both
        ([500.0, 99.0, 500.0], True, None),  # less than idle GPUs
    ],
)
def test_clocks_give_way_to_a_cap_without_a_restart(cap, with_slow, mean):
    assert least(clocks(cap, with_slow)) == mean


@pytest.mark.parametrize(("cap", "mean"), [(500.0, 2.75), (499.0, 7.75), (300.0, 7.75)])
def test_job_counts_in_full_in_the_slot_in_which_it_ends(cap, mean):
    instance = clocks(cap, with_slow=False) | {"slots": 2, "slot_s": 10.0}
    for job, work in zip(instance["jobs"], (1.0, 10.0), strict=True):
        job["remaining_work"] = work  # 0.5 s and 5 s; under a cap for one, the other begins after 10 s
    assert least(instance) == mean


@pytest.mark.parametrize(
    ("of_p", "of_both", "mean"),
    [
        (500.0, 600.0, 10.0),  # both in p: 100 + 100 W idle, and 400
        (300.0, 700.0, 10.0),  # one in p for 200, one in q for 300
        (300.0, 650.0, 15.0),  # one at a time
        (299.0, 700.0, 15.0),  # only q
        (299.0, [499.0, 700.0], 20.0),  # only q, in the second slot; the other after the horizon
        (99.0, 700.0, None),
        (500.0, [700.0, 199.0], None),
    ],
)
def test_domains_overlap(of_p, of_both, mean):
    options = {"gpus": [1, 1], "pool": ["p", "q"], "power_w": [250.0, 400.0], "rate": [1.0, 1.0]}
    pools = {"p": {"gpus": 2, "idle_power_w": 50.0}, "q": {"gpus": 1, "idle_power_w": 100.0}}
    instance = {"slots": 2, "slot_s": 10.0, "pools": pools, "tables": {"t": options}}
    instance["jobs"] = [{"name": name, "options": "t", "remaining_work": 10.0} for name in ("a", "b")]
    domain = {"pools": ["p"], "power_w": of_p}
    instance["power_domains"] = {"p": domain, "both": {"pools": ["p", "q"], "power_w": of_both}}
    if mean == 20.0:
        mean = (20.0 + 30.0) / 2
    assert least(instance) == mean


@pytest.mark.parametrize(
    ("fields", "within", "work_on_2"),
    [
        ({}, 40, 0),  # 1 unit per s for 100 J in all four slots of 10 s; the rest for 150 J each
        ({"least_progress": 0.5}, 40, 0),  # of 2 x 40
        ({"least_progress": 0.75}, 60, 40),  # 20 + 20 + 10 + 10
        ({"least_progress": 0.75 + 1e-10}, 60, 40),  # less than 1e-9 of 1000
        ({"least_progress": 0.75 + 1e-7}, 70, 60),
        ({"least_progress": 1.0}, 80, 80),
        ({"least_progress": 1.0, "current": {"gpus": 1, "pool": "p"}}, 40, 0),  # of 1 x 40
        ({"least_progress": 1.0, "current": {"gpus": 2, "pool": "p"}, "restart_s": 1.0}, 80, 80),
        ({"least_progress": 0.75, "current": {"gpus": 3, "pool": "p"}}, 60, 40),  # no such option
        ({"least_progress": 0.5, "arrival_s": 10.0}, 30, 0),  # of 2 x 30
        ({"least_progress": 0.5, "arrival_s": 3.0}, 30, 0),
        ({"least_progress": 1.0, "has_run": True, "restart_s": 1.0}, None, None),  # 78 are possible, not 80
        ({"least_progress": 0.975, "has_run": True, "restart_s": 1.0}, 78, 78),
    ],
)
def test_unfinished_jobs_make_the_least_progress(fields, within, work_on_2):
    options = {"gpus": [1, 2], "pool": ["p", "p"], "power_w": [100.0, 300.0], "rate": [1.0, 2.0]}
    instance = {"slots": 4, "slot_s": 10.0, "pools": {"p": {"gpus": 3}}, "tables": {}, "objective": "energy"}
    instance["jobs"] = [{"name": "a", "options": options, "remaining_work": 1000.0} | fields]
    restart_j = 300.0 if fields.get("has_run") else 0.0  # 1 s on both
    on_1 = 0 if within is None else within - work_on_2
    joules = None if within is None else 100.0 * on_1 + 150.0 * (1000 - on_1) + restart_j
    assert least(instance) == joules


@pytest.mark.parametrize(
    ("work", "joules"),
    [
        (30.0, 3000.0),  # ends, so 2 x 40 units do not matter
        (50.0, 20 * 150.0 + 30 * 100.0),  # as little on 2 GPUs as lets it end
        (80.0, 12000.0),
        (90.0, 13500.0),  # cannot end, but does all it can
    ],
)
def test_job_with_less_work_than_it_could_do_must_end(work, joules):
    options = {"gpus": [1, 2], "pool": ["p", "p"], "power_w": [100.0, 300.0], "rate": [1.0, 2.0]}
    instance = {"slots": 4, "slot_s": 10.0, "pools": {"p": {"gpus": 3}}, "tables": {}, "objective": "energy"}
    job = {"name": "a", "options": options, "remaining_work": work, "least_progress": 1.0}
    assert least(instance | {"jobs": [job]}) == joules

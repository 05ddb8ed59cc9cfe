"""Random tiny instances of `sharing`."""

from __future__ import annotations

from hypothesis import strategies as st

from wattsched.instances.sharing.instance import OBJECTIVES, SharingInstance


@st.composite
def sharing_instances(
    draw: st.DrawFn, most_jobs: int = 5, most_types: int = 2, most_per_set: int = 3
) -> SharingInstance:
    """Instance with measured and other sets, deadlines, exclusive jobs, pools and budgets."""

    def whole(low: int, high: int) -> float:
        return float(draw(st.integers(low, high)))

    types = [f"T{t}" for t in range(draw(st.integers(1, most_types)))]
    units = [
        {
            "name": name,
            "count": draw(st.integers(1, 4)),
            "gpus": draw(st.sampled_from([1, 8])),
            "idle_power_w": whole(20, 60),
            "full_power_w": whole(100, 300),
            "sleep_power_w": whole(0, 15),
        }
        for name in types
    ]
    pools = []
    if draw(st.booleans()):
        pools = [{"name": "pool", "gpus": draw(st.integers(1, 20))}]
        for unit in draw(st.lists(st.sampled_from(units), min_size=1, unique_by=id)):
            unit |= {"pool": "pool", "sleep_power_w": 0.0}
    classes = []
    for c in range(draw(st.integers(1, 3))):
        places = draw(st.lists(st.sampled_from(types), min_size=1, unique=True))
        alone = {
            name: {
                "epoch_s": whole(10, 90),
                "utilisation_pct": whole(5, 70),
                "memory_pct": whole(5, 50),
                "power_w": draw(st.sampled_from([None, whole(50, 200)])),
            }
            for name in places
        }
        classes.append({"name": f"c{c}", "alone": alone})
    sets: dict = {}
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(types))
        able = [c["name"] for c in classes if name in c["alone"]]
        if not able:
            continue
        members = sorted(draw(st.lists(st.sampled_from(able), min_size=2, max_size=3)))
        factor = {c: draw(st.integers(80, 250)) / 100 for c in members}
        sets[name, *members] = {
            "unit_type": name,
            "classes": members[::-1],
            "slowdown": [factor[c] for c in members[::-1]],
            "power_w": draw(st.sampled_from([None, whole(50, 300)])),
            "utilisation_pct": draw(st.sampled_from([None, whole(5, 100)])),
            "memory_pct": draw(st.sampled_from([None, whole(5, 100)])),
            "fits": draw(st.integers(0, 4)) > 0,
        }
    jobs = []
    for j in range(draw(st.integers(1, most_jobs))):
        job = {"name": f"j{j}", "job_class": draw(st.sampled_from([c["name"] for c in classes]))}
        job["remaining_epochs"] = draw(st.sampled_from([10.0, 10.0, 25.0, 40.0]))
        job["deadline_s"] = draw(st.sampled_from([None, None, whole(200, 6000)]))
        job["exclusive"] = draw(st.integers(0, 4)) == 0
        job["can_wait"] = draw(st.integers(0, 3)) > 0
        jobs.append(job)
    budgets = {}
    if draw(st.booleans()):
        budgets["power_w"] = whole(60, 700)
    if draw(st.integers(0, 2)) == 0:
        budgets["energy_j"] = whole(20_000, 900_000)
    if draw(st.integers(0, 3)) == 0:
        budgets["carbon_g"] = whole(5, 120)
    return SharingInstance.model_validate(
        {
            "problem": "sharing",
            "objective": draw(st.sampled_from(list(OBJECTIVES))),
            "alpha": draw(st.sampled_from([0.0, 0.3, 1.0])),
            "round_s": whole(60, 600),
            "carbon_g_per_kwh": 400.0,
            "waiting_penalty": draw(st.sampled_from([0.5, 2.0])),
            "limits": {
                "jobs_per_set": draw(st.integers(1, most_per_set)),
                "utilisation_pct": draw(st.sampled_from([100.0, 90.0])),
                "memory_pct": draw(st.sampled_from([100.0, 90.0])),
            },
            "unmeasured": draw(st.sampled_from(["law", "law", "refuse"])),
            "pools": pools,
            "unit_types": units,
            "classes": classes,
            "sets": list(sets.values()),
            "budgets": budgets,
            "jobs": jobs,
        }
    )

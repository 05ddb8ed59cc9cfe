"""Small rounds whose jobs hold GPUs here and there."""

from __future__ import annotations

from hypothesis import strategies as st

from wattsched.instances.sizing.instance import Instance


@st.composite
def crowded_rounds(draw: st.DrawFn, most_jobs: int = 7) -> tuple[Instance, int, int]:
    """Rounds of a few nodes, and the size and number of jobs that are to fit.

    Some jobs stay, some GPUs are broken, some jobs lie across blocks.
    """
    capacity = draw(st.sampled_from(["blocks"] * 4 + ["nodes"] * 4 + ["count"]))
    sizes = draw(
        st.sampled_from([(4,) * 3, (4,) * 4, (8, 8), (4, 8, 8), (6,) * 3, (3,) * 4, (2,) * 5, (8, 4, 4)])
    )
    nodes = [{"name": f"n{i}", "gpu_type": "A", "gpus": n} for i, n in enumerate(sizes)]
    free = {(f"n{i}", g) for i, n in enumerate(sizes) for g in range(n)}
    if draw(st.integers(0, 7)) == 0:
        nodes[0]["unavailable"] = [0]
        free.remove(("n0", 0))
    alike, jobs = len(set(sizes)) == 1, []
    for j in range(draw(st.integers(2, most_jobs))):
        i = draw(st.integers(0, len(sizes) - 1))
        here, gpus = sorted(g for n, g in free if n == f"n{i}"), draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4]))
        if draw(st.integers(0, 9)):  # aligned, where that is free
            start = draw(st.integers(0, max(0, sizes[i] // gpus - 1))) * gpus
            taken = [*range(start, start + gpus)]
        else:
            taken = here[:gpus]
        if len(taken) < gpus or not set(taken) <= set(here):
            continue
        free -= {(f"n{i}", g) for g in taken}
        pool = "A" if alike else f"Ax{sizes[i]}"
        counts = sorted({1, gpus})
        table = {"gpus": counts, "pool": [pool] * len(counts), "power_w": [1.0] * len(counts), "rate": counts}
        current = {"gpus": gpus, "pool": pool, "nodes": {f"n{i}": taken}}
        keeps = draw(st.integers(0, 9)) == 0
        jobs.append({"name": f"j{j}", "options": table, "current": current, "preemptible": not keeps})
    cluster = {"gpu_types": {"A": {"idle_power_w": 50}}, "nodes": nodes, "capacity": capacity}
    count = draw(st.integers(1, 2))
    size = draw(st.sampled_from([n for n in (8, 6, 4, 3, 2, 1) if n * count <= len(free)][:3] or [1]))
    return Instance.model_validate({"cluster": cluster, "jobs": jobs}), size, count

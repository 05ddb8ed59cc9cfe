"""Profiles of the workloads of a field demonstration, their errors, and the draw of a day's minutes.

    python -m benchmarks.emerald_models --write

makes the table; `catalogue.py` puts the profiles into the catalogue.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.emerald_events import FOLDER, aps_minutes
from benchmarks.harness import Asked, data, run, sections, table
from wattsched.perfmodels.measurements import Measurements
from wattsched.perfmodels.power import PowerLimitTable, PowerModel
from wattsched.perfmodels.profile import FitError, Profile, find
from wattsched.perfmodels.throughput import Throughput
from wattsched.topology.arrays import FloatArray

SERVING = "llama-8b-serving"
MODELS = {
    "ft_llama_8b_dolly": "llama-8b-dolly",
    "ft_llama_8b_p3": "llama-8b-p3",
    "infer_llama_8b_48g": SERVING,
    "infer_llama_8b_32g": SERVING,
    "infer_llama_8b": SERVING,
    "pt_mpt_13b_lg": "mpt-13b-lg",
    "pt_mpt_13b_sm": "mpt-13b-sm",
    "pt_mpt_7b_fast": "mpt-7b-fast",
}
REPLICAS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
EVENT = (88, 316)
"""Minutes of `APS_job_power.csv` from the first lowered job to the last restored one."""


def sweep(path: Path, workload: str) -> Measurements:
    """Read the steps of a workload; its batch is its GPUs, a step of serving a unit for each of them."""
    rows = pd.read_csv(path)
    rows = rows[rows.Workload == workload].sort_values("GPU power cap")
    limit_w, rate, watts = (
        rows[column].to_numpy(dtype=float) for column in ("GPU power cap", "throughput", "power per GPU")
    )
    gpus, ones = round(float((rows["total GPU power"] / watts).mean())), np.ones(len(rows))
    step_s = (gpus if MODELS[workload] == SERVING else 1) / rate
    return Measurements(
        gpus * ones, np.ceil(gpus / 8) * ones, ones, step_s, power_limit_w=limit_w, power_w=watts
    )


def unseen_errors(limit_w: FloatArray, values: FloatArray) -> FloatArray:
    """Relative errors of the values at the inner limits, each from the others alone."""
    inner = np.arange(1, len(limit_w) - 1)
    told = [np.interp(limit_w[n], np.delete(limit_w, n), np.delete(values, n)) for n in inner]
    return np.asarray(np.abs(told / values[inner] - 1))


def fit_workload(path: Path, workload: str) -> Profile:
    """Make a profile that has the measured rates and watts at the measured limits."""
    m = sweep(path, workload)
    assert m.power_limit_w is not None
    assert m.power_w is not None
    gpus, served = int(m.gpus[0]), MODELS[workload] == SERVING
    sample = "one unit of the published rate of one GPU" if served else "a GPU's part of a step"
    counts = "replicas, assumed not to wait for each other" if served else "not measured"
    return Profile(
        model=MODELS[workload],
        gpu_type="A100",
        throughput=Throughput(alpha_c=0.0, beta_c=float(m.step_time_s[-1])),
        power=PowerModel(static_w=float(m.power_w[-1]), dynamic_w=0.0, sync_w=float(m.power_w[-1])),
        power_limits=PowerLimitTable(
            limit_w=m.power_limit_w.tolist(),
            local_batch=[1],
            slowdown=[(m.step_time_s / m.step_time_s[-1]).tolist()],
            power_w=[m.power_w.tolist()],
        ),
        batch_sizes=REPLICAS if served else [gpus],
        default_batch=gpus,
        max_local_batch=1,
        gpu_counts=REPLICAS if served else [gpus],
        source=f"A sample is {sample}; the batch is not published. {gpus} GPUs under six power limits: "
        f"Emerald AI, Phoenix 2025 (github.com/ai-emerald/emerald-ai-demo-may-2025, Apache-2.0), {workload}; "
        f"synchronisation counts as computation. Other GPU counts: {counts}.",
        fit_error=FitError(time_mean=0.0, time_max=0.0, power_mean=0.0, power_max=0.0),
        task="serving" if served else "training",
    )


def fit_emerald(folder: Path) -> list[Profile]:
    """Return a profile per model; the three sizes of inference are the same per GPU, and one profile."""
    made = {MODELS[name]: fit_workload(folder / FOLDER / "dvfs_sweep.csv", name) for name in MODELS}
    return list(made.values())


# -- the table -------------------------------------------------------------------------------------------


def profile_of(name: str) -> Profile:
    """Profile of a job or workload in the catalogue."""
    profile = find(MODELS[name.partition("-")[0]], "A100")
    assert profile is not None
    return profile


def percent(errors: FloatArray) -> str:
    """Mean and largest."""
    return f"{100 * np.mean(errors):.1f} / {100 * np.max(errors):.1f} %"


def of_limits() -> list[list[object]]:
    """Errors of each workload: at the limits, and at each inner one from the others."""
    rows: list[list[object]] = []
    for name in MODELS:
        m = sweep(data(FOLDER) / "dvfs_sweep.csv", name)
        profile, measured = profile_of(name), (m.step_time_s, m.power_w)
        ours = profile.iteration(m.gpus, m.nodes, m.local_batch, None, m.power_limit_w)
        fits = [np.abs(one / other - 1) for one, other in zip(ours, measured, strict=True)]
        unseen = [unseen_errors(m.power_limit_w, one) for one in measured]
        rows.append([f"`{name}`", f"`{profile.model}`", int(m.gpus[0]), *map(percent, (*fits, *unseen))])
    return rows


def of_minutes() -> list[list[object]]:
    """Draw of each job before and after an event by the profiles, and as it was measured."""
    minutes, gpus = aps_minutes()
    calm = minutes.drop(index=range(*EVENT))
    ours_w = {name: float(profile_of(name).power_w(n, n, None, None, 8)) for name, n in gpus.items()}
    ours_w["total (W)"] = sum(ours_w.values())
    return [
        [f"`{name}`", gpus.get(name, sum(gpus.values())), f"{calm[name].mean():,.0f}", f"{watts:,.0f}",
         f"{100 * (watts / calm[name] - 1).abs().mean():.1f} %"]
        for name, watts in ours_w.items()
    ]  # fmt: skip


def emerald_models(asked: Asked) -> str:
    """Both tables."""
    header = [
        "workload",
        "profile",
        "GPUs",
        "time",
        "watts",
        "time at a limit left out",
        "watts at one left out",
    ]
    about = (
        "Mean / largest relative error at the six power limits, and at the four inner ones left out in turn."
    )
    calm = f"{400 - EVENT[1] + EVENT[0]} minutes of 1 May before and after the event, all GPUs at 400 W."
    jobs = table(["job", "GPUs", "measured, W", "profile, W", "mean absolute error"], of_minutes())
    return sections({"The sweep": f"{about}\n\n{table(header, of_limits())}", "Minutes": f"{calm}\n\n{jobs}"})


TABLES = {"emerald-models": emerald_models}

if __name__ == "__main__":
    run(__doc__, TABLES)

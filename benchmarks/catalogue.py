"""Fit the profiles that come with the package to the public data sets.

    WATTSCHED_DATA=... python benchmarks/catalogue.py [--write]

``--write`` puts them into perfmodels/catalogue.json. `WATTSCHED_DATA` is the folder of the data sets.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.measurements import Measurements, read_measurements
from wattsched.perfmodels.power import (
    FrequencyModel,
    PowerModel,
    fit_memory_bound_share,
    fit_power_frequency,
)
from wattsched.perfmodels.profile import FitError, Profile
from wattsched.perfmodels.throughput import StatisticalEfficiency, Throughput, fit_noise_scale

CATALOGUE = Path(__file__).resolve().parent.parent / "perfmodels" / "catalogue.json"


@dataclass(frozen=True)
class Model:
    """A model of the catalogue: the batches to offer and where its data is.

    The efficiency comes from a Pollux folder or from the epochs to ``zeus_target``; ``zeus`` is
    (dataset, network), and the synchronisation that Zeus did not measure is that of ``borrow``,
    a (model, GPU type) of the catalogue.
    """

    batch_sizes: list[int]
    default_batch: int
    reference_batch: int = 1
    pollux_efficiency: str | None = None
    zeus_target: float | None = None
    elasticflow: str | None = None
    pollux: str | None = None
    zeus: tuple[str, str] | None = None
    borrow: tuple[str, str] = ("", "")


def powers(first: int, last: int, step: int = 2) -> list[int]:
    """Return ``first, first * step, ...`` up to `last`."""
    values = [first]
    while values[-1] * step <= last:
        values.append(values[-1] * step)
    return values


MODELS = {
    "bert": Model(
        powers(8, 256),
        default_batch=32,
        reference_batch=32,
        pollux_efficiency="bert",
        elasticflow="bert",
        pollux="bert",
        zeus=("squad", "bert_base_uncased"),
        borrow=("bert", "A100"),
    ),
    "bert-sentiment": Model(
        powers(8, 128),
        default_batch=128,
        zeus=("sentiment140", "bert_base_uncased"),
        borrow=("bert", "A100"),
    ),
    "cifar10": Model(
        powers(128, 4096),
        default_batch=128,
        reference_batch=128,
        pollux_efficiency="cifar10",
        pollux="cifar10",
    ),
    "deepspeech2": Model(
        powers(16, 256),
        default_batch=64,
        reference_batch=64,
        zeus_target=40.0,
        elasticflow="deepspeech2",
        pollux="deepspeech2",
        zeus=("librispeech", "deepspeech2"),
        borrow=("deepspeech2", "A100"),
    ),
    "gpt2": Model([128, 256], default_batch=128, elasticflow="gpt2"),
    "inception3": Model(
        powers(64, 1024),
        default_batch=128,
        reference_batch=256,
        pollux_efficiency="imagenet",
        elasticflow="inception3",
    ),
    "ncf": Model(
        powers(256, 16384, 4),
        default_batch=1024,
        reference_batch=1024,
        pollux_efficiency="ncf",
        pollux="ncf",
        zeus=("movielens-1m", "ncf"),
        borrow=("ncf", "T4"),
    ),
    "resnet50": Model(
        powers(64, 8192),
        default_batch=256,
        reference_batch=256,
        pollux_efficiency="imagenet",
        elasticflow="resnet50",
        pollux="imagenet",
        zeus=("imagenet", "resnet50"),
        borrow=("resnet50", "A100"),
    ),
    "shufflenetv2": Model(
        powers(32, 1024),
        default_batch=1024,
        reference_batch=128,
        zeus_target=0.6,
        zeus=("cifar100", "shufflenetv2"),
        borrow=("resnet50", "A100"),
    ),
    "vgg16": Model(
        powers(64, 1024),
        default_batch=256,
        reference_batch=256,
        pollux_efficiency="imagenet",
        elasticflow="vgg16",
    ),
    "yolov3": Model(
        powers(8, 512), default_batch=16, reference_batch=8, pollux_efficiency="yolov3", pollux="yolov3"
    ),
}

# Idle and full draw of a GPU in W (the table of the PWR paper) and the waiting draw that Perseus measured.
A100_IDLE_W, A100_FULL_W, A100_SYNC_W = 50.0, 400.0, 83.64
T4_IDLE_W, T4_FULL_W = 10.0, 70.0
A40_SYNC_W = 70.38
SYNC_SHARE = (A100_SYNC_W - A100_IDLE_W) / (A100_FULL_W - A100_IDLE_W)
ZEUS_SYNC_W = {
    "V100": 30.0 + SYNC_SHARE * (250.0 - 30.0),
    "P100": 25.0 + SYNC_SHARE * (250.0 - 25.0),
    "A40": A40_SYNC_W,
}

A100_MAX_MHZ = 1410
A100_CHOICES_MHZ = [855, 930, 1005, 1080, 1155, 1230, 1320, 1410]
GPU_COUNTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
SYNC_TERMS = ("alpha_r", "beta_r", "alpha_n", "beta_n", "gamma")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the packaged profiles to the public data sets.")
    parser.add_argument("--write", action="store_true", help="write perfmodels/catalogue.json")
    arguments = parser.parse_args()
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    profiles = fit_catalogue(Path(os.environ["WATTSCHED_DATA"]))
    if arguments.write:
        CATALOGUE.write_text(to_json(profiles), encoding="utf-8")
    for profile in profiles:
        print(f"{profile.model:15} {profile.gpu_type:5} {profile.fit_error}")


def to_json(profiles: list[Profile]) -> str:
    """Write the profiles as JSON, a profile per line, six significant digits, defaults left out."""
    documents = [rounded(profile.model_dump(exclude_defaults=True)) for profile in profiles]
    return "[\n" + ",\n".join(json.dumps(document) for document in documents) + "\n]\n"


def fit_catalogue(data: Path) -> list[Profile]:
    """Return the fitted profiles, ordered by model and GPU type."""
    efficiencies = {name: fit_efficiency(data, model) for name, model in MODELS.items()}
    frequency, power, power_error = fit_a100_clock(data)
    fitted: dict[tuple[str, str], Profile] = {}
    for name, model in MODELS.items():
        if model.elasticflow is not None:
            profile = fit_a100(data, name, model, power)
            errors = {"power_mean": power_error[0], "power_max": power_error[1]}
            fit_error = FitError.model_validate({**dict(profile.fit_error or ()), **errors})
            fitted[name, "A100"] = profile.model_copy(update={"frequency": frequency, "fit_error": fit_error})
        if model.pollux is not None:
            fitted[name, "T4"] = fit_t4(data, name, model)
    for name, model in MODELS.items():
        for gpu_type in ("A40", "P100", "V100") if model.zeus is not None else ():
            fitted[name, gpu_type] = fit_zeus(data, name, model, gpu_type, fitted[model.borrow].throughput)
    return [
        finished(profile, MODELS[name], efficiencies[name]) for (name, _), profile in sorted(fitted.items())
    ]


def finished(profile: Profile, model: Model, efficiency: StatisticalEfficiency | None) -> Profile:
    """Give a profile the batches and the efficiency of its model."""
    update = {
        "batch_sizes": model.batch_sizes,
        "default_batch": model.default_batch,
        "gpu_counts": GPU_COUNTS,
        "efficiency": efficiency,
    }
    return Profile.model_validate({**dict(profile), **update})


def fit_efficiency(data: Path, model: Model) -> StatisticalEfficiency | None:
    """Noise scale from Pollux' progress or from Zeus' epochs to a target; one for all GPU types."""
    if model.pollux_efficiency is not None:
        batches, samples = read_validation(data / "pollux-2021" / "traces" / model.pollux_efficiency)
    elif model.zeus_target is not None and model.zeus is not None:
        table = data / "zeus-2023" / "summary_train.csv"
        batches, samples = read_epochs_to_target(table, *model.zeus, model.zeus_target)
        # Below and above the offered batches other effects than gradient noise decide.
        low, high = model.batch_sizes[0], model.batch_sizes[-1]
        kept = [(b, s) for b, s in zip(batches, samples, strict=True) if low <= b <= high]
        batches, samples = [b for b, _ in kept], [s for _, s in kept]
    else:
        return None
    noise_scale, _ = fit_noise_scale(batches, samples)
    return StatisticalEfficiency(reference_batch=model.reference_batch, noise_scale=noise_scale)


def read_validation(folder: Path) -> tuple[list[int], list[float]]:
    """Batches and samples to the same progress from the ``validation-B.csv`` files of Pollux.

    ``progress`` counts iterations at the smallest batch that would teach as much: its increments are
    the gains that Pollux computes from ``grad_sqr`` and ``grad_var``.

    Raises
    ------
    ValueError
        If the folder holds no such file.
    """
    files = {int(path.stem.split("-")[1]): path for path in folder.glob("validation-*.csv")}
    if not files:
        raise ValueError(f"no validation-B.csv file in {folder}")
    last = {batch: pd.read_csv(files[batch]).iloc[-1] for batch in sorted(files)}
    return list(last), [float(batch * row.iteration / row.progress) for batch, row in last.items()]


def read_epochs_to_target(
    path: Path, dataset: str, network: str, target: float
) -> tuple[list[int], list[float]]:
    """Batches and mean epochs to the target metric from the ``summary_train.csv`` of Zeus.

    A batch of which some run never reached the target is left out.

    Raises
    ------
    ValueError
        If no batch reached the target.
    """
    runs = pd.read_csv(path)
    runs = runs[(runs.dataset == dataset) & (runs.network == network)]
    runs = runs[np.isclose(runs.target_metric, target)]
    means = runs.groupby("batch_size").target_epoch.agg(lambda epochs: epochs.mean(skipna=False)).dropna()
    if means.empty:
        raise ValueError(f"{path.name}: no batch of {network} on {dataset} reached {target}")
    return means.index.tolist(), means.tolist()


def fit_a100_clock(data: Path) -> tuple[FrequencyModel, PowerModel, tuple[float, float]]:
    """Clock sensitivity, power curve and its mean and maximum error, over the large-model stages."""
    folder = data / "perseus-2024" / "stage_profile"
    models = ("gpt3-175b", "bloom")
    tables = [pd.read_csv(folder / f"{model}+a100_sxm_bf16.csv").assign(model=model) for model in models]
    stages = pd.concat(tables)
    key = ["model", "stage", "instruction"]
    fastest = stages[stages.frequency == A100_MAX_MHZ].drop_duplicates(key, keep="last")
    stages = stages.merge(fastest[[*key, "time"]], on=key, suffixes=("", "_fastest"))
    clock = stages.frequency.to_numpy() / A100_MAX_MHZ
    slowdown, watts = stages.time / stages.time_fastest, (stages.energy / stages.time).to_numpy()
    frequency = FrequencyModel(
        max_mhz=A100_MAX_MHZ,
        choices_mhz=A100_CHOICES_MHZ,
        memory_bound_share=fit_memory_bound_share(clock, slowdown),
    )
    power = fit_power_frequency(clock, watts, sync_w=A100_SYNC_W)
    error = np.abs(power.computing_w(clock) / watts - 1.0)
    return frequency, power, (float(error.mean()), float(error.max()))


def fit_a100(data: Path, name: str, model: Model, power: PowerModel) -> Profile:
    """ElasticFlow's throughput table with the power curve of Perseus."""
    path = data / "elasticflow-profiles" / "throughputs_A100" / f"{model.elasticflow}.csv"
    source = (
        f"Throughput: ElasticFlow throughputs_A100/{model.elasticflow}.csv. Clock sensitivity and watts: "
        "assumed to be those of the GPT-3 175B and BLOOM stages on A100-SXM in Perseus; "
        "waiting in communication 83.64 W (Perseus)."
    )
    if name in ("inception3", "vgg16"):
        source += " Noise scale: that of resnet50 on the same data set."
    return fit_profile(read_measurements(path), name, "A100", power=power, source=source, folds=0).profile


def fit_t4(data: Path, name: str, model: Model) -> Profile:
    """Pollux' placement and scalability tables; the draw is assumed."""
    folder = data / "pollux-2021" / "traces" / str(model.pollux)
    tables = [read_measurements(folder / f"{table}.csv") for table in ("placements", "scalability")]
    power = PowerModel(
        static_w=T4_IDLE_W,
        dynamic_w=T4_FULL_W - T4_IDLE_W,
        sync_w=T4_IDLE_W + SYNC_SHARE * (T4_FULL_W - T4_IDLE_W),
    )
    source = (
        f"Throughput: Pollux traces/{model.pollux} placements.csv and scalability.csv (4-GPU nodes). Watts: "
        "not measured; idle 10 W and full 70 W of the PWR table, full while computing."
    )
    return fit_profile(joined(tables), name, "T4", power=power, source=source, folds=0).profile


def joined(tables: list[Measurements]) -> Measurements:
    """Return the steps of several tables with the same columns as one."""
    columns = [table.columns() for table in tables]
    return Measurements(**{name: np.concatenate([c[name] for c in columns]) for name in columns[0]})


def fit_zeus(data: Path, name: str, model: Model, gpu_type: str, lender: Throughput) -> Profile:
    """Zeus' single-GPU tables, with the synchronisation terms of another GPU type."""
    dataset, network = model.zeus or ("", "")
    path = data / "zeus-2023" / f"summary_power_{gpu_type.lower()}.csv"
    measurements = read_measurements(path, where={"dataset": dataset, "network": network})
    borrowed = f"{model.borrow[0]} on {model.borrow[1]}"
    source = (
        f"One GPU: Zeus {path.name}, {dataset} {network}. Several GPUs: not measured; synchronisation "
        f"terms of {borrowed}. Waiting in communication "
        + ("70.38 W (Perseus)." if gpu_type == "A40" else "as far above idle as on A100.")
    )
    profile = fit_profile(measurements, name, gpu_type, source=source, folds=0).profile
    sync = {term: getattr(lender, term) for term in SYNC_TERMS}
    lowest_w = min(min(row) for row in profile.power_limits.power_w) if profile.power_limits else np.inf
    sync_w = min(ZEUS_SYNC_W[gpu_type], lowest_w)
    update = {
        "throughput": profile.throughput.model_copy(update=sync),
        "power": profile.power.model_copy(update={"sync_w": sync_w}),
    }
    return profile.model_copy(update=update)


def rounded(value: Any) -> Any:
    """Round every number of a JSON document to six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


if __name__ == "__main__":
    main()

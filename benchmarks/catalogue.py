"""Fit the profiles that come with the package to the public data sets.

    python -m benchmarks.catalogue --write

puts them into perfmodels/catalogue.json; without ``--write`` it prints the errors of the fits alone.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import emerald_models, today
from benchmarks.harness import data
from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.measurements import Measurements, read_measurements
from wattsched.perfmodels.power import FrequencyModel, PowerModel, fit_power_frequency
from wattsched.perfmodels.profile import Profile
from wattsched.perfmodels.throughput import StatisticalEfficiency, Throughput, fit_noise_scale

CATALOGUE = Path(__file__).resolve().parent.parent / "perfmodels" / "catalogue.json"


@dataclass(frozen=True)
class Model:
    """A model of the catalogue: the batches to offer and where its data is.

    The efficiency comes from a Pollux folder (``progress``) or from the epochs to ``zeus_target``. ``a100``
    says that ElasticFlow has its rates, ``t4`` is the folder of Pollux that has them, ``zeus`` is (dataset,
    network). The synchronisation that Zeus did not measure is that of ``borrow``, a (model, GPU type) of the
    catalogue. Where its watts were not measured it draws as large a share of the board's limit as
    ``watts_of``, a name that `power_shares` measures; default: its own.
    """

    batch_sizes: list[int]
    default_batch: int
    reference_batch: int = 1
    progress: str | None = None
    zeus_target: float | None = None
    a100: bool = False
    t4: str | None = None
    zeus: tuple[str, str] | None = None
    borrow: tuple[str, str] = ("", "")
    watts_of: str = ""


def powers(first: int, last: int, step: int = 2) -> list[int]:
    """Return ``first, first * step, ...`` up to `last`."""
    values = [first]
    while values[-1] * step <= last:
        values.append(values[-1] * step)
    return values


MODELS = {
    "bert": Model(powers(8, 256), 32, 32, progress="bert", a100=True, t4="bert",
                  zeus=("squad", "bert_base_uncased"), borrow=("bert", "A100")),
    "bert-sentiment": Model(powers(8, 128), 128, zeus=("sentiment140", "bert_base_uncased"),
                            borrow=("bert", "A100")),
    "cifar10": Model(powers(128, 4096), 128, 128, progress="cifar10", t4="cifar10", watts_of="resnet18"),
    "deepspeech2": Model(powers(16, 256), 64, 64, zeus_target=40.0, a100=True, t4="deepspeech2",
                         zeus=("librispeech", "deepspeech2"), borrow=("deepspeech2", "A100")),
    "gpt2": Model([128, 256], 128, a100=True, watts_of="gpt3"),
    "inception3": Model(powers(64, 1024), 128, 256, progress="imagenet", a100=True, watts_of="resnet50"),
    "ncf": Model(powers(256, 16384, 4), 1024, 1024, progress="ncf", t4="ncf", zeus=("movielens-1m", "ncf"),
                 borrow=("ncf", "T4")),
    "resnet50": Model(powers(64, 8192), 256, 256, progress="imagenet", a100=True, t4="imagenet",
                      zeus=("imagenet", "resnet50"), borrow=("resnet50", "A100")),
    "shufflenetv2": Model(powers(32, 1024), 1024, 128, zeus_target=0.6, zeus=("cifar100", "shufflenetv2"),
                          borrow=("resnet50", "A100")),
    "vgg16": Model(powers(64, 1024), 256, 256, progress="imagenet", a100=True, watts_of="resnet50"),
    "yolov3": Model(powers(8, 512), 16, 8, progress="yolov3", t4="yolov3", watts_of="resnet50"),
}  # fmt: skip

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
BOARDS_W = {"V100": 250, "A40": 300, "P100": 250}
"""Limits of the boards of Zeus; the A40 of Perseus has the same."""
LIKE_NEWER = ("V100", "A40")
"""Boards with tensor cores, as A100 and T4 have them; P100 lacks them and never reaches its limit."""
SYNC_TERMS = ("alpha_r", "beta_r", "alpha_n", "beta_n", "gamma")


def to_json(profiles: list[Profile]) -> str:
    """Write the profiles as JSON, a profile per line, six significant digits, defaults left out."""
    documents = [rounded(profile.model_dump(exclude_defaults=True)) for profile in profiles]
    return "[\n" + ",\n".join(json.dumps(document) for document in documents) + "\n]\n"


def fit_catalogue(folder: Path) -> list[Profile]:
    """Return the fitted profiles, ordered by model and GPU type."""
    efficiencies = {name: fit_efficiency(folder, model) for name, model in MODELS.items()}
    frequency, power = fit_a100_clock(folder)
    shares = power_shares(folder)
    fitted: dict[tuple[str, str], Profile] = {}
    for name, model in MODELS.items():
        if model.a100:
            profile = fit_a100(folder, name, power, shares[name])
            fitted[name, "A100"] = profile.model_copy(update={"frequency": frequency})
        if model.t4 is not None:
            fitted[name, "T4"] = fit_t4(folder, name, model, shares[name])
    for (name, gpu_type), profile in fitted.items():
        fitted[name, gpu_type] = profile.model_copy(update={"power_uncertainty": shares[name].error})
    for name, model in MODELS.items():
        for gpu_type in ("A40", "P100", "V100") if model.zeus is not None else ():
            fitted[name, gpu_type] = fit_zeus(folder, name, model, gpu_type, fitted[model.borrow].throughput)
    profiles = [finished(profile, MODELS[name], efficiencies[name]) for (name, _), profile in fitted.items()]
    offers = {name: today.Offer(m.batch_sizes, m.default_batch, 0, []) for name, m in MODELS.items()}
    profiles += today.fit_today(folder, efficiencies, offers, shares["resnet50"].error)
    profiles += emerald_models.fit_emerald(folder)
    return sorted(profiles, key=lambda profile: (profile.model, profile.gpu_type))


def finished(profile: Profile, model: Model, efficiency: StatisticalEfficiency | None) -> Profile:
    """Give a profile the batches and the efficiency of its model."""
    update = {
        "batch_sizes": model.batch_sizes,
        "default_batch": model.default_batch,
        "gpu_counts": GPU_COUNTS,
        "efficiency": efficiency,
    }
    return Profile.model_validate({**dict(profile), **update})


def fit_efficiency(data_dir: Path, model: Model) -> StatisticalEfficiency | None:
    """Noise scale from Pollux' progress or from Zeus' epochs to a target; one for all GPU types."""
    if model.progress is not None:
        batches, samples = read_validation(data_dir / "pollux-2021" / "traces" / model.progress)
    elif model.zeus_target is not None and model.zeus is not None:
        table = data_dir / "zeus-2023" / "summary_train.csv"
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


@dataclass(frozen=True)
class PowerShare:
    """Draw of a computing GPU as a share of its board's limit, its relative error, and where it is from."""

    share: float
    error: float
    source: str


def power_shares(data_dir: Path) -> dict[str, PowerShare]:
    """Shares of the board's limit that models of `MODELS` draw where nothing holds them.

    The share is the mean of the boards of `LIKE_NEWER`; its error is the root of the mean square of the
    relative distances of all boards.
    """
    measured = {
        name: zeus_shares(data_dir, *model.zeus) for name, model in MODELS.items() if model.zeus is not None
    }
    measured["resnet18"] = {gpu: resnet18_share(data_dir, gpu) for gpu in LIKE_NEWER}
    shares = {}
    for name, of_boards in measured.items():
        share = float(np.mean([of_boards[gpu] for gpu in LIKE_NEWER]))
        off = np.array(list(of_boards.values())) / share - 1.0
        error = float(np.sqrt(np.mean(off**2)))
        shares[name] = PowerShare(share, error, f"{name} on {', '.join(of_boards)} (Zeus)")
    # Measured on two boards or one: no better known than what was measured on three.
    least = shares["resnet50"].error
    shares["resnet18"] = replace(shares["resnet18"], error=max(least, shares["resnet18"].error))
    shares["gpt3"] = PowerShare(
        large_model_share(data_dir), least, "GPT-3 175B and BLOOM stages on A40 (Perseus)"
    )
    # Of a model that is like another one no more is known than of that one.
    of_models = {name: model.watts_of or name for name, model in MODELS.items()}
    return {name: shares[like] for name, like in of_models.items() if like in shares}


def zeus_shares(data_dir: Path, dataset: str, network: str) -> dict[str, float]:
    """Mean over the batches at the highest limit, by GPU type."""
    shares = {}
    for gpu_type, limit_w in BOARDS_W.items():
        table = pd.read_csv(data_dir / "zeus-2023" / f"summary_power_{gpu_type.lower()}.csv")
        rows = table[(table.dataset == dataset) & (table.network == network) & (table.power_limit == limit_w)]
        shares[gpu_type] = float(rows.groupby("batch_size").average_power.mean().mean() / limit_w)
    return shares


def resnet18_share(data_dir: Path, gpu_type: str) -> float:
    """Share of the highest limit in a sweep of Zeus on one GPU."""
    sweep = pd.read_csv(data_dir / "zeus-2023" / "power-limit-profiles" / f"{gpu_type}+resnet18+gpu0.csv")
    highest = sweep[sweep.window_name.str.endswith(f"{BOARDS_W[gpu_type]}")]
    return float((highest.gpu0_energy / highest.elapsed_time).mean() / BOARDS_W[gpu_type])


def large_model_share(data_dir: Path) -> float:
    """Share of its limit that an A40 draws in the stages of large models at the highest clock."""
    stages = stage_tables(data_dir, "a40")
    fastest = stages[stages.frequency == stages.frequency.max()]
    return float((fastest.energy / fastest.time).mean() / BOARDS_W["A40"])


def stage_tables(data_dir: Path, gpu: str) -> pd.DataFrame:
    """Time and energy of the stages of both large models of Perseus."""
    folder = data_dir / "perseus-2024" / "stage_profile"
    models = ("gpt3-175b", "bloom")
    return pd.concat(
        [pd.read_csv(folder / f"{model}+{gpu}_bf16.csv").assign(model=model) for model in models]
    )


def fit_memory_bound_share(relative_frequency: np.ndarray, slowdown: pd.Series) -> float:
    """Fit a of ``slowdown = a + (1 - a) / x`` by least squares, between 0 and 1."""
    stretch = 1.0 / relative_frequency - 1.0
    measured = slowdown - 1.0
    clock_bound = float(np.sum(stretch * measured) / np.sum(stretch**2)) if np.any(stretch > 0) else 1.0
    return float(np.clip(1.0 - clock_bound, 0.0, 1.0))


def fit_a100_clock(data_dir: Path) -> tuple[FrequencyModel, PowerModel]:
    """Clock sensitivity and power curve of the large-model stages."""
    stages = stage_tables(data_dir, "a100_sxm")
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
    return frequency, fit_power_frequency(clock, watts, sync_w=A100_SYNC_W)


def drawing(power: PowerModel, share: PowerShare) -> PowerModel:
    """Curve of an A100 that draws a share of its board's limit at the highest clock.

    The watts above those of waiting are scaled, so that a model that draws less is as much less bent.
    """
    scale = (share.share * A100_FULL_W - power.sync_w) / (power.static_w + power.dynamic_w - power.sync_w)
    static_w = power.sync_w + scale * (power.static_w - power.sync_w)
    return power.model_copy(update={"static_w": static_w, "dynamic_w": scale * power.dynamic_w})


def fit_a100(data_dir: Path, name: str, power: PowerModel, share: PowerShare) -> Profile:
    """ElasticFlow's throughput table with the clock and the curve of Perseus, scaled to a share."""
    path = data_dir / "elasticflow-profiles" / "throughputs_A100" / f"{name}.csv"
    source = (
        f"Throughput: ElasticFlow throughputs_A100/{name}.csv. Watts at the highest clock: "
        f"{100 * share.share:.0f} % of 400 W, the share of the limit of {share.source}. Clock sensitivity "
        "and curve: assumed to be those of the GPT-3 175B and BLOOM stages on A100-SXM in Perseus; waiting "
        "83.64 W (Perseus)."
    )
    if name in ("inception3", "vgg16"):
        source += " Noise scale: that of resnet50 on the same data set."
    measurements = read_measurements(path)
    return fit_profile(
        measurements, name, "A100", power=drawing(power, share), source=source, folds=0
    ).profile


def fit_t4(data_dir: Path, name: str, model: Model, share: PowerShare) -> Profile:
    """Pollux' placement and scalability tables; the draw is a share of the board's limit."""
    folder = data_dir / "pollux-2021" / "traces" / str(model.t4)
    tables = [read_measurements(folder / f"{table}.csv") for table in ("placements", "scalability")]
    computing_w = max(share.share * T4_FULL_W, T4_IDLE_W)
    power = PowerModel(
        static_w=T4_IDLE_W,
        dynamic_w=computing_w - T4_IDLE_W,
        sync_w=min(computing_w, T4_IDLE_W + SYNC_SHARE * (T4_FULL_W - T4_IDLE_W)),
    )
    source = (
        f"Throughput: Pollux traces/{model.t4} placements.csv and scalability.csv (4-GPU nodes). Watts: "
        f"not measured; {100 * share.share:.0f} % of 70 W, the share of the limit of {share.source}."
    )
    return fit_profile(joined(tables), name, "T4", power=power, source=source, folds=0).profile


def joined(tables: list[Measurements]) -> Measurements:
    """Return the steps of several tables with the same columns as one."""
    columns = [table.columns() for table in tables]
    return Measurements(**{name: np.concatenate([c[name] for c in columns]) for name in columns[0]})


def fit_zeus(data_dir: Path, name: str, model: Model, gpu_type: str, lender: Throughput) -> Profile:
    """Zeus' single-GPU tables, with the synchronisation terms of another GPU type."""
    dataset, network = model.zeus or ("", "")
    path = data_dir / "zeus-2023" / f"summary_power_{gpu_type.lower()}.csv"
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
    made = fit_catalogue(data())
    if "--write" in sys.argv[1:]:
        CATALOGUE.write_text(to_json(made), encoding="utf-8")
    for one in made:
        print(f"{one.model:17} {one.gpu_type:6} {one.fit_error}")

"""Fit the profiles of today's GPUs and models to published figures, for `catalogue.py`.

Where a GPU type has no figures of a model, the computation of the H100 is scaled, and the source says so.
Inside one node synchronisation cannot be told from computation and counts as it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from benchmarks.published_gpus import (
    SAMPLES_TO_TARGET,
    SERVER_W,
    SOURCES,
    Row,
    node_watts,
    rates,
    slowdowns,
)
from benchmarks.today_models import LIMITED_AS, LIMITS_W, MODELS, SERVED, SMALL, Offer, doubling
from wattsched.instances.clusters import GPU_TYPES
from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.measurements import Measurements
from wattsched.perfmodels.power import PowerLimitTable, PowerModel
from wattsched.perfmodels.profile import FitError, Profile
from wattsched.perfmodels.throughput import StatisticalEfficiency, Throughput, fit_noise_scale, fit_throughput
from wattsched.topology.arrays import FloatArray

REFERENCE = "H100"
LIKE_OTHERS = "llama2-70b-lora"
YARDSTICKS = {"H200": LIKE_OTHERS, "B200": LIKE_OTHERS, "MI300X": LIKE_OTHERS, "L40S": "stable-diffusion"}
"""What is measured on a type and on the H100: other models compute as many times as fast there (assumed).
With `llama2-70b-lora` the L40S waits for PCIe in every layer, which models on one card each do not."""

SYNC_TERMS = {"alpha_r", "beta_r", "alpha_n", "beta_n"}


def board_w(gpu_type: str) -> float:
    """Board limit of a GPU type."""
    limit_w = GPU_TYPES[gpu_type].max_power_w
    assert limit_w is not None
    return limit_w


def title(source: str) -> str:
    """Name of a source without its address."""
    return SOURCES[source].partition(" (")[0]


def gpu_w(row: Row) -> float:
    """Watts of one GPU of a node that was measured as a whole."""
    return (row.value - SERVER_W) / row.gpus_per_node


def measurements(rows: Sequence[Row]) -> Measurements:
    """Steps of published rates; GPUs of one node count as one, whose synchronisation is not seen."""
    gpus, nodes, batch, rate = np.array([(r.gpus, r.nodes, r.batch, r.value) for r in rows], dtype=float).T
    return Measurements(np.where(nodes > 1, gpus, 1.0), nodes, batch / gpus, batch / rate)


def throughput_of(rows: Sequence[Row]) -> Throughput:
    """Fit the published rates of a model on a GPU type.

    Of a single local batch, neither a constant part of the computation nor one of the synchronisation can be
    told from the part per sample, so that both are 0.
    """
    m = measurements(rows)
    if np.ptp(m.local_batch) > 0:
        return fit_throughput(m).throughput
    beyond = np.where(m.nodes > 1, m.gpus - 2.0, 0.0)
    columns = np.stack([m.local_batch, beyond], axis=1) / m.step_time_s[:, None]
    beta_c, beta_n = np.linalg.lstsq(columns, np.ones(len(m)), rcond=None)[0].tolist()
    return Throughput(alpha_c=0.0, beta_c=beta_c, beta_n=max(beta_n, 0.0))


def faster(base: Throughput, speed: float) -> Throughput:
    """Return the same with a computation so many times as fast."""
    return base.model_copy(update={"alpha_c": base.alpha_c / speed, "beta_c": base.beta_c / speed})


def speed_at(base: Throughput, rows: Sequence[Row]) -> float:
    """How many times as fast the computation must be for the mean logarithmic error of the rates to be 0."""

    def error(log_speed: float) -> float:
        steps = measurements(rows)
        predicted = predicted_s(faster(base, float(np.exp(log_speed))), steps)
        return float(np.log(predicted / steps.step_time_s).mean())

    return float(np.exp(brentq(error, -7.0, 7.0)))


def predicted_s(throughput: Throughput, m: Measurements) -> FloatArray:
    """Step times of a fit."""
    return throughput.iteration_time_s(throughput.grad_time_s(m.local_batch), m.gpus, m.nodes)


def _order(name: str) -> tuple[bool, bool, bool]:
    """What others are scaled by comes first, and what takes the synchronisation of another last."""
    return name != LIKE_OTHERS, name not in YARDSTICKS.values(), MODELS[name].sync_of is not None


def _by_profile(use: str) -> dict[tuple[str, str], list[Row]]:
    rows: dict[tuple[str, str], list[Row]] = {}
    for row in rates():
        if row.use == use:
            rows.setdefault((row.model, row.gpu_type), []).append(row)
    return rows


class Fitted:
    """The throughputs and watts of all models on all types, from the rows that are fitted."""

    def __init__(self) -> None:
        self.rows, self.sync_rows = _by_profile("fit"), _by_profile("sync")
        self.watts = [row for row in node_watts() if row.use == "fit"]
        self.throughputs: dict[tuple[str, str], Throughput] = {}
        self.source_of: dict[tuple[str, str], str] = {}
        for name in sorted(MODELS, key=_order):
            for gpu_type in MODELS[name].offers:
                self._fit(name, gpu_type)
        self.sync_part = self._sync_part()

    def _fit(self, name: str, gpu_type: str) -> None:
        key, model, rows = (name, gpu_type), MODELS[name], self.rows.get((name, gpu_type), [])
        used = ", ".join(dict.fromkeys(title(row.source) for row in rows))
        settings = {(row.gpus, row.batch) for row in rows}
        if len(settings) > 1:
            self.throughputs[key] = throughput_of(rows)
            self.source_of[key] = f"Throughput: fitted to {len(rows)} published rates ({used})."
        elif gpu_type == REFERENCE:
            lender, times = model.sync_of or ("", 0.0)
            own = throughput_of(rows)
            sync = {term: times * getattr(self.throughputs[lender, REFERENCE], term) for term in SYNC_TERMS}
            self.throughputs[key] = own.model_copy(update=sync)
            self.source_of[key] = f"Throughput: a published rate ({used})."
        elif rows:
            base, same = self.throughputs[name, REFERENCE], "assumed to be the same"
            if other := self.sync_rows.get(key):
                sync = throughput_of(other).model_dump(include=SYNC_TERMS)
                base, same = (
                    base.model_copy(update=sync),
                    f"that of runs with {other[0].precision} ({title(other[0].source)})",
                )
            self.throughputs[key] = faster(base, speed_at(base, rows))
            scaled = f"Throughput: that of {REFERENCE} scaled to a published rate ({used})"
            self.source_of[key] = f"{scaled}; synchronisation {same}."
        else:
            base, speed = self.throughputs[name, REFERENCE], self.yardstick(gpu_type)
            self.throughputs[key] = faster(base, speed)
            self.source_of[key] = (
                f"Throughput: assumed, that of {REFERENCE} with a computation {speed:.3g} times as fast, as "
                f"{YARDSTICKS[gpu_type]} has; synchronisation assumed to be the same."
            )

    def yardstick(self, gpu_type: str) -> float:
        """Speed of a GPU type on its yardstick over that of the H100, at its median batch."""
        name = YARDSTICKS[gpu_type]
        local = float(np.median([row.batch / row.gpus for row in self.rows[name, gpu_type]]))
        one, other = (self.throughputs[name, kind].grad_time_s(local) for kind in (REFERENCE, gpu_type))
        return float(one / other)

    def computing_w(self, name: str, gpu_type: str) -> tuple[float, str]:
        """Draw of a computing GPU, and where it comes from."""
        measured = {(row.model, row.gpu_type): gpu_w(row) for row in self.watts if row.nodes == 1}
        kind = gpu_type if (LIKE_OTHERS, gpu_type) in measured else REFERENCE
        if (name, gpu_type) in measured:
            return measured[name, gpu_type], (
                f"from the draw of a whole node (MLPerf power) less {SERVER_W:g} W of the server"
            )
        likeness = next((key for key in measured if key[0] == name), (LIKE_OTHERS, kind))
        part = measured[likeness] / board_w(likeness[1])
        like = f"{likeness[0]} on {likeness[1]}"
        return part * board_w(gpu_type), f"assumed, {100 * part:.1f} % of the board limit as {like}"

    def _sync_part(self) -> float:
        """Where between idle and full a waiting H100 draws: least squares over nodes of several."""
        idle_w, apart, missing = GPU_TYPES[REFERENCE].idle_power_w, [], []
        for row in self.watts:
            if row.nodes > 1:
                throughput = self.throughputs[row.model, row.gpu_type]
                grad_s = throughput.grad_time_s(row.batch / row.gpus)
                share = float(grad_s / throughput.iteration_time_s(grad_s, row.gpus, row.nodes))
                full_w = self.computing_w(row.model, row.gpu_type)[0]
                apart.append((1.0 - share) * (full_w - idle_w))
                missing.append(gpu_w(row) - share * full_w - (1.0 - share) * idle_w)
        part = float(np.dot(apart, missing) / np.dot(apart, apart))
        return float(np.clip(part, 0.0, 1.0))


def fit_today(
    data: Path,
    efficiencies: Mapping[str, StatisticalEfficiency | None],
    batches: Mapping[str, Offer],
    power_uncertainty: float,
) -> list[Profile]:
    """Return the profiles; `efficiencies` and `batches` are those of models that older GPUs have, too.

    `power_uncertainty` is the relative error to expect of watts that were not measured.
    """
    fitted, profiles = Fitted(), []
    for name, model in MODELS.items():
        efficiency = efficiencies[name] if name in efficiencies else efficiency_of(name)
        for gpu_type, own in model.offers.items():
            shared = batches.get(name)
            offer = own
            if shared is not None:
                offer = replace(own, batch_sizes=shared.batch_sizes, default_batch=shared.default_batch)
            profile = _profile(fitted, name, gpu_type, offer, efficiency)
            if profile.power_error is None:
                profile = profile.model_copy(update={"power_uncertainty": power_uncertainty})
            profiles.append(profile)
    return [*profiles, *(fit_serving(data, name, kind) for name in SERVED for kind in ("H100", "B200"))]


def efficiency_of(name: str) -> StatisticalEfficiency | None:
    """Efficiency from the samples that MLPerf runs took to their target."""
    if name not in SAMPLES_TO_TARGET:
        return None
    samples = SAMPLES_TO_TARGET[name]
    noise_scale, _ = fit_noise_scale(list(samples), list(samples.values()))
    return StatisticalEfficiency(reference_batch=min(samples), noise_scale=noise_scale)


def _profile(
    fitted: Fitted, name: str, gpu_type: str, offer: Offer, efficiency: StatisticalEfficiency | None
) -> Profile:
    model, full = MODELS[name], fitted.computing_w(name, gpu_type)
    idle_w = GPU_TYPES[gpu_type].idle_power_w
    sync_w = idle_w + fitted.sync_part * (full[0] - idle_w)
    limits = np.array(LIMITS_W[gpu_type], dtype=float)
    limited_as = LIMITED_AS.get(name, "llama3-8b")
    slowdown = np.interp(limits / board_w(gpu_type), *slowdowns(limited_as))
    assumed = "" if gpu_type == REFERENCE else "assumed, "
    waiting = "assumed as on H100."
    if gpu_type == REFERENCE:
        waiting = "the idle draw, where the fit to runs on 64 and 512 GPUs ends."
    source = (
        f"A sample is {model.sample}.",
        fitted.source_of[name, gpu_type],
        model.notes.get(gpu_type, ""),
        f"Watts: {full[1]}; waiting for other nodes {waiting}",
        f"Power limits: {assumed}as {limited_as} on H100 ({title('fau-2026')}).",
    )
    profile = Profile(
        model=name,
        gpu_type=gpu_type,
        throughput=fitted.throughputs[name, gpu_type],
        power=PowerModel(static_w=full[0], dynamic_w=0.0, sync_w=sync_w),
        power_limits=PowerLimitTable(
            limit_w=limits.tolist(),
            local_batch=[1],
            slowdown=[slowdown.tolist()],
            power_w=[np.minimum(limits, full[0]).tolist()],
        ),
        efficiency=efficiency,
        batch_sizes=offer.batch_sizes,
        default_batch=offer.default_batch,
        max_local_batch=offer.max_local_batch,
        gpu_counts=offer.gpu_counts,
        source=" ".join(filter(None, source)),
    )
    return profile.model_copy(update={"fit_error": _error(fitted, profile)})


def _error(fitted: Fitted, profile: Profile) -> FitError | None:
    """Errors against the rows that were fitted; None where there is one setting, or none."""
    key = (profile.model, profile.gpu_type)
    rows = fitted.rows.get(key, [])
    if len({(row.gpus, row.batch) for row in rows}) < 2:
        return None
    steps = measurements(rows)
    time = np.abs(predicted_s(profile.throughput, steps) / steps.step_time_s - 1.0)
    watts = [row for row in fitted.watts if (row.model, row.gpu_type) == key]
    power = np.abs([node_w(profile, row) / row.value - 1.0 for row in watts])
    return FitError(
        time_mean=float(time.mean()),
        time_max=float(time.max()),
        power_mean=float(power.mean()) if watts else None,
        power_max=float(power.max()) if watts else None,
    )


def node_w(profile: Profile, row: Row, server_w: float = SERVER_W) -> float:
    """Watts of a node with the server by a profile, in the setting of a row."""
    return server_w + row.gpus_per_node * float(
        profile.iteration(row.gpus, row.nodes, row.batch / row.gpus, None, None).gpu_power_w
    )


def fit_serving(data: Path, name: str, gpu_type: str) -> Profile:
    """Fit requests on one GPU: seconds and watts by the number that are answered at a time."""
    file, nickname, sample = SERVED[name]
    table = pd.read_csv(data / "mlenergy-v3" / file)
    table = table[(table.nickname == nickname) & (table.gpu_model == gpu_type) & (table.num_gpus == 1)]
    if "avg_batch_size" in table:
        table = table[table.task == "lm-arena-chat"]
        batch, step_s = table.avg_batch_size, table.avg_batch_size / table.output_throughput_tokens_per_sec
    else:
        batch, step_s = table.batch_size, table.batch_latency_s
    ones = np.ones(len(table))
    m = Measurements(
        ones,
        ones,
        batch.to_numpy(dtype=float),
        step_s.to_numpy(dtype=float),
        power_limit_w=board_w(gpu_type) * ones,
        power_w=table.avg_power_watts.to_numpy(dtype=float),
    )
    source = (
        f"A sample is {sample}, the batch the requests at a time. Throughput and watts of one GPU: ML.ENERGY "
        f"v3, {nickname}, {gpu_type}. Several GPUs: replicas, assumed not to wait for each other."
    )
    profile = fit_profile(m, name, gpu_type, source=source, folds=0).profile
    largest = 1 << (profile.max_local_batch.bit_length() - 1)
    update = {
        "task": "serving",
        "batch_sizes": doubling(int(2 ** np.ceil(np.log2(batch.min()))), 64 * largest),
        "default_batch": largest,
        "max_local_batch": largest,
        "gpu_counts": SMALL,
    }
    return Profile.model_validate({**dict(profile), **update})

"""Fit a profile to a table of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path

import numpy as np

from wattsched.perfmodels.logs.jobs import LoggedRun
from wattsched.perfmodels.measurements import Measurements, read_logged, read_measurements, too_few
from wattsched.perfmodels.power import (
    CLOCKS_FOR_EXPONENT,
    USUAL_EXPONENT,
    FrequencyModel,
    PowerLimitTable,
    PowerModel,
    fit_power_frequency,
    fit_power_limits,
    spread,
)
from wattsched.perfmodels.profile import FitError, Profile
from wattsched.perfmodels.throughput import (
    StatisticalEfficiency,
    ThroughputFit,
    fit_throughput,
    held_out_error,
    tells_sync,
)
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import listed
from wattsched.topology.arrays import FloatArray

FOLDS = 4
FEW_POWER_ERROR = 0.15
BEYOND = 1.25
"""Error of watts that too few measurements tell, assumed: as that of a model's watts on another board."""
MOST_CHOICES = 16


@dataclass(frozen=True)
class FitReport:
    """A fitted profile and its errors against the measurements.

    Attributes
    ----------
    profile : Profile
        With the errors in ``profile.fit_error``.
    measurements : Measurements
        What it was fitted to.
    predicted_time_s, predicted_power_w : ndarray of float64, shape (n,)
        Step time and watts of one GPU by the profile.
    held_out_mean, held_out_max : float or None
        Relative error of step times that the fit had not seen; None for fewer than eight.
    held_out_note : str
        Why there is no such error; empty where there is one.
    notes : tuple of str
        What was left out or cannot be told, and why.
    runs : tuple of LoggedRun
        What jobs did according to logs, one for each measurement before any was left out.
    """

    profile: Profile
    measurements: Measurements
    predicted_time_s: FloatArray
    predicted_power_w: FloatArray
    held_out_mean: float | None
    held_out_max: float | None
    held_out_note: str = ""
    notes: tuple[str, ...] = ()
    runs: tuple[LoggedRun, ...] = ()

    def table(self) -> list[dict[str, float]]:
        """Return one row per measurement: setting, measured and predicted values, relative errors."""
        m = self.measurements
        columns = m.columns() | {
            "predicted_time_s": self.predicted_time_s,
            "time_error": self.predicted_time_s / m.step_time_s - 1.0,
        }
        if m.power_w is not None:
            columns["predicted_power_w"] = self.predicted_power_w
            columns["power_error"] = self.predicted_power_w / m.power_w - 1.0
        values = [column.tolist() for column in columns.values()]
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def fit_profile(
    measurements: str | Path | Sequence[str | Path] | Measurements,
    model: str,
    gpu_type: str,
    *,
    jobs: str | Path | None = None,
    gpus_per_node: int = 8,
    where: Mapping[str, str] | None = None,
    samples_per_epoch: float | None = None,
    power: PowerModel | None = None,
    efficiency: StatisticalEfficiency | None = None,
    source: str = "",
    folds: int = FOLDS,
    time_zone: tzinfo | None = None,
) -> FitReport:
    """Fit a profile to a CSV file, to logs of GPUs, or to measurements in memory.

    Local batches that were not measured at every power limit are left out, with a note in the report. A few
    measurements can be met exactly, and tell nothing of others: of fewer than twice the folds, the profile's
    `power_uncertainty` is at least `FEW_POWER_ERROR`.

    Parameters
    ----------
    measurements : str, Path, sequence of them, or Measurements
        A file with the columns that `read_measurements` lists, logs of jobs, or what was measured.
    model, gpu_type : str
        Names of the profile.
    jobs : str or Path, optional
        With logs: the table of their jobs, as for `read_logged`.
    gpus_per_node, where, samples_per_epoch
        For a file, as for `read_measurements`.
    power : PowerModel, optional
        Watts of a GPU, for measurements without ``power_w``; with one, only its `sync_w` is used.
    efficiency : StatisticalEfficiency, optional
        Taken over into the profile.
    source : str, optional
        Default: the name of the file.
    folds : int
        Groups of the held-out check; with 0 there is none.
    time_zone : tzinfo, optional
        With logs: the zone of times that are told without one, as for `read_logged`.

    Raises
    ------
    ValueError
        For a file that cannot be read as measurements, or that lacks what the fit needs.
    OSError
        If the file cannot be opened.
    """
    require_types(fit_profile, locals())
    for name, value, least in (("gpus_per_node", gpus_per_node, 1), ("folds", folds, 0)):
        if value < least:
            raise ValueError(f"{name}: must be at least {least}, got {value}")
    if samples_per_epoch is not None and not 0 < samples_per_epoch < np.inf:
        raise ValueError(f"samples_per_epoch: must be above 0 and finite, got {samples_per_epoch}")
    m, runs, notes, read_from = _read(
        measurements, jobs, gpus_per_node, where, samples_per_epoch, time_zone, gpu_type
    )
    if m.frequency_mhz is not None and np.ptp(m.frequency_mhz) == 0:
        notes += (f"not used: one clock, {m.frequency_mhz[0]:g} MHz, which tells nothing of others",)
        m = replace(m, frequency_mhz=None)
    if m.frequency_mhz is not None and m.power_limit_w is not None:
        raise ValueError("the measurements have frequency_mhz and power_limit_w; a profile has one knob")
    if m.power_w is None and power is None:
        raise ValueError(
            "the measurements lack power_w: give the watts of a GPU (static, dynamic, waiting) by `power`"
        )
    m, incomplete = _complete(m)
    # Power limits that logs tell, which no GPU exceeds but by a little.
    told_w = [max(run.power_limit_w, run.power_w) for run in runs if not np.isnan(run.power_limit_w)]
    # The throughput is that at the highest limit.
    timed = m if m.power_limit_w is None else m.rows(m.power_limit_w == m.power_limit_w.max())
    if m.power_limit_w is not None and len(timed) < 2:
        told = f"there is one measurement at the highest power limit, {m.power_limit_w.max():g} W"
        told += "; a fit needs 2 or more, of different batches"
        raise too_few(told, [*notes, *incomplete])
    fitted = fit_throughput(timed)
    held_out = held_out_error(timed, folds=folds) if folds > 0 and len(timed) >= 2 * folds else None

    limits = None if m.power_limit_w is None else _power_limits(m)
    batches = np.unique(np.round(m.gpus * m.local_batch))
    profile = Profile(
        model=model,
        gpu_type=gpu_type,
        throughput=fitted.throughput,
        power=_power(m, fitted, limits, power, max(told_w, default=None)),
        frequency=_frequency(m, fitted),
        power_limits=limits,
        efficiency=efficiency,
        batch_sizes=[int(b) for b in spread(batches, MOST_CHOICES)],
        default_batch=int(batches[len(batches) // 2]),
        max_local_batch=max(1, int(np.floor(m.local_batch.max()))),
        gpu_counts=[int(k) for k in np.unique(m.gpus)],
        source=source or read_from,
    )
    iteration = profile.iteration(m.gpus, m.nodes, m.local_batch, m.frequency_mhz, m.power_limit_w)
    power_w = np.broadcast_to(iteration.gpu_power_w, m.gpus.shape)
    errors = {"time": np.abs(iteration.time_s / m.step_time_s - 1.0)}
    if m.power_w is not None:
        errors["power"] = np.abs(power_w / m.power_w - 1.0)
    means = {f"{name}_mean": float(error.mean()) for name, error in errors.items()}
    fit_error = FitError(**means, **{f"{name}_max": float(error.max()) for name, error in errors.items()})
    stated: dict[str, object] = {"fit_error": fit_error}
    if fit_error.power_mean is not None and len(m) < 2 * folds:
        stated["power_uncertainty"] = max(FEW_POWER_ERROR, fit_error.power_mean)
    return FitReport(
        profile=profile.model_copy(update=stated),
        measurements=m,
        predicted_time_s=iteration.time_s,
        predicted_power_w=power_w,
        held_out_mean=None if held_out is None else float(held_out.mean()),
        held_out_max=None if held_out is None else float(held_out.max()),
        held_out_note="" if held_out is not None else _too_few(timed, folds),
        notes=(*notes, *incomplete, *_untold(m), *_doubts(m, profile)),
        runs=runs,
    )


def _read(
    measurements: str | Path | Sequence[str | Path] | Measurements,
    jobs: str | Path | None,
    gpus_per_node: int,
    where: Mapping[str, str] | None,
    samples_per_epoch: float | None,
    time_zone: tzinfo | None,
    gpu_type: str,
) -> tuple[Measurements, tuple[LoggedRun, ...], tuple[str, ...], str]:
    """Read measurements; return them, of logs the runs and notes of what was left out, and their source."""
    if isinstance(measurements, Measurements):
        if jobs is not None:
            raise ValueError("`jobs` goes with logs, not with measurements in memory")
        return measurements, (), (), ""
    files = [measurements] if isinstance(measurements, str | Path) else list(measurements)
    if not files:
        raise ValueError("measurements: name one file at least")
    if jobs is not None:
        m, found = read_logged(
            files, jobs, gpus_per_node=gpus_per_node, where=where, time_zone=time_zone, gpu_type=gpu_type
        )
        return m, found.runs, found.notes, _source(*files, jobs)
    if time_zone is not None:
        raise ValueError("`time_zone` is of the times in logs: give `jobs`, the table of their jobs, too")
    if len(files) > 1:
        raise ValueError(f"{len(files)} files are given, which can only be logs: give `jobs`, their table")
    m = read_measurements(
        files[0], gpus_per_node=gpus_per_node, where=where, samples_per_epoch=samples_per_epoch
    )
    return m, (), (), _source(*files)


def _doubts(m: Measurements, profile: Profile) -> list[str]:
    """Point at watts that no measurement is near: the steps do not tell computing from waiting."""
    power = profile.power
    if m.power_w is None or not isinstance(power, PowerModel) or profile.power_limits is not None:
        return []
    computing_w, most_w = power.static_w + power.dynamic_w, float(m.power_w.max())
    if computing_w <= BEYOND * most_w:
        return []
    told = f"by the fit a GPU that only computes draws {computing_w:,.0f} W"
    told += f", at most {most_w:,.0f} W were measured"
    return [f"doubtful: {told}; measure 1 GPU or other local batches, or give sync_time_s"]


def _source(*files: str | Path) -> str:
    return f"fitted to {listed((Path(str(file)).name for file in files), quote='')}"


def _too_few(timed: Measurements, folds: int) -> str:
    """Explain why there is no error on unseen data."""
    if not folds:
        return "no error on unseen data was asked for"
    at = "" if timed.power_limit_w is None else f" at {timed.power_limit_w.max():g} W"
    return f"too few measurements{at} ({len(timed)}) for an error on unseen data, {2 * folds} are enough"


def _complete(m: Measurements) -> tuple[Measurements, list[str]]:
    """Measurements without the local batches that leave holes in a table of power limits, and notes of them.

    What a limit changes is told by measurements on one GPU: a limit without any is left out, and one at which
    fewer than half of the local batches were measured. If no local batch was measured at every limit that is
    left, it is a ValueError.
    """
    one = m.gpus == 1
    if m.power_limit_w is None or m.power_w is None or not one.any():
        return m, []
    batches, batch = np.unique(m.local_batch[one], return_inverse=True)
    limits, limit = np.unique(m.power_limit_w[one], return_inverse=True)
    measured = np.zeros((len(batches), len(limits)), dtype=bool)
    measured[batch, limit] = True
    usual = 2 * measured.sum(axis=0) >= len(batches)
    whole = measured[:, usual].all(axis=1)
    lacks = [
        f"{b:g} lacks {limits[usual & ~row][0]:g} W"
        for b, row in zip(batches[~whole], measured[~whole], strict=True)
    ]
    notes = [
        f"left out: the power limit {w:g} W, which {n} of {len(batches)} local batches were measured at"
        for w, n in zip(limits[~usual], measured[:, ~usual].sum(axis=0), strict=True)
    ]
    others, times = np.unique(m.power_limit_w[~np.isin(m.power_limit_w, limits)], return_counts=True)
    notes += [
        f"left out: the power limit {w:g} W, {n} of {len(m)} measurements, none of them on one GPU"
        for w, n in zip(others, times, strict=True)
    ]
    if lacks:
        notes.append(f"left out: local batches not measured at every power limit ({listed(lacks, quote='')})")
    if not whole.any():
        raise ValueError(f"no local batch was measured at every power limit ({listed(lacks, quote='')})")
    kept = np.isin(m.power_limit_w, limits[usual]) & (~one | np.isin(m.local_batch, batches[whole]))
    return m.rows(kept), notes


def _untold(m: Measurements) -> list[str]:
    """Notes of what the measurements cannot tell, what is taken instead, and what would tell it."""
    told = []
    if (gpus := m.gpus[0]) > 1 and not tells_sync(m):
        told.append(
            f"all measurements are of {gpus:g} GPUs, which do not tell synchronisation from computation: "
            "it counts as computation; measure 1 GPU or another count, too, or give sync_time_s"
        )
    clocks = 1 if m.frequency_mhz is None else len(np.unique(m.frequency_mhz))
    if m.power_w is not None and 1 < clocks < CLOCKS_FOR_EXPONENT:
        told.append(
            f"{clocks} clocks do not tell the exponent of the watts, which is taken as {USUAL_EXPONENT:g}; "
            f"{CLOCKS_FOR_EXPONENT} are enough"
        )
    return told


def _power_limits(m: Measurements) -> PowerLimitTable:
    """Fit the table of power limits to the measurements on one GPU."""
    one = m.gpus == 1
    if m.power_w is None or m.power_limit_w is None or not one.any():
        raise ValueError("power limits need measurements with power_w on one GPU")
    return fit_power_limits(m.local_batch[one], m.power_limit_w[one], m.step_time_s[one], m.power_w[one])


def _frequency(m: Measurements, fitted: ThroughputFit) -> FrequencyModel | None:
    """Model of the clocks that were measured; None without any."""
    if m.frequency_mhz is None or fitted.memory_bound_share is None:
        return None
    choices = [round(f) for f in spread(np.unique(m.frequency_mhz), MOST_CHOICES).tolist()]
    return FrequencyModel(
        max_mhz=choices[-1], choices_mhz=choices, memory_bound_share=fitted.memory_bound_share
    )


def _power(
    m: Measurements,
    fitted: ThroughputFit,
    limits: PowerLimitTable | None,
    given: PowerModel | None,
    max_power_w: float | None,
) -> PowerModel:
    """Fit the watts of a GPU, at most `max_power_w`; `given` are those for measurements without watts.

    With a table of power limits waiting draws the least of the table, unless `given` tells it.
    """
    if m.power_w is None:
        assert given is not None
        return given
    if limits is not None:
        lowest = min(min(row) for row in limits.power_w)
        waiting_w = lowest if given is None else given.sync_w
        return PowerModel(static_w=limits.power_w[-1][-1], dynamic_w=0.0, sync_w=waiting_w)
    x = np.ones(len(m)) if m.frequency_mhz is None else m.frequency_mhz / m.frequency_mhz.max()
    share = fitted.memory_bound_share or 0.0
    grad_s = fitted.throughput.grad_time_s(m.local_batch, share + (1.0 - share) / x)
    sync_w = None if given is None else given.sync_w
    return fit_power_frequency(
        x, m.power_w, grad_s / fitted.predicted_s, sync_w=sync_w, max_power_w=max_power_w
    )

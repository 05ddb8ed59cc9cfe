"""Logs in files, in every form, read with the table of their jobs."""

from collections.abc import Callable
from pathlib import Path

from tests.perfmodels.logs.writers import (
    Read,
    dmon,
    exporter,
    pod,
    prometheus,
    slurm,
    smi,
)
from wattsched.perfmodels.logs.jobs import LoggedJobs
from wattsched.perfmodels.measurements import Measurements, read_logged

FORMS: dict[str, Callable[[list[Read]], str]] = {
    "nvidia-smi": smi,
    "nvidia-smi without units": lambda reads: smi(reads, units=False),
    "nvidia-smi without utilisation": lambda reads: smi(reads, utilisation=False),
    "dcgmi dmon": dmon,
    "dcgm-exporter": lambda reads: exporter(reads, slurm),
    "dcgm-exporter in Kubernetes": lambda reads: exporter(reads, pod),
    "Prometheus": lambda reads: prometheus(reads, slurm),
    "Prometheus in Kubernetes": lambda reads: prometheus(reads, pod),
}
TIMED = {form: FORMS[form] for form in ("nvidia-smi", "nvidia-smi without utilisation", "Prometheus")}
"""Those that tell the times of samples."""
ROWS = "job,batch_size,step_time_s,start,end\n17,8,1,,\n17,16,2,{},{}\n"
"""Two rows of a job, the second from a start to an end."""


def written(folder: Path, text: str, name: str = "17.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def table(folder: Path, rows: str) -> Path:
    return written(folder, rows, "jobs.csv")


def repeated(samples: int, job: str = "17") -> str:
    """Note on a row whose samples are all those of the row before."""
    told = "are in an earlier row or window, too; their GPU hours count once"
    return f"{samples:,} of {samples:,} samples of '{job}' {told}"


def at_once(form: str, gpus: int, job: str = "17") -> list[str]:
    """Note of forms that tell no times: samples count alike, and of those that name jobs GPUs at once."""
    several = gpus > 1 and form.startswith("dcgm-exporter")
    told = f", and its {gpus} GPUs were busy at once" * several
    return [f"assumed: samples of '{job}' count alike{told}: its log tells no times"] * form.startswith(
        "dcgm"
    )


def logged(folder: Path, log: str, rows: str, name: str = "17.log") -> tuple[Measurements, LoggedJobs]:
    """Read a log and the table of its jobs."""
    return read_logged([written(folder, log, name)], table(folder, rows))

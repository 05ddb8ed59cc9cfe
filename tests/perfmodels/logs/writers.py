"""What jobs do on GPUs at known watts, and how nvidia-smi, DCGM, Prometheus and Zeus write it down."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import numpy as np

IDLE_W, IDLE_MHZ = 55.0, 210
BEGIN_S = 1_790_000_000.0
BERLIN = ZoneInfo("Europe/Berlin")


@dataclass(frozen=True)
class Job:
    """A job, and what one of its GPUs draws while it runs."""

    name: str
    gpus: int
    power_w: float
    frequency_mhz: int = 1410
    power_limit_w: float = 400.0
    begin_s: float = BEGIN_S


@dataclass(frozen=True)
class Read:
    """A reading of one GPU."""

    job: str
    gpu: int
    time_s: float
    power_w: float
    utilisation: int
    frequency_mhz: int
    power_limit_w: float


def readings(
    job: Job, seed: int = 0, *, noise: float = 0.0, busy: int = 60, idle: tuple[int, int] = (20, 10)
) -> list[Read]:
    """One reading a second of each GPU: it idles, works at the job's watts with noise, and idles again."""
    random, found = np.random.default_rng(seed), []
    for second in range(idle[0] + busy + idle[1]):
        at_work = idle[0] <= second < idle[0] + busy
        for gpu in range(job.gpus):
            power_w = (job.power_w if at_work else IDLE_W) * random.normal(1.0, noise)
            clock = job.frequency_mhz if at_work else IDLE_MHZ
            load = 97 if at_work else 0
            found.append(Read(job.name, gpu, job.begin_s + second, power_w, load, clock, job.power_limit_w))
    return found


def smi(
    reads: Iterable[Read],
    *,
    units: bool = True,
    utilisation: bool = True,
    header: bool = True,
    uuids: bool = False,
    zone: tzinfo = UTC,
) -> str:
    """``nvidia-smi --query-gpu=timestamp,index,power.draw,... --format=csv -l 1``, with a zone's clock."""
    names = [
        "timestamp",
        "uuid" if uuids else "index",
        "name",
        "power.draw [W]",
        "clocks.current.sm [MHz]",
        "enforced.power.limit [W]",
    ]
    names += ["utilization.gpu [%]"] * utilisation
    lines = [", ".join(names)] * header
    for r in reads:
        moment = datetime.fromtimestamp(r.time_s, zone).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        cells = [(f"{r.power_w:.2f}", " W"), (str(r.frequency_mhz), " MHz"), (f"{r.power_limit_w:.2f}", " W")]
        cells += [(str(r.utilisation), " %")] * utilisation
        told = [value + unit * units for value, unit in cells]
        gpu = uuid_of(r.gpu) if uuids else str(r.gpu)
        lines.append(", ".join([moment, gpu, "NVIDIA A100-SXM4-80GB", *told]))
    return "\n".join(lines) + "\n"


def dmon(reads: Iterable[Read]) -> str:
    """``dcgmi dmon -e 155,203,100,160``."""
    header = f"{'#Entity':<10}{'POWER':<18}{'GPUTL':<13}{'SMCLK':<13}{'PMLMT':<18}\n{'ID':<10}{'W':<18}\n"
    lines = []
    for n, r in enumerate(reads):
        lines += [header] * (n % 15 == 0)
        lines.append(
            f"{f'GPU {r.gpu}':<10}{r.power_w:<17.3f} {r.utilisation:<12} {r.frequency_mhz:<12} "
            f"{r.power_limit_w:<17.3f}\n"
        )
    return "".join(lines) + "\n\ndmon was stopped do to receiving a signal\n"


METRICS: dict[str, Callable[[Read], float]] = {
    "DCGM_FI_DEV_SM_CLOCK": lambda r: r.frequency_mhz,
    "DCGM_FI_DEV_GPU_TEMP": lambda r: 48,
    "DCGM_FI_DEV_POWER_USAGE": lambda r: r.power_w,
    "DCGM_FI_DEV_GPU_UTIL": lambda r: r.utilisation,
}


def slurm(r: Read) -> dict[str, str]:
    return {"hpc_job": r.job}


def pod(r: Read) -> dict[str, str]:
    return {"container": "main", "namespace": "team", "pod": r.job}


def uuid_of(gpu: int) -> str:
    return f"GPU-{gpu:08d}-c086-568a-9f1a-c1e1c934c44c"


def labels_of(r: Read, of_job: Callable[[Read], dict[str, str]]) -> dict[str, str]:
    host = {"gpu": str(r.gpu), "UUID": uuid_of(r.gpu), "device": f"nvidia{r.gpu}", "Hostname": "node\\1"}
    return host | of_job(r)


def exporter(reads: Iterable[Read], of_job: Callable[[Read], dict[str, str]] = slurm) -> str:
    """Scrapes of dcgm-exporter, one after the other."""
    scrapes: dict[float, list[Read]] = {}
    for r in reads:
        scrapes.setdefault(r.time_s, []).append(r)
    lines = []
    for scrape in scrapes.values():
        for metric, value in METRICS.items():
            lines += [f"# HELP {metric} What it is.", f"# TYPE {metric} gauge"]
            for r in scrape:
                told = {k: v.replace("\\", "\\\\") for k, v in labels_of(r, of_job).items()}
                labels = ",".join(f'{k}="{v}"' for k, v in told.items())
                lines.append(f"{metric}{{{labels}}} {value(r):.6f}")
    return "\n".join(lines) + "\n"


def prometheus(reads: Iterable[Read], of_job: Callable[[Read], dict[str, str]] = slurm) -> str:
    """Answer of ``query_range`` to ``{__name__=~"DCGM_FI_DEV_.*"}``."""
    series: dict[tuple[str, int, str], dict[str, object]] = {}
    for r in reads:
        for metric, value in METRICS.items():
            one = series.setdefault(
                (metric, r.gpu, r.job),
                {"metric": {"__name__": metric, **labels_of(r, of_job)}, "values": []},
            )
            values = one["values"]
            assert isinstance(values, list)
            values.append([r.time_s, f"{value(r):.6f}"])
    result = {"resultType": "matrix", "result": list(series.values())}
    return json.dumps({"status": "success", "data": result})


def zeus(windows: Sequence[tuple[str, float, Sequence[float]]]) -> str:
    """``ZeusMonitor(log_file=...)`` of windows: name, seconds, joules of each GPU."""
    gpus = len(windows[0][2])
    lines = [f"start_time,window_name,elapsed_time,{','.join(f'gpu{g}_energy' for g in range(gpus))}"]
    moment = BEGIN_S
    for name, elapsed_s, energy_j in windows:
        lines.append(f"{moment},{name},{elapsed_s},{','.join(map(str, energy_j))}")
        moment += elapsed_s + 1.5
    return "\n".join(lines) + "\n"

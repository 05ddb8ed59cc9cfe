"""Published figures of today's GPUs: what was measured, by whom, and where it stands.

`published_caps.csv` has rates under power limits, `published_rates.csv` samples per second of training
runs, `published_watts.csv` the draw of a node in them. A sample is an image, or a sequence of the length
that `today_models.py` says. Rows whose ``use`` is ``fit`` go into the profiles (`today.py`), those with
``sync`` into what they say of synchronisation alone, being of another precision; all others only into the
table that holds them against the profiles (`new_gpus.py`).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

SOURCES = {
    "mlperf-4.0": "MLPerf Training v4.0 (github.com/mlcommons/training_results_v4.0)",
    "mlperf-4.1": "MLPerf Training v4.1 (github.com/mlcommons/training_results_v4.1)",
    "mlperf-5.0": "MLPerf Training v5.0 (github.com/mlcommons/training_results_v5.0)",
    "mlperf-5.1": "MLPerf Training v5.1 (github.com/mlcommons/training_results_v5.1)",
    "dgxc-25": "NVIDIA DGX Cloud Benchmarking, llama3.1/README.md, Expected Performance (NeMo 2, 2025)",
    "megatron-bridge-25.11": "NVIDIA Megatron Bridge, performance summary, 25.11 container",
    "nemo-24.12": "NVIDIA NeMo user guide 24.12, performance summary",
    "nemo-25.02": "NVIDIA NeMo user guide, performance summary, container 25.02",
    "nemo-vit": "NVIDIA NeMo user guide, Vision Transformer, Performance (ViT g/14)",
    "olmo-core": "Ai2 OLMo-core 1.6, README, throughput of OLMo-1B.py",
    "fau-2026": "Mayr et al., arXiv 2603.16164, tables 3 and 4 (H100; read where others quote them)",
    "ml-energy": "ML.ENERGY benchmark v3 (mlenergy-v3 of WATTSCHED_DATA)",
}
"""Of MLPerf: the mean of ``tracked_stats`` throughput in the result logs without the first interval, else
samples over seconds of the training blocks; watts are the median ``power_reading`` of the nodes between
``run_start`` and ``run_stop``, which starts and evaluations do not move, mean over runs; readings of AC times
the ``conversion_eff`` that the log states."""

IDLE_SOURCES = {
    "H100": "nvidia-smi listings in public notes, 67 to 73 W",
    "H200": "80.3 W without work (serialalice.pt, GPU energy benchmark)",
    "B200": "air-cooled (github.com/ROCm/legacy-rocm-build, issue 5219)",
    "MI300X": "assumed, a fifth of the limit; 191 W with 95 % of the memory in use (same, issue 5231)",
    "L40S": "an nvidia-smi listing in a public guide, state P8",
}
"""Of the idle watts in `GPU_TYPES`; the limits there are those of the data sheets, of SXM and OAM boards."""

SERVER_W = 1500.0
"""What a liquid-cooled server draws besides its eight GPUs.

The least whole hundred at which no GPU exceeds its board limit in the hungriest runs: 7,089 W of SMC's H100
node with `llama2-70b-lora`, 9,497 W of Lenovo's B200 node with RetinaNet. Without work these nodes drew
1,934 and 2,556 W or a little more, which with the idle watts of `GPU_TYPES` leaves 1,374 and 1,460 W.
"""

SAMPLES_TO_TARGET = {
    "llama2-70b-lora": {8: 3150, 16: 4070, 48: 5952, 64: 7250, 128: 11200},
    "stable-diffusion": {256: 2_110_000, 512: 2_530_000, 1024: 2_850_000, 2048: 3_960_000},
}
"""Batch to mean samples until the target metric, over the runs of MLPerf v4.0 and v4.1."""


@dataclass(frozen=True)
class Row:
    """A published figure: `value` is samples per second, or watts of a node."""

    use: str
    model: str
    gpu_type: str
    gpus: int
    gpus_per_node: int
    batch: int
    value: float
    source: str
    system: str
    precision: str = ""

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)


def rates() -> list[Row]:
    """All published rates, by model, GPU type and size."""
    return _read("published_rates.csv", "samples_per_s")


def node_watts() -> list[Row]:
    """All published draws of nodes, DC."""
    return _read("published_watts.csv", "node_w")


def slowdowns(workload: str) -> tuple[list[float], list[float]]:
    """Power limits of a workload as parts of the highest, and how much longer it takes under them."""
    with (FOLDER / "published_caps.csv").open(encoding="utf-8", newline="") as file:
        records = [record for record in csv.DictReader(file) if record["workload"] == workload]
    limit_w = [float(record["power_limit_w"]) for record in records]
    rate = [float(record["rate"]) for record in records]
    return [limit / limit_w[-1] for limit in limit_w], [rate[-1] / slower for slower in rate]


def _read(name: str, value: str) -> list[Row]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    counts = ("gpus", "gpus_per_node", "batch")
    texts = ("use", "model", "gpu_type", "source", "system")
    return [
        Row(
            value=float(record[value]),
            precision=record.get("precision", ""),
            **{key: record[key] for key in texts},
            **{key: int(record[key]) for key in counts},
        )
        for record in records
    ]

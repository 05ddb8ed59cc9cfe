"""Hold the profiles of today's GPUs against what was published: rates and watts, fitted and not.

python -m benchmarks.studies.new_gpus --write
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.harness import Asked, run, table
from benchmarks.published_gpus import SERVER_W, SOURCES, Row, node_watts, rates
from benchmarks.today import node_w
from wattsched.instances.clusters import GPU_TYPES
from wattsched.perfmodels import Profile, find

AIR_SERVER_W = 3200.0
"""An air-cooled server besides its GPUs: Dell's H100 nodes drew 7,692 W where SMC's liquid-cooled ones drew
5,978 W (`llama2-70b-lora` on 64 GPUs, MLPerf v4.1 and v4.0), that is 1,714 W more than `SERVER_W`. Dell's run
was faster by a sixth, so that this is rather too much."""
SERVER_PLATE_W = 10_200.0
"""Rated power of an 8 x H100 node, by the two papers on one."""


FITTED, UNUSED = "fitted", "not used"
USES = {"fit": FITTED, "sync": "synchronisation", "check": UNUSED}
RULE = """What is in the fit was chosen by hand, figure by figure (`use` in `published_rates.csv`).
Not used are

- rates with other software than the rest of a model's on that GPU type: older containers and rounds, and one
  that is newer (`llama2-70b-lora` on 8 MI300X);
- sizes beyond those that the profile offers: 2,528 H100 of `resnet50`, 1,024 of `stable-diffusion` and of
  `llama2-70b-lora`, 2,048 of `llama3-70b`;
- `llama3-8b` on H200, which is scaled from the H100;
- two rates that no fit meets together with the others: `llama2-70b-lora` on 512 H200, 28 % below another
  system of the same size, and `stable-diffusion` on 64 H200;
- all that is no rate, and no draw of a node, of one of the models.

`synchronisation`: rates in NVFP4, which tell the profile how long nodes take to synchronise, nothing else."""


@dataclass(frozen=True)
class Line:
    """A published figure and ours; `used` says what the profiles took of it."""

    what: str
    published: float
    ours: float
    unit: str
    used: str
    source: str

    def cells(self) -> list[str]:
        error = round(100 * (self.ours / self.published - 1.0), 1)
        return [
            self.what,
            self.source,
            f"{figure(self.published)} {self.unit}".strip(),
            f"{figure(self.ours)} {self.unit}".strip(),
            f"{error:+.1f} %" if error else "0.0 %",
            self.used,
        ]


def figure(value: float) -> str:
    """Four significant digits, thousands apart."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def new_gpus(asked: Asked) -> str:
    """Three tables and the sources that they name."""
    head = ["setting", "source", "published", "ours", "error", "in the fit"]
    parts = [
        "Samples per second of training. A profile that is scaled to one rate meets it.",
        RULE,
        table(head, (line.cells() for line in rate_lines())),
        f"Watts. Nodes have a server of {SERVER_W:g} W with liquid cooling, {AIR_SERVER_W:g} W with air.",
        table(head, (line.cells() for line in watt_lines())),
        "Energy, power limits and the rest.",
        table(head, (line.cells() for line in other_lines())),
        "Sources:",
        "\n".join(f"- `{key}`: {title}." for key, title in SOURCES.items()),
    ]
    return "\n\n".join(parts)


def profile_of(row: Row) -> Profile:
    """Return the profile of a row's model on its GPU type."""
    profile = find(row.model, row.gpu_type)
    assert profile is not None
    return profile


def samples_per_s(row: Row, power_limit_w: float | None = None) -> float:
    """Samples per second by the profile, without the efficiency of the batch."""
    step = profile_of(row).iteration(row.gpus, row.nodes, row.batch / row.gpus, None, power_limit_w)
    return row.batch / float(step.time_s)


def rate_lines() -> Iterator[Line]:
    """Every published rate, those of the same setting and source as one, their mean."""
    alike: dict[Row, list[float]] = {}
    for row in rates():
        precision = row.precision if row.precision == "NVFP4" else ""
        alike.setdefault(replace(row, value=0.0, system="", precision=precision), []).append(row.value)
    for row, values in alike.items():
        times = f" ({len(values)} systems)" if len(values) > 1 else ""
        precision = f", {row.precision}" if row.precision else ""
        what = f"{row.model}, {row.gpus} {row.gpu_type}, batch {row.batch:,}{precision}"
        published = sum(values) / len(values)
        yield Line(what, published, samples_per_s(row), "/s", USES[row.use], f"`{row.source}`{times}")


def measured_node(model: str = "llama2-70b-lora", gpu_type: str = "H100") -> Row:
    """First node of a GPU type whose draw with a model was published."""
    return next(row for row in node_watts() if (row.model, row.gpu_type) == (model, gpu_type))


def watt_lines() -> Iterator[Line]:
    """Draws of nodes and of GPUs."""
    for row in node_watts():
        what = f"{row.model}, node of {row.gpus_per_node} among {row.gpus} {row.gpu_type}"
        yield Line(what, row.value, node_w(profile_of(row), row), "W", FITTED, f"`{row.source}`")
    lora, resnet, blackwell = measured_node(), measured_node("resnet50"), measured_node(gpu_type="B200")
    training_w = [node_w(profile_of(row), row, AIR_SERVER_W) for row in (lora, resnet)]
    share = 100 * sum(training_w) / len(training_w) / SERVER_PLATE_W
    mean = "mean of a node of 8 H100 in training, part of 10.2 kW"
    for what, published, ours, unit, source in (
        ("BERT, node of 8 B200", 9371, node_w(profile_of(blackwell), blackwell), "W", "`mlperf-5.0`, Lenovo"),
        ("BERT, node of 8 H100", 6836, node_w(profile_of(lora), lora), "W", "`mlperf-4.0`, SMC"),
        ("most of a node of 8 H100", 8400, max(training_w), "W", "arXiv 2412.08602, abstract"),
        (mean, 76, share, "%", "arXiv 2506.14551, abstract"),
    ):
        yield Line(what, published, ours, unit, UNUSED, source)
    for gpu_type, watts, what, source in GPU_WATTS:
        profile = find("llama2-70b-lora", gpu_type)
        assert profile is not None
        ours = float(profile.power_limits.computing_w(1, None)) if profile.power_limits else 0.0
        yield Line(f"one {gpu_type}, {what}", watts, ours, "W", UNUSED, source)


GPU_WATTS = (
    ("H100", 693.6, "hungriest inference", "`ml-energy`"),
    ("B200", 975.6, "hungriest inference", "`ml-energy`"),
    ("H200", 661.7, "FP8 inference", "serialalice.pt, GPU energy benchmark"),
    ("MI300X", 750.0, "QLoRA, saturated", "aluminatiai.com/greentune"),
)
"""What one GPU drew at full load, GPU telemetry alone; ours is the draw of `llama2-70b-lora`."""


def other_lines() -> Iterator[Line]:
    """Energy of whole runs, of large and small batches, and slower clocks."""
    lora = {row.system: row for row in node_watts() if row.model == "llama2-70b-lora"}
    for system, samples, minutes, mean_w in RUNS:
        row = lora[system]
        ours = samples / samples_per_s(row) * row.nodes * node_w(profile_of(row), row)
        what = f"llama2-70b-lora, nodes of a run on {row.gpus} {row.gpu_type} ({minutes:.3g} min)"
        published = row.nodes * mean_w * 60 * minutes
        yield Line(what, published / 1e6, ours / 1e6, "MJ", UNUSED, f"`{row.source}`, {system.split()[0]}")
    resnet = measured_node("resnet50")
    small, large = (replace(resnet, gpus=8, batch=batch) for batch in (512, 4096))
    energy = [node_w(profile_of(row), row, AIR_SERVER_W) / samples_per_s(row) for row in (small, large)]
    limited = samples_per_s(replace(resnet, gpus=8, batch=3200), 350.0) * 114 / 132
    h200 = next(
        row for row in rates() if (row.model, row.gpu_type, row.gpus) == ("llama2-70b-lora", "H200", 8)
    )
    llama = next(row for row in rates() if row.model == "llama3-8b")
    tokens = samples_per_s(llama) * 8192 / llama.gpus
    eased = 100 * energy_at(measured_node(gpu_type="B200"), 0.97)
    idle_w = {kind: 8 * GPU_TYPES[kind].idle_power_w + SERVER_W for kind in ("H100", "B200")}
    for what, published, ours, unit, source in (
        ("ResNet, 8 H100: energy with batch 512 over 4,096", 4, energy[0] / energy[1], "",
         "arXiv 2412.08602, abstract"),
        ("resnet50, 8 H100 PCIe (350 W, 114 of 132 SMs)", 36208, limited, "/s", "`mlperf-4.0`, ASUSTeK"),
        ("llama2-70b-lora, 8 H200 NVL (600 W, PCIe)", 2.314, samples_per_s(h200, 600.0), "/s",
         "`mlperf-5.0`, Dell"),
        ('B200, energy at 97 % of the speed ("up to 15 % saved")', 85, eased, "%", MAX_Q),
        ("OLMo 7B, one of many H100, against llama3-8b", 13000, tokens, "tokens/s", "`olmo-core`"),
        ("liquid-cooled node of 8 H100 without work", 1934, idle_w["H100"], "W", "`mlperf-4.0`, SMC"),
        ("liquid-cooled node of 8 B200 without work", 2556, idle_w["B200"], "W", "`mlperf-5.0`, Lenovo"),
    ):  # fmt: skip
        yield Line(what, published, ours, unit, UNUSED, source)


RUNS = (
    ("smc-dc-power 1xSMC-H100-SXM-80GB", 3072, 29.10069, 6741),
    ("smc-dc-power 8xSMC-H100-SXM-80GB", 3072, 5.40279, 5847),
    ("smc-dc-power 64xSMC-H100-SXM-80GB", 6912, 2.10304, 4745),
    ("Lenovo SR780aV3-8xB200_SXM_180GB", 3110, 11.22, 9006),
)
"""Samples to the target, minutes, and mean watts of a node, of H100 as smc.co/mlperfv40 has them: with the
starts and evaluations that ours lack, and without the network."""
MAX_Q = "NVIDIA developer blog on power profiles (Max-Q, many settings at once)"


def energy_at(row: Row, speed: float) -> float:
    """Energy per sample at a part of the speed, over that at full speed, by the power limit."""
    profile = profile_of(row)
    assert profile.power_limits is not None
    full = profile.iteration(row.gpus, row.nodes, row.batch / row.gpus, None, None)
    low, high = profile.power_limits.limit_w[0], profile.power_limits.limit_w[-1]
    for _ in range(60):
        middle = (low + high) / 2
        step = profile.iteration(row.gpus, row.nodes, row.batch / row.gpus, None, middle)
        low, high = (low, middle) if float(full.time_s / step.time_s) > speed else (middle, high)
    return float(step.gpu_power_w * step.time_s / (full.gpu_power_w * full.time_s))


TABLES = {"new-gpus": new_gpus}

if __name__ == "__main__":
    run(__doc__, TABLES)

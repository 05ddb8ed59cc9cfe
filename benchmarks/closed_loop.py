"""Caps kept by measured watts: rounds on a made-up cluster whose jobs draw other watts than their models say.

    python -m benchmarks.closed_loop --write

The rounds are those of ``wattsched slurm``, on the output of Slurm's commands as a small plant writes it,
with a clock that is set by hand. The draw is sampled every second.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness import Asked, machine, run, say, table
from wattsched.adapters.budget import Budget
from wattsched.adapters.correction import Correction
from wattsched.adapters.readings import Reading
from wattsched.adapters.slurm import loop
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.serve.journal import Journal

BEGIN_S, ROUND_S = 1.8e9, 30
NODES, GPUS, BASE_W, IDLE_W = 8, 8, 200.0, 50.0
LASTS_S, QUEUE = 600.0, 12
"""Mean seconds that a job runs, and jobs that wait at any time."""
SWING, SWING_S, NOISE, DELAY_S, EACH_S = 0.02, 10.0, 0.02, 10, 10
"""Swing of a job's draw, within so many seconds; noise of a reading, its delay, and seconds between two."""
SILENT = (1020, 1620)
"""Seconds in which there are no readings."""
CAPS = ((0, 0.7), (450, 0.45), (750, 0.8), (1200, 0.6), (1500, 0.75))
"""Seconds from which on so much of what GPUs can draw beyond idle may be drawn; all are announced."""
STARTS_S, STOPS_S = 2, 5
"""Seconds until a start and a stop act."""
OPTIONS = {
    f"of{gpus}": {
        "gpus": [gpus] * 3,
        "pool": ["A100"] * 3,
        "rate": [1.0, 0.86, 0.66],
        "power_w": [gpus * 400.0, gpus * 280.0, gpus * 180.0],
        "frequency_mhz": [1410, 1110, 810],
    }
    for gpus in (1, 2, 4, 8)
}
FACTORS: dict[str, Callable[[np.random.Generator], float]] = {
    "normal": lambda rng: rng.normal(1.0, 0.1),
    "heavy tails": lambda rng: 1.0 + 0.1 * rng.standard_t(4) / np.sqrt(2),
    "biased": lambda rng: rng.normal(1.05, 0.1),
}
"""Watts of a job as a multiple of its model's, drawn once for each job."""


@dataclass
class Job:
    """A job of the plant; `model_w` are the watts of its GPUs by the model."""

    id: int
    gpus: int
    seconds: float
    factor: float
    state: str = "PENDING"
    restarts: int = 0
    comment: str = ""
    node: str = ""
    held: list[int] = field(default_factory=list)
    begins_s: float = 0.0
    leaves_s: float = np.inf
    swing: float = 0.0
    model_w: float = 0.0


class Plant:
    """Jobs on nodes, what they draw, and what Slurm's commands would say of them."""

    def __init__(self, seed: int, factors: str) -> None:
        self.rng, self.time_s, self.factors = np.random.default_rng(seed), BEGIN_S, factors
        self.jobs, self.readings = dict[int, Job](), list[tuple[float, Reading]]()
        self.made = self.stops = 0
        self.fill()

    @property
    def idle_w(self) -> float:
        """Watts of all nodes and idle GPUs."""
        return NODES * (BASE_W + GPUS * IDLE_W)

    def fill(self) -> None:
        """Submit jobs until enough of them wait."""
        waiting = sum(job.state == "PENDING" for job in self.jobs.values())
        for _ in range(QUEUE - waiting):
            self.made += 1
            gpus = int(self.rng.choice([1, 2, 4, 8], p=[0.3, 0.25, 0.25, 0.2]))
            seconds = 60.0 + self.rng.exponential(LASTS_S)
            self.jobs[self.made] = Job(self.made, gpus, seconds, max(0.3, FACTORS[self.factors](self.rng)))

    def second(self) -> float:
        """Let a second pass; return the watts that are drawn then."""
        self.time_s += 1
        drawn_w = self.idle_w
        decay = np.exp(-1 / SWING_S)
        for job in list(self.jobs.values()):
            if job.state == "RUNNING" and self.time_s >= job.begins_s + job.seconds:
                del self.jobs[job.id]
            elif job.state == "COMPLETING" and self.time_s >= job.leaves_s:
                job.state, job.held = "PENDING", []
            if not job.held or self.time_s < job.begins_s:
                continue
            job.swing = decay * job.swing + np.sqrt(1 - decay**2) * SWING * self.rng.standard_normal()
            watts = job.model_w * job.factor * np.exp(job.swing)
            drawn_w += watts - job.gpus * IDLE_W
            measured = not SILENT[0] <= self.time_s - BEGIN_S < SILENT[1]
            if measured and int(self.time_s + job.id) % EACH_S == 0 and job.state == "RUNNING":
                told_w = watts * np.exp(NOISE * self.rng.standard_normal())
                reading = Reading(self.time_s, told_w, str(job.id), job.node, run=job.restarts)
                self.readings.append((self.time_s + DELAY_S, reading))
        return float(drawn_w)

    def measured(self) -> tuple[list[Reading], list[str]]:
        """Return the readings that have come since the last call."""
        come = [reading for at_s, reading in self.readings if at_s <= self.time_s]
        self.readings = [(at_s, reading) for at_s, reading in self.readings if at_s > self.time_s]
        return come, []

    def snapshot(self, _: float) -> dict[str, str]:
        """Return the output of Slurm's commands."""
        used = {f"n{i}": list[int]() for i in range(1, NODES + 1)}
        for job in self.jobs.values():
            used.get(job.node, []).extend(job.held)
        nodes = [
            {
                "name": name,
                "state": ["IDLE"],
                "partitions": ["gpu"],
                "gres": f"gpu:A100:{GPUS}",
                "gres_used": f"gpu:A100:{len(gpus)}" + (f"(IDX:{listed(gpus)})" if gpus else ""),
                "cpus": 128,
                "real_memory": 10**6,
            }
            for name, gpus in used.items()
        ]
        return {
            "time": repr(self.time_s),
            "nodes": json.dumps({"nodes": nodes}),
            "jobs": json.dumps({"jobs": [self._row(job) for job in self.jobs.values()]}),
            "partitions": "PartitionName=gpu State=UP",
            "reservations": "No reservations in the system",
            "topology": "",
        }

    def _row(self, job: Job) -> dict[str, Any]:
        detail = [f"gpu:A100:{job.gpus}(IDX:{listed(job.held)})"] if job.held else []
        return {
            "job_id": job.id,
            "job_state": [job.state],
            "name": f"job{job.id}",
            "partition": "gpu",
            "comment": json.dumps({"wattsched": {"options": f"of{job.gpus}"}}),
            "admin_comment": job.comment,
            "nodes": job.node if job.held else "",
            "gres_detail": detail,
            "required_nodes": job.node if job.held else "",
            "tres_per_node": f"gres:gpu:{job.gpus}",
            "node_count": 1,
            "priority": int(bool(job.held)),
            "state_reason": "None" if job.held else "JobHeldUser",
            "restart_cnt": job.restarts,
            "time_limit": 600,
            "start_time": int(job.begins_s),
            "submit_time": int(BEGIN_S),
            "requeue": True,
        }


def listed(gpus: list[int]) -> str:
    """Numbers of GPUs, as Slurm writes them."""
    return ",".join(map(str, sorted(gpus)))


class PlantActions:
    """Actions on the plant, in place of Slurm's commands."""

    def __init__(self, plant: Plant) -> None:
        self.plant, self.number = plant, 0

    def give_way(self, *_: Any) -> bool:
        return False

    def write_settings(self, *_: Any) -> list[str]:
        return []

    def change(self, *_: Any) -> dict[int, str]:
        return {}

    def start(self, start: Any) -> str:
        plant = self.plant
        job = plant.jobs[start.job.id]
        (node,) = start.launch.nodes
        used = {gpu for other in plant.jobs.values() if other.node == node for gpu in other.held}
        job.state, job.comment, job.node = "RUNNING", start.launch.text(), node
        job.model_w = start.launch.corrected(1.0).power_w
        job.held = [gpu for gpu in range(GPUS) if gpu not in used][: job.gpus]
        job.begins_s, job.leaves_s = plant.time_s + STARTS_S, np.inf
        return ""

    def stop(self, job: Any, why: str) -> str:
        stopped = self.plant.jobs[job.id]
        stopped.state, stopped.leaves_s = "COMPLETING", self.plant.time_s + STOPS_S
        stopped.restarts += 1
        self.plant.stops += "too many" in why
        return ""

    hold = stop

    def forget(self, *_: Any) -> None:
        pass

    confirm = forget


class Truth(Correction):
    """Knows every job's factor."""

    def __init__(self, plant: Plant) -> None:
        super().__init__()
        self.plant = plant

    def factor(self, job: str) -> float:
        found = self.plant.jobs.get(int(job))
        return 1.0 if found is None else found.factor

    def variance(self, job: str) -> float:
        return SWING**2


CONTROLLERS: dict[str, Callable[[Plant], Correction | None]] = {
    "readings": lambda plant: Correction(source=plant.measured),
    "margin of the model alone": lambda plant: Correction(),
    "knows the factors": Truth,
    "model without margin": lambda plant: None,
}


def history(seed: int, factors: str, controller: str, lasts_s: int) -> dict[str, float]:
    """One run; samples above the cap, the longest run of them, the use of the cap, and stops."""
    plant = Plant(seed, factors)
    beyond_w = NODES * GPUS * (400.0 - IDLE_W)
    caps = [(BEGIN_S + at_s, plant.idle_w + share * beyond_w) for at_s, share in CAPS]
    changes = [{"at": datetime.fromtimestamp(at_s, UTC).isoformat(), "power_w": w} for at_s, w in caps]
    document = {"power_w": caps[0][1], "changes": changes}
    budget = Budget(file="caps", source=lambda: document, ahead_s=65.0)
    budget.clock, budget.monotonic = (lambda: plant.time_s), (lambda: plant.time_s - BEGIN_S)
    options = SiteOptions.model_validate({"base_power_w": BASE_W, "tables": OPTIONS})
    above, longest, in_a_row, use, margin = 0, 0, 0, list[float](), list[float]()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(dir=memory) as folder, Journal(Path(folder) / "journal") as journal:
        policy = Policy(Ours(), options, apply=True, every_s=float(ROUND_S), reasons=0)
        rounds = Rounds(policy, budget, journal, plant.snapshot, lambda _: PlantActions(plant))
        rounds.correction = CONTROLLERS[controller](plant)
        for second in range(lasts_s):
            if second % ROUND_S == 0:
                plant.fill()
                report = rounds.round()
                margin.append(report.margin_w / (report.cap_w or np.inf))
            drawn_w = plant.second()
            cap_w = [watts for at_s, watts in caps if at_s <= plant.time_s][-1]
            in_a_row = in_a_row + 1 if drawn_w > cap_w else 0
            above, longest = above + (in_a_row > 0), max(longest, in_a_row)
            if second >= 300:
                use.append((drawn_w - plant.idle_w) / (cap_w - plant.idle_w))
    return {
        "above": above,
        "longest": longest,
        "use": float(np.mean(use)),
        "stops": plant.stops,
        "margin": float(np.mean(margin)),
    }


def caps_kept(asked: Asked) -> str:
    """Samples above the cap, and how much of it is used, by what is known of the watts."""
    loop._LOOK_S = loop._SETTLE_S = 0.0
    lasts_s = 420 if asked.quick else int(asked.minutes * 60)
    samples, rows = asked.seeds * lasts_s, list[list[str]]()
    for controller in CONTROLLERS:
        for factors in FACTORS:
            some = [history(seed, factors, controller, lasts_s) for seed in range(asked.seeds)]
            total, longest = sum(one["above"] for one in some), max(one["longest"] for one in some)
            use, margin, stops = (np.mean([one[name] for one in some]) for name in ("use", "margin", "stops"))
            rows.append([f"{controller}; {factors}", f"{total:,.0f} of {samples:,}"])
            rows[-1] += [f"{1e4 * total / samples:.2f}", f"{longest:,.0f}", f"{100 * use:.1f} %"]
            rows[-1] += [f"{100 * margin:.1f} %", f"{stops:.1f}"]
            say(" | ".join(rows[-1]))
    header = ["what is known; factors", "samples above", "in 10,000", "in a row", "use", "margin", "stops"]
    return f"{table(header, rows)}\n\n({machine()}.)"


TABLES = {"closed-loop": caps_kept}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20, minutes=30.0)

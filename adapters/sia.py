r"""A policy with the protocol of Sia's simulator (Jayaram Subramanya et al., SOSP 2023), without its code.

A configuration is a type of GPUs and a count of them: powers of two inside a node, or whole nodes. The
goodputs of a job are divided by the least of them and multiplied by its fewest GPUs; a running job that
would change has them times the restart factor (T - N S) / (T + S), for age T, N restarts of S seconds. With
these, G, and :math:`\lambda` for a job that waits, a round of the paper (section 3.4) solves

.. math:: \min \sum_j \Big(\sum_c x_{jc} G_{jc}^p + \lambda \big(1 - \sum_c x_{jc}\big)\Big)

for :math:`p < 0`, and maximises it for :math:`p > 0` and :math:`\lambda < 0`. Here a `Session` has
:math:`|\lambda - G^p|` as the rate of a configuration: the most of it over the jobs that run is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, Protocol

import numpy as np

from wattsched.instances.errors import require, require_range
from wattsched.sessions.session import Session
from wattsched.sessions.session_decision import SessionDecision
from wattsched.topology.arrays import FloatArray, IntArray, offsets

GPU = "nvidia.com/gpu"
"""Name of GPUs among the resources of a node."""

LEAST_WORTH = 1e-6
"""Least worth of a configuration that is offered; one that is worth less than waiting is not."""

Allocation = tuple[str | None, Sequence[int]]
"""Type of GPUs of a job and the node of each of them; None and nothing where it waits."""


class Node(Protocol):
    """Node, as far as it is read: its ``resources`` say how many GPUs it has."""

    resources: Mapping[str, int]


class Job(Protocol):
    """Job, as far as it is read; mappings are by type of GPUs.

    Attributes
    ----------
    speedup_fn
        ``get_goodput(num_nodes, num_replicas)`` of each; None where the job has not run yet.
    scale_unit
        GPUs of a replica.
    cluster_throughput_ratios
        Of a rigid job its rates; of another, by two types, how much quicker the first is.
    scaling_underway
        Whether it restarts at the moment, and has to be left where it is.
    """

    speedup_fn: Mapping[str, Any]
    min_replicas: Mapping[str, int]
    max_replicas: Mapping[str, int]
    scale_unit: Mapping[str, int]
    cluster_throughput_ratios: Mapping[str, Any]
    category: str | None
    age: float
    num_restarts: int
    scaling_underway: bool


@dataclass(frozen=True)
class _Type:
    """Nodes of a type of GPUs, all with as many of them.

    Attributes
    ----------
    nodes : list
        Their identifiers.
    most_nodes : int
        That one job may use.
    """

    name: str
    nodes: list[Any]
    gpus_per_node: int
    most_nodes: int

    @property
    def sizes(self) -> IntArray:
        """GPU counts of configurations."""
        inside = 2 ** np.arange(self.gpus_per_node.bit_length())
        whole = self.gpus_per_node * np.arange(1, self.most_nodes + 1)
        return np.concatenate([inside[inside < self.gpus_per_node], whole])

    def nodes_for(self, gpus: Any) -> Any:
        """Nodes that so many GPUs are on."""
        return -(-gpus // self.gpus_per_node)


class _Row(NamedTuple):
    """A configuration of a job, and its goodput or what it is worth."""

    type: str
    gpus: int
    goodput: float


def _normalised(rows: Sequence[_Row]) -> list[_Row]:
    """Divide goodputs by the least of them, times the fewest GPUs, without rows that make no progress."""
    rows = [row for row in rows if not row.goodput <= 0.0]
    least = min((row.goodput for row in rows), default=1.0)
    fewest = min((row.gpus for row in rows), default=1)
    return [row._replace(goodput=row.goodput / least * fewest) for row in rows]


class GoodputPolicy:
    """Sia's objective over configurations and GPUs on nodes, each round solved to the gap with a bound.

    Parameters
    ----------
    p_fairness : float
        The exponent p: the smaller, the more a small job counts.
    lambda_n : float
        What a job that waits costs: above 1 for p < 0, at most 0 for p > 0.
    restart_s : float or callable
        What a restart takes, or that of a job's name.
    project_throughputs : bool
        Estimate goodput on types that a job has not run on from another type; its GPU counts are then
        limited by the most of any type. Otherwise it begins there with one replica.
    gap : float
        Relative gap at which a round is solved.
    deadline_s : float, optional
        Seconds that a round may take.

    Attributes
    ----------
    last : SessionDecision, optional
        The last decision, with its bound, prices and certificate; None before, and where no job has a
        configuration.

    Raises
    ------
    ValueError, TypeError
        For values out of range, or of another type.
    """

    def __init__(
        self,
        p_fairness: float = -0.5,
        lambda_n: float = 1.1,
        restart_s: float | Callable[[str], float] = 30.0,
        project_throughputs: bool = False,
        *,
        gap: float = 1e-4,
        deadline_s: float | None = None,
    ) -> None:
        p, cost = p_fairness, lambda_n
        for name, value in (("p_fairness", p), ("lambda_n", cost)):
            require(name, value, (Real,), "a number")
        require_range(p != 0.0 and np.isfinite(p), "p_fairness", "finite, not 0", p)
        if p < 0.0:
            require_range(1.0 < cost < np.inf, "lambda_n", "above 1 where p_fairness is negative", cost)
        else:
            require_range(-np.inf < cost <= 0.0, "lambda_n", "at most 0 where p_fairness is positive", cost)
        if not callable(restart_s):
            require("restart_s", restart_s, (Real,), "a number of seconds, or a function of a name")
            require_range(0.0 <= restart_s < np.inf, "restart_s", "at least 0 and finite", restart_s)
        self._p, self._lambda, self._restart_s = p, cost, restart_s
        self._projects, self._gap, self._deadline_s = project_throughputs, gap, deadline_s
        self._most_nodes: Mapping[str, int] = {}
        self._types: dict[str, _Type] = {}
        self._session: Session | None = None
        self._asked: list[str] = []
        self.last: SessionDecision | None = None

    def populate_valid_configs(
        self,
        cluster_num_nodes: Mapping[str, int],
        cluster_num_gpus: Mapping[str, int],
        cluster_max_physical_nnodes: Mapping[str, int] | None = None,
    ) -> None:
        """Limit the nodes of each type that one job may use; `optimize` sees the rest itself."""
        self._most_nodes = dict(cluster_max_physical_nnodes or {})

    def optimize(
        self,
        jobs: Mapping[str, Job],
        nodes: Mapping[str, Mapping[int, Node]],
        base_allocations: Mapping[str, Allocation],
    ) -> dict[str, Allocation]:
        """Decide what every job does next.

        Parameters
        ----------
        jobs : mapping of str to job
        nodes : mapping of str to mapping
            Of each type of GPUs its nodes, by identifier.
        base_allocations : mapping of str to tuple
            What jobs hold now.

        Returns
        -------
        dict of str to tuple
            Type and node of each GPU; ``(None, ())`` for jobs that wait.

        Raises
        ------
        ValueError
            That names the job or node, and what is wrong with it.
        """
        for name, value in (("jobs", jobs), ("nodes", nodes), ("base_allocations", base_allocations)):
            require(name, value, (Mapping,), "a mapping")
        session, self.last = self._session_of(nodes), None
        held = self._held({name: base_allocations.get(name) for name in jobs})
        tables = {name: self._worth(name, job, held[name]) for name, job in jobs.items()}
        names = [name for name, rows in tables.items() if rows]
        session.remove([name for name in set(self._asked) - set(names) if name in session])
        self._asked = names
        answer: dict[str, Allocation] = dict.fromkeys(jobs, (None, ()))
        if not names:
            return answer
        own = [tables[name] for name in names]
        rows = [row for table in own for row in table]
        session.upsert(
            names,
            start=offsets([*map(len, own)]),
            pool=[row.type for row in rows],
            gpus=np.array([row.gpus for row in rows]),
            rate=np.array([row.goodput for row in rows]),
            power_w=np.zeros(len(rows)),
            weight=[_most_of_the_smallest(table) for table in own],
            preemptible=[held[name] is None or not jobs[name].scaling_underway for name in names],
            held=[held[name] for name in names],
        )
        self.last = session.solve(gap=self._gap, deadline_s=self._deadline_s)
        if not self.last.solved:
            raise ValueError(f"jobs: there is no decision, {self.last.result.termination.reason}")
        return answer | self._placements(self.last)

    def _session_of(self, nodes: Mapping[str, Mapping[int, Node]]) -> Session:
        """The session of these nodes: that of the round before, where they are the same."""
        types = {name: self._type(name, of) for name, of in nodes.items() if of}
        if self._session is None or types != self._types:
            cluster = {
                "gpu_types": {name: {"idle_power_w": 0.0} for name in types},
                "nodes": [
                    {"name": _label(name, node), "gpu_type": name, "gpus": one.gpus_per_node}
                    for name, one in types.items()
                    for node in one.nodes
                ],
            }
            self._session = Session(cluster, objective="goodput", capacity="nodes")
            self._types = types
        return self._session

    def _type(self, name: str, nodes: Mapping[int, Node]) -> _Type:
        """A type of GPUs with its nodes; a ValueError where these do not all have as many GPUs."""
        counts = {int(node.resources.get(GPU, 0)) for node in nodes.values()}
        if len(counts) > 1 or min(counts) < 1:
            found = " and ".join(str(count) for count in sorted(counts))
            raise ValueError(f"nodes: those of '{name}' must have equally many GPUs, at least 1, got {found}")
        most = min(len(nodes), self._most_nodes.get(name, len(nodes)))
        return _Type(name, list(nodes), counts.pop(), most)

    def _held(self, allocations: Mapping[str, Allocation | None]) -> dict[str, dict[str, Any] | None]:
        """Return what jobs hold, as a session takes it: GPUs of a node are numbered as they come."""
        taken: Counter[tuple[str, Any]] = Counter()
        held: dict[str, dict[str, Any] | None] = {}
        for job, allocation in allocations.items():
            name, places = allocation or (None, ())
            held[job], where = None, f"base_allocations: job '{job}'"
            if name is None or not len(places):
                continue
            on: dict[str, list[int]] = {}
            for node in places:
                if name not in self._types or node not in self._types[name].nodes:
                    raise ValueError(f"{where} is on node {node} of '{name}', which is not there")
                if taken[name, node] == self._types[name].gpus_per_node:
                    raise ValueError(f"{where} has no GPU left on node {node} of '{name}'")
                on.setdefault(_label(name, node), []).append(taken[name, node])
                taken[name, node] += 1
            held[job] = {"gpus": len(places), "pool": name, "nodes": on}
        return held

    def _placements(self, decision: SessionDecision) -> dict[str, Allocation]:
        """Type and node of each GPU, node by node in the order of the nodes."""
        place = {_label(name, node): node for name, one in self._types.items() for node in one.nodes}
        order = {label: number for number, label in enumerate(place)}
        found: dict[str, Allocation] = {}
        for one in decision.assignments:
            labels = sorted(one.nodes, key=order.__getitem__)
            found[one.job] = one.pool, [place[label] for label in labels for _ in one.nodes[label]]
        return found

    def _worth(self, name: str, job: Job, held: Mapping[str, Any] | None) -> list[_Row]:
        """Configurations of a job, with what each is worth over waiting as its goodput."""
        lacking = [field for field in Job.__annotations__ if not hasattr(job, field)]
        if lacking:
            raise ValueError(f"jobs: job '{name}' has no {lacking[0]}")
        try:
            rows = self._rigid(job) if job.category == "rigid" else self._adaptive(job)
        except KeyError as error:
            raise ValueError(f"jobs: a field of job '{name}' does not have the type {error}") from None
        if odd := [row for row in rows if not np.isfinite(row.goodput)]:
            where = f"{odd[0].gpus} GPUs of '{odd[0].type}'"
            raise ValueError(f"jobs: job '{name}' has a goodput of {odd[0].goodput} on {where}")
        now = None if held is None else (held["pool"], held["gpus"])  # as a row begins
        if held is not None and job.scaling_underway:
            rows = [row for row in rows if row[:2] == now]
            if not rows:
                what = f"{held['gpus']} GPUs of '{held['pool']}', none of its configurations"
                raise ValueError(f"jobs: job '{name}' restarts on {what}")
        factor = 1.0 if held is None else self._restart_factor(name, job)
        goodput = np.array([row.goodput * (1.0 if row[:2] == now else factor) for row in rows])
        with np.errstate(divide="ignore"):
            worth = np.sign(self._p) * (goodput**self._p - self._lambda)
        valued = (row._replace(goodput=one) for row, one in zip(rows, worth.tolist(), strict=True))
        return [row for row in valued if row.goodput > LEAST_WORTH]

    def _restart_factor(self, name: str, job: Job) -> float:
        """Share of a job's time that it would have worked after one more restart; 1 for young jobs."""
        restart_s = self._restart_s(name) if callable(self._restart_s) else self._restart_s
        if job.age < restart_s or restart_s == 0.0:
            return 1.0
        return float(max(job.age - job.num_restarts * restart_s, 0.0) / (job.age + restart_s))

    def _rigid(self, job: Job) -> list[_Row]:
        """One count of GPUs, on any type that has as many."""
        gpus = int(max(job.max_replicas.values()))
        fit = [one.name for one in self._types.values() if one.nodes_for(gpus) <= one.most_nodes]
        return _normalised([_Row(name, gpus, float(job.cluster_throughput_ratios[name])) for name in fit])

    def _adaptive(self, job: Job) -> list[_Row]:
        """All counts of GPUs of types whose goodput is known; one replica on each of the others."""
        ran = [name for name in self._types if job.speedup_fn.get(name) is not None]
        known, first = list[_Row](), list[_Row]()
        for name, one in self._types.items():
            unit, sizes = job.scale_unit[name], one.sizes
            if name in ran or (ran and self._projects):
                least, most = self._replicas(job, name)
                gpus = sizes[(sizes % unit == 0) & (sizes >= least * unit) & (sizes <= most * unit)]
                goodput = self._goodput(job, one, ran, gpus).tolist() if len(gpus) else []
                known += [_Row(name, *row) for row in zip(gpus.tolist(), goodput, strict=True)]
            elif unit in sizes:
                first.append(_Row(name, int(unit), float(unit)))
        return _normalised(known) + first

    def _replicas(self, job: Job, name: str) -> tuple[int, int]:
        """Fewest and most replicas."""
        if self._projects:
            return max(1, min(job.min_replicas.values())), max(1, *job.max_replicas.values())
        return max(1, job.min_replicas[name]), max(1, job.max_replicas[name])

    def _goodput(self, job: Job, one: _Type, ran: Sequence[str], gpus: IntArray) -> FloatArray:
        """Goodput on counts of GPUs of a type; by the function of another one if the job `ran` only there."""
        replicas, ratio, source = gpus // job.scale_unit[one.name], 1.0, one
        if one.name not in ran:
            source = self._types[ran[0]]
            ratio = float(job.cluster_throughput_ratios[one.name][source.name])
        on = source.nodes_for(replicas * job.scale_unit[source.name])
        goodput = job.speedup_fn[source.name].get_goodput(on.astype(np.float32), replicas.astype(np.float32))
        return np.asarray(goodput, dtype=np.float64).reshape(len(gpus)) * ratio


def _label(name: str, node: object) -> str:
    """Name of a node in the session."""
    return f"{name}/{node}"


def _most_of_the_smallest(rows: Sequence[_Row]) -> float:
    """Return the most that a configuration with the fewest GPUs is worth."""
    fewest = min(row.gpus for row in rows)
    return max(row.goodput for row in rows if row.gpus == fewest)

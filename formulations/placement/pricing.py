r"""Exact pricing: the outcomes of a node that cost least at given prices of tasks, by labels.

An outcome costs what it changes of power and fragmentation, less the prices of the tasks that it hosts. One
request after the other is hosted any number of times, on every choice of GPUs that makes a difference. A
*label* is what is then free of the node, and the prices of what it hosts. It is dropped where another one
has as much free of every GPU, no less CPU and memory, and no lower prices: power and fragmentation only fall
with free CPU, so whatever the first could host costs the second no more. It is also dropped where a
relaxation of what could still be hosted shows that no outcome of negative reduced cost is left. A request is
done with before the next one, so tasks are never more than the window has. This is the dynamic programme of
resource constrained shortest paths (Desrochers and Soumis, INFOR 26, 1988), over requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wattsched.formulations.placement.data import Window
from wattsched.formulations.placement.outcomes import Outcomes, Prices
from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.topology.arrays import FloatArray, IntArray, Table, run_starts

_CPU_PRICES = 8
"""Prices of CPU that the relaxation is tried at."""
_NO_STEPS = np.zeros((3, 0), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Labels(Table):
    """Labels say what is free of a node, what its tasks pay, and which step led there.

    Attributes
    ----------
    gpu_milli : (L, G) int
        Free thousandths of each GPU in ascending order.
    key : (L,) int
        Equal for equal GPUs.
    cpu_milli, memory_mib : (L,) int
    paid : (L,) float
        Prices of the tasks hosted.
    step : (L,) int
        Number of the last step, -1 before the first.
    last : (L,) int
        Free thousandths of the GPU that the last task of the request at hand has taken.
    """

    gpu_milli: IntArray
    key: IntArray
    cpu_milli: IntArray
    memory_mib: IntArray
    paid: FloatArray
    step: IntArray
    last: IntArray

    def __len__(self) -> int:
        return len(self.key)


class _Request(NamedTuple):
    """A profile, what it asks for, the number of its tasks, and their price."""

    profile: int
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    tasks: int
    price: float


class _Search(NamedTuple):
    """Labels to keep, outcomes of a class to find, and the reduced cost up to which all of them count."""

    width: int
    most: int
    room: float = 0.0

    @property
    def all(self) -> bool:
        """True if dominated outcomes count, too."""
        return self.room > 0.0


class Pricing:
    """Finds outcomes of node classes by their reduced costs.

    Parameters
    ----------
    window : Window
    """

    def __init__(self, window: Window):
        self._window, profiles = window, window.hosting.profiles
        # Whole GPUs before shares, large before small ones: free GPUs differ little as long as possible.
        self._order = np.lexsort([-profiles.gpu_milli, -profiles.gpus, profiles.gpus > 0])
        # A sum of random numbers tells sets of GPUs apart.
        self._mark = np.random.default_rng(0).integers(2**62, size=WHOLE_GPU + 1)

    def __call__(self, prices: Prices, most: int, width: int) -> tuple[FloatArray, Outcomes]:
        """Lower bounds on the reduced costs of each class, 0 at most, and its outcomes with the least.

        These are negative, and `most` of each class at most. A bound is exact where no more than `width`
        labels may lead to negative reduced costs.
        """
        found = list(self._of_classes(prices, _Search(width, most)))
        return np.array([bound for bound, _ in found]), self._joined([one for _, one in found])

    def within(self, prices: Prices, room: float, most: int) -> Outcomes | None:
        """All outcomes with reduced costs below `room`; None where more than `most` labels lead to them."""
        found = list[Outcomes]()
        for bound, outcomes in self._of_classes(prices, _Search(most, most, room)):
            found.append(outcomes)
            if bound < room or sum(map(len, found)) > most:
                return None
        return self._joined(found)

    def _joined(self, found: list[Outcomes]) -> Outcomes:
        """Outcomes of all classes, of which there may be none."""
        return Outcomes.joined([self._outcomes(0, np.arange(0), _NO_STEPS, np.zeros(0)), *found])

    def _of_classes(self, prices: Prices, search: _Search) -> Iterator[tuple[float, Outcomes]]:
        """Yield bound and outcomes of each class, as of `_of_class`."""
        window, states = self._window, self._window.classes.states
        kinds: dict[tuple[int, int], tuple[list[_Request], _Completion]] = {}
        for cls, node in enumerate(states.node):
            model, gpu_w = int(window.nodes.model[node]), int(window.hosting.gpu_w[node])
            if (model, gpu_w) not in kinds:
                requests = self._requests(model, prices.task_worth)
                kinds[model, gpu_w] = requests, _Completion(window, model, gpu_w, requests)
            yield self._of_class(cls, *kinds[model, gpu_w], prices, search)

    def _requests(self, model: int, price: FloatArray) -> list[_Request]:
        """Requests of tasks that may run on nodes with a GPU model."""
        order = self._order[self._window.hosting.allowed[self._order, model]]
        tasks = self._window.hosting.profiles.take(order)
        asked = tasks.cpu_milli, tasks.memory_mib, tasks.gpus, tasks.gpu_milli
        columns = order, *asked, self._window.demand[order], price[order]
        return [_Request(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _of_class(
        self, cls: int, requests: list[_Request], completion: _Completion, prices: Prices, search: _Search
    ) -> tuple[float, Outcomes]:
        """Outcomes of a class, and a lower bound on reduced costs: of others, or of any without `room`."""
        states, done = self._window.classes.states.take(np.array([cls])), len(requests)
        node, nothing, none = int(states.node[0]), np.zeros(1), np.full(1, -1)
        key = self._mark[states.gpu_milli].sum(axis=1)
        labels = _Labels(states.gpu_milli, key, states.cpu_milli, states.memory_mib, nothing, none, none)
        now = float(completion(labels, node, done)[0]) - float(prices.node_cost[cls])
        steps, n_steps, least, room = [_NO_STEPS], 0, search.room, search.room
        for number, request in enumerate(requests):
            level = replace(labels, last=np.full(len(labels), WHOLE_GPU))
            levels = [labels]
            for _ in range(request.tasks):
                before, slot = _places(level, request)
                if not len(before):
                    break
                after = self._after(level.take(before), request, slot)
                steps.append(np.stack([after.step, np.full(len(slot), request.profile), slot]))
                level = replace(after, step=n_steps + np.arange(len(slot)))
                n_steps += len(slot)
                level = level.take(completion(level, node, number) - now < room)
                levels.append(level)
            labels = _Labels.joined(levels) if search.all else _undominated(_Labels.joined(levels))
            bound = completion(labels, node, number + 1) - now
            order = np.argsort(bound, kind="stable")
            least = min(least, float(bound[order[search.width :]].min(initial=room)))
            labels = labels.take(order[: min(search.width, np.count_nonzero(bound < room))])
        reduced = completion(labels, node, done) - now
        # Several labels can be ways to host the same tasks.
        order = np.argsort(reduced, kind="stable")[: None if search.all else 4 * search.most]
        order = order[reduced[order] < room]
        cost = reduced[order] + labels.paid[order] - prices.node_cost[cls]
        outcomes = self._outcomes(cls, labels.step[order], np.concatenate(steps, axis=1), cost)
        # Of one multiset of tasks the cheapest way comes first.
        _rows, first = np.unique(outcomes.hosted, axis=0, return_index=True)
        least = least if search.all else min(least, float(reduced.min(initial=0.0)))
        first = first[outcomes.hosted[first].any(axis=1)]
        return least, outcomes.take(np.sort(first)[: search.most])

    def _after(self, labels: _Labels, request: _Request, slot: IntArray) -> _Labels:
        """Labels after each has hosted one more task on the GPUs from a slot on."""
        left = replace(
            labels,
            cpu_milli=labels.cpu_milli - request.cpu_milli,
            memory_mib=labels.memory_mib - request.memory_mib,
            paid=labels.paid + request.price,
        )
        if not request.gpus:
            return left
        gpu, rows = labels.gpu_milli.copy(), np.arange(len(slot))
        taken = gpu[rows, slot]
        for more in range(request.gpus):
            gpu[rows, slot + more] -= request.gpu_milli
        key = labels.key + request.gpus * (self._mark[taken - request.gpu_milli] - self._mark[taken])
        return replace(left, gpu_milli=np.sort(gpu, axis=1), key=key, last=taken)

    def _outcomes(self, cls: int, at: IntArray, steps: IntArray, cost: FloatArray) -> Outcomes:
        """Outcomes of a class that steps, as label before, profile and slot, lead to."""
        n, size, backwards = len(at), len(self._window.tasks), list[IntArray]()
        while np.any(at >= 0):
            step = np.where(at >= 0, steps[:, at], -1)
            backwards.append(step[1:])
            at = step[0]
        way = np.full((2, n, size), -1)
        if backwards:
            forwards = np.stack(backwards[::-1], axis=2)
            order = np.argsort(forwards[0] < 0, axis=1, kind="stable")
            way[:, :, : len(backwards)] = np.take_along_axis(forwards, order[None], axis=2)
        hosted = np.zeros((n, len(self._window.demand) + 1), dtype=np.int64)
        np.add.at(hosted, (np.arange(n)[:, None], way[0]), 1)
        return Outcomes(np.full(n, cls), hosted[:, :-1], cost, np.zeros((n, 0)), way[0], way[1])


class _Completion:
    r"""Costs of what labels lead to at least, less what that pays, but for a constant of the node.

    At a price :math:`\kappa \ge 0` of CPU every GPU is filled by itself with what pays most there, however
    many such tasks there are; the best of a few prices counts. Fragmentation is that at the CPU which is free
    now, and power that of the packages which are active now: neither can fall.
    """

    def __init__(self, window: Window, model: int, gpu_w: int, requests: list[_Request]):
        self._window, tables = window, window.hosting.fragmentation
        self._model, free = model, np.arange(WHOLE_GPU + 1)
        self._first_row = int(tables.kind_of_model[model]) * tables.shape[1]
        rows = self._first_row + np.arange(tables.shape[1])
        # What a GPU is worth with so much free, by row: (rows, 1001).
        kept = window.hosting.per_fragment * (tables.gpu_at(rows[:, None], free) - tables.scale * free)
        kept[:, WHOLE_GPU] += window.per_w * gpu_w
        ratio = [0.0]
        for one in requests:
            gain, gpus = one.price, max(1, one.gpus)
            if one.gpus:
                gain += gpus * float(kept[-1, WHOLE_GPU - one.gpu_milli] - kept[-1, WHOLE_GPU])
            ratio.append(max(0.0, gain) / max(1, one.cpu_milli))
        quantiles = np.quantile(ratio, np.linspace(0.0, 1.0, _CPU_PRICES), method="nearest")
        self._cpu_price = np.unique(np.append(0.0, quantiles))
        # The same with what it may still host, by row and price of CPU, and what tasks without GPU may pay.
        value = np.repeat(kept[:, None, :], len(self._cpu_price), axis=1)
        extra = np.zeros(len(self._cpu_price))
        self._of_gpu, self._of_rest = [value], [extra]
        for one in requests[::-1]:
            if one.gpus:
                pays = ((one.price - self._cpu_price * one.cpu_milli) / one.gpus)[:, None]
                value = value.copy()
                for _ in range(min(one.gpus * one.tasks, WHOLE_GPU // one.gpu_milli)):
                    more = pays + value[:, :, : WHOLE_GPU + 1 - one.gpu_milli]
                    np.maximum(value[:, :, one.gpu_milli :], more, out=value[:, :, one.gpu_milli :])
            else:
                pays = one.price - self._cpu_price * one.cpu_milli
                extra = extra + one.tasks * np.maximum(0.0, pays)
            self._of_gpu.insert(0, value)
            self._of_rest.insert(0, extra)

    def __call__(self, labels: _Labels, node: int, number: int) -> FloatArray:
        """Bounds where requests from this number on remain, shape (L,); exact where none does."""
        window, tables = self._window, self._window.hosting.fragmentation
        row = np.searchsorted(tables.cpu_steps, labels.cpu_milli, side="right")
        worth = self._of_gpu[number][row[:, None], :, labels.gpu_milli].sum(axis=1)
        worth += self._of_rest[number] + self._cpu_price * labels.cpu_milli[:, None]
        free = (labels.gpu_milli == WHOLE_GPU).sum(axis=1)
        useful = window.hosting.per_fragment * tables.free_at(self._first_row + row, free)
        power_w = window.per_w * window.power.cpu_w(labels.cpu_milli, np.full(len(labels), node))
        return np.asarray(power_w - useful - worth.min(axis=1) - labels.paid)


def _places(labels: _Labels, request: _Request) -> tuple[IntArray, IntArray]:
    """Labels that have room for one more task, and the slots that it may take, each of several alike once.

    Tasks of one request take GPUs in descending order of what is free: no set of places comes twice.
    """
    fits = (labels.cpu_milli >= request.cpu_milli) & (labels.memory_mib >= request.memory_mib)
    gpu, slots = labels.gpu_milli, labels.gpu_milli.shape[1]
    if request.gpus == 1:
        room = (gpu >= request.gpu_milli) & (gpu <= labels.last[:, None]) & fits[:, None]
        room[:, 1:] &= gpu[:, 1:] != gpu[:, :-1]
        found, slot = np.nonzero(room)
        return found, slot
    if request.gpus:
        fits &= (gpu == WHOLE_GPU).sum(axis=1) >= request.gpus
    found = np.flatnonzero(fits)
    return found, np.full(len(found), slots - request.gpus if request.gpus else 0)


def _undominated(labels: _Labels) -> _Labels:
    """Labels without those that others dominate, as far as one look in the order of prices tells."""
    order = np.lexsort([-labels.memory_mib, -labels.cpu_milli, -labels.paid, labels.key])
    key, cpu, memory = (values[order] for values in (labels.key, labels.cpu_milli, labels.memory_mib))
    run = np.zeros(len(order), dtype=np.int64)
    run[run_starts(key)[1:]] = 1
    rising = np.cumsum(run) * (int(cpu.max(initial=0)) + 1) + cpu
    # Of those before with the same GPUs the first that has most CPU.
    most = np.maximum.accumulate(rising)
    leads = np.append(True, rising[1:] > most[:-1])[: len(order)]
    leader = np.maximum.accumulate(np.where(leads, np.arange(len(order)), 0))
    return labels.take(order[leads | (memory > memory[leader])])

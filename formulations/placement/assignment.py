r"""`assignment`: an algebraic Pyomo model that puts every task on a node and its GPUs.

With x_tn for task t on node n and y_tng for its GPUs, of which :math:`r_{ng} = r^0_{ng} - \sum_t m_t y_{tng}`
thousandths stay free, a free GPU g wakes (z_ng), and a_n packages of C cores each are active:

.. math::
    \sum_n x_{tn} \le 1,\quad \sum_g y_{tng} = k_t x_{tn},\quad y_{tng} \le z_{ng},\quad
    2000\,C a_n \ge 2000\,\mathit{cores}_n - \Bigl(c^0_n - \sum_t c_t x_{tn}\Bigr)

Of the free GPU of a node, class m of the usual tasks (n_m GPUs, d_m thousandths of each, c_m of CPU) can use
:math:`u_{nm}`, and the rest is fragments. GPUs that are large enough have s = 1, and a node that can run a
task of the class has h = 1:

.. math::
    u_{nm} \le \sum_g v_{ngd},\quad v_{ngd} \le r_{ng},\quad v_{ngd} \le 1000\,s_{ngd},\quad
    d\,s_{ngd} \le r_{ng},\quad u_{nm} \le R^0_n h_{nm},\quad n_m h_{nm} \le \sum_g s_{ngd},\quad
    c_m h_{nm} \le c^0_n - \sum_t c_t x_{tn}

It needs no list of outcomes, so that its bound holds however many there are; but the bound is weak, and it is
for small windows, and the witness for `patterns`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from wattsched.formulations.compiler import compile_model
from wattsched.formulations.model import Model, UnsuitableError, not_built
from wattsched.formulations.placement.data import Window
from wattsched.formulations.placement.fragmentation import allowed
from wattsched.formulations.timer import Timer
from wattsched.instances.placement.decision import PlacedTask, PlacementDecision
from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.perfmodels.node_power import VCPU_PER_CORE
from wattsched.topology.arrays import FloatArray

MOST_VARIABLES = 200_000
VARIABLES_PER_S = 10_000
"""Variables that Pyomo builds per second, about: a model too large for its time has no columns."""

_LEAST_TERM = 2e-5
"""Least term of the cost, relative to the sum of all, that solvers tell from nothing."""


def build(window: Window, objective: str = "", timer: Timer | None = None) -> Model[PlacementDecision]:
    """Build the explicit formulation; parameters as for `patterns.build`.

    Raises
    ------
    UnsuitableError
        If the model would have more than `MOST_VARIABLES` variables.
    """
    if window.limited:
        raise UnsuitableError("'assignment' takes no limits on other objectives")
    left_s = (timer or Timer()).remaining_s()
    most = MOST_VARIABLES if left_s is None else min(MOST_VARIABLES, VARIABLES_PER_S * left_s)
    model = algebra(window, most)
    if model is None:
        return not_built()
    program, column_of = compile_model(model)
    on_node = {key: column_of[id(variable)] for key, variable in model.x.items()}
    on_gpu = {key: column_of[id(variable)] for key, variable in model.y.items()}

    def decode(x: FloatArray, starts: object) -> PlacementDecision:
        """Decision of a point; tasks on no node wait."""
        names, placed = window.nodes.names, []
        for (t, n), column in on_node.items():
            if x[column] > 0.5:
                gpus = [g for (task, node, g), c in on_gpu.items() if (task, node) == (t, n) and x[c] > 0.5]
                placed.append(PlacedTask(task=window.instance.tasks[t].name, node=names[n], gpus=gpus))
        hosted = {one.task for one in placed}
        waiting = [task.name for task in window.instance.tasks if task.name not in hosted]
        return PlacementDecision(placed=placed, waiting=waiting)

    terms = np.abs(program.cost) * (program.upper - program.lower)
    least, size = terms[terms > 0.0].min(initial=np.inf), float(terms.sum())
    return Model(program, decode, rounded=size if least < _LEAST_TERM * size else 0.0)


def algebra(window: Window, most: float = MOST_VARIABLES) -> Any:
    """Write the model in Pyomo.

    Returns
    -------
    pyomo.environ.ConcreteModel or None
        ``x[t, n]`` puts task t on node n, ``y[t, n, g]`` on its GPU g. None if it would have more than `most`
        variables.
    """
    nodes = sorted(int(n) for members in window.classes.members for n in members)
    tasks, free = window.tasks, window.gpu_free_milli
    fits = window.hosting.possible(window.classes.states)[:, window.profile]
    class_of = {int(n): c for c, nodes in enumerate(window.classes.members) for n in nodes}
    pairs = [(t, n) for n in nodes for t in range(len(tasks)) if fits[class_of[n], t]]
    gpus_of = {
        (t, n): np.flatnonzero(free[n] >= tasks.gpu_milli[t]).tolist() if tasks.gpus[t] else []
        for t, n in pairs
    }
    places = [(t, n, g) for (t, n), gpus in gpus_of.items() for g in gpus]
    sizes = sorted({int(d) for d in window.target.classes.gpu_milli[window.target.classes.gpus > 0]})
    large = [(n, g, d) for n in nodes for d in sizes for g in np.flatnonzero(free[n] >= d).tolist()]
    usual = [(n, c) for n in nodes for c in _classes_on(window, n)] if window.per_milli else []
    variables = len(pairs) + len(places) + 2 * (len(large) + len(usual))
    if variables > MOST_VARIABLES:
        raise UnsuitableError(f"'assignment' is for small windows, of up to {MOST_VARIABLES:,} variables")
    if variables > most:
        return None
    import pyomo.environ as pyo

    m = pyo.ConcreteModel(name=window.instance.name)
    m.nodes = pyo.Set(initialize=nodes)
    m.x, m.y = pyo.Var(pairs, domain=pyo.Binary), pyo.Var(places, domain=pyo.Binary)
    nodes_of: dict[int, list[int]] = defaultdict(list)
    tasks_on: dict[int, list[int]] = defaultdict(list)
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for t, n in pairs:
        nodes_of[t].append(n)
        tasks_on[n].append(t)
    for t, n, g in places:
        users[n, g].append(t)
    m.once, m.room = pyo.ConstraintList(), pyo.ConstraintList()
    for t, places_of in nodes_of.items():
        m.once.add(pyo.quicksum(m.x[t, n] for n in places_of) <= 1)
    m.left, m.cpu_left = pyo.Expression(m.nodes, range(free.shape[1])), pyo.Expression(m.nodes)
    for n in m.nodes:
        _add_room(m, window, n, tasks_on[n], users)
    for (t, n), gpus in gpus_of.items():
        if gpus:
            m.room.add(pyo.quicksum(m.y[t, n, g] for g in gpus) == int(tasks.gpus[t]) * m.x[t, n])
    waiting = (
        float(window.waiting[t]) * (1 - pyo.quicksum(m.x[t, n] for n in places_of))
        for t, places_of in nodes_of.items()
    )
    m.cost = pyo.Objective(
        expr=pyo.quicksum(waiting) + _power(m, window, places) + _fragmentation(m, window, large, usual)
    )
    return m


def _add_room(
    m: Any, window: Window, n: int, here: list[int], users: dict[tuple[int, int], list[int]]
) -> None:
    """Add what tasks leave of node n and its GPUs, and that it is not negative.

    The tasks `here` may be on the node, `users` on each GPU by node and GPU.
    """
    import pyomo.environ as pyo

    tasks = window.tasks
    used_milli = pyo.quicksum(int(tasks.cpu_milli[t]) * m.x[t, n] for t in here)
    m.cpu_left[n] = int(window.cpu_free_milli[n]) - used_milli
    m.room.add(m.cpu_left[n] >= 0)
    used_mib = pyo.quicksum(int(tasks.memory_mib[t]) * m.x[t, n] for t in here)
    m.room.add(used_mib <= int(window.memory_free_mib[n]))
    for g, free in enumerate(window.gpu_free_milli[n].tolist()):
        asking = users.get((n, g), [])
        m.left[n, g] = free - pyo.quicksum(int(tasks.gpu_milli[t]) * m.y[t, n, g] for t in asking)
        if asking:
            m.room.add(m.left[n, g] >= 0)


def _power(m: Any, window: Window, places: list[tuple[int, int, int]]) -> Any:
    """Cost of the GPUs that wake and the packages that become active, with their variables and rows.

    `places` are the task, node and GPU of each y.
    """
    import pyomo.environ as pyo

    if not window.per_w:
        return 0.0
    power = window.power
    asleep = sorted({(n, g) for _t, n, g in places if window.gpu_free_milli[n, g] == WHOLE_GPU})
    m.z, m.a = pyo.Var(asleep, domain=pyo.Binary), pyo.Var(m.nodes, domain=pyo.Integers)
    m.wake = pyo.ConstraintList()
    for t, n, g in places:
        if (n, g) in m.z:
            m.wake.add(m.y[t, n, g] <= m.z[n, g])
    gpu_w, package_w = power.gpu_full_w - power.gpu_idle_w, power.package_full_w - power.package_idle_w
    cost: list[Any] = [int(gpu_w[n]) * m.z[n, g] for n, g in asleep]
    for n in m.nodes:
        step = 1000 * VCPU_PER_CORE
        full = step * int(power.package_cores[n])
        # Packages that are active now: rounded up.
        now = -(-(step * int(power.cores[n]) - int(window.cpu_free_milli[n])) // full)
        m.a[n].setlb(now)
        m.a[n].setub(int(power.packages[n]))
        m.wake.add(full * m.a[n] >= step * int(power.cores[n]) - m.cpu_left[n])
        cost.append(int(package_w[n]) * (m.a[n] - now))
    return window.per_w * pyo.quicksum(cost)


def _classes_on(window: Window, n: int) -> list[int]:
    """Numbers of the classes of usual tasks with GPUs that node n could run now."""
    classes, nodes = window.target.classes, window.nodes
    runs = allowed(classes, nodes.models)[:, nodes.model[n]] & (classes.gpus > 0)
    runs &= window.cpu_free_milli[n] >= classes.cpu_milli
    runs &= (window.gpu_free_milli[n] >= classes.gpu_milli[:, None]).sum(axis=1) >= classes.gpus
    classes_on: list[int] = np.flatnonzero(runs).tolist()
    return classes_on


def _fragmentation(
    m: Any, window: Window, large: list[tuple[int, int, int]], usual: list[tuple[int, int]]
) -> Any:
    """Cost of the change of fragmentation, with its variables and rows.

    `large` are node, GPU and size of each s, `usual` node and class of each h.
    """
    import pyomo.environ as pyo

    if not window.per_milli:
        return 0.0
    classes, free, everyone = window.target.classes, window.gpu_free_milli, int(window.target.count.sum())
    everything = WHOLE_GPU * free.shape[1]
    m.s, m.v = pyo.Var(large, domain=pyo.Binary), pyo.Var(large, bounds=(0, WHOLE_GPU))
    m.h, m.u = pyo.Var(usual, domain=pyo.Binary), pyo.Var(usual, bounds=(0, everything))
    m.use = pyo.ConstraintList()
    for n, g, d in large:
        m.use.add(m.v[n, g, d] <= m.left[n, g])
        m.use.add(m.v[n, g, d] <= WHOLE_GPU * m.s[n, g, d])
        m.use.add(d * m.s[n, g, d] <= m.left[n, g])
    milli: list[Any] = []
    for n in m.nodes:
        milli += [m.left[n, g] - int(free[n, g]) for g in range(free.shape[1])]
    for n, c in usual:
        d, share = int(classes.gpu_milli[c]), int(window.target.count[c]) / everyone
        roomy = np.flatnonzero(free[n] >= d).tolist()
        m.use.add(m.u[n, c] <= pyo.quicksum(m.v[n, g, d] for g in roomy))
        m.use.add(m.u[n, c] <= int(free[n].sum()) * m.h[n, c])
        m.use.add(int(classes.gpus[c]) * m.h[n, c] <= pyo.quicksum(m.s[n, g, d] for g in roomy))
        m.use.add(int(classes.cpu_milli[c]) * m.h[n, c] <= m.cpu_left[n])
        milli.append(share * (int(free[n, roomy].sum()) - m.u[n, c]))
    return window.per_milli * pyo.quicksum(milli)

"""Brute force of `placement`, written from docs/placement.md alone: sentences in quotes are the page's."""

import random
from fractions import Fraction
from itertools import combinations
from math import ceil, floor

# "Watts of models that the instance does not state": idle, full
GPU_W = {"T4": (10, 70), "A10": (30, 150), "G2": (30, 150), "P100": (25, 250), "V100M16": (30, 300)}
GPU_W |= {"V100M32": (30, 300), "A100": (50, 400), "G3": (50, 400)}
# "CPU package": idle, full, cores
CPU_W = {"E5-2682 v4": (15, 120, 16), "8163": (20, 165, 24), "6326": (20, 185, 16), "8369B": (20, 270, 32)}
CPU_W |= {"8269CY": (20, 205, 26)}


def gpu_watts(instance, node):
    stated = instance.get("gpu_types", {}).get(node.get("gpu_type"))
    return (stated["idle_power_w"], stated["full_power_w"]) if stated else GPU_W[node["gpu_type"]]


def cpu_watts(instance, node):
    name = node.get("cpu_type", "E5-2682 v4")  # "E5-2682 v4 (the default)"
    stated = instance.get("cpu_types", {}).get(name)
    return (stated["idle_power_w"], stated["full_power_w"], stated["cores"]) if stated else CPU_W[name]


def packages(instance, node):
    """ "A core has two vCPUs": ceil(ceil(v / 2) / c) packages, v in vCPUs."""
    cores = ceil(Fraction(node["cpu_milli"], 2000))
    return ceil(Fraction(cores, cpu_watts(instance, node)[2]))


def power_w(instance, node, free):
    """Watts of a node of which `free` = (cpu_milli, memory_mib, free thousandths of each GPU) are free."""
    # "A GPU draws its full watts as soon as any part of it is in use, and otherwise its idle ones."
    watts = sum(gpu_watts(instance, node)[milli < 1000] for milli in free[2])
    # "Of a node with v vCPUs, of which f are free, ceil(v / 2) - floor(f / 2) cores are busy; a CPU package
    # draws its full watts as soon as one of its c cores is"
    idle_w, full_w, c = cpu_watts(instance, node)
    busy = ceil(Fraction(node["cpu_milli"], 2000)) - floor(Fraction(free[0], 2000))
    active = ceil(Fraction(busy, c))
    return watts + active * full_w + (packages(instance, node) - active) * idle_w


def workload_of(instance):
    """ "the tasks of the window if empty" """
    return instance.get("workload") or [task | {"count": 1} for task in instance["tasks"]]


def fits_gpu_type(node, task):
    """ "`gpu_types` that it can use (all if empty)" """
    return not task.get("gpu_types") or node.get("gpu_type") in task["gpu_types"]


def fragmentation(instance, node, free):
    """ "F_n", in GPUs."""
    classes = workload_of(instance)
    total = sum(m["count"] for m in classes)
    lost = Fraction(0)
    for m in classes:
        asked, each = m.get("gpus", 0), m.get("gpu_milli", 1000)
        # "A class m of the workload with q_m tasks can run on a node if it asks for GPUs, of the node's
        # model, of which enough have room for what it asks of each, d_m, and its CPU is free; memory is not
        # looked at."
        can_run = (
            asked > 0
            and fits_gpu_type(node, m)
            and sum(milli >= each for milli in free[2]) >= asked
            and m.get("cpu_milli", 0) <= free[0]
        )
        # "To a class that can run, free GPU is of no use where it is less than d_m; to one that cannot, and
        # to one without GPUs, all of it"
        useless = sum(milli for milli in free[2] if not can_run or milli < each)
        lost += Fraction(m["count"] * useless, total * 1000)
    return lost


def start_of(node):
    """What is free now."""
    # "Thousandths in use of each GPU, of the first ones where the list is shorter" (schema)
    used = node.get("used_gpu_milli", [])
    gpus = node.get("gpus", 0)
    free_gpu = tuple(1000 - (used[g] if g < len(used) else 0) for g in range(gpus))
    free_cpu = node["cpu_milli"] - node.get("used_cpu_milli", 0)
    return free_cpu, node.get("memory_mib", 2**40) - node.get("used_memory_mib", 0), free_gpu


def placements(node, free, task):
    """(GPUs, what is free then) of every way to put a task on a node."""
    cpu, memory = free[0] - task.get("cpu_milli", 0), free[1] - task.get("memory_mib", 0)
    asked, each = task.get("gpus", 0), task.get("gpu_milli", 1000)
    if cpu < 0 or memory < 0 or (asked and not fits_gpu_type(node, task)):
        return
    for gpus in combinations(range(len(free[2])), asked):
        if all(free[2][g] >= each for g in gpus):
            yield gpus, (cpu, memory, tuple(f - each * (g in gpus) for g, f in enumerate(free[2])))


def waiting_w(instance, task):
    """What "R adds" for a task that waits, in watts."""
    k, objective = (
        exact(instance.get("fragmentation_w_per_gpu", 1000.0)),
        instance.get("objective", "power-fragmentation"),
    )
    # "the penalties R (W) of the waiting tasks that would have fitted on some node at the beginning"
    if not any(True for node in instance["nodes"] for _ in placements(node, start_of(node), task)):
        return Fraction(0)
    # "By default the first is 1 + max_n D_n watts and the second ten times that, where D_n is what may change
    # on a node by what the objective counts: the full less the idle watts of all its GPUs and packages, and k
    # for each GPU. Under `power` the last is left out, under `fragmentation` the watts."
    most = Fraction(0)
    for node in instance["nodes"]:
        change, gpus = Fraction(0), node.get("gpus", 0)
        if objective != "fragmentation":
            idle_w, full_w, _ = cpu_watts(instance, node)
            change += (full_w - idle_w) * packages(instance, node)
            change += gpus * (gpu_watts(instance, node)[1] - gpu_watts(instance, node)[0]) if gpus else 0
        if objective != "power":
            change += k * gpus
        most = max(most, change)
    each, per_gpu = instance.get("waiting_w"), instance.get("waiting_w_per_gpu")
    each = 1 + most if each is None else exact(each)
    per_gpu = 10 * (1 + most) if per_gpu is None else exact(per_gpu)
    # "for each GPU asked for (a share counts as its part)"
    return each + per_gpu * Fraction(task.get("gpus", 0) * task.get("gpu_milli", 1000), 1000)


def exact(number):
    return Fraction(number)


def value(instance, frees, waiting_total_w):
    """The objective of what is free on every node, and the penalties of the waiting tasks."""
    k, objective = (
        exact(instance.get("fragmentation_w_per_gpu", 1000.0)),
        instance.get("objective", "power-fragmentation"),
    )
    change_w = change_gpus = Fraction(0)
    for node, free in zip(instance["nodes"], frees, strict=True):
        change_w += power_w(instance, node, free) - power_w(instance, node, start_of(node))
        change_gpus += fragmentation(instance, node, free) - fragmentation(instance, node, start_of(node))
    if objective == "power":
        return change_w + waiting_total_w
    if objective == "fragmentation":
        return change_gpus + waiting_total_w / k
    return change_w + k * change_gpus + waiting_total_w


def outcomes(instance):
    """Every state that decisions lead to, with the least penalties of waiting tasks."""
    states = {tuple(start_of(node) for node in instance["nodes"]): Fraction(0)}
    for task in instance["tasks"]:
        later, penalty_w = {}, waiting_w(instance, task)
        for frees, waits in states.items():
            later[frees] = min(later.get(frees, waits + penalty_w), waits + penalty_w)
            for n, node in enumerate(instance["nodes"]):
                for _, free in placements(node, frees[n], task):
                    # which of equally free GPUs are used does not matter
                    new = (*frees[:n], (*free[:2], tuple(sorted(free[2]))), *frees[n + 1 :])
                    later[new] = min(later.get(new, waits), waits)
        states = later
    return states


def optimum(instance):
    """Value of the best decision (every task may wait, so there is one), and the size of its largest term."""
    known = {}

    def worth(frees, waits):
        if frees not in known:
            known[frees] = value(instance, frees, Fraction(0))
        k = exact(instance.get("fragmentation_w_per_gpu", 1000.0))
        return known[frees] + (waits / k if instance.get("objective") == "fragmentation" else waits)

    return min(worth(frees, waits) for frees, waits in outcomes(instance).items())


def terms(instance):
    """What the terms of the objective may come to: the power and fragmentation of all nodes."""
    gpus = sum(node.get("gpus", 0) for node in instance["nodes"])
    watts = float(sum(power_w(instance, n, (0, 0, (0,) * n.get("gpus", 0))) for n in instance["nodes"]))
    k = instance.get("fragmentation_w_per_gpu", 1000.0)
    by_objective = {"power": watts, "fragmentation": gpus, "power-fragmentation": watts + k * gpus}
    return max(1e-9, by_objective[instance["objective"]])


def evaluate(instance, decision):
    """Value of a decision in the form of a result; None where it breaks a rule."""
    tasks = {task["name"]: task for task in instance["tasks"]}
    number = {node["name"]: n for n, node in enumerate(instance["nodes"])}
    frees = [start_of(node) for node in instance["nodes"]]
    for placed in decision["placed"]:
        n = number[placed["node"]]
        ways = dict(placements(instance["nodes"][n], frees[n], tasks.pop(placed["task"])))
        if tuple(sorted(placed["gpus"])) not in ways:
            return None
        frees[n] = ways[tuple(sorted(placed["gpus"]))]
    if sorted(tasks) != sorted(decision["waiting"]):
        return None
    return value(instance, frees, sum(waiting_w(instance, task) for task in tasks.values()))


def totals(instance, decision):
    """What a decision uses, under the names of a result: these are measured as in the objective."""
    tasks = {task["name"]: task for task in instance["tasks"]}
    frees = {node["name"]: start_of(node) for node in instance["nodes"]}
    nodes = {node["name"]: node for node in instance["nodes"]}
    watts = sum(power_w(instance, node, frees[name]) for name, node in nodes.items())
    lost = sum(fragmentation(instance, node, frees[name]) for name, node in nodes.items())
    for placed in decision["placed"]:
        ways = dict(placements(nodes[placed["node"]], frees[placed["node"]], tasks[placed["task"]]))
        frees[placed["node"]] = ways[tuple(sorted(placed["gpus"]))]
    found = {"power_w": sum(power_w(instance, node, frees[name]) for name, node in nodes.items())}
    found["fragmentation_gpus"] = sum(fragmentation(instance, n, frees[name]) for name, n in nodes.items())
    found |= {"added_power_w": found["power_w"] - watts}
    found |= {"added_fragmentation_gpus": found["fragmentation_gpus"] - lost}
    # "(a share counts as its part)"
    used = [tasks[placed["task"]] for placed in decision["placed"]]
    milli = sum(task.get("gpus", 0) * task.get("gpu_milli", 1000) for task in used)
    found |= {"placed_tasks": len(used), "placed_gpus": Fraction(milli, 1000)}
    # "the waiting tasks that would have fitted on some node at the beginning": not those that are unplaceable
    waiting = [tasks[name] for name in decision["waiting"]]
    fitted = [
        any(any(True for _ in placements(node, start_of(node), task)) for node in instance["nodes"])
        for task in waiting
    ]
    return found | {"waiting_tasks": len(waiting), "unplaceable_tasks": len(waiting) - sum(fitted)}


def random_decision(rng, instance):
    """A decision that keeps the rules most of the time."""
    frees = [start_of(node) for node in instance["nodes"]]
    decision = {"placed": [], "waiting": []}
    for task in instance["tasks"]:
        n = rng.randrange(len(frees))
        node = instance["nodes"][n]
        ways = list(placements(node, frees[n], task))
        if rng.random() < 0.1:  # as if the node were empty
            ways = list(
                placements(node, (2**40, 2**40, (1000,) * node.get("gpus", 0)), task | {"gpu_types": []})
            )
        if not ways or rng.random() < 0.2:
            decision["waiting"].append(task["name"])
            continue
        gpus, free = rng.choice(ways)
        frees[n] = free if free[0] < 2**39 else frees[n]
        decision["placed"].append({"task": task["name"], "node": node["name"], "gpus": list(gpus)})
    return decision


def random_request(rng, models):
    gpus = rng.choice([0, 1, 1, 1, 1, 2, 2, 3])
    request = {"cpu_milli": rng.choice([0, 1000, 4000, 8000, rng.randint(1, 40000)]), "gpus": gpus}
    if gpus == 1 and rng.random() < 0.65:
        request["gpu_milli"] = rng.choice([1, 250, 333, 500, 500, 810, 999])
    if gpus and rng.random() < 0.3:
        request["gpu_types"] = rng.sample([*models, "P100"], rng.randint(1, 2))
    return request


def random_node(rng, name, models, cpus):
    cpu = rng.choice([2000, 8000, 32000, 64000, 96000, rng.randint(1000, 90000)])
    node = {"name": name, "cpu_milli": cpu, "gpus": rng.choice([0, 1, 2, 2, 3, 4])}
    if node["gpus"]:
        node["gpu_type"] = rng.choice(models)
    if rng.random() < 0.5:
        node["cpu_type"] = rng.choice(cpus)
    if rng.random() < 0.5:
        node["memory_mib"] = rng.choice([8192, 65536])
        node["used_memory_mib"] = rng.choice([0, 4096])
    if rng.random() < 0.5:
        node["used_cpu_milli"] = rng.choice([0, cpu // 2, rng.randint(0, cpu), cpu])
    if rng.random() < 0.5:
        used = [rng.choice([0, 0, 500, 1000, 250, 667, 1]) for _ in range(node["gpus"])]
        node["used_gpu_milli"] = used[: rng.randint(0, node["gpus"])]
    return node


def random_instance(rng, most_tasks=5):
    """A small window of every kind that the page describes."""
    instance = {"format": "wattsched-instance/1", "problem": "placement", "nodes": [], "tasks": []}
    models = rng.sample(["T4", "A100", "V100M16", "own"], 2)
    cpus = rng.sample(["8163", "6326", "8369B", "own cpu", "E5-2682 v4"], 2)
    if "own" in models or rng.random() < 0.2:
        idle_w = rng.choice([0, 0, 17, 200])
        watts = {"idle_power_w": idle_w, "full_power_w": idle_w + rng.choice([0, 1, 83, 1000, 500000])}
        instance["gpu_types"] = {"own" if "own" in models else models[0]: watts}
    if "own cpu" in cpus or rng.random() < 0.2:
        idle_w = rng.choice([0, 11])
        watts = {"idle_power_w": idle_w, "full_power_w": idle_w + rng.choice([0, 7, 90, 100000])}
        instance["cpu_types"] = {
            "own cpu" if "own cpu" in cpus else cpus[0]: watts | {"cores": rng.choice([1, 2, 8, 26])}
        }
    for n in range(rng.randint(1, 3)):
        if n and rng.random() < 0.3:  # equal nodes
            instance["nodes"].append(instance["nodes"][-1] | {"name": f"n{n}"})
        else:
            instance["nodes"].append(random_node(rng, f"n{n}", models, cpus))
    for t in range(rng.randint(1, most_tasks)):
        if t and rng.random() < 0.35:  # equal tasks
            instance["tasks"].append(instance["tasks"][-1] | {"name": f"t{t}"})
            continue
        task = {"name": f"t{t}"} | random_request(rng, models)
        if rng.random() < 0.4:
            task["memory_mib"] = rng.choice([1024, 4096, 16384])
        instance["tasks"].append(task)
    if rng.random() < 0.6:
        counts = [1, 3, 60, 1000000]
        instance["workload"] = [
            random_request(rng, models) | {"count": rng.choice(counts)} for _ in range(rng.randint(1, 3))
        ]
    if rng.random() < 0.6:
        instance["fragmentation_w_per_gpu"] = rng.choice([1e-6, 0.37, 1.0, 200.0, 1e5, 1e9])
    for field in ("waiting_w", "waiting_w_per_gpu"):
        if rng.random() < 0.3:
            instance[field] = rng.choice([0.0, 1e-6, 0.5, 50.0, 1e4, 1e9])
    instance["objective"] = rng.choice(["power-fragmentation", "power", "fragmentation"])
    return instance


def random_case(seed, most_tasks=5):
    rng = random.Random(seed)
    return random_instance(rng, most_tasks), rng

"""Every decision of a round of `sizing`: which are possible, and what the best one is worth.

Concrete GPUs are tried one after the other; no theorem of docs/model.md is used. See `pages_sizing`.
"""

import itertools
import math
from dataclasses import dataclass

from tests.pages.pages_cluster import TOLERATED, Pool, power_of_two
from tests.pages.pages_sizing import SETTINGS, Choice, Round, worst_or_sum


@dataclass
class Best:
    """Least cost within the limits as they are, and as the checker tolerates them; None if there is none."""

    strict: float | None = None
    loose: float | None = None
    unmoved: float | None = None  # strict, if moves cost nothing: what the bound of the program is of
    decisions: int = 0


class Search:
    def __init__(self, round_: Round):
        self.round = round_
        self.known: dict = {}

    # Whether sizes fit into free GPUs

    def fits(self, pool: Pool, free: frozenset, sizes: tuple[int, ...]) -> bool:
        key = (pool.name, free, sizes)
        if key not in self.known:
            self.known[key] = not sizes or any(
                self.fits(pool, free - taken, sizes[1:]) for taken in self.places(pool, free, sizes[0])
            )
        return self.known[key]

    def places(self, pool: Pool, free: frozenset, gpus: int):
        if pool.capacity == "blocks":
            # "a job with g GPUs takes a block [...] All four must be free"
            yield from (b for b in pool.aligned(power_of_two(gpus)) if b <= free)
        elif pool.capacity == "count":  # "any g free GPUs of the pool"
            if len(free) >= gpus:
                yield frozenset(sorted(free)[:gpus])
        else:
            # "floor(g / n) whole nodes, all of whose GPUs are free, and any g mod n free GPUs of one other
            # node"
            of = {n: frozenset(gpu for gpu in free if gpu[0] == n) for n in pool.nodes}
            whole, rest = divmod(gpus, pool.size)
            entire = [n for n in pool.nodes if len(of[n]) == pool.size]
            for nodes in itertools.combinations(entire, whole):
                taken = frozenset().union(*(of[n] for n in nodes))
                others = [n for n in pool.nodes if n not in nodes and len(of[n]) >= rest]
                if not rest:
                    yield taken
                for n in others if rest else ():
                    yield taken | frozenset(sorted(of[n])[:rest])

    def stay(self, pool: Pool, free: frozenset, gpus: frozenset) -> frozenset | None:
        """What a job takes that stays on these GPUs, if it can."""
        if pool.capacity == "blocks":
            return next((b for b in pool.aligned(power_of_two(len(gpus))) if gpus <= b <= free), None)
        if not gpus <= free:
            return None
        if pool.capacity == "nodes":
            counts = sorted(sum(1 for n, _ in gpus if n == node) for node in {n for n, _ in gpus})
            whole, rest = divmod(len(gpus), pool.size)
            if counts != ([rest] if rest else []) + [pool.size] * whole:
                return None
        return gpus

    # What it costs to place jobs in a pool: watts of nodes that are woken, and who moves

    def pays_if_moved(self, choice: Choice) -> bool:
        r = self.round
        gpus = r.held(choice.job)
        if not choice.same or choice.keeps or not gpus or not r.change_cost(choice.job):
            return False
        # "unless one of its GPUs, or of its block, is now among the `unavailable` ones of its node"
        pool = r.pools[choice.pool]
        if pool.capacity == "blocks":
            gpus = next((b for b in pool.aligned(power_of_two(len(gpus))) if gpus <= b), gpus)
        return not gpus & r.broken

    def placements(self, pool: Pool, takers: dict[str, list[Choice]]) -> list[tuple[float, frozenset]]:
        """All ways that no other is better than: watts of the nodes that are woken, and jobs that move."""
        targets = []
        for chosen in takers.values():
            payers = [c for c in chosen if self.pays_if_moved(c)]
            held = {self.round.held(c.job) for c in payers}
            targets.append([(None, frozenset(c.job for c in payers))])
            for gpus in held:
                moving = frozenset(c.job for c in payers if self.round.held(c.job) != gpus)
                targets[-1].append((gpus, moving))
        sizes = [chosen[0].gpus for chosen in takers.values()]
        asleep = [n for n in pool.nodes if n in self.round.sleepers]
        found = []
        for woken in subsets(asleep):
            watts = sum(self.round.awake_w(n) for n in woken)
            shut = set(asleep) - set(woken)
            for way in itertools.product(*targets):
                free = frozenset(gpu for gpu in pool.free if gpu[0] not in shut)
                moving = frozenset().union(*(m for _, m in way))
                if any(w <= watts and m <= moving for w, m in found):
                    continue
                others = []
                for size, (gpus, _) in zip(sizes, way, strict=True):
                    taken = None if gpus is None else self.stay(pool, free, gpus)
                    if gpus is None:
                        others.append(size)
                    elif taken is None:
                        break
                    else:
                        free -= taken
                else:
                    if self.fits(pool, free, tuple(sorted(others, reverse=True))):
                        found.append((watts, moving))
        return found

    # All decisions

    def formed(self):
        """Sets of sets that no job is in twice."""
        for some in subsets(self.round.sets):
            members = [j for _, rows, _ in some for j in rows]
            if len(members) == len(set(members)):
                yield some

    def in_set(self, entry: tuple) -> list[Choice]:
        name, rows, s = entry
        shared = {"frequency_mhz": s.get("frequency_mhz"), "power_limit_w": s.get("power_limit_w")}
        return [self.round.choice(j, row | shared, name, len(rows)) for j, row in rows.items()]

    def best(self) -> Best:
        best = Best()
        for some in self.formed():
            fixed = [c for entry in some for c in self.in_set(entry)]
            others = [j for j in self.round.choices if j not in {c.job for c in fixed}]
            for rest in itertools.product(*(self.round.choices[j] for j in others)):
                self.weigh(best, [*fixed, *rest])
        return best

    def weigh(self, best: Best, chosen: list[Choice]) -> None:
        r = self.round
        best.decisions += 1
        least = worst_or_sum(r.objective, [c.cost for c in chosen]) if chosen else 0.0
        if best.strict is not None and least >= best.strict:
            return
        used = [row[2] + math.fsum(c.uses[i] for c in chosen) for i, row in enumerate(r.limits)]
        if self.verdict(used) is None:  # woken nodes only use more
            return
        pools: dict[str, dict[str, list[Choice]]] = {}
        for c in chosen:
            if c.pool and not c.keeps:
                pools.setdefault(c.pool, {}).setdefault("set " + c.group if c.group else c.job, []).append(c)
        ways = [[(name, *way) for way in self.placements(r.pools[name], t)] for name, t in pools.items()]
        for way in itertools.product(*ways):
            moving = frozenset().union(*(m for *_, m in way))
            woken = {name: watts for name, watts, _ in way}
            strict = self.verdict(self.with_woken(used, woken))
            if strict is None:
                continue
            costs = [c.cost + (r.change_cost(c.job) if c.job in moving else 0.0) for c in chosen]
            awake = self.cost_of_woken(sum(woken.values()))
            value = (worst_or_sum(r.objective, costs) if chosen else 0.0) + awake
            best.loose = value if best.loose is None else min(best.loose, value)
            if strict:
                best.strict = value if best.strict is None else min(best.strict, value)
                free = least + awake
                best.unmoved = free if best.unmoved is None else min(best.unmoved, free)

    def with_woken(self, used: list[float], woken: dict[str, float]) -> list[float]:
        # "these draw: sum e x + sum a z <= P - S"; "In rows of energy and carbon over the round, and in the
        # objectives `energy`, `carbon` and `money` in that scope, a node that is woken counts with a Delta"
        r, more = self.round, []
        for kind, whose, *_ in r.limits:
            if kind == "power":
                more.append(sum(watts for pool, watts in woken.items() if pool in whose))
            elif kind == "energy" and r.scope == "round":
                more.append(sum(woken.values()) * r.delta * whose)
            else:
                more.append(0.0)
        return [a + b for a, b in zip(used, more, strict=True)]

    def cost_of_woken(self, watts: float) -> float:
        r = self.round
        if r.scope != "round":
            return 0.0
        per_kwh = {"carbon": "carbon_g_per_kwh", "money": "price_per_kwh"}.get(r.objective)
        # "At a negative price it counts nothing in `money`: no node is woken to be paid for what it draws."
        rate = max(0, r.document.get(per_kwh) or 0) / 3.6e6 if per_kwh else float(r.objective == "energy")
        return watts * r.delta * rate

    def verdict(self, used: list[float]) -> bool | None:
        """True: within the limits; False: only as the checker tolerates them; None: beyond."""
        rows = [(u, row[3]) for u, row in zip(used, self.round.limits, strict=True)]
        if all(u <= limit + 1e-12 * abs(limit) for u, limit in rows):
            return True
        return False if all(u <= limit + 3 * TOLERATED * abs(limit) for u, limit in rows) else None

    # One decision

    def faults(self, decision: dict, totals: dict) -> tuple[list[str], float]:
        """What is wrong with a decision, and what it costs."""
        r, faults = self.round, []
        runs = {one["job"]: one for one in decision["jobs"]}
        if sorted([*runs, *decision["waiting"]]) != sorted(r.jobs) or len(runs) != len(decision["jobs"]):
            return ["a job is missing or told twice"], math.nan
        chosen, taken, woken, moved, migrations = [], {}, set(), 0.0, 0
        for name, one in runs.items():
            options = [c for entry in r.sets if entry[0] == one.get("set") for c in self.in_set(entry)]
            options = options if one.get("set") else r.choices.get(name, [])
            keys = [one.get(s) for s in SETTINGS]
            mine = [c for c in options if (c.job, c.pool, c.gpus) == (name, one["pool"], one["gpus"])]
            mine = [c for c in mine if list(c.settings) == keys]
            gpus = frozenset((n, i) for n, ids in one["nodes"].items() for i in ids)
            if len(mine) != 1:
                faults.append(f"{name}: no option is {one}")
                continue
            choice, pool = mine[0], r.pools[one["pool"]]
            place = gpus if choice.keeps else self.stay(pool, pool.free, gpus)
            if choice.keeps and gpus != r.held(name):
                faults.append(f"{name} has to keep its GPUs")
            if len(gpus) != one["gpus"] or place is None or any(r.pool_of[n] != pool.name for n, _ in gpus):
                faults.append(f"{name}: {sorted(gpus)} is no place")
                continue
            group = f"set {choice.group}" if choice.group else name
            if taken.setdefault(group, place) != place:
                faults.append(f"{name} is elsewhere than its set")
            woken |= {n for n, _ in place} & r.sleepers
            cost = choice.cost
            moves = choice.same and not choice.keeps and r.held(name) and gpus != r.held(name)
            migrations += bool(moves)
            if moves and self.pays_if_moved(choice):
                cost, moved = cost + r.change_cost(name), moved + r.change_cost(name)
            chosen.append((choice, cost))
        if len(frozenset().union(*taken.values())) != sum(map(len, taken.values())):
            faults.append("two jobs have one GPU")
        for name in set(decision["waiting"]) - r.dropped:
            waits = [c for c in r.choices[name] if c.pool is None]
            faults += [] if waits else [f"{name} may not wait"]
            chosen += [(c, c.cost) for c in waits]
        if faults:
            return faults, math.nan
        awake: dict[str, float] = {}
        for n in woken:
            awake[r.pool_of[n]] = awake.get(r.pool_of[n], 0.0) + r.awake_w(n)
        used = [row[2] + math.fsum(c.uses[i] for c, _ in chosen) for i, row in enumerate(r.limits)]
        used = self.with_woken(used, awake)
        if self.verdict(used) is None:
            faults.append(f"beyond a limit: {list(zip(r.limits, used, strict=True))}")
        value = (
            worst_or_sum(r.objective, [cost for _, cost in chosen]) if chosen else 0.0
        ) + self.cost_of_woken(sum(awake.values()))
        faults += self.compare_totals(totals, [c for c, _ in chosen], awake, woken, moved, migrations)
        return faults, value

    def compare_totals(self, totals, chosen, awake, woken, moved, migrations) -> list[str]:
        r, watts = self.round, sum(awake.values())
        extra = sum(c.joules[0] for c in chosen)
        standing = r.standing_w(list(r.pools)) + watts
        joules = standing * r.delta + extra if r.scope == "round" else sum(c.joules[1] for c in chosen)
        power = standing
        for c in chosen:
            if c.pool:
                row_w = c.joules[1] / c.completion_s
                shared = sum(1 for d in chosen if c.group and d.group == c.group) or 1
                power += row_w - r.pools[c.pool].idle_w * c.gpus / shared
        right = {"power_w": power, "energy_j": joules}
        if r.document.get("carbon_g_per_kwh") is not None:
            right["carbon_g"] = joules / 3.6e6 * r.document["carbon_g_per_kwh"]
        if r.document.get("price_per_kwh") is not None and "money" in totals:
            right["money"] = joules / 3.6e6 * r.document["price_per_kwh"]
        if r.sleepers:  # "how many nodes sleep where some may"
            right["nodes_asleep"] = len(r.sleepers) - len(woken)
        if not any(r.jobs[j].get("current") for j in r.dropped):
            stopped = sum(1 for c in chosen if r.jobs[c.job].get("current") and not c.same)
            right |= {"restarts": stopped, "migrations": migrations}
            if any(r.change_cost(j) for j in r.jobs if r.jobs[j].get("current")):
                paid = sum(
                    r.change_cost(c.job) for c in chosen if r.jobs[c.job].get("current") and not c.same
                )
                right["change_cost"] = paid + moved
        right["gpus_used"] = sum({(c.group or c.job): c.gpus for c in chosen}.values())
        right["gpus_available"] = sum(n["gpus"] - len(n.get("unavailable", [])) for n in r.nodes.values())
        tiny = 1e-9 * (1.0 + abs(power) + sum(abs(c.joules[0]) for c in chosen))
        return [
            f"totals.{name} is {totals.get(name)}, not {value}"
            for name, value in right.items()
            if not math.isclose(totals.get(name, math.nan), value, rel_tol=1e-6, abs_tol=tiny)
        ]


def subsets(items: list) -> itertools.chain:
    return itertools.chain.from_iterable(itertools.combinations(items, k) for k in range(len(items) + 1))

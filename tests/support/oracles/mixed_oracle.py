"""Brute force for tiny instances with shared slices: every filling of a GPU, every set of replicas on a slice.

What replicas do is asked of ``PerformanceData.predict`` alone. Rates are split into whole units, so what is found is
the value of a plan that holds, and no more than a unit per slice is lost: bounds must not lie above it.
"""

import itertools

from oracle import best_value, clipped, fillings, undominated

from provision.models.performance.operating_points import Member

UNITS = 240
"""Into how many units a workload's rate is split."""
STEPS = (0.25, 0.5, 1.0)
"""Parts of the rate that all replicas of a shared slice but one are tried at; that one carries the most it can."""
MOST_REPLICAS = 3
ROUNDING = 1e-9


def best_mixed(instance, most_gpus):
    """Least objective over all plans with at most ``most_gpus`` GPUs; None if there is none."""
    return best_value(instance, most_gpus, _contents)


def _contents(instance, entry):
    """What one GPU can carry: (part of the rate, replicas) per workload, for every way to fill it."""
    held = {profile: _held(instance, entry, profile) for profile in {p for f in fillings(entry) for p in f}}
    found = set()
    for profiles in fillings(entry):
        reached = {tuple((0.0, 0) for _ in instance.workloads)}
        for profile in profiles:
            reached = undominated({clipped(instance, a, b) for a in reached for b in held[profile]})
        found |= set(reached)
    return undominated(found)


def _held(instance, entry, profile):
    """What one slice can carry."""
    slice_of = _Slice(instance, entry, profile)
    ways = [(w, batch, processes) for w in range(len(instance.workloads)) for batch, processes in slice_of.ways(w)]
    found = {tuple((0.0, 0) for _ in instance.workloads)}
    for number in range(1, MOST_REPLICAS + 1):
        for replicas in itertools.combinations_with_replacement(ways, number):
            found |= set(slice_of.loads(replicas))
    return undominated(found)


class _Slice:
    """A slice of one profile, and what sets of replicas on it can carry."""

    def __init__(self, instance, entry, profile):
        self.instance, self.entry, self.profile = instance, entry, profile
        self.planned = [instance.planned_rps(one) for one in instance.workloads]

    def ways(self, w):
        """(batch, processes) that the data knows for a workload."""
        model = self.instance.workloads[w].model
        files = [data for data in self.instance.performance if data.gpu == self.entry.gpu and model in data.models]
        points = [data.operating_points(model, self.profile) for data in files]
        return sorted({(int(b), int(p)) for one in points for b, p in zip(one.batch, one.processes, strict=True)})

    def loads(self, replicas):
        """States that a set of replicas, each (workload, batch, processes), reaches: parts of rates, replicas."""
        if not self.holds(replicas, [0] * len(replicas)):
            return
        for free in range(len(replicas)):
            grids = [[0] if self.planned[w] == 0 or at == free else [int(step * UNITS) for step in STEPS]
                     for at, (w, _, _) in enumerate(replicas)]
            for units in map(list, itertools.product(*grids)):
                if self.holds(replicas, units):
                    units[free] = self._most(replicas, units, free)
                    yield self._state(replicas, units)

    def _most(self, replicas, units, free):
        """Most units that one replica can carry beside the others, by bisection."""
        low, high = 0, UNITS + 1
        while self.planned[replicas[free][0]] and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(replicas, [*units[:free], middle, *units[free + 1 :]]) \
                else (low, middle)
        return low

    def _state(self, replicas, units):
        state = []
        for w, planned in enumerate(self.planned):
            mine = [amount for (owner, _, _), amount in zip(replicas, units, strict=True) if owner == w]
            state.append(((sum(mine) / UNITS if planned else float(bool(mine))), len(mine)))
        return clipped(self.instance, state, [(0.0, 0)] * len(state))

    def holds(self, replicas, units):
        """Whether all rules of a slice are kept when each replica carries so many units of its workload's rate."""
        clients = sum(processes for _, _, processes in replicas)
        if clients > (self.entry.type.slice_mps_clients(self.profile) if self.entry.mps else 1):
            return False
        rates = [self.planned[w] * amount / UNITS for (w, _, _), amount in zip(replicas, units, strict=True)]
        found = self._predicted(replicas, rates)
        memory_gib = sum(one.memory_gib or 0 for one in found if one)
        return memory_gib <= self.entry.type.slice_memory_gib(self.profile) and all(
            one is not None
            and one.latency_ms <= self.instance.budget_ms(self.instance.workloads[w]) * (1 + ROUNDING)
            and rate <= one.throughput_rps * (1 + ROUNDING)
            for (w, _, _), rate, one in zip(replicas, rates, found, strict=True)
        )

    def _predicted(self, replicas, rates):
        """The replicas' predictions: measured where there is a table for one alone, by the networks for several."""
        models = [self.instance.workloads[w].model for w, _, _ in replicas]
        if len(replicas) == 1:
            data, rates = self.instance.performance_of(self.entry.gpu, *models), [0.0]
        else:
            data = self.instance.sharing_of(self.entry.gpu, models)
        if data is None:
            return [None] * len(replicas)
        return data.predict(self.profile, [
            Member(model, batch, processes, 1.0, rate)
            for model, (_, batch, processes), rate in zip(models, replicas, rates, strict=True)
        ])

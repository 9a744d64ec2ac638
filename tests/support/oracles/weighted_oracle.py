"""Brute force for replanning where slices are shared: every state of every GPU, every set of replicas in every slice.

What replicas do is asked of ``predict`` alone, the models' scalar path. Batch times of closed networks depend on the
rates, so there every workload has one replica, at its whole rate; all other replicas carry what they can.
"""

import itertools
from collections import Counter

from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.operating_points import Member
from provision.models.problem.objective import objective_of

MOST_REPLICAS = 3
ROUNDING = 1e-9


def least_weighted(instance, plan, change_cost, new):
    """The least sum of cost and changes over all plans on the running GPUs and ``new`` more of every entry; or None.

    Types have one entry each, and there are no variants.
    """
    contents = _Contents(instance)
    options = [_options(instance, contents, objective_of(instance).entries_of(plan)[at], gpu.slices, change_cost)
               for at, gpu in enumerate(plan.gpus)]
    options += [_options(instance, contents, entry, (), change_cost)
                for entry in range(len(instance.fleet)) for _ in range(new)]
    reached = {(0.0, tuple((0.0, 0) for _ in instance.workloads))}
    for one in options:
        reached = _undominated(instance, {(a[0] + b[0], _sum(a[1], b[1])) for a in reached for b in one})
    return min((cost for cost, served in reached if _serves(instance, served)), default=None)


def _serves(instance, served):
    return all(
        (part >= 1 - ROUNDING or not one.rate_rps) and many >= one.min_replicas
        for one, (part, many) in zip(instance.workloads, served, strict=True)
    )


def _sum(one, other):
    """Parts of rates up to the whole, and numbers of replicas."""
    return tuple((min(a[0] + b[0], 1.0), a[1] + b[1]) for a, b in zip(one, other, strict=True))


def _options(instance, contents, entry, slices, change_cost):
    """What one GPU may be: (its cost and changes, what it serves)."""
    idle = tuple((0.0, 0) for _ in instance.workloads)
    found = {(change_cost * len(slices), idle)}
    kind = instance.fleet[entry]
    here = {(piece.start, piece.profile): piece.replicas for piece in slices}
    shape = geometry(kind.type) if kind.partitioned else None
    states = [[(start, shape.profiles[at].name) for start, at in state] for state in shape.maximal_states] \
        if shape else [[(0, WHOLE)]]
    for state in states:
        destroyed = len(here.keys() - set(state))
        reached = {(objective_of(instance).weight(kind) + change_cost * destroyed, idle)}
        for place in state:
            choices = contents.beside(entry, place[1], here.get(place, ()), change_cost)
            reached = _undominated(instance, {(a[0] + b[0], _sum(a[1], b[1])) for a in reached for b in choices})
        found |= {(cost, _capped(instance, served)) for cost, served in reached}
    return _undominated(instance, found)


def _capped(instance, served):
    """What a GPU serves, no more of a workload than its largest share."""
    return tuple((min(part, one.max_share_per_gpu), many)
                 for one, (part, many) in zip(instance.workloads, served, strict=True))


def _undominated(instance, options):
    """Options that no other one beats, of those that keep the limits on replicas; many replicas are bad or no matter.

    """
    limits = [one.max_replicas for one in instance.workloads]
    kept = []
    within = (one for one in options
              if all(most is None or many <= most for most, (_, many) in zip(limits, one[1], strict=True)))
    for one in sorted(within, key=lambda one: (one[0], [(-part, many) for part, many in one[1]])):
        if not any(_beats(instance, other, one) for other in kept):
            kept.append(one)
    return kept


def _beats(instance, one, other):
    return one[0] <= other[0] and all(
        a[0] >= b[0] and (a[1] <= b[1] or work.max_replicas is None)
        and (a[1] >= b[1] or a[1] >= work.min_replicas)
        for work, a, b in zip(instance.workloads, one[1], other[1], strict=True))


class _Contents:
    """The contents of slices: keys of their replicas, and what these serve."""

    def __init__(self, instance):
        self.instance, self.known = instance, {}
        self.planned = [instance.planned_rps(one) for one in instance.workloads]

    def beside(self, entry, profile, before, change_cost):
        """(cost of the replicas that start, what all serve), given the replicas that ran in the slice before."""
        ran = Counter((one.workload, one.processes, round(one.sm_share, 9)) for one in before)
        found = {(0.0, tuple((0.0, 0) for _ in self.planned))}
        for keys, served in self._of(entry, profile):
            started = sum(keys.values()) - sum((keys & ran).values())
            found.add((change_cost * started, served))
        return _undominated(self.instance, found)

    def _of(self, entry, profile):
        if (entry, profile) not in self.known:
            self.known[entry, profile] = list(self._listed(self.instance.fleet[entry], profile))
        return self.known[entry, profile]

    def _listed(self, entry, profile):
        for replicas in itertools.chain(self._alone(entry, profile), *(
                self._sharing(data, entry, profile) for data in self.instance.sharing_files(entry.gpu))):
            rates = self._rates(entry, profile, replicas)
            if rates:
                names = self.instance.workloads
                keys = Counter((names[w].name, processes, round(share, 9)) for w, _, processes, share, _ in replicas)
                yield keys, tuple(
                    (min(sum(rate for rate, one in zip(rates, replicas, strict=True) if one[0] == w) / planned, 1.0)
                     if planned else 1.0, sum(one[0] == w for one in replicas))
                    for w, planned in enumerate(self.planned))

    def _alone(self, entry, profile):
        for w, one in enumerate(self.instance.workloads):
            data = self.instance.performance_of(entry.gpu, one.model, profile)
            points = data.operating_points(one.model, profile) if data else None
            for batch, processes in set(zip(points.batch.tolist(), points.processes.tolist(), strict=True)):
                yield ((w, batch, processes, 1.0, None),)

    def _sharing(self, data, entry, profile):
        """Sets of replicas (workload, batch, processes, SM share, turn) that may share a slice."""
        every = range(len(self.instance.workloads))
        if data.kind == "igniter" and profile == WHOLE:
            unit = data.hardware.unit_share
            ways = [(w, batch, 1, unit * units, None) for w in every for batch in range(1, data.max_batch + 1)
                    for units in range(1, round(1 / unit) + 1)]
            sets = [(one for one in itertools.combinations_with_replacement(ways, many)
                     if sum(share for *_, share, _ in one) <= 1 + ROUNDING) for many in range(1, MOST_REPLICAS + 1)]
        elif data.kind == "closed-network" and profile in data.profiles:
            ways = [(w, batch, processes, 1.0, None) for w in every for batch in data.batches for processes in (1, 2)]
            sets = [itertools.combinations(ways, many) for many in range(2, MOST_REPLICAS + 1)]
        elif data.kind == "gpulets":
            sets = []
            for split in data.splits:
                parts = [[set_ for many in range(MOST_REPLICAS) for set_ in itertools.combinations_with_replacement(
                    [(w, batch, 1, share, turn) for w in every for batch in data.batches], many)]
                    for turn, share in enumerate(split)]
                sets.append(itertools.chain.from_iterable(one) for one in itertools.product(*parts))
        else:
            return
        for several in itertools.chain.from_iterable(sets):
            replicas = tuple(several)
            number = Counter(one[0] for one in replicas)
            limits = {w: self.instance.workloads[w].max_replicas for w in number}
            if replicas and all(limits[w] is None or number[w] <= limits[w] for w in number):
                yield replicas

    def _rates(self, entry, profile, replicas):
        """Requests/s of replicas that hold together; None where they do not."""
        instance, works = self.instance, [self.instance.workloads[one[0]] for one in replicas]
        lone = len(replicas) == 1 and replicas[0][3] == 1 and replicas[0][4] is None
        data = instance.performance_of(entry.gpu, works[0].model, profile) if lone else \
            instance.sharing_of(entry.gpu, [one.model for one in works])
        if data is None:
            return None
        routed = data.kind == "closed-network" and not lone
        found = data.predict(profile, [
            Member(work.model, batch, processes, share, self.planned[w] if routed else 0.0, turn,
                   fill_ms=instance.policy.fill_ms(work.slo_ms))
            for work, (w, batch, processes, share, turn) in zip(works, replicas, strict=True)])
        clients = entry.type.slice_mps_clients(profile) if entry.mps else 1
        if None in found or sum(one[2] for one in replicas) > clients:
            return None
        late = any(one.latency_ms > instance.budget_ms(work) * (1 + ROUNDING)
                   for one, work in zip(found, works, strict=True))
        if late or sum(one.memory_gib or 0 for one in found) > entry.type.slice_memory_gib(profile):
            return None
        if not routed:
            return [one.throughput_rps for one in found]
        rates = [self.planned[one[0]] for one in replicas]
        return rates if all(one.throughput_rps >= rate for one, rate in zip(found, rates, strict=True)) else None

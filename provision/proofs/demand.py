"""The GPUs of a fleet by type, with prices in whole units; what replicas carry on slices of their own; and the least
price of replicas that carry a workload's rate.

Rates are whole multiples of a small unit. What replicas carry is rounded up, and what they must carry is rounded down.
So a computed price is never above the true price.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from provision.models.base.tolerances import LOOSE, MISSING, TOLERANCE
from provision.models.hardware.geometry import geometry
from provision.models.performance.operating_points import Member, PerformanceData, Prediction
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry, Workload
from provision.proofs.lines import HardError

TRIES = 300_000
"""The most numbers of GPUs that are tried."""
PARTS = 2**60
"""The number of units of rate in one request/s."""
VISITS = 100_000
"""The most sets of replicas that are looked at for one workload."""
Steps = Sequence[tuple[float, int]]
"""Ascending pairs (requests/s, price): a replica on a shared slice that can carry the rate has at least this price."""


class Pool(NamedTuple):
    """The GPUs of one type: their first fleet entry, their price tiers as pairs (price in units, count or None) in
    ascending order, and their partitions.
    """

    entry: FleetEntry
    tiers: list[tuple[int, int | None]]
    partitions: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """The GPU type, and whether it runs with MIG on."""
        return f"{self.entry.gpu}{' with MIG' if self.entry.partitioned else ''}"

    def bought(self, units: int, most: int) -> tuple[int, int]:
        """How many GPUs can be bought for ``units``, but at most ``most``; and what these cost, in units."""
        many, left = 0, units
        for price, count in self.tiers:
            taken = min(most - many, most if count is None else count, left // price if price else most)
            many, left = many + taken, left - taken * price
        return many, units - left


class Cut(NamedTuple):
    """Every plan has sum(most[t] * GPUs of type t) >= needed."""

    needed: int
    most: tuple[int, ...]


def pools_of(instance: Instance) -> tuple[Fraction, list[Pool]]:
    """The unit of price, of which all prices are whole multiples, and the pools of the fleet."""
    weights = [Fraction(f"{objective_of(instance).weight(entry):.12g}") for entry in instance.fleet]
    unit = Fraction(math.gcd(*(one.numerator for one in weights)) or 1, math.lcm(*(one.denominator for one in weights)))
    pools: dict[tuple[str, bool], Pool] = {}
    for entry, weight in sorted(zip(instance.fleet, weights, strict=True), key=lambda one: one[1]):
        partitions = geometry(entry.type, entry.profiles).undominated_partitions if entry.partitioned else ((1,),)
        pool = pools.setdefault((entry.gpu, entry.partitioned), Pool(entry, [], partitions))
        pool.tiers.append((int(weight / unit), entry.count))
    return unit, list(pools.values())


def affordable(pools: Sequence[Pool], cuts: Sequence[Cut], units: int, tries: Iterator[int] | None = None) -> bool:
    """Whether some GPUs that together cost at most ``units`` satisfy all cuts.

    Parameters
    ----------
    pools, cuts
        The GPUs by type, and the cuts; ``most`` of each cut has one number for each pool.
    units
        The most that the GPUs may cost, in units of price.
    tries
        An iterator of which each number of GPUs that is tried takes one element. It limits the work of this call and of
        the calls in it together. By default it has TRIES elements.

    Raises
    ------
    HardError
        If ``tries`` has no element left before the answer is known.
    """
    tries = iter(range(TRIES)) if tries is None else tries
    cuts = [cut for cut in cuts if cut.needed > 0]
    if units < 0 or not cuts:
        return units >= 0
    for cut in cuts:  # all money where it buys most, in fractions of GPUs, must suffice
        rivals = zip(pools, cut.most, strict=True)
        if not any(most and most * units >= cut.needed * pool.tiers[0][0] for pool, most in rivals):
            return False
    pool, *others = pools
    enough = max(-(-cut.needed // cut.most[0]) if cut.most[0] else 0 for cut in cuts)
    many, cost = pool.bought(units, enough)
    while many >= 0:
        if next(tries, None) is None:
            raise HardError
        rest = [Cut(cut.needed - many * cut.most[0], cut.most[1:]) for cut in cuts]
        if affordable(others, rest, units - cost, tries):
            return True
        many, cost = pool.bought(units, many - 1) if others and many else (-1, 0)
    return False


class Segments:
    """Computes the rates that replicas carry if each has a slice to itself, one operating point at a time."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.partly = instance, instance.policy.rule.random_arrivals
        self.known: dict[tuple[int, str, str, int], list[tuple[int, int, Prediction]]] = {}

    def carried(self, workload: Workload, entry: FleetEntry, profile: str) -> int | None:
        """The most that one replica of a workload carries on a slice, in units of 1 / PARTS requests/s, rounded up.

        It is None if no replica keeps the budget there, and 0 if one does but can carry nothing.
        """
        instance, best = self.instance, -1.0
        rule, budget_ms = instance.policy.rule_for(workload), instance.budget_ms(workload) * (1 + LOOSE)
        clients = entry.type.slice_mps_clients(profile) if entry.mps else 1
        for model in workload.models:
            data = instance.performance_of(entry.gpu, model, profile)
            if data is None or data.sharing == "always":  # then one replica is a pattern as well
                continue
            for batch, processes, found in self._points(data, model, profile, clients):
                if found.throughput_rps <= best:
                    break
                if found.latency_ms <= budget_ms:
                    best = max(best, rule.carried_rps(batch, processes, found, budget_ms))
        if best < 0:
            return None
        if workload.max_share_per_gpu < 1 and workload.rate_rps:
            best = min(best, workload.max_share_per_gpu * instance.planned_rps(workload))
        return math.ceil(Fraction(best) * (1 + Fraction(LOOSE)) * PARTS)

    def _points(self, data: PerformanceData, model: str, profile: str, clients: int
                ) -> list[tuple[int, int, Prediction]]:
        """(batch, processes, prediction) of every operating point, those of the highest throughput first."""
        key = (id(data), model, profile, clients)
        if key not in self.known:
            points = data.operating_points(model, profile)
            found: list[tuple[int, int, Prediction]] = []
            for batch, processes in zip(points.batch.tolist(), points.processes.tolist(), strict=True):
                member = Member(model, batch, processes, 1.0, partly_filled=self.partly)
                one = data.predict(profile, [member])[0] if processes <= clients else None
                found += [(batch, processes, one)] if one is not None else []
            self.known[key] = sorted(found, key=lambda point: -point[2].throughput_rps)
        return self.known[key]


def rate_of(rate_rps: float) -> int:
    """The rate that replicas must carry, which may lack MISSING of it; in 1 / PARTS requests/s, rounded down."""
    return math.floor(Fraction(rate_rps) * (1 - Fraction(MISSING)) * PARTS)


def credited(steps: Steps, asked: int) -> list[tuple[int, int]]:
    """Pairs (rate, price) that stand for all replicas on shared slices. From one step to the next the price is the
    same, so the pair has the highest rate below the next step; after the last step it has the rate ``asked``. Below a
    first step at rate 0 there are no replicas.
    """
    below = 1 - Fraction(TOLERANCE)  # a replica that misses a step by less than this has the step's price
    ends = [*(math.ceil(rate_of(rate) * below) for rate, _ in steps), asked]
    pairs = list(zip(ends, [0, *(price for _, price in steps)], strict=True))
    return pairs[1:] if steps and steps[0][0] == 0 else pairs


def least_price(least: int, most: int | None, asked: int, replicas: Iterable[tuple[int, int]]) -> int | None:
    """A lower bound on the price of at least ``least`` and at most ``most`` replicas that carry a rate; None if there
    are none.

    ``replicas`` are the pairs (rate, price) to choose from; each may be chosen several times. Replicas that need not
    carry anything have the least price of all, also those of rate 0. The search is branch and bound: for every pair,
    those of the least price per rate first, it tries all numbers of replicas, the largest first. So the bound is the
    least price, unless there are too many sets to try; then it is the price per rate of the first pair, times the rate.
    """
    pairs = sorted(set(replicas), key=lambda one: (-one[0], one[1]))
    idle = min((price for _, price in pairs), default=0)
    if asked <= 0:
        return least * idle if pairs or not least else None
    cheaper = [math.inf, *accumulate((price for _, price in pairs), min)]
    usable = [one for one, before in zip(pairs, cheaper, strict=False) if one[0] > 0 and one[1] < before]
    if not usable or (most is not None and most * usable[0][0] < asked):
        return None
    usable.sort(key=lambda one: (Fraction(one[1], one[0]), one[1]))
    best: int | None = None
    visits, left = 0, [(0, -(-asked // usable[0][0]), asked, 0, 0)]
    while left:
        at, many, lacking, price, number = left.pop()  # up to ``many`` replicas of a pair are added to a set
        (carried, each), visits = usable[at], visits + 1
        if visits > VISITS:
            return -(-asked * usable[0][1] // usable[0][0])
        many = many if most is None else min(many, most - number)
        rest, total, taken = lacking - many * carried, price + many * each, number + many
        if rest > 0:
            if at + 1 == len(usable):
                continue
            further, dearer = usable[at + 1]
            if best is not None and total - (-rest * dearer // further) >= best:
                continue  # fewer replicas of this pair are not cheaper either
        if many:
            left.append((at, many - 1, lacking, price, number))
        if rest > 0:
            left.append((at + 1, -(-rest // further), rest, total, taken))
        else:
            total += max(0, least - taken) * idle
            best = total if best is None else min(best, total)
    return best

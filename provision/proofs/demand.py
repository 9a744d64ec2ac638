"""Computes what replicas carry on slices of their own, and the least price of replicas that carry a workload's rate.

Rates are whole multiples of a small unit. What replicas carry is rounded up, and what they must carry is rounded down.
So a computed price is never above the true price.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from provision.models.base.tolerances import LOOSE, MISSING, SOLVER
from provision.models.performance.operating_points import Member, PerformanceData, Prediction
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry, Workload

PARTS = 2**30
"""The number of units of rate in one request/s."""
Steps = Sequence[tuple[float, int]]
"""Ascending pairs (requests/s, price): a replica on a shared slice that can carry the rate has at least this price."""


class Segments:
    """Computes the rates that replicas carry if each has a slice to itself, one operating point at a time."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.partly = instance, instance.policy.rule.random_arrivals
        self.loose = 1 + Fraction(2 * SOLVER if self.partly else LOOSE)
        self.known: dict[tuple[int, str, str, int], list[tuple[int, int, Prediction]]] = {}

    def carried(self, workload: Workload, entry: FleetEntry, profile: str) -> int:
        """The most that one replica of a workload carries on a slice, in units of 1 / PARTS requests/s, rounded up."""
        instance, best = self.instance, 0.0
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
        if workload.max_share_per_gpu < 1 and workload.rate_rps:
            best = min(best, workload.max_share_per_gpu * instance.planned_rps(workload))
        return math.ceil(Fraction(best) * self.loose * PARTS)

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
    same, so the pair has the highest rate below the next step; after the last step it has the rate ``asked``.
    """
    ends = [*(rate_of(rate) - 1 for rate, _ in steps), asked]
    return list(zip(ends, [0, *(price for _, price in steps)], strict=True))


def least_price(workload: Workload, asked: int, replicas: Iterable[tuple[int, int]]) -> int | None:
    """The least price of replicas that carry a rate within a workload's limits, exactly; None if there are none.

    The search is branch and bound. ``replicas`` are the pairs (rate, price) to choose from; each may be chosen several
    times.
    """
    usable = sorted({one for one in replicas if one[0] > 0}, key=lambda one: (Fraction(one[1], one[0]), one[1]))
    most = workload.max_replicas or math.inf
    best: int | None = None
    cheapest = min((price for _, price in usable), default=0)

    def search(first: int, rest: int, price: int, number: int) -> None:
        nonlocal best
        if rest <= 0:
            total = price + max(0, workload.min_replicas - number) * cheapest
            best = total if best is None else min(best, total)
            return
        for at in range(first, len(usable) if number < most else 0):
            carried, each = usable[at]
            if best is not None and price + -(-rest * each // carried) >= best:
                return
            search(at, rest - carried, price + each, number + 1)

    search(0, asked, 0, 0)
    return best

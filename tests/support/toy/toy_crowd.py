"""A performance model of another package: replicas that share a GPU slow each other in proportion to their number."""

from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

from provision.formulations.pricing.oracle import Priced, Running
from provision.models.performance.operating_points import OperatingPoints, PerformanceData, Prediction
from provision.models.problem.method import FEATURES, Method
from provision.models.problem.search import Outcome

BATCHES = np.array([1, 2, 4, 8])


class Crowd(PerformanceData):
    """Milliseconds per request of each model, times the number of replicas on the GPU."""

    sharing = "always"
    single_pattern = True
    kind: Literal["crowd"]
    models: dict[str, float]
    most: int = 4

    def operating_points(self, model, profile):
        """The model alone, one process, every batch."""
        latency = self.models[model] * BATCHES if profile == "whole" else np.zeros(0)
        batch = BATCHES[: len(latency)]
        return OperatingPoints(batch, np.ones_like(batch), latency, 1000 * batch / latency)

    def predict(self, profile, members):
        """All replicas of a GPU."""
        if profile != "whole" or len(members) > self.most or any(one.processes > 1 for one in members):
            return [None] * len(members)
        times = [self.models[one.model] * one.batch * len(members) for one in members]
        return [Prediction(time, 1000 * one.batch / time, None) for one, time in zip(members, times, strict=True)]


class CrowdOracle:
    """Sets of up to ``most`` roles, all tried."""

    def __init__(self, instance, data, roles):
        self.instance, self.data, self.roles = instance, data, roles
        sizes = range(1, data.most + 1)
        sets = [one for size in sizes for one in combinations_with_replacement(range(len(roles)), size)]
        self.patterns = [one for one in sets if self.running(one)]
        self.loose = [one for one in sets if self.running(one, 1 + 3e-9)]

    def seeds(self):
        return [one for one in self.patterns if len(one) == 1]

    def price(self, values, floor, effort):
        dear = [one for one in self.patterns if values[list(one)].sum() > floor]
        most = max((int(values[list(one)].sum()) for one in self.loose), default=0)
        return Priced(dear, most, True)

    def running(self, pattern, slack=1.0):
        """The largest batch of each replica that keeps its SLO, if it carries the role's rate."""
        found = [self._run(self.roles[at], len(pattern), slack) for at in pattern]
        return None if None in found else found

    def _run(self, role, count, slack):
        for number, model in enumerate(role.models):
            each_ms = self.data.models.get(model, np.inf) * count
            budget_ms = role.slo_ms * self.instance.policy.part_of_slo * slack
            fits = BATCHES[each_ms * BATCHES <= budget_ms]
            if len(fits) and role.rate_rps <= 1000 / each_ms * slack:
                return Running(number, int(fits[-1]), 1, 1.0)
        return None


def oracle(instance, entry, profile, data, roles, copies):
    """The oracle of whole GPUs."""
    return CrowdOracle(instance, data, roles) if profile == "whole" else None


METHOD = Method(name="toy", summary="finds nothing", features=frozenset(FEATURES),
                run=lambda instance, search: Outcome("unknown", "completed", reason="a toy finds nothing"))

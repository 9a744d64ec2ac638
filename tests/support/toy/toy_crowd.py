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
        self.patterns = self._sets(1.0)
        self.counts, self.loose_counts = self._counts(self.patterns), self._counts(self._sets(1 + 3e-9))

    def seeds(self):
        return [one for one in self.patterns if len(one) == 1]

    def price(self, values, floor):
        dear = np.flatnonzero(self.counts @ values > floor)
        most = (self.loose_counts @ values).max(initial=0)
        return Priced([self.patterns[at] for at in dear], int(most))

    def _counts(self, patterns):
        """(patterns, roles) how often each pattern has each role."""
        return np.array([np.bincount(one, minlength=len(self.roles)) for one in patterns]).reshape(-1, len(self.roles))

    def running(self, pattern):
        """The largest batch of each replica that keeps its SLO, if it carries the role's rate."""
        found = [self._run(self.roles[at], len(pattern), 1.0) for at in pattern]
        return None if None in found else found

    def _sets(self, slack):
        """All sets in which every role can run beside as many others."""
        able = {size: [at for at, role in enumerate(self.roles) if self._run(role, size, slack)]
                for size in range(1, self.data.most + 1)}
        return [one for size, roles in able.items() for one in combinations_with_replacement(roles, size)]

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

"""A brute-force oracle for a few workloads that share GPUs: all set partitions, batches and units."""

import itertools
from functools import cache

from provision.models.performance.operating_points import Member


def fewest_gpus(instance):
    """Least number of GPUs over all plans with one replica per workload and whole units."""
    data, tolerance = instance.performance[0], 1e-9
    units = round(1 / data.hardware.unit_share)

    @cache
    def ways(workload):
        """(units, batch) with which a workload keeps its SLO and rate alone."""
        found = itertools.product(range(1, units + 1), range(1, data.max_batch + 1))
        return [pair for pair in found if keeps([workload], [pair])]

    def keeps(group, chosen):
        pairs = zip(group, chosen, strict=True)
        members = [Member(one.model, batch, 1, number / units) for one, (number, batch) in pairs]
        predictions = data.predict("whole", members)
        return all(
            found is not None
            and found.latency_ms <= instance.budget_ms(one) * (1 + tolerance)
            and found.throughput_rps * (1 + tolerance) >= instance.planned_rps(one)
            for one, found in zip(group, predictions, strict=True)
        )

    @cache
    def fits(group):
        """Whether workloads can share a GPU: every choice of ways within its units."""

        def extend(chosen, left):
            if len(chosen) == len(group):
                return keeps(group, chosen)
            rest = sum(min(number for number, _ in ways(one)) for one in group[len(chosen) + 1 :])
            return any(
                extend([*chosen, pair], left - pair[0])
                for pair in ways(group[len(chosen)])
                if pair[0] + rest <= left and keeps(group[: len(chosen) + 1], [*chosen, pair])
            )

        return extend([], units)

    @cache
    def fewest(rest):
        if not rest:
            return 0
        first, others = rest[0], rest[1:]
        groups = (mates for size in range(len(others) + 1) for mates in itertools.combinations(others, size))
        return min(
            1 + fewest(tuple(one for one in others if one not in mates)) for mates in groups if fits((first, *mates))
        )

    return fewest(tuple(instance.workloads))

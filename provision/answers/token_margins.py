"""Computes what a replica of a language model bears: how much longer all its times, how much higher its rate and how
much burstier its requests may be until a limit on its tokens breaks. Each factor is found by replays of its engine.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from provision.models.base.clock import NEVER, Deadline
from provision.models.performance.tokens.data import TokenModels
from provision.models.plans.plan import Slice
from provision.models.problem.instance import Instance
from provision.models.traffic.arrivals import Poisson, Renewal

MOST, STEPS = 10.0, 6
"""The largest factor and coefficient of variation that are tried, and the number of bisection steps."""
SEED = 200
"""The seed of the replays, different from those of planning and of the verifier."""


class Borne(NamedTuple):
    """The largest factors on all times and on the rate, and the largest coefficient of variation of inter-arrival
    times; only the rate is known if arrivals are neither Poisson nor a renewal process.
    """

    service: float | None
    rate: float
    cv: float | None


class TimeOverError(Exception):
    """The time is over before it is known what a workload bears."""


def largest(holds: Callable[[float], bool], low: float, high: float, steps: int, end: Deadline = NEVER) -> float:
    """The largest number from ``low``, which is known to hold, to ``high`` that holds, by bisection of their ratio.
    Raises TimeOverError if the deadline comes first.
    """
    def tried(number: float) -> bool:
        if end.over:
            raise TimeOverError
        return holds(number)

    if low >= high or tried(high):
        return high
    for _ in range(steps):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if tried(middle) else (low, middle)
    return low


def borne(instance: Instance, gpu: str, piece: Slice, end: Deadline = NEVER) -> Borne:
    """What the replica on a slice of a valid plan bears; at its planned rate it keeps its limits.

    Times longer by a factor have the same effect as a rate higher, and limits shorter, by that factor. Raises
    TimeOverError if the deadline comes first.
    """
    from provision.models.performance.tokens.operating import answers_ms, costs_of, late_shares, part_of

    [replica] = piece.replicas
    workload, model = instance.workload[replica.workload], instance.model_of(replica)
    data, tokens, limits = instance.performance_of(gpu, model), workload.tokens, instance.policy.limits_of(workload)
    assert isinstance(data, TokenModels) and tokens is not None
    engine = data.engine_of(model, piece.profile, replica.batch)
    costs = costs_of(data.models[model].slices[piece.profile])
    arrivals = instance.policy.traffic_of(workload).arrivals

    def keeps(rate: float, service: float = 1.0, asked: Poisson | Renewal | None = None) -> bool:
        times_ms = service * answers_ms(replica.rate_rps * rate * service, tokens.input.counts, tokens.output.counts,
                                        engine, costs, asked or arrivals, SEED, part_of(tokens))
        return bool((late_shares(times_ms, limits) <= limits.may_be_late).all())

    rate = largest(keeps, 1.0, MOST, STEPS, end)
    if not isinstance(arrivals, (Poisson, Renewal)):
        return Borne(None, rate, None)
    least_cv = arrivals.cv if isinstance(arrivals, Renewal) else 1.0
    return Borne(largest(lambda factor: keeps(1.0, factor), 1.0, rate, STEPS, end), rate,
                 largest(lambda cv: keeps(1.0, asked=Renewal(cv=cv)), least_cv, MOST, STEPS, end))

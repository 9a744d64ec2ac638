"""Compares the ways to serve one language model on GPUs of one type, as AIConfigurator does: one engine that does all,
or prefill and decode in pools of their own; with the tokens per second that each gives per GPU and per user.
"""

from collections.abc import Iterator, Sequence
from math import ceil, inf
from typing import Any, NamedTuple

from provision.draw.output import number
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import SOLVER
from provision.models.hardware.gpu import WHOLE, group_of
from provision.models.performance.tokens.data import TokenModels
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import engine_rps

TOGETHER, APART = "aggregated", "disaggregated"
FASTER = (1.0, 0.8, 0.6, 0.4, 0.25)
"""The parts of the limit per further token for which points of the Pareto front are sought, the limit itself first."""
TOP = 3


class Configuration(NamedTuple):
    """One way to serve a model: the GPU type, the group of GPUs of an engine, and whether prefill and decode are apart.

    ``gpus`` and ``cost_per_hour`` are for all requests (None without prices), ``tokens_per_s_per_gpu`` is what a full
    engine gives, within ``tpot_ms``; a user sees at least ``tokens_per_s_per_user``.
    """

    gpu: str
    group: str
    pools: str
    tpot_ms: float
    gpus: int
    cost_per_hour: float | None
    tokens_per_s_per_gpu: float
    tokens_per_s_per_user: float

    @property
    def told(self) -> str:
        """The configuration in words."""
        return f"{self.gpu if self.group == WHOLE else f'{self.group} of {self.gpu}'}, {self.pools}"

    @property
    def rank(self) -> tuple[float, float]:
        """What is compared: the cost, or the number of GPUs, and then the tokens per GPU."""
        return self.gpus if self.cost_per_hour is None else self.cost_per_hour, -self.tokens_per_s_per_gpu


def disaggregated(instance: Instance) -> Instance:
    """The instance of a single language model with prefill and decode in pools of their own; KV caches move in no time.
    """
    [asked] = instance.workloads
    assert asked.tokens is not None
    tokens = asked.tokens.model_dump() | {"disaggregated": True}
    return instance.replace(workloads=[asked.model_dump(exclude={"slo_ms", "stage"}) | {"tokens": tokens}])


def configurations(instance: Instance, end: Deadline) -> list[Configuration]:
    """The configurations of an instance with a single language model: for its limits first, then for shorter limits per
    further token, as long as there is time.
    """
    return [one for part in FASTER for one in _at(instance, part, end)]


def top(found: Sequence[Configuration]) -> list[Configuration]:
    """The best three configurations within the stated limits, cheapest first."""
    longest = max((one.tpot_ms for one in found), default=0.0)
    return sorted((one for one in found if one.tpot_ms == longest), key=lambda one: one.rank)[:TOP]


def pareto(found: Sequence[Configuration]) -> list[Configuration]:
    """The configurations that none beats in both tokens per user and tokens per GPU, the fastest for users first."""
    front: list[Configuration] = []
    for one in sorted(found, key=lambda one: (-one.tokens_per_s_per_user, -one.tokens_per_s_per_gpu)):
        if not front or one.tokens_per_s_per_gpu > front[-1].tokens_per_s_per_gpu:
            front.append(one)
    return front


def plain(found: Sequence[Configuration]) -> dict[str, Any]:
    """The top configurations and the Pareto front as plain content."""
    return {"configurations": [one._asdict() for one in top(found)], "pareto": [one._asdict() for one in pareto(found)]}


def told(found: Sequence[Configuration], whole: bool, cost_per_hour: float | None) -> Iterator[str]:
    """Yield lines on the top configurations and the Pareto front. ``whole`` says that all were looked at;
    ``cost_per_hour`` is that of the plan, None without prices.
    """
    yield "Beside it, each on one GPU type alone (the plan above may mix; disaggregated: KV caches move in no time):"
    for rank, one in enumerate(top(found), start=1):
        cost = "" if one.cost_per_hour is None else f", {one.cost_per_hour:,.2f} $ per hour"
        yield (f"  {rank}. {one.told}: {one.gpus} GPU{'s' * (one.gpus != 1)}{cost}; "
               f"{number(one.tokens_per_s_per_gpu)} tokens/s per GPU at {number(one.tokens_per_s_per_user)} per user")
    best = top(found)[0]
    if best.pools == APART and (best.cost_per_hour or inf) < (cost_per_hour or 0.0) * (1 - SOLVER):
        yield ("The first costs less than the plan above, whose bound is for aggregated servers only: --disaggregated "
               "plans prefill and decode apart.")
    yield f"Pareto front of tokens/s per user against tokens/s per GPU{'' if whole else ', as far as there was time'}:"
    for one in pareto(found):
        yield (f"  {number(one.tokens_per_s_per_user):>6} per user  {number(one.tokens_per_s_per_gpu):>8} per GPU  "
               f"{one.told}, TPOT {number(one.tpot_ms)} ms")


def _at(instance: Instance, part: float, end: Deadline) -> Iterator[Configuration]:
    """Yield the configurations for a part of the limit per further token."""
    [asked] = instance.workloads
    assert asked.slo is not None and asked.slo.tpot_ms is not None and asked.tokens is not None
    tpot_ms = part * asked.slo.tpot_ms
    slo = asked.slo.model_dump() | {"tpot_ms": tpot_ms}
    together = instance.replace(workloads=[asked.model_dump(exclude={"slo_ms", "stage"}) | {"slo": slo}])
    both = {TOGETHER: together, APART: disaggregated(together)}
    for data in (one for one in instance.performance if isinstance(one, TokenModels)):
        entry = next(one for one in instance.fleet if one.gpu == data.gpu)
        price = None if entry.price_per_hour is None else entry.price_per_hour / entry.type.gpus
        for group in data.models[asked.model].slices:
            size = group_of(group) or 1 / entry.type.profiles[group].max
            for pools, problem in both.items():
                if end.over:
                    return
                rates_rps = [max(engine_rps(problem, data, one, asked.model, group, most)
                                 for most in data.engine.max_sequences) for one in problem.workloads]
                if not all(rates_rps):
                    continue
                gpus = ceil(round(sum(size * ceil(asked.rate_rps / rate_rps) for rate_rps in rates_rps), 9))
                per_gpu = asked.tokens.output.counts.mean / sum(size / rate_rps for rate_rps in rates_rps)
                yield Configuration(data.gpu, group, pools, tpot_ms, gpus, None if price is None else gpus * price,
                                    per_gpu, 1000 / tpot_ms)

"""inferno's model of a server of a language model: a state-dependent M/M/1/K queue, of which inferno uses only means.

An iteration with B requests takes ``alpha + B * delta`` ms, where delta is a request's computation averaged over its
prefill and its output tokens. The computation of the request itself is added: beta + gamma per prompt token, and per
output token beta, plus gamma for every token to which it attends. Source: the public description of
llm-inferno/queue-analysis; a prompt is one chunk. With a queue of ten batches the model reproduces all 42 replica
counts, and so the costs, of the solutions that come with inferno's instances.

inferno's greedy algorithm: every service gets one type of accelerator. Services are handled by priority, then by
regret, the largest regret first. The *regret* of a service is the difference in cost between its best and its next
choice. A service that finds too few accelerators left goes on to its next choice and is put back into the queue.
Source: inferno's public description, its limited mode.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from provision.formulations.search.segments import Segments, SliceType
from provision.heuristics.rivals.melange import FEATURES, Chosen, plan_whole_gpus
from provision.models.base.tolerances import TOLERANCE
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search

Pool = TypeVar("Pool", int, str)


class Setting(NamedTuple):
    """The settings of the queue model. ``queue`` is the number of requests that may wait, in multiples of the batch.

    ``own`` tells whether the computation of the request itself is added to the iterations.
    """

    queue: int = 10
    own: bool = True


SHIPPED = Setting()
"""The settings with which the solutions that come with inferno's instances were made."""


class Demand(NamedTuple):
    """The mean numbers of tokens of a request."""

    input_tokens: int
    output_tokens: int


class Coefficients(NamedTuple):
    """Coefficients in ms: alpha per iteration, beta per token, gamma per pair of a token and a token to which it
    attends.
    """

    alpha: float
    beta: float
    gamma: float


class Means(NamedTuple):
    """The means in the steady state: time per token and to the first token (ms), requests in the batch, requests/s
    answered.
    """

    itl_ms: float
    ttft_ms: float
    batch: float
    answered_rps: float


def means(costs: Coefficients, demand: Demand, most: int, rate_rps: float, setting: Setting = SHIPPED) -> Means:
    """The means at an arrival rate, from the steady state of a birth and death process over the number of requests in
    the system.
    """
    states = np.arange(most * (1 + setting.queue) + 1)
    batch = np.minimum(states, most)
    logs = np.concatenate([[0.0], np.cumsum(np.log(rate_rps / 1000 / per_ms(costs, demand, batch[1:], setting)))])
    share = np.exp(logs - logs.max())
    share /= share.sum()
    answered = rate_rps / 1000 * (1 - share[-1])
    served_ms, wait_ms = batch @ share / answered, (states - batch) @ share / answered
    prefill_ms = float(_prefill_ms(costs, demand, batch @ share))
    itl_ms = (served_ms - prefill_ms) / demand.output_tokens
    return Means(float(itl_ms), float(wait_ms + prefill_ms + itl_ms), float(batch @ share), float(1000 * answered))


def per_ms(costs: Coefficients, demand: Demand, batch: np.ndarray, setting: Setting) -> np.ndarray:
    """The requests answered per ms with ``batch`` requests in the batch, in the shape of ``batch``."""
    own_ms = costs.beta + costs.gamma * _attended(demand) if setting.own else 0.0
    token_ms = _iteration_ms(costs, demand, batch) + own_ms
    return np.asarray(batch / (_prefill_ms(costs, demand, batch) + demand.output_tokens * token_ms))


def _prefill_ms(costs: Coefficients, demand: Demand, batch: np.ndarray) -> np.ndarray:
    """The time (ms) of the iteration with a request's prompt, beside a batch, in the shape of ``batch``."""
    return _iteration_ms(costs, demand, batch) + (costs.beta + costs.gamma) * demand.input_tokens


def _iteration_ms(costs: Coefficients, demand: Demand, batch: np.ndarray) -> np.ndarray:
    prompt, output = demand.input_tokens, demand.output_tokens
    return costs.alpha + batch * (costs.beta * (prompt + output) / (1 + output) + costs.gamma * _attended(demand))


def _attended(demand: Demand) -> float:
    """The mean number of tokens to which an output token attends."""
    return demand.input_tokens + demand.output_tokens / 2


class Choice(NamedTuple, Generic[Pool]):
    """A choice for a service: its cost, the number of accelerators (``units``) that it takes from a pool, and the
    caller's index (``what``).
    """

    cost: float
    units: int
    pool: Pool
    what: int


def choose(choices: Sequence[Sequence[Choice[Pool]]], priorities: Sequence[int], capacity: Mapping[Pool, float]
           ) -> list[Choice[Pool] | None]:
    """The choice that every service gets; None if too few accelerators are left for each of its choices.

    Parameters
    ----------
    choices
        The choices of every service.
    priorities
        The priority of every service; the smallest number comes first.
    capacity
        The number of accelerators in each pool.
    """
    left = dict(capacity)
    open_: dict[int, list[Choice[Pool]]] = {at: sorted(found, key=lambda one: one.cost)
                                            for at, found in enumerate(choices)}
    given: list[Choice[Pool] | None] = [None] * len(choices)
    while open_:
        at = min(open_, key=lambda one: (priorities[one], *_urgency(open_[one])))
        best = open_[at].pop(0) if open_[at] else None
        if best is None or left.get(best.pool, 0) >= best.units:
            given[at] = best
            del open_[at]
            if best is not None:
                left[best.pool] -= best.units
    return given


def _urgency(found: Sequence[Choice[Pool]]) -> tuple[float, float]:
    """The sort key of a service: the largest regret comes first, and among equal regrets the most expensive first
    choice.
    """
    if len(found) < 2:
        return -math.inf, -found[0].cost if found else 0.0
    return found[0].cost - found[1].cost, -found[0].cost


def replicas(rate_rps: float, each_rps: float) -> int:
    """The number of replicas that carry a rate, if each carries ``each_rps``; at least 1."""
    return max(1, math.ceil(rate_rps / each_rps * (1 - TOLERANCE)))


def plan(instance: Instance, search: Search) -> Outcome:
    """Plan an instance with whole GPUs of one type for every workload."""
    def whole_gpus(segments: Segments, whole: list[int]) -> Chosen:
        choices = [
            [_choice(instance, segments.slice_types[kind], at,
                     replicas(max(instance.planned_rps(one), TOLERANCE), rates[kind]), one.min_replicas)
             for at, kind in enumerate(whole) if rates[kind] > 0]
            for one, rates in zip(instance.workloads, segments.throughput_rps, strict=True)
        ]
        counts = {at: math.inf if entry.count is None else entry.count for at, entry in enumerate(instance.fleet)}
        given = choose(choices, [0] * len(choices), counts)
        lacking = [one.name for one, found in zip(instance.workloads, given, strict=True) if found is None]
        if lacking:
            return None, f"inferno found no single type left for {', '.join(lacking)}"
        gpus = np.zeros((len(given), len(whole)), np.int64)
        for at, found in enumerate(given):
            if found is not None:
                gpus[at, found.what] = found.units
        return gpus, ""

    return plan_whole_gpus(instance, search, "inferno", whole_gpus)


def _choice(instance: Instance, kind: SliceType, at: int, many: int, least: int) -> Choice[int]:
    units = max(many, least)
    return Choice(units * objective_of(instance).weight(instance.fleet[kind.entry]), units, kind.entry, at)


METHODS = (
    Method(
        name="inferno",
        summary="inferno's greedy: a GPU type per workload, those first that would lose most by another",
        run=plan,
        source="llm-inferno (its public description)",
        features=FEATURES,
    ),
)

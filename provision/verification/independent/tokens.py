"""Judges language models: replays their requests token by token, and compares the times of the first token, of the
later tokens and of the whole answer with the SLOs.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .kinds.service import kind_of
from .latency_rules import Found
from .records import Instance, PlannedGpu, Replica, Slice, Tree, UndecidedError, UndescribedError
from .replays.arrivals import arrival_times, calmed, dealt
from .replays.late import Counts, judged
from .replays.token_engine import COEFFICIENTS, replayed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FIRST_REQUESTS = 2**11
WARM_UP = 0.1
FIRST, FURTHER, WHOLE = "first token", "per output token", "whole answer"
IDLE, HICCUP = COEFFICIENTS.index("idle"), COEFFICIENTS.index("hiccup")
ENGINE = {"tokens_per_iteration": 8192, "block_tokens": 16}


def token_workloads(instance: Instance) -> Iterator[str]:
    """Names of the workloads that are language models."""
    yield from (name for name, one in instance.workloads.items() if one.tokens is not None)


def lengths(said: Tree, many: int, rng: np.random.Generator) -> Ints:
    """Draw ``many`` token counts from the distribution that a file states."""
    if said.get("histogram"):
        values, weights = np.array(said["histogram"], float).T
        drawn = rng.choice(values, many, p=weights / weights.sum())
    elif said.get("quantiles"):
        percent, values = np.array(sorted(said["quantiles"]), float).T
        drawn = np.interp(100 * rng.random(many), percent, values)
    elif said.get("min") is not None:
        drawn = rng.uniform(said["min"], said["max"], many)
    elif said.get("p99") is not None:
        # A lognormal distribution with this mean and 99th percentile: solve ln(p99 / mean) = z s - s^2 / 2 for s.
        z, ratio = float(special.ndtri(0.99)), math.log(said["p99"] / said["mean"])
        spread = z - math.sqrt(max(z**2 - 2 * ratio, 0.0))
        drawn = rng.lognormal(math.log(said["mean"]) - spread**2 / 2, spread, many)
    else:
        drawn = np.full(many, said["mean"])
    drawn = np.minimum(drawn, said.get("max") or np.inf)
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def judge_tokens(instance: Instance, plan: tuple[PlannedGpu, ...], name: str, budget_s: float) -> list[Found]:
    """Replay a language model iteration by iteration, all of its replicas together.

    A prefill pool is replayed with the decode pool behind it; the decode pool itself has no results of its own.
    """
    workload = instance.workloads[name]
    pool, slo = (workload.tokens or {}).get("pool"), workload.token_slo or {}
    if pool == "decode" or instance.planned_rps(name) <= 0:
        return []
    if pool:
        return _judge_pools(instance, plan, name, budget_s)
    first_ms = slo["ttft_ms"] / instance.policy.first_token if slo.get("ttft_ms") else None
    limits = [(FIRST, first_ms), (FURTHER, slo.get("tpot_ms")), (WHOLE, slo.get("e2e_ms") or workload.slo_ms or None)]
    stated = [(what, float(limit) * instance.policy.safety) for what, limit in limits if limit is not None]
    engines = _engines(instance, plan, name)
    if engines is None:
        return []

    def replay(seed: int, requests: int) -> Counts:
        rng = np.random.default_rng(seed)
        arrived, prompt, output = _requests(instance, name, requests * len(engines.weight), stated, rng)
        first, last = engines.answered(arrived, prompt, output, rng)
        return _late(_times(arrived, first, last, output), stated)

    return _found(name, stated, float(slo.get("percentile") or workload.percentile), replay, budget_s)


def _judge_pools(instance: Instance, plan: tuple[PlannedGpu, ...], name: str, budget_s: float) -> list[Found]:
    """Replay a prefill pool and the decode pool behind it. A request reaches the decode pool when its KV cache has
    arrived there; only then its first token counts as given.
    """
    flow = next((one for one in instance.workflows if one.members[0] == name and len(one.members) == 2), None)
    if flow is None:
        raise UndecidedError(f"{name}: a prefill pool without a decode pool behind it is not replayed here")
    before, after = (instance.workloads[one] for one in flow.members)
    first_ms = (before.token_slo or {})["ttft_ms"] / instance.policy.first_token
    whole_ms = before.slo_ms + after.slo_ms
    limits = [(FIRST, first_ms), (FURTHER, (after.token_slo or {})["tpot_ms"]), (WHOLE, whole_ms or None)]
    stated = [(what, float(limit) * instance.policy.safety) for what, limit in limits if limit is not None]
    prefill, decode = (_engines(instance, plan, one) for one in flow.members)
    if prefill is None or decode is None:
        return []
    moved_ms = float((before.tokens or {}).get("transfer_ms_per_token") or 0.0)

    def replay(seed: int, requests: int) -> Counts:
        rng = np.random.default_rng(seed)
        many = requests * max(len(prefill.weight), len(decode.weight))
        arrived, prompt, _ = _requests(instance, name, many, stated, rng)
        output = np.maximum(lengths((after.tokens or {})["output"], len(arrived), rng), 2)
        first, _ = prefill.answered(arrived, prompt, np.ones_like(prompt), rng)
        first = first + moved_ms * prompt
        order = np.argsort(first, kind="stable")
        last = np.empty(len(arrived))
        _, last[order] = decode.answered(first[order], prompt[order], output[order], rng)
        return _late(_times(arrived, first, last, output), stated)

    return _found(flow.name, stated, flow.percentile, replay, budget_s)


def _found(name: str, stated: list[tuple[str, float]], percent: float, replay: Callable[[int, int], Counts],
           budget_s: float) -> list[Found]:
    late = judged(replay, [1 - percent / 100] * len(stated), FIRST_REQUESTS, budget_s)
    return [Found(f"{name}: {what}", limit, percent, 1.0, one, "iterations replayed")
            for (what, limit), one in zip(stated, late, strict=True)]


def _requests(instance: Instance, name: str, many: int, stated: list[tuple[str, float]], rng: np.random.Generator
              ) -> tuple[Floats, Ints, Ints]:
    """Arrival times in ms, and the tokens of prompts and answers, of about ``many`` requests of a language model."""
    workload = instance.workloads[name]
    arrived = calmed(arrival_times(workload.arrivals, instance.planned_rps(name), many, rng),
                     max(limit for _, limit in stated))
    tokens = workload.tokens or {}
    return arrived, lengths(tokens["input"], len(arrived), rng), lengths(tokens["output"], len(arrived), rng)


@dataclass(frozen=True)
class _Engines:
    """The replicas of a language model: their weights, coefficients and limits (see `replayed`), and how requests are
    routed to them.
    """

    weight: Floats
    costs: Floats
    limits: Ints
    routing: str
    prefix: Tree | None
    cached: bool

    def answered(self, arrived: Floats, prompt: Ints, output: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """When the first and the last token of every request reach the client, in ms."""
        begun, common, aside = _remembered(self.prefix, prompt, int(self.limits[0, 1]))
        limits = self.limits - np.eye(1, self.limits.shape[1], dtype=np.int64) * aside
        owner = np.empty(0, np.int64)
        if self.routing != "least_loaded":
            owner = dealt(len(arrived), self.weight, self.routing, rng)
        begun = prompt if self.cached else begun
        first, last = replayed(arrived, prompt, output, begun, common, self.cached, owner, self.weight, self.costs,
                               limits)
        if self.cached:
            return first, last
        # Every request counts as one of a client that was silent for long.
        hiccups = np.where(rng.random(len(arrived)) < 0.05, rng.exponential(1.0, len(arrived)), 0.0)
        first = first + hiccups * self.costs[0, HICCUP] + self.costs[0, IDLE]
        return first, np.maximum(first, last + self.costs[0, IDLE])


def _engines(instance: Instance, plan: tuple[PlannedGpu, ...], name: str) -> _Engines | None:
    """The replicas of a language model; None if no rate is routed to any, which is a fault of its own."""
    servers = [(piece, one) for gpu in plan for piece in gpu.slices for one in piece.replicas if one.workload == name]
    weight = np.array([one.rate_rps for _, one in servers])
    if not weight.sum() > 0:
        return None
    found = [_engine(instance, piece, one) for piece, one in servers]
    workload = instance.workloads[name]
    tokens = workload.tokens or {}
    return _Engines(weight, np.array([costs for costs, _ in found]), np.array([limits for _, limits in found]),
                    workload.routing if len(servers) > 1 else "round_robin", tokens.get("shared_prefix"),
                    tokens.get("pool") == "decode")


def _remembered(said: Tree | None, prompt: Ints, block: int) -> tuple[Ints, Ints, int]:
    """The content of a server's prefix cache: (requests,), the tokens of each prompt in the cache; (requests,), how
    many of their blocks all requests share; and the number of blocks that these shared blocks take.
    """
    if not said:
        return np.zeros_like(prompt), np.zeros_like(prompt), 0
    tokens = said.get("tokens")
    beginning = np.minimum(tokens if tokens else said["share"] * prompt, prompt - 1)
    blocks = np.floor(beginning / block).astype(np.int64)
    if not tokens:
        return blocks * block, np.zeros_like(prompt), 0
    return blocks * block, blocks, int(said.get("distinct", 1)) * int(tokens // block)


def _times(arrived: Floats, first: Floats, last: Floats, output: Ints) -> dict[str, Floats]:
    """(requests,) each, the times in ms that limits are on."""
    return {FIRST: first - arrived, WHOLE: last - arrived,
            FURTHER: np.where(output > 1, (last - first) / np.maximum(output - 1, 1), 0.0)}


def _late(taken: dict[str, Floats], stated: list[tuple[str, float]]) -> Counts:
    """The numbers of late and of counted requests, for each limit."""
    counted = {what: times[int(WARM_UP * len(times)):] for what, times in taken.items()}
    return [(int(np.sum(counted[what] > limit)), len(counted[what])) for what, limit in stated]


def _engine(instance: Instance, piece: Slice, replica: Replica) -> tuple[Floats, Ints]:
    """The coefficients of an iteration, and the engine's limits, as `replayed` takes them."""
    for data in instance.performance:
        if kind_of(data).language and data["gpu"] == piece.gpu_type and replica.model in data["models"]:
            found = data["models"][replica.model]["slices"].get(piece.profile)
            if found is not None:
                engine = ENGINE | (data.get("engine") or {})
                block = int(engine["block_tokens"])
                costs = np.array([*(float(found.get(f"{one}_ms", 0.0)) for one in COEFFICIENTS),
                                  float(found.get("active_part", 0.0))])
                return costs, np.array([found["kv_tokens"] // block, block, replica.batch,
                                        engine["tokens_per_iteration"], *(
                                            bool(engine.get(one)) for one in ("prompts_alone", "scheduled_ahead"))])
    raise UndescribedError(f"no data of {replica.model} on {piece.gpu_type}, {piece.profile}")

"""Judges language models: replays their requests token by token, and compares the times of the first token, of the
later tokens and of the whole answer with the SLOs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .random_traffic import Found
from .records import Instance, PlannedGpu, Replica, Slice, Tree, UndecidedError
from .replays.arrivals import arrival_times
from .replays.late import Counts, judged
from .replays.token_engine import replayed

Floats = NDArray[np.float64]
FIRST_REQUESTS = 2**11
WARM_UP = 0.1
COEFFICIENTS = ("step", "weights", "token", "several", "sequence", "context", "prefill", "attended", "request", "read",
                "idle", "delivery", "delivery_sequence", "hiccup", "experts", "launch")
"""The names of the coefficients that are times in ms. The last coefficient, not named here, is the fraction of the
experts that one token uses.
"""
ENGINE = {"tokens_per_iteration": 8192, "block_tokens": 16}


def token_workloads(instance: Instance) -> Iterator[str]:
    """Names of the workloads that are language models."""
    yield from (name for name, one in instance.workloads.items() if one.tokens is not None)


def lengths(said: Tree, many: int, rng: np.random.Generator) -> NDArray[np.int64]:
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
    """Replay the replicas of a language model iteration by iteration, each with its fraction of the requests."""
    workload = instance.workloads[name]
    tokens, slo = workload.tokens or {}, workload.token_slo or {}
    if tokens.get("disaggregated") or tokens.get("pool"):
        raise UndecidedError(f"{name}: separate pools for prompts and answers are not replayed here")
    if workload.arrivals.get("process", "poisson") != "poisson" or workload.routing != "random":
        raise UndecidedError(f"{name}: only random routing of Poisson arrivals is replayed for language models")
    servers = [(piece, one) for gpu in plan for piece in gpu.slices for one in piece.replicas if one.workload == name]
    first_ms = slo["ttft_ms"] / instance.policy.first_token if slo.get("ttft_ms") else None
    limits = [("first token", first_ms), ("per output token", slo.get("tpot_ms")),
              ("whole answer", slo.get("e2e_ms") or workload.slo_ms or None)]
    stated = [(what, float(limit) * instance.policy.safety) for what, limit in limits if limit is not None]
    total = sum(one.rate_rps for _, one in servers)
    engines = [_engine(instance, piece, one) for piece, one in servers]
    weights = np.array([one.rate_rps for _, one in servers]) / total
    rates = weights * instance.planned_rps(name)

    def replay(seed: int, requests: int) -> Counts:
        counts = np.zeros((len(stated), 2), np.int64)
        for at, ((costs, limits_of), rate) in enumerate(zip(engines, rates, strict=True)):
            if rate <= 0:
                continue
            rng = np.random.default_rng([seed, at])
            many = max(int(requests * weights[at] * len(servers)), 1)
            arrived = arrival_times(workload.arrivals, float(rate), many, rng)
            prompt, output = lengths(tokens["input"], many, rng), lengths(tokens["output"], many, rng)
            hiccups = np.where(rng.random(many) < 0.05, rng.exponential(1.0, many), 0.0) * costs[13]
            begun, common, aside = _remembered(tokens.get("shared_prefix"), prompt, int(limits_of[1]))
            blocks = np.array([limits_of[0] - aside, *limits_of[1:]])
            first, last = replayed(arrived, prompt, output, begun, common, costs, blocks)
            first = first + hiccups + costs[10]  # every request counts as one of a client that was silent for long
            counts += _late(arrived, first, last, output, stated)
        return [(int(late), int(counted)) for late, counted in counts]

    percent = float(slo.get("percentile") or workload.percentile)
    late = judged(replay, [1 - percent / 100] * len(stated), FIRST_REQUESTS, budget_s)
    return [Found(f"{name}: {what}", limit, percent, 1.0, one, "iterations replayed")
            for (what, limit), one in zip(stated, late, strict=True)]


def _remembered(said: Tree | None, prompt: NDArray[np.int64], block: int
                ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
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


def _late(
    arrived: Floats, first: Floats, last: Floats, output: NDArray[np.int64], stated: list[tuple[str, float]]
) -> NDArray[np.int64]:
    """(limits, 2) the numbers of late and of counted requests, for each limit."""
    last = np.maximum(first, last)
    several = output > 1
    taken = {"first token": first - arrived, "whole answer": last - arrived,
             "per output token": np.where(several, (last - first) / np.maximum(output - 1, 1), 0.0)}
    kept = slice(int(WARM_UP * len(arrived)), None)
    return np.array([[np.sum(taken[what][kept] > limit), len(arrived[kept])] for what, limit in stated])


def _engine(instance: Instance, piece: Slice, replica: Replica) -> tuple[Floats, NDArray[np.int64]]:
    """The coefficients of an iteration, and the engine's limits: KV blocks, tokens per block, sequences, tokens per
    iteration.
    """
    for data in instance.performance:
        if data["kind"] == "tokens" and data["gpu"] == piece.gpu_type and replica.model in data["models"]:
            found = data["models"][replica.model]["slices"].get(piece.profile)
            if found is not None:
                engine = ENGINE | (data.get("engine") or {})
                if engine.get("prompts_alone"):
                    raise UndecidedError(f"{replica.workload}: iterations of prompts alone are not replayed here")
                block = int(engine["block_tokens"])
                costs = np.array([*(float(found.get(f"{one}_ms", 0.0)) for one in COEFFICIENTS),
                                  float(found.get("active_part", 0.0))])
                return costs, np.array([found["kv_tokens"] // block, block, replica.batch,
                                        engine["tokens_per_iteration"]])
    raise UndecidedError(f"no data of {replica.model} on {piece.gpu_type}, {piece.profile}")

"""Explains a plan for language models: tokens per second and their price, TTFT and TPOT, memory for KV caches."""

from collections.abc import Iterator

from provision.answers.types import Cost
from provision.draw.output import number
from provision.models.performance.tokens.data import TokenModels
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload
from provision.solving.replayed import replayed

TOKENS, HOUR_S = 1e6, 3600


def token_costs(instance: Instance, spent: list[Cost]) -> Iterator[str]:
    """Yield a sentence per language model on its output tokens per second, and on the cost of a million of them."""
    for one in spent:
        asked = instance.workload.get(one.workload)
        per_s = 0.0 if asked is None or asked.tokens is None else asked.rate_rps * asked.tokens.output.counts.mean
        if per_s:
            cost = one.per_hour / (per_s * HOUR_S / TOKENS)
            yield f"{one.workload}: {number(per_s)} output tokens/s, {cost:,.3g} $ per million of them"


def token_limits(instance: Instance, plan: Plan, workload: str | None) -> Iterator[str]:
    """Yield sentences on the TTFT and TPOT of language models in a replay, compared with their limits, and on their
    memory.
    """
    asked = [one for one in instance.workloads if one.tokens and workload in (None, one.name)]
    found = replayed(instance, plan, 0) if asked else None
    limits = [] if found is None else sorted(found.slos, key=lambda one: -(one.met_ms or 0.0) / one.limit_ms)
    for one in limits:
        if one.name.partition(": ")[0] in {each.name for each in asked} and one.met_ms is not None:
            yield (f"{one.name} in a replay: P{one.percentile:g} {number(one.met_ms)} of {number(one.limit_ms)} ms "
                   f"({one.met_ms / one.limit_ms:.0%}).")
    for each in asked:
        yield from dict.fromkeys(_memory(instance, plan, each))


FEW = " More GPUs for each replica (solve --model --tp) have room for more, and may cost less in all."
"""Added where a replica has no room for two requests at once."""


def _memory(instance: Instance, plan: Plan, workload: Workload) -> Iterator[str]:
    """Yield a sentence for every slice with replicas of a language model: how many tokens of KV cache its memory holds.
    """
    for at, _, piece, one in plan.replicas():
        gpu = plan.gpus[at].gpu
        data = instance.performance_of(gpu, instance.model_of(one), piece.profile)
        if one.workload != workload.name or not isinstance(data, TokenModels) or workload.tokens is None:
            continue
        kept = data.models[instance.model_of(one)].slices[piece.profile].kv_tokens
        length = workload.tokens.input.counts.mean + workload.tokens.output.counts.mean
        yield (f"{workload.name} on {piece.profile} of {gpu}: memory for {kept:,} tokens of KV cache, "
               f"{kept / length:,.0f} requests of mean length at once; the engine takes at most {one.batch:,}."
               + FEW * (kept < 2 * length))

"""The best operating point of a language model alone on a slice, for the tokens and limits of a workload."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from provision.models.performance.tokens.data import TokenModels
from provision.models.problem.prediction import engine_rps

if TYPE_CHECKING:
    from provision.models.performance.catalogue import PerformanceFile
    from provision.models.performance.tokens.lengths import RequestTokens
    from provision.models.performance.tokens.slo import Limits
    from provision.models.problem.instance import Instance
    from provision.models.problem.workload import Workload

NOTHING = (0.0, 0.0, 0, 0)


def token_point(instance: Instance, data: PerformanceFile | None, profile: str, workload: Workload, model: str
                ) -> tuple[float, float, int, int]:
    """The rate that a replica carries (requests/s), the latency of a mean request alone (ms), batch and processes;
    zeros if no setting keeps the SLO.

    The batch is the engine's limit on sequences at a time; of the limits that the data lists, the one with the highest
    rate is taken.
    """
    tokens = workload.tokens
    if not isinstance(data, TokenModels) or tokens is None or tokens.most_held > data.longest(model, profile):
        return NOTHING
    one = data.models[model].slices[profile]
    best = NOTHING
    for sequences in data.engine.max_sequences:
        rate_rps = engine_rps(instance, data, workload, model, profile, sequences)
        alone_ms = one.alone_ms(tokens, data.engine_of(model, profile, sequences))
        best = max(best, (rate_rps, alone_ms, sequences, 1))
    return best if best[0] > 0 else NOTHING


def refused_tokens(instance: Instance, workload: Workload) -> str:
    """A line that tells why no slice of the fleet can serve a language model, and which limits some slice would keep.
    """
    assert workload.tokens is not None
    slices = [(data, model, profile) for entry in instance.fleet for profile in entry.profiles
              for model in workload.models if isinstance(data := instance.performance_of(entry.gpu, model), TokenModels)
              and data.slice_of(model, profile)]
    name, most = f"workload {workload.name}", workload.tokens.most
    if not slices:
        return (f"{name}: no slice of this fleet can run {' or '.join(workload.models)}; its performance data should "
                f"name one of {', '.join(dict.fromkeys(one for entry in instance.fleet for one in entry.profiles))}, "
                "or the fleet say mig: false for whole GPUs")
    longest = max(data.longest(model, profile) for data, model, profile in slices)
    if most > longest:
        return (f"{name}: its longest request has {most} tokens ({workload.tokens.input.most} input, "
                f"{workload.tokens.output.most} output), and no slice takes more than {longest}; shorten requests to "
                "that, or give the model larger slices")
    held = workload.tokens.most_held
    if held > longest:
        return (f"{name}: its shared prefixes and its longest request take {held} tokens of KV memory, and no slice "
                f"has more than {longest}; state fewer distinct prefixes, or give the model larger slices")
    asked = instance.policy.limits_of(workload)
    enough = _least_limits(workload.tokens, asked, [one for one in slices if held <= one[0].longest(*one[1:])])
    return (f"{name}: no slice keeps {_shown(asked.times_ms)} at percentile {asked.percentile:g}, however few requests "
            f"come; {_shown(enough.scaled(1 / instance.policy.safety).times_ms)} would work for one at a time")


def _least_limits(tokens: RequestTokens, asked: Limits, slices: list[tuple[TokenModels, str, str]]
                  ) -> Limits:
    """The limits that are asked for, raised to what the best slice keeps at a low rate if no slice keeps them. A slice
    is given as its data, the model and the profile.
    """
    from provision.models.performance.tokens.operating import costs_of, least_limits, part_of

    found = [
        least_limits(tokens.input.counts, tokens.output.counts, asked,
                     data.engine_of(model, profile, max(data.engine.max_sequences)),
                     costs_of(data.models[model].slices[profile]), part_of(tokens))
        for data, model, profile in slices
    ]
    return min(found, key=lambda one: max(need / time for need, time in zip(one.times_ms, asked.times_ms, strict=True)))


def _shown(times_ms: tuple[float, ...]) -> str:
    named = zip(("ttft", "tpot", "e2e"), times_ms, strict=True)
    return ", ".join(f"{name}_ms {time_ms:.4g}" for name, time_ms in named if math.isfinite(time_ms))

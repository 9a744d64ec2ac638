"""Finds workloads that no GPU of the fleet can serve in time, with an SLO that works; and those late in a plan."""

import math

import numpy as np

from provision.formulations.search.segments import Segments
from provision.models.base.tolerances import DUST, TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.requests import Limits, RequestTokens
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import predict_slice
from provision.models.problem.search import Outcome
from provision.models.problem.workload import Workload


def unservable(instance: Instance, segments: Segments) -> list[str]:
    """One line for each reason why a workload cannot be served: no operating point is within its latency budget, or it
    is allowed too few replicas for its rate or for its share per GPU.
    """
    best_rps = segments.throughput_rps.max(axis=1, initial=0)
    slow = [_explain(instance, instance.workloads[index]) for index in np.flatnonzero(best_rps == 0)]
    heavy = [
        _too_much(workload, best, workload.max_replicas)
        for workload, best in zip(instance.workloads, best_rps, strict=True)
        if workload.max_replicas and 0 < best * workload.max_replicas < instance.planned_rps(workload) * (1 - TOLERANCE)
    ]
    spread = [line for workload in instance.workloads if (line := _too_close(workload))]
    return slow + heavy + spread


def proved_infeasible(instance: Instance, segments: Segments) -> Outcome | None:
    """An infeasible Outcome if some workload cannot be served at all, else None."""
    reasons = unservable(instance, segments)
    return Outcome("infeasible", "proved", reason="; ".join(reasons)) if reasons else None


def _too_much(workload: Workload, best_rps: float, most_replicas: int) -> str:
    most = math.floor(best_rps * most_replicas * 1000) / 1000
    return (
        f"workload {workload.name}: max_replicas {most_replicas} carry at most {most:.12g} requests/s "
        "(headroom included); lower the rate to that or allow more replicas"
    )


def _too_close(workload: Workload) -> str:
    """The sentence which says that a workload may not have as many replicas as its share per GPU asks for, if so."""
    gpus = math.ceil(1 / workload.max_share_per_gpu * (1 - TOLERANCE))
    if workload.max_replicas is None or gpus <= workload.max_replicas or not workload.rate_rps:
        return ""
    return (f"workload {workload.name}: max_share_per_gpu {workload.max_share_per_gpu:g} asks for {gpus} GPUs or more, "
            f"and max_replicas is {workload.max_replicas}; allow {gpus} replicas or a larger share")


def _explain(instance: Instance, workload: Workload) -> str:
    if workload.tokens:
        return _refused_tokens(instance, workload)
    latency = min(fastest_ms(instance, model) for model in workload.models)
    if math.isinf(latency):
        return runs_nowhere(instance, workload)
    enough = latency / instance.policy.part_of_slo
    in_ms = 1000 * workload.slo_ms
    seconds = f" ({workload.slo_ms:g} s are slo_ms {in_ms:g})" if in_ms >= enough else ""
    return (
        f"workload {workload.name}: no slice meets slo_ms {workload.slo_ms:g} (batch latency at most "
        f"{instance.budget_ms(workload):.4g} ms; the fastest takes {latency:.4g} ms); "
        f"slo_ms {_rounded_up(enough)} or more would work{seconds}"
    )


def _refused_tokens(instance: Instance, workload: Workload) -> str:
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


def runs_nowhere(instance: Instance, workload: Workload) -> str:
    """The sentence which says that no slice of the fleet can run a workload; with a remedy if whole GPUs were measured.
    """
    whole = {
        entry.gpu for entry in instance.fleet for model in workload.models
        if entry.partitioned and (data := instance.performance_of(entry.gpu, model)) is not None
        and len(data.operating_points(model, WHOLE).batch)
    }
    remedy = f"; its data is of whole GPUs: write mig: false beside {' and '.join(sorted(whole))}" if whole else ""
    return f"workload {workload.name}: no slice of this fleet can run {' or '.join(workload.models)} at all{remedy}"


def _rounded_up(value_ms: float) -> str:
    """A time in ms as text with at most three decimals, rounded up."""
    return f"{math.ceil(value_ms * 1000 * (1 + DUST)) / 1000:.3f}".rstrip("0").rstrip(".")


def fastest_ms(instance: Instance, model: str) -> float:
    """The shortest batch latency of a model on any slice of the fleet, in ms; infinite if no slice can run it."""
    found = [math.inf]
    for entry in instance.fleet:
        for profile in entry.profiles:
            data = instance.performance_of(entry.gpu, model, profile)
            if data is None:
                continue
            points = instance.points_of(data, model, profile)
            limit = entry.type.slice_mps_clients(profile) if entry.mps else 1
            found.extend(points.latency_ms[points.processes <= limit].tolist())
    return min(found)


def late(instance: Instance, plan: Plan) -> list[str]:
    """The names of the workloads whose SLO or rate a plan violates, judged by the performance model itself, not the
    tables.
    """
    missed = set()
    for gpu in plan.gpus:
        for piece in gpu.slices:
            for replica, found in zip(piece.replicas, predict_slice(instance, gpu.gpu, piece), strict=True):
                budget_ms = instance.budget_ms(instance.workload[replica.workload])
                if found is None or _over(found.latency_ms, budget_ms) or _over(replica.rate_rps, found.throughput_rps):
                    missed.add(replica.workload)
    return [one.name for one in instance.workloads if one.name in missed]


def _over(value: float, limit: float) -> bool:
    """Whether a value exceeds a limit by more than rounding."""
    return value > limit * (1 + TOLERANCE)

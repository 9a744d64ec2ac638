"""Relations along a sweep: random fleets of two types with price tiers, planned at rates that differ by 10^-7 to 2.

All points of a sweep share what a session keeps. Every plan, scaled to the rates of every other point, refutes that
point's bound if it is valid there and cheaper. Points close in on rates at which the best plan becomes dearer; one lies
at the highest rates that the verifier accepts for the last cheaper plan.
"""

import math

import numpy as np

import provision
from provision.models.base.errors import MethodError
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.solving.steps import rerated
from provision.sweeps.parameters import changed
from provision.verification.verify import verify

ISOLATED = {"a100-80gb": ("parvagpu-a100", 3.4), "l4": ("mlperf-l4", 0.7)}
SHARED = {"v100": ("igniter-v100", 2.5), "t4": ("igniter-t4-derived", 0.6)}
"""By GPU type its performance data, and a price per hour around which prices are drawn."""
MODELS = {"a100-80gb": ("resnet50", "bert", "vgg19"), "l4": ("resnet50", "bert-99"), "v100": ("resnet50", "vgg19"),
          "t4": ("resnet50", "vgg19")}
CLOSE = (1e-7, 1e-6, 1e-3)
"""How far rates lie from those at which a plan is full."""
HALVINGS = 12
"""How often the range of rates is halved in which the best plan becomes dearer."""


def two_types(seed: int) -> Instance:
    """A fleet of two types, one with an owned tier, for one to three workloads."""
    rng = np.random.default_rng(seed)
    known = ISOLATED | SHARED if rng.random() < 0.3 else ISOLATED
    types = rng.choice(sorted(known), 2, replace=False).tolist()
    price = {gpu: round(known[gpu][1] * rng.uniform(0.5, 2), 2) for gpu in types}
    fleet = [{"gpu": types[0], "price_per_hour": round(price[types[0]] * 0.3, 2), "count": int(rng.integers(1, 4))},
             *({"gpu": gpu, "price_per_hour": each} for gpu, each in price.items())]
    models = sorted({model for gpu in types for model in MODELS[gpu]})
    chosen = rng.choice(models, min(len(models), int(rng.integers(1, 4))), replace=False).tolist()
    workloads = [{"name": model, "model": model, "slo_ms": round(rng.uniform(80, 600), 1),
                  "rate_rps": round(10 ** rng.uniform(1.5, 3.7), 2), "min_replicas": int(rng.integers(0, 3))}
                 for model in chosen]
    policy = {"latency_budget": "half_slo"} if rng.random() < 0.3 else {}
    return Instance.model_validate({
        "version": 2, "name": f"sweep-{seed}", "policy": policy, "fleet": fleet, "workloads": workloads,
        "performance": [known[gpu][0] for gpu in types]})


def highest(instance: Instance, plan: provision.Plan) -> float:
    """The highest factor on all rates at which the verifier accepts a plan of factor 1."""
    low, high = 1.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        scaled = changed(instance, {"rate": middle})
        low, high = (middle, high) if verify(scaled, rerated(scaled, plan)).ok else (low, middle)
    return low


def contradictions(seed: int, time_limit_s: float) -> tuple[int, list[str]]:
    """How many points were solved, and a line for every bound that a plan refutes."""
    instance, last, lines = two_types(seed), list[provision.Plan](), []
    solved: dict[float, provision.Result] = {}

    def solve(factor: float) -> None:
        point = changed(instance, {"rate": factor})
        try:
            start = last[-1] if last else None
            solved[factor] = provision.solve(point, time_limit_s=time_limit_s, replay=False, start=start, slack="no")
            last.extend([] if solved[factor].plan is None else [solved[factor].plan])
        except MethodError as error:
            lines.append(f"{instance.name} x{factor!r}: {error}")

    solve(1.0)
    solve(2.0)
    low, high = 1.0, 2.0
    for _ in range(HALVINGS):
        if not all(one in solved and solved[one].status == "optimal" for one in (low, high)):
            break
        if solved[low].objective == solved[high].objective:
            break
        middle = (low + high) / 2
        solve(middle)
        dearer = middle not in solved or solved[middle].objective != solved[low].objective
        low, high = (low, middle) if dearer else (middle, high)
    if low not in solved or solved[low].plan is None:
        return len(solved), lines
    full = low * highest(changed(instance, {"rate": low}), solved[low].plan)
    for factor in [full, *(full * (1 + side * part) for part in CLOSE for side in (-1, 1))]:
        solve(factor)
    for factor, result in solved.items():
        point = changed(instance, {"rate": factor})
        bound = math.inf if result.status == "infeasible" else result.bound or 0.0
        for other in solved.values():
            plan = None if other.plan is None else rerated(point, other.plan)
            if plan is not None and verify(point, plan).ok:
                value = objective_of(point).value(plan)
                if value < bound * (1 - 1e-9):
                    lines.append(f"{instance.name} x{factor!r}: {result.status}, bound {bound}, a plan has {value}")
                    break
    return len(solved), lines

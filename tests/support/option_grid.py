"""Small instances with every option, data kind and latency rule, each solved in a process that has solved nothing yet.

What is done once per process (compiling, rehearsals, caches) can hide a failure from a second solve. So every instance
is solved in a process of its own, which is forked from one that has imported everything and run nothing.
"""

import multiprocessing
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import token_instances
from pydantic import ValidationError

import provision
from provision.models.problem.instance import Instance

Content = dict[str, Any]
RULES = ("half_slo", "queueing")
SECONDS = 2.0
PATIENCE_S = 1200.0
"""A solve that is not over by then never will be; compiling kernels is included, and computing the queue tables of
other percentiles and arrivals, which takes minutes on a busy machine that has never solved such an instance.
"""


class Case(NamedTuple):
    """A combination: its data kind, its name and what its file says."""

    kind: str
    name: str
    content: Content


def _content(gpus: list[Content], files: list[Any], workloads: list[Content]) -> Content:
    return {"version": 2, "name": "grid", "fleet": gpus, "performance": files, "workloads": workloads}


def _pair(models: tuple[str, str], slo_ms: tuple[float, float], rate_rps: tuple[float, float]) -> list[Content]:
    return [{"name": f"w{at}", "model": model, "slo_ms": slo, "rate_rps": rate}
            for at, (model, slo, rate) in enumerate(zip(models, slo_ms, rate_rps, strict=True))]


TABLE = {"version": 1, "name": "table", "kind": "measured-segments", "gpu": "a30", "models": {
    "m0": {"points": [["1g.6gb", 1, 1, 100.0, 10.0], ["1g.6gb", 4, 1, 160.0, 25.0], ["2g.12gb", 4, 2, 400.0, 20.0],
                      ["4g.24gb", 8, 2, 900.0, 17.0], ["whole", 8, 2, 950.0, 16.0]]},
    "m1": {"points": [["1g.6gb", 2, 1, 60.0, 33.0], ["2g.12gb", 2, 1, 130.0, 15.0], ["4g.24gb", 4, 2, 350.0, 22.0],
                      ["whole", 4, 2, 360.0, 21.0]]}}}
KINDS: dict[str, Content] = {
    "table": _content([{"gpu": "a30", "price_per_hour": 1.0}], [TABLE], _pair(("m0", "m1"), (90, 120), (300, 100))),
    "network": _content([{"gpu": "a100-80gb", "price_per_hour": 4.0}], ["parvagpu-a100"],
                        _pair(("inceptionv3", "vgg16"), (90, 110), (260, 180))),
    "igniter": _content([{"gpu": "v100", "price_per_hour": 2.5}], ["igniter-v100"],
                        _pair(("resnet50", "ssd"), (40, 80), (290, 60))),
    "gpulets": _content([{"gpu": "rtx2080ti", "price_per_hour": 2.0}], ["gpulets-2080ti"],
                        _pair(("resnet50", "vgg16"), (150, 160), (290, 100))),
    "colocation": _content([{"gpu": "v100", "price_per_hour": 3.0}], ["colocation-v100"],
                           _pair(("resnet50", "alexnet"), (60, 35), (240, 300))),
    "tokens": _content([{"gpu": "h100-80gb", "mig": False, "price_per_hour": 3.0}],
                       [token_instances.performance("h100-80gb", whole=(400_000, 1.0))],
                       [token_instances.chat(), token_instances.chat("talk", 20.0)]),
    "mixed": _content([{"gpu": "a100-80gb", "price_per_hour": 4.0}, {"gpu": "v100", "price_per_hour": 2.5}],
                      ["parvagpu-a100", "igniter-v100"], _pair(("resnet50", "vgg19"), (60, 110), (260, 180))),
}
"""A small instance of each data kind."""
EACH: dict[str, Content] = {
    "max 1": {"max_replicas": 1},
    "max 2": {"max_replicas": 2},
    "min 2": {"min_replicas": 2},
    "min 0": {"min_replicas": 0},
    "share": {"max_share_per_gpu": 0.5},
    "idle": {"rate_rps": 0},
    "renewal": {"arrivals": {"process": "renewal", "cv": 2}},
    "in turns": {"routing": "round_robin"},
    "p95": {"percentile": 95},
}
"""Fields of workloads."""
POLICY: dict[str, Content] = {
    "survive": {"survive": {"gpu_failures": 1}}, "even": {"even_replicas": True}, "shared": {"share_slices": True},
    "headroom": {"headroom": 0.2}, "safety": {"safety": 0.8},
}
FLEET: dict[str, Content] = {"no mps": {"mps": False}, "few": {"count": 4}, "none": {"count": 0}}
OTHERS = ("throughput", "fewest", "tiers", "workflow", "variants")
OPTIONS = (*EACH, *POLICY, *FLEET, *OTHERS)


def case(kind: str, rule: str, options: tuple[str, ...]) -> Case:
    """The combination of a data kind, a latency rule and options."""
    content = {**KINDS[kind], "policy": {"latency_budget": rule}}
    for option in options:
        content = _with(content, option)
    return Case(kind, ", ".join((kind, rule, *options)), content)


def cases(together: int) -> Iterator[Case]:
    """All combinations with this number of options that do not say the same field twice."""
    for kind in KINDS:
        for rule in RULES:
            yield from (case(kind, rule, options) for options in combinations(OPTIONS, together) if agree(options))


def agree(options: tuple[str, ...]) -> bool:
    """Whether options can be asked for together: no field is said twice, and there is one objective."""
    fields = [field for option in options for field in (EACH | FLEET).get(option, {})]
    return len(set(fields)) == len(fields) and not {"throughput", "fewest"} <= set(options)


def _with(content: Content, option: str) -> Content:
    """The content with an option."""
    fleet, workloads, policy = content["fleet"], content["workloads"], content["policy"]
    if option in EACH:
        return content | {"workloads": [one | EACH[option] for one in workloads]}
    if option in POLICY:
        return content | {"policy": policy | POLICY[option]}
    if option in FLEET:
        return content | {"fleet": [one | FLEET[option] for one in fleet]}
    if option == "throughput":
        return content | {"objective": "max_throughput", "fleet": [{"count": 3} | one for one in fleet]}
    if option == "fewest":
        return content | {"objective": "min_gpus"}
    if option == "tiers":
        return content | {"fleet": [*fleet, fleet[0] | {"price_per_hour": 0.5, "count": 1, "tier": "owned"}]}
    first, second = workloads
    if option == "workflow":
        return content | {"workflows": [{"name": "flow", "stages": [[first["name"]], [second["name"]]]}],
                          "workloads": [first, second | {"rate_rps": first["rate_rps"]}]}
    return content | {"workloads": [first | {"variants": [second["model"]]} if first["model"] != second["model"]
                                    else first, second]}


def fault_of(one: Case) -> str | None:
    """What is wrong with the answer on a combination, in a line; None where it is planned or proven to have no plan.

    The file may be refused where its options contradict each other. What a file may say must be planned.
    """
    try:
        instance = Instance.model_validate(one.content)
    except ValidationError:
        return None
    try:
        found = provision.solve(instance, time_limit_s=SECONDS)
    except Exception as error:  # whatever it is, no solve may end so
        return f"{one.name}: {type(error).__name__}: {error}"
    if found.plan is None and found.status != "infeasible":
        return f"{one.name}: no plan ({found.termination}): {found.reason}"
    return None


def freshly(several: list[Case], workers: int = 1) -> Iterator[str | None]:
    """The faults of combinations, each solved in a process that has solved nothing."""
    provision.methods()
    context = multiprocessing.get_context("fork")
    with context.Pool(workers, maxtasksperchild=1) as pool:
        waiting = [(one, pool.apply_async(fault_of, (one,))) for one in several]
        for one, result in waiting:
            try:
                yield result.get(PATIENCE_S * max(1, len(several) // workers))
            except multiprocessing.TimeoutError:
                yield f"{one.name}: does not end"


"""Builds gpu-lets' scenarios (ATC 2022, sections 3.1 and 6.1): its servers, models, request scenarios and applications.

``equal``, ``long-only`` and ``short-skew`` are the scenarios of Table 5, ``game`` and ``traffic`` the applications of
Figures 10 and 11; ``grid`` generates the 1,023 scenarios of section 3.1. SLOs are those of Table 4. All of that is in
arXiv 2109.01611. The public program, with which ATC 2022 was evaluated, has nine model families, other SLOs, and the
scenarios ``scen1`` to ``scen5``, in which every model has the same rate.

An application is a workflow; its SLO limits the time from the first request to the last answer. All models of ``game``
run side by side, so each has the whole 95 ms. ``traffic`` has two stages within 136 ms; its public configuration gives
SSD 69 ms and the two recognition models after it 67 ms. Both recognition models process every detection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from provision.models.base.errors import InputError
from provision.models.performance.catalogue import load_performance
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance
from provision.models.problem.policy import Policy
from provision.models.problem.workflow import Workflow
from provision.models.problem.workload import FleetEntry, Workload

DATA, DATA_2022 = "gpulets-2080ti", "gpulets-2080ti-2022"
HALF_SLO = Policy(latency_budget="half_slo")
GPUS = 4
SLO_MS = {"lenet": 5.0, "googlenet": 44.0, "resnet50": 95.0, "ssd-mobilenetv1": 136.0, "vgg16": 130.0}
"""The SLOs of Table 4 in ms by model, in the order of Table 5."""
SLO_2022_MS = {
    "lenet": 5.0, "googlenet": 66.0, "resnet50": 108.0, "ssd-mobilenetv1": 202.0, "vgg16": 142.0, "mnasnet1_0": 62.0,
    "mobilenet_v2": 64.0, "densenet161": 202.0, "bert": 22.0,
}
"""The SLOs of the public program in ms, by model."""
SCENARIOS_2022 = {
    "scen1": ("googlenet", "bert", "mnasnet1_0", "mobilenet_v2"),
    "scen2": ("densenet161", "vgg16"),
    "scen3": ("resnet50", "vgg16", "mobilenet_v2"),
    "scen4": ("ssd-mobilenetv1", "mnasnet1_0", "densenet161"),
    "scen5": ("lenet", "ssd-mobilenetv1", "vgg16", "mnasnet1_0"),
}
"""The models of the public program's scenarios (scripts/createMultiModelScenConfigs.py)."""
RATES_RPS = (0.0, 200.0, 400.0, 600.0)
"""The rates of a model in the scenarios of the grid."""
TABLE_5 = {
    "equal": (50.0, 50.0, 50.0, 50.0, 50.0),
    "long-only": (0.0, 0.0, 100.0, 100.0, 100.0),
    "short-skew": (100.0, 100.0, 100.0, 50.0, 50.0),
}
GAME_MS = 95.0
DIGITS = 6
TRAFFIC_MS = {"ssd-mobilenetv1": 69.0, "googlenet": 67.0, "vgg16": 67.0}
SCENARIOS = (*TABLE_5, "game", "traffic")


def scenario(name: str, factor: float = 1.0, data: Gpulets | None = None) -> Instance:
    """Return a scenario of Table 5 with rates multiplied by ``factor``, an application at ``factor`` requests/s, or a
    scenario of the public program with ``factor`` requests/s of each model.

    Raises
    ------
    InputError
        If the name is none of SCENARIOS and SCENARIOS_2022.
    """
    if name in TABLE_5:
        return requests(f"gpulets-{name}", [rate * factor for rate in TABLE_5[name]], data)
    if name == "game":
        digits = [(f"lenet{number}", "lenet", GAME_MS) for number in range(1, DIGITS + 1)]
        served = [*digits, ("resnet50", "resnet50", GAME_MS)]
        return _application(name, served, [[one for one, *_ in served]], factor, data)
    if name == "traffic":
        served = [(model, model, slo_ms) for model, slo_ms in TRAFFIC_MS.items()]
        first, *then = TRAFFIC_MS
        return _application(name, served, [[first], then], factor, data)
    if name in SCENARIOS_2022:
        served = [(model, model, SLO_2022_MS[model]) for model in SCENARIOS_2022[name]]
        return _instance(f"gpulets-{name}", served, [factor] * len(served), data or load_performance(DATA_2022))
    known = ", ".join((*SCENARIOS, *SCENARIOS_2022))
    raise InputError(f"unknown scenario {name!r} of gpu-lets; use one of {known}")


def requests(name: str, rates_rps: Sequence[float], data: Gpulets | None = None) -> Instance:
    """An instance of the five models at these rates, in the order of SLO_MS; models without requests are left out."""
    return _instance(name, [(model, model, slo_ms) for model, slo_ms in SLO_MS.items()], rates_rps, data)


def grid(data: Gpulets | None = None) -> Iterator[Instance]:
    """Yield all 1,023 scenarios of section 3.1."""
    for rates_rps in product(RATES_RPS, repeat=len(SLO_MS)):
        if any(rates_rps):
            shown = "-".join(f"{rate:g}" for rate in rates_rps)
            yield requests(f"gpulets-grid-{shown}", rates_rps, data)


def _application(
    name: str, served: Sequence[tuple[str, str, float]], stages: Sequence[Sequence[str]], rate_rps: float,
    data: Gpulets | None,
) -> Instance:
    """An instance with one workflow, whose stages are served in turn at ``rate_rps``."""
    workflow = Workflow(name=name, stages=stages)
    return _instance(f"gpulets-{name}", served, [rate_rps] * len(served), data).replace(workflows=(workflow,))


def _instance(
    name: str, served: Sequence[tuple[str, str, float]], rates_rps: Sequence[float], data: Gpulets | None
) -> Instance:
    """An instance on four RTX 2080 Ti; ``served`` has (name, model, SLO in ms) of every workload."""
    return Instance(
        version=1, name=name, source="gpu-lets, ATC 2022", objective="min_gpus", policy=HALF_SLO,
        fleet=(FleetEntry(gpu="rtx2080ti", count=GPUS),), performance=data or load_performance(DATA),
        workloads=tuple(
            Workload(name=one, model=model, slo_ms=slo_ms, rate_rps=rate)
            for (one, model, slo_ms), rate in zip(served, rates_rps, strict=True) if rate
        ),
    )

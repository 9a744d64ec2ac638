"""Puts a state together: what pods serve, at which rates and SLOs, on which GPUs, with the performance data that ships
or is given.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from statistics import mean
from typing import Any, Literal

from provision.cluster.devices import Device, Gpu
from provision.cluster.kubernetes import Found
from provision.cluster.metrics import Measured, observation, total
from provision.cluster.services import (
    Part,
    Service,
    add_series,
    find_model,
    noted,
    parts_of,
    services_of,
    workload_fields,
)
from provision.cluster.state import Origin, State, StateGpu, StateSlice, Values
from provision.instances.files.files import FilePath, load, refused, validate
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import gpu_type
from provision.models.hardware.prices import list_prices
from provision.models.performance.catalogue import PerformanceFile, load_performance, resolve, shipped_performance
from provision.models.performance.tokens.data import TokenModels
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.verification.deployment import capacity_rps
from provision.verification.verify import verify

BATCH, PERCENTAGE = "PROVISION_BATCH", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
SHARING: dict[str, Literal["mps", "time-slicing"]] = {"mps": "mps", "time-slicing": "time-slicing"}


def assembled(name: str, found: Found, metrics: Measured | None, values: Values, source: str,
              performance: Sequence[FilePath] = ()) -> State:
    """The state of a cluster.

    Parameters
    ----------
    name
        Its name.
    found
        Its GPUs and pods.
    metrics
        What Prometheus tells; None without it.
    values
        The values typed in; provenance and questions are added.
    source
        What was read beside Prometheus, in words.
    performance
        Files with performance data, used before those that ship.

    Raises
    ------
    InputError
        If nothing that runs can be planned, or a value typed in is unknown or unusable.
    """
    services = services_of(found.pods)
    add_series(services, metrics)
    data = _data(found.gpus, performance)
    for service in services.values():
        find_model(service, data, values)
    used = _used(data, services.values())
    fields = {one.name: workload_fields(one, metrics, values) for one in services.values() if not one.stays}
    planned = {label: one for label, one in fields.items() if one is not None and not services[label].stays}
    if not planned:
        raise InputError(*_why_nothing(services.values(), found.notes))
    instance = _instance(name, found.gpus, used, planned, values)
    usual = cache(partial(best_batch, instance))
    gpus = [_gpu(one, services, values, usual) for one in found.gpus]
    instance, gpus = _with_rates(instance, gpus, services, values)
    values.refuse_unknown()
    seen = {one.name: observation(one.series, metrics) for one in services.values()}
    observations = {label: one for label, one in seen.items() if one is not None}
    stays = sorted({f"{one.name}: {one.stays}; it stays where it is" for one in services.values() if one.stays})
    return State(
        name=name, sources=(source, *((f"prometheus {metrics.url}",) if metrics else ())), gpus=tuple(gpus),
        instance=instance, observations=observations, provenance=values.provenance, questions=tuple(values.questions),
        notes=(*found.notes, *stays), budgets=tuple(found.budgets),
    )


def _data(gpus: Iterable[Gpu], given: Sequence[FilePath]) -> list[PerformanceFile]:
    """The performance data for these GPUs: the given files, then those that ship."""
    kinds = {one.kind.name for one in gpus}
    own: list[PerformanceFile] = []
    for path in given:
        with refused(path):
            own += resolve(load_performance(str(path)) if str(path) in shipped_performance()
                           else validate(PerformanceFile, load(path), path))
    shipped = [load_performance(one) for one in shipped_performance() if not one.endswith("-variants-derived")]
    return [one for one in (*own, *shipped) if one.gpu in kinds]


def _used(data: Sequence[PerformanceFile], services: Iterable[Service]) -> tuple[PerformanceFile, ...]:
    """The performance data of the models that run; of two files on the same model, GPU and kind the first counts."""
    models = {one.model for one in services if not one.stays}
    used: list[PerformanceFile] = []
    taken: set[tuple[str, str, str]] = set()
    for one in data:
        keys: set[tuple[str, str, str]] = {(one.gpu, one.kind, model) for model in one.models}
        keys |= {(one.gpu, "always", "")} if one.sharing == "always" else set()
        if models & set(one.models) and not keys & taken:
            used.append(one)
            taken |= keys
    return tuple(used)


def _instance(name: str, gpus: Sequence[Gpu], data: tuple[PerformanceFile, ...], planned: Mapping[str, dict[str, Any]],
              values: Values) -> Instance:
    """The instance: the GPUs there are at their prices, and the workloads, so far without rates."""
    fleet = []
    for kind in dict.fromkeys(one.kind for one in gpus):
        here = [one for one in gpus if one.kind is kind]
        slices = kind.mig is not None and any(
            one.gpu == kind.name and any(len(one.operating_points(model, profile).batch) for model in one.models
                                         for profile in kind.profiles) for one in data)
        mig = _yes(f"mig.{kind.name}", f"May GPUs of type {kind.name} be partitioned by MIG?", slices,
                   "performance data describes its slices" if slices else "no performance data of its slices", values,
                   all(one.mig for one in here)) if kind.mig else False
        shares = any(one.sharing == "mps" for one in here)
        mps = _yes(f"mps.{kind.name}", f"May processes share a slice on {kind.name} under MPS?", shares,
                   "MPS runs there" if shares else "no node says that MPS runs there", values, False)
        listed = next((one for one in list_prices(kind.name) if one.tier == "on_demand"), None)
        key = f"price.{kind.name}"
        price = values.number(key, None, "typed in", "")
        if price is None:
            price = listed.per_hour if listed else 1.0
            values.asked(key, f"What does one {kind.name} cost per hour?", f"{price:g}",
                         f"{listed.provider}'s list price of {listed.as_of}" if listed else "no list price ships")
        fleet.append({"gpu": kind.name, "price_per_hour": price, "count": len(here), "mig": mig, "mps": mps})
    headroom = values.number("headroom", None, "typed in", "") or 0.0
    with refused(name, Instance):
        return Instance.model_validate({
            "version": 2, "name": name, "source": "a running cluster", "fleet": fleet, "performance": list(data),
            "workloads": list(planned.values()), "policy": {"headroom": headroom},
        })


def _yes(key: str, question: str, default: bool, because: str, values: Values, observed: bool) -> bool:
    """Whether the answer to a question is yes: what was typed in, else yes if ``observed``, else ``default``; then the
    question is recorded. Raises InputError if something else than yes or no was typed.
    """
    typed = values.text(key, "yes" if observed else None, "observed", "it is so now")
    if typed is None:
        values.asked(key, question, "yes" if default else "no", because)
        return default
    if typed not in ("yes", "no"):
        raise InputError(f"--set {key}={typed}: should be yes or no")
    return typed == "yes"


def _gpu(gpu: Gpu, services: Mapping[str, Service], values: Values, usual: Callable[..., int]) -> StateGpu:
    """A GPU of the state, with replicas at their likely operating points; ``usual`` tells the likely batch size."""
    slices = []
    for device in gpu.devices:
        parts = [part for pod in device.pods for part in parts_of(pod)]
        stays = next((services[part.workload].stays for part in parts if services[part.workload].stays), "")
        replicas = () if stays else tuple(_replica(gpu, device, part, values, usual) for part in parts)
        slices.append(StateSlice(profile=device.profile, start=device.start, stays=stays, replicas=replicas,
                                 pods=tuple(pod.label for pod in device.pods)))
    sample = gpu.sample
    return StateGpu(node=gpu.node, number=gpu.number, gpu=gpu.kind.name, mig=gpu.mig, uuid=gpu.uuid,
                    sharing=SHARING.get(gpu.sharing, "none"),
                    slices=tuple(slices), utilisation_percent=sample.utilisation_percent if sample else None,
                    memory_mib=sample.memory_mib if sample else None)


def _replica(gpu: Gpu, device: Device, part: Part, values: Values, usual: Callable[..., int]) -> Replica:
    """A running replica, its rate still 0."""
    key, notes, environment = part.workload, part.pod.notes, part.environment
    batch = values.number(f"batch.{key}", _whole(environment.get(BATCH) or notes.get("provision/batch")), "observed",
                          f"environment or annotation of {part.pod.label}")
    processes = int(values.number(f"processes.{key}", _whole(notes.get("provision/processes")), "typed in",
                                  "annotation") or part.processes)
    if not batch:
        batch = usual(gpu.kind.name, gpu.mig, device.profile, key, processes)
        if not any(one.name == f"batch.{key}" for one in values.questions):
            values.asked(f"batch.{key}", f"Which batch size does {key} run?", int(batch) or 1, "the one that carries "
                         "most within the SLO, as predicted" if batch else "no data describes it on its slice")
    percent = environment.get(PERCENTAGE, "")
    share = int(percent) / 100 if percent.isdecimal() and 0 < int(percent) <= 100 else 1.0
    if not percent and gpu.sharing == "mps":
        share = 1 / device.most
    return Replica(workload=key, batch=max(int(batch), 1), processes=max(processes, 1), sm_share=share, rate_rps=0.0)


def _whole(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() and int(text) else None


def best_batch(instance: Instance, gpu: str, mig: bool, profile: str, workload: str, processes: int) -> int:
    """The batch size with which a replica carries most of a workload within its SLO; 0 if no data tells."""
    model = instance.workload[workload].model
    data = instance.performance_of(gpu, model, profile)
    if data is None:
        return 0
    points = instance.points_of(data, model, profile)
    batches = sorted({int(batch) for batch, many in zip(points.batch, points.processes, strict=True)
                      if many == processes})
    carried = {batch: carried_rps(instance, gpu, mig, profile, Replica(
        workload=workload, batch=batch, processes=processes, rate_rps=0.0)) or 0.0 for batch in batches}
    return max(carried, key=lambda batch: (carried[batch], -batch), default=0)


def carried_rps(instance: Instance, gpu: str, mig: bool, profile: str, replica: Replica) -> float | None:
    """The rate that a replica alone on a slice carries within its SLO, as predicted; None if no data tells."""
    known, replica = gpu_type(gpu).profiles.get(profile), replica.model_copy(update={"rate_rps": 1e-6})
    piece = Slice(profile=profile, start=known.starts[0] if known else 0, replicas=(replica,))
    plan = Plan(version=1, instance=instance.name, gpus=(PlannedGpu(gpu=gpu, mig=mig, slices=(piece,)),))
    report = verify(instance, plan)
    if not report.predictions:
        return None
    return capacity_rps(instance, plan, report.predictions)[replica.workload]


def _with_rates(instance: Instance, gpus: Sequence[StateGpu], services: Mapping[str, Service], values: Values
                ) -> tuple[Instance, list[StateGpu]]:
    """The instance and the GPUs with the rates that are observed, typed in, or the most that runs can carry."""
    carried = cache(partial(carried_rps, instance))
    weights: dict[str, list[float | None]] = defaultdict(list)
    for gpu in gpus:
        for piece in gpu.slices:
            for replica in piece.replicas:
                weights[replica.workload].append(carried(gpu.gpu, gpu.mig, piece.profile, replica))
    rates: dict[str, float] = {}
    for workload in instance.workloads:
        key = f"rate_rps.{workload.name}"
        service = services[workload.name]
        pod = service.parts[0].pod
        if (said := noted(pod, "rate-rps", "requests/s")) is not None:
            told = values.number(key, said, "typed in", f"annotation provision/rate-rps of {pod.label}")
        else:
            metrics = dict.fromkeys(metric for one in service.series for metric in one.metrics)
            told = values.number(key, total(service.series, "requests"), "observed", ", ".join(metrics))
        if told is None:
            told = sum(one or 0.0 for one in weights[workload.name])
            values.asked(key, f"How many requests per second does {workload.name} get?", f"{told:.6g}",
                         "the most that its replicas carry within the SLO, as predicted")
        rates[workload.name] = told if told >= 1e-6 else 0.0
    instance = instance.replace(workloads=tuple(
        one.model_copy(update={"rate_rps": rates[one.name]}) for one in instance.workloads))
    # A replica that no data describes is taken to carry as much as the others of its workload do on average.
    usual = {name: mean([one for one in each if one] or [1.0]) for name, each in weights.items()}
    totals = {name: sum(one or usual[name] for one in each) for name, each in weights.items()}
    routed = []
    for gpu in gpus:
        slices = []
        for piece in gpu.slices:
            parts = [(carried(gpu.gpu, gpu.mig, piece.profile, one) or usual[one.workload]) / totals[one.workload]
                     for one in piece.replicas]
            replicas = tuple(one.model_copy(update={"rate_rps": rates[one.workload] * part})
                             for one, part in zip(piece.replicas, parts, strict=True))
            slices.append(piece.model_copy(update={"replicas": replicas}))
        routed.append(gpu.model_copy(update={"slices": tuple(slices)}))
    for data in instance.performance:
        composed = isinstance(data, TokenModels) and any(
            piece.origins for one in data.models.values() for piece in one.slices.values())
        origin: Origin = "measured" if data.measured else "composed" if composed else "fitted"
        values.note(f"performance.{data.name}", origin, f"performance data {data.name}")
    return instance, routed


def _why_nothing(services: Iterable[Service], notes: Sequence[str]) -> list[str]:
    """The lines that say why nothing can be planned."""
    why = dict.fromkeys(f"{one.name}: {one.stays}" for one in services if one.stays)
    return list(why)[:10] or [*notes[:10], "kubernetes: no running pod has a GPU; there is nothing to plan"]

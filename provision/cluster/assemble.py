"""Puts a state together: what pods serve, at which rates and SLOs, on which GPUs, with the performance data that ships
or is given.

What a pod serves is read, in this order, from what was typed in, from the annotations ``provision/model``,
``provision/slo-ms`` and so on, from the environment that ``provision export`` writes, from a server's own arguments,
and from the labels of its metrics. What stays unknown becomes a question with a default.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from statistics import mean
from typing import Any, Literal

from provision.cluster.kubernetes import Found, Gpu, Pod
from provision.cluster.metrics import Histogram, Measured, Series
from provision.cluster.state import Observation, Origin, Percentile, State, StateGpu, StateSlice, Values
from provision.instances.files.files import FilePath, load, refused, validate
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import gpu_type
from provision.models.hardware.prices import list_prices
from provision.models.performance.catalogue import PerformanceFile, load_performance, resolve, shipped_performance
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.lengths import RequestTokens
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.verification.capacity import capacity_rps
from provision.verification.verify import verify

WORKLOAD, MODEL, BATCH = "PROVISION_WORKLOAD", "PROVISION_MODEL", "PROVISION_BATCH"
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MODEL_NAMES = ("MODEL_NAME", "MODEL_ID", "MODEL")
MODEL_OPTIONS = ("--model", "--served-model-name", "--model-name", "--model_name")
Batches = dict[tuple[str, bool, str, str, int], int]
"""The likely batch size by GPU type, MIG mode, profile, workload and processes."""
SHARING: dict[str, Literal["mps", "time-slicing"]] = {"mps": "mps", "time-slicing": "time-slicing"}


@dataclass
class Part:
    """What a pod serves of one workload: its server processes and what their environment tells."""

    pod: Pod
    workload: str
    processes: int
    environment: Mapping[str, str]
    arguments: tuple[str, ...]


@dataclass
class Service:
    """A workload that runs: its parts and what metrics tell of it."""

    name: str
    parts: list[Part] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    model: str | None = None
    stays: str = ""


def assembled(
    name: str, found: Found, metrics: Measured | None, values: Values, sources: Sequence[str],
    performance: Sequence[FilePath] = (),
) -> State:
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
    sources
        What was read, in words.
    performance
        Files with performance data, used before those that ship.

    Raises
    ------
    InputError
        If nothing that runs can be planned, or a value typed in is unknown or unusable.
    """
    services = _services(found.pods)
    _add_series(services, metrics)
    data = _data(found.gpus, performance)
    for service in services.values():
        _find_model(service, data, values)
    used = _used(data, services.values())
    fields = {one.name: _workload(one, metrics, values) for one in services.values() if not one.stays}
    planned = {label: one for label, one in fields.items() if one is not None and not services[label].stays}
    if not planned:
        raise InputError(*_why_nothing(services.values(), found.notes))
    instance = _instance(name, found.gpus, used, planned, values)
    batches: Batches = {}
    gpus = [_gpu(instance, one, services, values, batches) for one in found.gpus]
    instance, gpus = _with_rates(instance, gpus, services, values)
    values.refuse_unknown()
    seen = {one.name: observation(one.series, metrics) for one in services.values()}
    observations = {label: one for label, one in seen.items() if one is not None}
    stays = sorted({f"{one.name}: {one.stays}; it stays where it is" for one in services.values() if one.stays})
    return State(
        name=name, sources=tuple(sources), gpus=tuple(gpus), instance=instance, observations=observations,
        provenance=values.provenance, questions=tuple(values.questions), notes=(*found.notes, *stays),
        budgets=tuple(found.budgets),
    )


def _services(pods: Iterable[Pod]) -> dict[str, Service]:
    """The workloads that pods serve, by name."""
    services: dict[str, Service] = {}
    for pod in pods:
        for part in parts_of(pod):
            services.setdefault(part.workload, Service(part.workload)).parts.append(part)
    for one in services.values():
        loose = [part.pod.label for part in one.parts if not part.pod.owner]
        if loose:
            one.stays = f"pod {loose[0]} has no owner that would start it anew; give it a Deployment"
        elif any(sum(part.pod.asked.values()) > 1 for part in one.parts):
            one.stays = "a replica takes several slices or GPUs"
    return services


def parts_of(pod: Pod) -> list[Part]:
    """What a pod serves: one part per workload that the environment of its containers names."""
    by_workload: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    arguments: list[str] = []
    for container in pod.containers:
        environment = {one["name"]: str(one.get("value", "")).replace("$$", "$") for one in container.get("env") or []}
        limits = (container.get("resources") or {})
        if environment.get(WORKLOAD) or limits.get("limits") or limits.get("claims") or len(pod.containers) == 1:
            workload = environment.get(WORKLOAD) or pod.notes.get("provision/workload") or f"{pod.namespace}/" + (
                pod.owner or pod.name)
            by_workload[workload].append(environment)
            arguments += [*(container.get("command") or []), *(container.get("args") or [])]
    return [Part(pod, workload, len(processes), processes[0], tuple(map(str, arguments)))
            for workload, processes in by_workload.items()]


def _add_series(services: Mapping[str, Service], metrics: Measured | None) -> None:
    """Give every series to the workload of its pod, or to the one whose name it has."""
    of_pod = {part.pod.label: one for one in services.values() for part in one.parts}
    for series in metrics.series if metrics else ():
        owner = of_pod.get(f"{series.namespace}/{series.pod}") or services.get(series.name) or services.get(
            f"{series.namespace}/{series.name}")
        if owner is None:
            named = [one for label, one in services.items() if label.rpartition("/")[2] == series.name]
            owner = named[0] if len(named) == 1 else None
        if owner is not None:
            owner.series.append(series)


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


def _find_model(service: Service, data: Sequence[PerformanceFile], values: Values) -> None:
    """Find which model of the performance data a workload is; without one it stays where it is."""
    known = {model.lower(): model for one in data for model in one.models}
    key, part = f"model.{service.name}", service.parts[0]
    offered: list[tuple[str, Origin, str]] = []
    if noted := part.pod.notes.get("provision/model"):
        offered.append((noted, "typed in", f"annotation provision/model of {part.pod.label}"))
    offered += [(part.environment[name], "observed", f"environment {name} of {part.pod.label}")
                for name in (MODEL, *MODEL_NAMES) if part.environment.get(name)]
    for index, word in enumerate(part.arguments):
        option, equals, value = word.partition("=")
        if option in MODEL_OPTIONS:
            follows = part.arguments[index + 1] if index + 1 < len(part.arguments) else ""
            offered.append((value if equals else follows, "observed", f"argument {option} of {part.pod.label}"))
    offered += [(one.name, "observed", f"{one.server}'s label") for one in service.series if one.name]
    for text, origin, source in offered:
        for spelling in (text, text.rpartition("/")[2], text.rpartition("/")[2].lower().removesuffix("-instruct")):
            if spelling.lower() in known and service.model is None:
                service.model = values.text(key, known[spelling.lower()], origin, source)
    if service.model is None:
        service.model = values.text(key, None, "typed in", "")
    if service.model is None:
        said = f" (it says {offered[0][0]})" if offered else ""
        values.asked(key, f"Which model is {service.name}{said}?", "none",
                     "no performance data has a model of this name")
        service.stays = service.stays or f"its model is not known{said}; say --set {key}=NAME"
    elif service.model not in known.values():
        service.stays = f"no performance data describes {service.model!r} on these GPUs; give --performance FILE"


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


def total(series: Iterable[Series], quantity: str) -> float | None:
    """The sum of a counter over all series of a workload, per second; None if none has it."""
    told = [one.rates[quantity] for one in series if quantity in one.rates]
    return sum(told) if told else None


def times(series: Iterable[Series], quantity: str) -> Histogram | None:
    """The sum of the histograms of a workload; None if there is none."""
    told = [one.times[quantity] for one in series if quantity in one.times]
    return reduce(Histogram.plus, told) if told else None


def _workload(service: Service, metrics: Measured | None, values: Values) -> dict[str, Any] | None:
    """The fields of a workload; None if it has no SLO that could be kept."""
    name = service.name
    over = f"{metrics.url}, over {metrics.window_s:g} s" if metrics else ""
    fields: dict[str, Any] = {"name": name, "model": service.model, "rate_rps": 0.0}
    limits = {limit: _told_ms(service, f"{limit}-ms", f"{limit}_ms.{name}", values) for limit in ("ttft", "tpot")}
    rates = [total(service.series, one) for one in ("requests", "prompt_tokens", "output_tokens")]
    requests, prompt, output = rates
    if any(limits.values()) or prompt:
        means = [prompt / requests if prompt and requests else None, output / requests if output and requests else None]
        lengths = [values.number(f"{what}.{name}", mean, "observed", over) for what, mean in
                   zip(("input_tokens", "output_tokens"), means, strict=True)]
        if None not in lengths:
            fields["tokens"] = {what: {"mean": max(mean or 1.0, 1.0)} for what, mean in
                                zip(("input", "output"), lengths, strict=True)}
        for limit, at in (("ttft", "ttft"), ("tpot", "tpot")):
            limits[limit] = limits[limit] or _as_now(service, at, f"{limit}_ms.{name}", values)
        if fields.get("tokens") and all(limits.values()):
            with refused(name, RequestTokens):
                RequestTokens.model_validate(fields["tokens"])
            return fields | {"slo": {f"{limit}_ms": value for limit, value in limits.items()}}
        service.stays = (f"limits or lengths of its tokens are not known; say --set ttft_ms.{name}=MS, tpot_ms, "
                         "input_tokens and output_tokens")
        return None
    slo_ms = _told_ms(service, "slo-ms", f"slo_ms.{name}", values)
    slo_ms = slo_ms or _as_now(service, "latency", f"slo_ms.{name}", values)
    if not slo_ms:
        values.asked(f"slo_ms.{name}", f"Which latency, in ms, must 99 % of the requests of {name} keep?", "none",
                     "no annotation provision/slo-ms and no latency histogram")
        service.stays = f"its SLO is not known; say --set slo_ms.{name}=MS"
        return None
    return fields | {"slo_ms": slo_ms}


def _told_ms(service: Service, note: str, key: str, values: Values) -> float | None:
    """A limit that is typed in, or that an annotation of a pod tells."""
    pod = service.parts[0].pod
    return values.number(key, _noted(pod, note, "a number of ms"), "typed in",
                         f"annotation provision/{note} of {pod.label}")


def _noted(pod: Pod, note: str, what: str) -> float | None:
    """The number in an annotation of a pod; None if there is none."""
    text = pod.notes.get(f"provision/{note}")
    try:
        return float(text) if text else None
    except ValueError:
        raise InputError(f"pod {pod.label}: annotation provision/{note}: should be {what} (got {text!r})") from None


def _as_now(service: Service, quantity: str, key: str, values: Values) -> float | None:
    """The default of a limit: the end of the bucket that holds today's P99."""
    histogram = times(service.series, quantity)
    if histogram is None:
        return None
    low_ms, high_ms = histogram.bucket_ms(99)
    limit_ms = low_ms if high_ms == float("inf") else high_ms
    if limit_ms <= 0:
        return None
    values.asked(key, f"Which limit, in ms, must 99 % of the requests of {service.name} keep?", f"{limit_ms:g}",
                 f"as now: the end of the histogram's bucket with the P99 of {histogram.total:.0f} requests")
    return limit_ms


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
    """The answer yes or no to a question, or its default."""
    typed = values.text(key, "yes" if observed else None, "observed", "it is so now")
    if typed is None:
        values.asked(key, question, "yes" if default else "no", because)
        return default
    if typed not in ("yes", "no"):
        raise InputError(f"--set {key}={typed}: should be yes or no")
    return typed == "yes"


def _gpu(instance: Instance, gpu: Gpu, services: Mapping[str, Service], values: Values, batches: Batches) -> StateGpu:
    """A GPU of the state, with replicas at their likely operating points."""
    slices = []
    for device in gpu.devices:
        parts = [part for pod in device.pods for part in parts_of(pod)]
        stays = next((services[part.workload].stays for part in parts if services[part.workload].stays), "")
        replicas = () if stays else tuple(_replica(instance, gpu, device.profile, device.most, part, values, batches)
                                          for part in parts)
        slices.append(StateSlice(profile=device.profile, start=device.start, stays=stays, replicas=replicas,
                                 pods=tuple(pod.label for pod in device.pods)))
    sample = gpu.sample
    return StateGpu(node=gpu.node, number=gpu.number, gpu=gpu.kind.name, mig=gpu.mig, uuid=gpu.uuid,
                    sharing=SHARING.get(gpu.sharing, "none"),
                    slices=tuple(slices), utilisation_percent=sample.utilisation_percent if sample else None,
                    memory_mib=sample.memory_mib if sample else None)


def _replica(instance: Instance, gpu: Gpu, profile: str, most: int, part: Part, values: Values, batches: Batches
             ) -> Replica:
    """A running replica, its rate still 0."""
    key, notes = part.workload, part.pod.notes
    environment = part.environment
    batch = values.number(f"batch.{key}", _whole(environment.get(BATCH) or notes.get("provision/batch")), "observed",
                          f"environment or annotation of {part.pod.label}")
    processes = int(values.number(f"processes.{key}", _whole(notes.get("provision/processes")), "typed in",
                                  "annotation") or part.processes)
    if not batch:
        place = gpu.kind.name, gpu.mig, profile, key, processes
        if place not in batches:
            batches[place] = best_batch(instance, *place) or 1
        batch = batches[place]
        if not any(one.name == f"batch.{key}" for one in values.questions):
            values.asked(f"batch.{key}", f"Which batch size does {key} run?", int(batch),
                         "the one that carries most within the SLO, as predicted")
    percent = environment.get(PERCENTAGE, "")
    share = int(percent) / 100 if percent.isdecimal() and 0 < int(percent) <= 100 else 1.0
    if not percent and gpu.sharing == "mps":
        share = 1 / most
    return Replica(workload=key, batch=max(int(batch), 1), processes=max(processes, 1), sm_share=share, rate_rps=0.0)


def _whole(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() and int(text) else None


def best_batch(instance: Instance, gpu: str, mig: bool, profile: str, workload: str, processes: int) -> int | None:
    """The batch size with which a replica carries most of a workload within its SLO; None if no data tells."""
    model = instance.workload[workload].model
    data = instance.performance_of(gpu, model, profile)
    if data is None:
        return None
    points = instance.points_of(data, model, profile)
    batches = sorted({int(batch) for batch, many in zip(points.batch, points.processes, strict=True)
                      if many == processes})
    carried = {batch: carried_rps(instance, gpu, mig, profile, Replica(
        workload=workload, batch=batch, processes=processes, rate_rps=1e-6)) or 0.0 for batch in batches}
    return max(carried, key=lambda batch: (carried[batch], -batch), default=None)


def carried_rps(instance: Instance, gpu: str, mig: bool, profile: str, replica: Replica) -> float | None:
    """The rate that a replica alone on a slice carries within its SLO, as predicted; None if no data tells."""
    known = gpu_type(gpu).profiles.get(profile)
    piece = Slice(profile=profile, start=known.starts[0] if known else 0, replicas=(replica,))
    plan = Plan(version=1, instance=instance.name, gpus=(PlannedGpu(gpu=gpu, mig=mig, slices=(piece,)),))
    report = verify(instance, plan)
    if not report.predictions:
        return None
    return capacity_rps(instance, plan, report.predictions)[replica.workload]


def _with_rates(instance: Instance, gpus: Sequence[StateGpu], services: Mapping[str, Service], values: Values
                ) -> tuple[Instance, list[StateGpu]]:
    """The instance and the GPUs with the rates that are observed, typed in, or the most that runs can carry."""
    carried: dict[tuple[str, bool, str, Replica], float | None] = {}
    weights: dict[str, list[float | None]] = defaultdict(list)
    for gpu in gpus:
        for piece in gpu.slices:
            for replica in piece.replicas:
                place = gpu.gpu, gpu.mig, piece.profile, replica
                if place not in carried:
                    carried[place] = carried_rps(instance, gpu.gpu, gpu.mig, piece.profile,
                                                 replica.model_copy(update={"rate_rps": 1e-6}))
                weights[replica.workload].append(carried[place])
    rates: dict[str, float] = {}
    for workload in instance.workloads:
        key = f"rate_rps.{workload.name}"
        service = services[workload.name]
        pod = service.parts[0].pod
        noted = _noted(pod, "rate-rps", "requests/s")
        source = f"annotation provision/rate-rps of {pod.label}" if noted is not None else ", ".join(
            dict.fromkeys(metric for one in service.series for metric in one.metrics))
        told = values.number(key, total(service.series, "requests") if noted is None else noted,
                             "observed" if noted is None else "typed in", source)
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
            parts = [(carried[gpu.gpu, gpu.mig, piece.profile, one] or usual[one.workload]) / totals[one.workload]
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


def observation(series: Sequence[Series], metrics: Measured | None) -> Observation | None:
    """What the series of a workload tell; None without any."""
    if metrics is None or not series:
        return None
    rate, latency, window_s = total(series, "requests"), times(series, "latency"), metrics.window_s
    inferences, batches = total(series, "inferences"), total(series, "batches")
    return Observation(
        window_s=window_s, p50_ms=latency and percentile(latency, 50),
        p99_ms=latency and percentile(latency, 99),
        tokens={one: (percentile(found, 50), percentile(found, 99)) for one in ("ttft", "tpot")
                if (found := times(series, one)) is not None},
        rate_rps=latency.total / window_s if latency and rate is None else rate,
        requests=latency.total if latency else (rate or 0.0) * window_s,
        mean_batch=inferences / batches if inferences and batches else None,
    )


def percentile(histogram: Histogram, percent: float) -> Percentile:
    """A percentile in ms with the ends of its bucket."""
    low, high = histogram.bucket_ms(percent)
    return histogram.percentile_ms(percent), low, None if high == float("inf") else high


def _why_nothing(services: Iterable[Service], notes: Sequence[str]) -> list[str]:
    """The lines that say why nothing can be planned."""
    why = [f"{one.name}: {one.stays}" for one in services if one.stays]
    counted = Counter(why)
    return list(counted)[:10] or [*notes[:10], "kubernetes: no running pod has a GPU; there is nothing to plan"]

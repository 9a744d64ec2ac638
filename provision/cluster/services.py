"""Finds what pods serve: workloads with their models, SLOs and lengths of requests.

What a pod serves is read, in this order, from what was typed in, from the annotations ``provision/model``,
``provision/slo-ms`` and so on, from the environment that ``provision export`` writes, from a server's own arguments,
and from the labels of its metrics. What stays unknown becomes a question with a default.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provision.cluster.devices import Pod
from provision.cluster.metrics import Measured, Series, times, total
from provision.cluster.state import Origin, Values
from provision.instances.files.files import refused
from provision.models.base.errors import InputError
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.tokens.requests import RequestTokens

WORKLOAD, MODEL = "PROVISION_WORKLOAD", "PROVISION_MODEL"
MODEL_NAMES = ("MODEL_NAME", "MODEL_ID", "MODEL")
MODEL_OPTIONS = ("--model", "--served-model-name", "--model-name", "--model_name")


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


def services_of(pods: Iterable[Pod]) -> dict[str, Service]:
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


def add_series(services: Mapping[str, Service], metrics: Measured | None) -> None:
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


def find_model(service: Service, data: Sequence[PerformanceFile], values: Values) -> None:
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


def workload_fields(service: Service, metrics: Measured | None, values: Values) -> dict[str, Any] | None:
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
        for limit in limits:
            limits[limit] = limits[limit] or _as_now(service, limit, f"{limit}_ms.{name}", values)
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
    return values.number(key, noted(pod, note, "a number of ms"), "typed in",
                         f"annotation provision/{note} of {pod.label}")


def noted(pod: Pod, note: str, what: str) -> float | None:
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
    _, low_ms, high_ms = histogram.percentile(99)
    limit_ms = low_ms if high_ms is None else high_ms
    if limit_ms <= 0:
        return None
    values.asked(key, f"Which limit, in ms, must 99 % of the requests of {service.name} keep?", f"{limit_ms:g}",
                 f"as now: the end of the histogram's bucket with the P99 of {histogram.total:.0f} requests")
    return limit_ms

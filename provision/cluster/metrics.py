"""Reads what servers and GPUs tell a Prometheus server: rates, latency histograms, batch sizes, utilisation.

The names of metrics stand in one table, ``metrics.yaml``, which users can extend.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import yaml

from provision.cluster.state import Observation, Percentile
from provision.instances.files.files import FilePath, load, validate
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Record, Text
from provision.replanning.prometheus import samples

WINDOW_S = 300
"""The seconds over which rates and latencies are taken by default."""
COUNTERS = ("requests", "inferences", "batches", "prompt_tokens", "output_tokens")
TIMES = ("latency", "ttft", "tpot")
PER_S = {"s": 1000.0, "ms": 1.0, "us": 0.001}
"""The milliseconds in each unit."""
LONGEST_MS, MOST_MIB = 3.6e6, 1e6
"""A median latency above an hour, or a GPU with more memory than a terabyte, is taken for a wrong unit."""
NAMESPACES, PODS = ("exported_namespace", "namespace"), ("exported_pod", "pod")
"""Labels with the place of a pod. Prometheus renames an exporter's own labels where its job has labels of that name."""


class Metric(Record):
    """A row of the table: what a metric of a server means."""

    server: Name
    quantity: Literal["requests", "inferences", "batches", "prompt_tokens", "output_tokens", "latency", "ttft", "tpot",
                      "utilisation", "memory"]
    metric: Name
    workload: Text = ""
    unit: Literal["s", "ms", "us"] = "s"


class Histogram(NamedTuple):
    """A cumulative histogram of times: upper ends of its buckets in ms, ascending, and the requests up to each."""

    upper_ms: tuple[float, ...]
    requests: tuple[float, ...]

    @property
    def total(self) -> float:
        """The number of all requests."""
        return self.requests[-1] if self.requests else 0.0

    def percentile(self, percentile: float) -> Percentile:
        """The percentile, with requests spread evenly within a bucket, or the lower end of the last; with its bucket.
        """
        wanted = percentile / 100 * self.total
        at = next(index for index, many in enumerate(self.requests) if many >= wanted - 1e-9 * self.total)
        (low, before), high = (self.upper_ms[at - 1], self.requests[at - 1]) if at else (0.0, 0.0), self.upper_ms[at]
        if math.isinf(high):
            return low, low, None
        within = self.requests[at] - before
        part = (wanted - before) / within if within else 1.0
        return low + (high - low) * min(max(part, 0.0), 1.0), low, high

    def plus(self, other: Histogram) -> Histogram:
        """The sum of two histograms with the same buckets; the one with more requests if their buckets differ."""
        if self.upper_ms != other.upper_ms:
            return max(self, other, key=lambda one: one.total)
        return Histogram(self.upper_ms, tuple(a + b for a, b in zip(self.requests, other.requests, strict=True)))


class Series(NamedTuple):
    """What one server tells of a pod, or of a model if its samples name no pod.

    ``rates`` has counters per second, ``times`` histograms over the window, and ``metrics`` the names read.
    """

    server: str
    namespace: str
    pod: str
    name: str
    rates: dict[str, float]
    times: dict[str, Histogram]
    metrics: tuple[str, ...]


class GpuSample(NamedTuple):
    """What DCGM tells of a GPU or MIG instance: its labels, its utilisation in percent and its memory used in MiB."""

    labels: Mapping[str, str]
    utilisation_percent: float | None
    memory_mib: float | None


class Measured(NamedTuple):
    """All that a Prometheus server tells."""

    url: str
    window_s: float
    series: tuple[Series, ...]
    gpus: tuple[GpuSample, ...]


def total(series: Iterable[Series], quantity: str) -> float | None:
    """The sum of a counter over all series of a workload, per second; None if none has it."""
    told = [one.rates[quantity] for one in series if quantity in one.rates]
    return sum(told) if told else None


def times(series: Iterable[Series], quantity: str) -> Histogram | None:
    """The sum of the histograms of a workload; None if there is none."""
    told = [one.times[quantity] for one in series if quantity in one.times]
    return reduce(Histogram.plus, told) if told else None


def observation(series: Sequence[Series], metrics: Measured | None) -> Observation | None:
    """What the series of a workload tell; None without any."""
    if metrics is None or not series:
        return None
    rate, latency, window_s = total(series, "requests"), times(series, "latency"), metrics.window_s
    inferences, batches = total(series, "inferences"), total(series, "batches")
    return Observation(
        window_s=window_s, p50_ms=latency and latency.percentile(50), p99_ms=latency and latency.percentile(99),
        tokens={one: (found.percentile(50), found.percentile(99)) for one in ("ttft", "tpot")
                if (found := times(series, one)) is not None},
        rate_rps=latency.total / window_s if latency and rate is None else rate,
        requests=latency.total if latency else (rate or 0.0) * window_s,
        mean_batch=inferences / batches if inferences and batches else None,
    )


@cache
def shipped_metrics() -> tuple[Metric, ...]:
    """The table that ships."""
    text = (files("provision.cluster") / "metrics.yaml").read_text()
    return tuple(Metric.model_validate(row) for row in yaml.safe_load(text))


def metrics_table(path: FilePath | None = None) -> tuple[Metric, ...]:
    """The table that ships, with the rows of a user's file. Raises InputError if the file is no list of rows."""
    if path is None:
        return shipped_metrics()
    own = validate(tuple[Metric, ...], load(path, rows=True), path)
    taken = {(row.server, row.quantity) for row in own}
    return tuple(row for row in shipped_metrics() if (row.server, row.quantity) not in taken) + own


def measured(url: str, table: Sequence[Metric] | None = None, window_s: float = WINDOW_S) -> Measured:
    """Ask a Prometheus server for every metric of the table.

    Parameters
    ----------
    url
        The address of the server.
    table
        The rows to ask for; by default those that ship.
    window_s
        The seconds over which rates and histograms are taken.

    Raises
    ------
    InputError
        If the window is out of range; if the server does not answer, or not with vectors; if it has none of the
        metrics; or if a metric cannot be in the unit that the table states.
    """
    if not url.startswith(("http://", "https://")):
        raise InputError(f"prometheus {url!r}: should begin with http:// or https://")
    if not 1 <= window_s < math.inf:
        raise InputError(f"window {window_s:g}: should be at least 1 second")
    table = table or shipped_metrics()
    found: dict[tuple[str, str, str, str], Series] = {}
    gpus: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for row in table:
        if row.quantity in ("utilisation", "memory"):
            _read_gpus(url, row, window_s, gpus)
        else:
            _read_series(url, row, window_s, found)
    if not found and not gpus:
        servers = ", ".join(dict.fromkeys(row.server for row in table))
        raise InputError(f"prometheus {url}: has no metric of {servers} in the last {window_s:g} s; check the address, "
                         "or name yours in a table with --metrics FILE")
    return Measured(url, window_s, tuple(found.values()), tuple(
        GpuSample(dict(labels), values.get("utilisation"), values.get("memory")) for labels, values in gpus.items()))


def _read_series(url: str, row: Metric, window_s: float, found: dict[tuple[str, str, str, str], Series]) -> None:
    """Add what one metric tells of every pod or model."""
    labels = ", ".join(dict.fromkeys([*NAMESPACES, *PODS, *([row.workload] if row.workload else [])]))
    window = f"[{max(1, round(window_s))}s]"
    if row.quantity in COUNTERS:
        query = f"sum by ({labels}) (rate({row.metric}{window}))"
    else:
        query = f"sum by ({labels}, le) (increase({row.metric}_bucket{window}))"
    buckets: dict[tuple[str, str, str, str], list[tuple[float, float]]] = {}
    for sample in samples(url, query):
        name = sample["metric"]
        key = row.server, _label(name, NAMESPACES), _label(name, PODS), str(name.get(row.workload, ""))
        value = _number(url, row, sample)
        if math.isnan(value):
            continue  # Prometheus gives NaN for what it cannot divide; such a series tells nothing
        series = found.setdefault(key, Series(*key, {}, {}, ()))
        if row.metric not in series.metrics:
            series = found[key] = series._replace(metrics=(*series.metrics, row.metric))
        if row.quantity in COUNTERS:
            series.rates[row.quantity] = value
        else:
            buckets.setdefault(key, []).append((_end(url, row, name) * PER_S[row.unit], value))
    for key, pairs in buckets.items():
        histogram = _histogram(url, row, sorted(pairs))
        if histogram.total > 0:
            found[key].times[row.quantity] = histogram


def _histogram(url: str, row: Metric, pairs: Sequence[tuple[float, float]]) -> Histogram:
    """The histogram of pairs (end of a bucket in ms, requests up to it), in ascending order."""
    upper, requests = zip(*pairs, strict=True)
    running = tuple(max(requests[: at + 1]) for at in range(len(requests)))  # rates of buckets may differ by a scrape
    histogram = Histogram(upper, running)
    if histogram.total and (median_ms := histogram.percentile(50)[0]) > LONGEST_MS:
        raise InputError(f"prometheus {url}: {row.metric} has a median of {median_ms / 1000:.4g} s; "
                         f"it is hardly in {row.unit}: state its unit in a table with --metrics FILE")
    return histogram


def _read_gpus(url: str, row: Metric, window_s: float, gpus: dict[tuple[tuple[str, str], ...], dict[str, float]]
               ) -> None:
    """Add to ``gpus``, by the labels of each GPU, the mean of a metric over the window. Raises InputError if a value is
    out of range.
    """
    for sample in samples(url, f"avg_over_time({row.metric}[{max(1, round(window_s))}s])"):
        value = _number(url, row, sample)
        most, unit = (100.0, "percent") if row.quantity == "utilisation" else (MOST_MIB, "MiB")
        if not 0 <= value <= most:
            raise InputError(f"prometheus {url}: {row.metric} is {value:g}, which is not in {unit}; name another "
                             "metric in a table with --metrics FILE")
        labels = tuple(sorted((name, str(text)) for name, text in sample["metric"].items() if name != "__name__"))
        gpus.setdefault(labels, {})[row.quantity] = value


def _label(labels: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((str(labels[name]) for name in names if labels.get(name)), "")


def _end(url: str, row: Metric, labels: Mapping[str, Any]) -> float:
    """The upper end of a bucket, in the metric's unit."""
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        raise InputError(f"prometheus {url}: {row.metric}_bucket has a sample without a number in its label le; it is "
                         "no histogram: name another metric in a table with --metrics FILE") from None


def _number(url: str, row: Metric, sample: Mapping[str, Any]) -> float:
    """The value of a sample."""
    try:
        value = float(sample["value"][1])
    except (KeyError, IndexError, TypeError, ValueError):
        value = math.inf
    if math.isinf(value) or value < 0:
        raise InputError(f"prometheus {url}: {row.metric} is {str(sample.get('value'))[:60]}; it should be a number "
                         "of 0 or more: check the exporter")
    return value

"""``provision calibrate``: does a running plan do what was predicted?

For every workload the P50 and P99 observed stand beside those predicted at the observed rate, with the band that the
performance data state. The prediction is the public simulation: once as predicted, and with all batch times at both
ends of the band. What is outside gives a factor on the times of the model, and corrected data as a file; of a language
model a factor on each part of its times, as far as the observations tell the parts apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log, nan, sqrt
from typing import Any, Literal

import numpy as np
from pydantic import Field

from provision.cluster.metrics import Measured, observation
from provision.cluster.state import Observation, Origin, Percentile, Provenance
from provision.instances.files.csv_cells import header, numbered_rows, parsed, text
from provision.instances.files.demand import at_rates
from provision.instances.files.files import FilePath
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag, Name, NonNegative, Positive, Record, Text
from provision.models.base.objects import known
from provision.models.performance.catalogue import PerformanceFile
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import bands_at
from provision.simulation.simulate import simulate

COLUMNS = ("workload", "requests", "p50_ms", "p99_ms")
LEAST_REQUESTS = 1000
"""The fewest requests by which a P99 is judged: ten of them are beyond it."""
WRONG_UNIT = 100.0
"""A time that is this many times the prediction, or this part of it, is taken for a wrong unit."""
MOST_ARRIVALS = 200_000
"""The most requests of a simulation; its seconds follow from the rates."""
LONGEST_S = 600.0
SPREAD = {50.0: 0.02, 99.0: 0.07}
"""The parts by which observed and simulated percentiles of equal systems differ, by percentile."""
UNKNOWN, TOLD = 1.0, 0.1
"""Standard deviations of a factor's logarithm: before anything is observed, and the most with which it counts as told.
"""
ROUNDS, SLOPE, STEP, LEAST_FACTOR, CHANCE = 8, 0.05, 0.25, 0.1, 3.0
"""The most rounds of a fit, the changes of a logarithm for slopes and at most in a round, the least factor, and the
standard deviations that chance may leave between a percentile and its fit.
"""
Quantity = Literal["latency", "ttft", "tpot"]
Runs = Mapping[tuple[str, str], tuple[float | None, float | None, float | None]]
"""What a simulation tells of a workload and a quantity: P50 and P99 in ms, mean batch."""
EDGE, SETTLED = 1e-9, 3e-3
"""The part by which an end of a band may be missed, for rounding; the change of logarithms at which a fit ends."""


class Judged(Record):
    """A percentile of a workload's latency, or of its ``ttft`` or ``tpot``, in ms: observed between ``low_ms`` and
    ``high_ms`` (the bucket of a histogram; None: beyond its last), predicted with its band, and whether the two meet.
    ``inside`` is None if it rests on too few requests, or no band is stated.
    """

    workload: Name
    quantity: Quantity = "latency"
    percentile: float
    requests: NonNegative
    observed_ms: NonNegative
    low_ms: NonNegative
    high_ms: NonNegative | None
    predicted_ms: NonNegative | None
    band_ms: tuple[NonNegative, NonNegative | None] | None
    inside: Flag | None

    @property
    def label(self) -> str:
        """The percentile in words, such as P99 or P50 of TTFT."""
        return f"P{self.percentile:g}" + ("" if self.quantity == "latency" else f" of {self.quantity.upper()}")


class Calibration(Record):
    """The verdict on a running plan.

    ``ok`` tells whether nothing is outside its band. ``batches`` has the observed and the predicted mean batch of each
    workload, ``factors`` what the times of each model that is outside should be multiplied by, by part: ``times``, all
    of them, or the parts of a language model's times that the observations tell.
    """

    instance: Name
    ok: Flag
    rows: tuple[Judged, ...]
    batches: dict[Name, tuple[NonNegative | None, NonNegative | None]] = Field(default={})
    factors: dict[Name, dict[Name, Positive]] = Field(default={})
    provenance: dict[Name, Provenance] = Field(default={})
    notes: tuple[Text, ...] = ()


def read_observed(path: FilePath) -> dict[str, Observation]:
    """Read observations from a table: ``workload,requests,p50_ms,p99_ms``, and where known ``rate_rps``, ``mean_batch``
    and ``window_s``. Raises InputError if the file cannot be read, or a cell is no number.
    """
    there = set(header(path))
    found: dict[str, Observation] = {}
    for line, row in numbered_rows(path, COLUMNS):
        told = {name: parsed(path, line, name, row[name]) for name in ("rate_rps", "mean_batch", "window_s")
                if name in there and (row[name] or "").strip()}
        name = text(path, line, row, "workload")
        if name in found:
            raise InputError(f"{path}:{line}: workload {name!r} stands twice; keep one row")
        requests, p50, p99 = (parsed(path, line, one, row[one]) for one in ("requests", "p50_ms", "p99_ms"))
        window = told.pop("window_s", None) or 60.0
        found[name] = Observation(requests=requests, p50_ms=(p50, p50, p50), p99_ms=(p99, p99, p99), window_s=window,
                                  **told)
    return found


def observed_by(metrics: Measured, instance: Instance) -> dict[str, Observation]:
    """What Prometheus tells of an instance's workloads, by the name of the workload, or of a model that one has."""
    models = [one.model for one in instance.workloads]
    found = {}
    for workload in instance.workloads:
        names = {workload.name, workload.name.rpartition("/")[2]} | (
            {workload.model} if models.count(workload.model) == 1 else set())
        series = [one for one in metrics.series if one.name in names]
        seen = observation(series, metrics)
        if seen is not None and (seen.p99_ms is not None or seen.tokens):
            found[workload.name] = seen
    if not found:
        raise InputError(f"prometheus {metrics.url}: has no latency histogram of a workload of {instance.name}; name "
                         "yours in a table with --metrics FILE (Triton: --metrics-config histogram_latencies=true)")
    return found


def calibrate(instance: Instance, plan: Plan, observed: Mapping[str, Observation], seed: int = 0) -> Calibration:
    """Compare what a running plan does with what was predicted.

    Parameters
    ----------
    instance, plan
        The instance and the plan that runs.
    observed
        What was observed, by workload.
    seed
        The seed of the simulations.

    Raises
    ------
    InputError
        If a workload is unknown, or a time can only be in a wrong unit.
    """
    for name in observed:
        if name not in instance.workload:
            raise InputError(f"observed: the instance {instance.name} has no workload {name!r}; it has "
                             f"{', '.join(list(instance.workload)[:10])}")
    rates = {name: one.rate_rps for name, one in observed.items() if one.rate_rps is not None}
    now = at_rates(instance, rates)
    plan = _at_rates(plan, rates)
    bands = _bands(now, plan)
    runs = {factor: _simulated(now, plan, seed, {"times": factor})
            for factor in {1.0, *(end for ends in bands.values() for end in ends)}}
    rows, notes = [], []
    for name, one in observed.items():
        seen: dict[Quantity, tuple[Percentile | None, Percentile | None]] = {"latency": (one.p50_ms, one.p99_ms)}
        for quantity, both in (seen | one.tokens).items():
            rows += [_judged((name, quantity), percent, one, told, runs, bands.get((name, quantity)))
                     for percent, told in zip((50.0, 99.0), both, strict=True)
                     if told is not None and (name, quantity) in runs[1.0]]
        if (name, "latency") not in bands:
            notes.append(f"{name}: its performance data state no errors, so no band; provision fit states them")
        if runs[1.0][name, "latency"][1] is None:
            notes.append(f"{name}: the simulation tells no P99 at its rate; give the rate observed as rate_rps")
        if one.requests < LEAST_REQUESTS:
            notes.append(f"{name}: {one.requests:.0f} requests are too few for a verdict; {LEAST_REQUESTS} are needed")
    outside = dict.fromkeys(one.workload for one in rows if one.inside is False)
    factors = {}
    for model in dict.fromkeys(now.workload[name].model for name in outside):
        factors[model], note = _fitted(now, plan, model, [one for one in rows if one.inside is not None
                                                          and now.workload[one.workload].model == model], seed)
        notes.append(note)
    return Calibration(
        instance=instance.name, ok=not outside, rows=tuple(rows),
        batches={name: (one.mean_batch, runs[1.0][name, "latency"][2]) for name, one in observed.items()},
        factors={model: each for model, each in factors.items() if each},
        provenance=_provenance(instance, rows), notes=tuple(notes))


def _at_rates(plan: Plan, rates: Mapping[str, float]) -> Plan:
    """The plan with each workload's rate divided over its replicas as before."""
    planned: dict[str, float] = {}
    for *_, replica in plan.replicas():
        planned[replica.workload] = planned.get(replica.workload, 0.0) + replica.rate_rps
    return plan.with_replicas(lambda one: one.model_copy(update={
        "rate_rps": one.rate_rps * rates[one.workload] / planned[one.workload]
        if one.workload in rates and planned[one.workload] else one.rate_rps}))


def _bands(instance: Instance, plan: Plan) -> dict[tuple[str, str], tuple[float, float]]:
    """The lowest and the highest factor between real and predicted times that the bands of a workload's replicas allow,
    by workload and quantity.

    A workload is left out if the performance data state no errors for its replicas.
    """
    ends: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for at, _, piece, replica in plan.replicas():
        found = bands_at(instance, plan.gpus[at].gpu, piece, replica)
        if found is not None:
            for quantity, band in (("latency", found.service), ("tpot", found.service), ("ttft", found.first_token)):
                ends.setdefault((replica.workload, quantity), []).append((round(band.low, 3), round(band.high, 3)))
    return {key: (min(low for low, _ in each), max(high for _, high in each)) for key, each in ends.items()}


def _simulated(instance: Instance, plan: Plan, seed: int, factors: Mapping[str, float], model: str = "") -> Runs:
    """What is predicted of every workload and quantity with times multiplied by factors: ``times``, all times of the
    plan, batches waiting as planned; the others, the parts of a model's times.
    """
    parts = {part: factor for part, factor in factors.items() if part != "times"}
    performance = [type(data).model_validate(data.scaled({model: parts})) if parts and model in data.models else data
                   for data in instance.performance]
    total = sum(one.rate_rps for one in instance.workloads)
    seconds = min(LONGEST_S, max(5.0, MOST_ARRIVALS / total)) if total else 5.0
    report = simulate(instance.replace(performance=tuple(performance)), plan, seconds, seed,
                      service_factor=factors.get("times", 1.0))
    named = [((one.workload, "latency"), one) for one in report.workloads]
    for one in report.tokens:
        name, _, limit = one.workload.rpartition(": ")
        named.append(((name, limit.lower()), one))
    return {key: (one.p50.mean_ms, one.p99.mean_ms, one.mean_batch) for key, one in named}


def _judged(key: tuple[str, Quantity], percent: float, one: Observation, told: Percentile, runs: Mapping[float, Runs],
            ends: tuple[float, float] | None) -> Judged:
    """The row of a percentile."""
    at, (name, quantity) = int(percent != 50.0), key
    value, low, high = told
    predicted = runs[1.0][key][at]
    band = None if ends is None else (runs[ends[0]][key][at] or 0.0, runs[ends[1]][key][at])
    judges = band is not None and predicted is not None and one.requests >= LEAST_REQUESTS
    inside = _meet(low, high, band) if band is not None and judges else None
    row = Judged(workload=name, quantity=quantity, percentile=percent, requests=one.requests, observed_ms=value,
                 low_ms=low, high_ms=high, predicted_ms=predicted, band_ms=band, inside=inside)
    if predicted and value and not 1 / WRONG_UNIT < value / predicted < WRONG_UNIT:
        raise InputError(f"{name}: {row.label} observed is {value:.4g} ms and predicted {predicted:.4g} ms; this is "
                         "hardly one unit: state the metric's unit in a table with --metrics FILE, or give ms")
    return row


def _explained(one: Judged, then: Runs) -> bool:
    """Whether a percentile would be inside its band if what is simulated then were predicted."""
    value = then[one.workload, one.quantity][one.percentile != 50.0]
    if not (one.band_ms and one.predicted_ms and value):
        return False
    grown = value / one.predicted_ms
    return _meet(one.low_ms, one.high_ms, (one.band_ms[0] * grown, one.band_ms[1] and one.band_ms[1] * grown))


def _fitted(instance: Instance, plan: Plan, model: str, rows: Sequence[Judged], seed: int
            ) -> tuple[dict[str, float], str]:
    """The factors on the parts of a model's times with which the simulation has the observed percentiles, and a line on
    them; none if no factors explain the percentiles.

    Gauss-Newton's method on logarithms, each factor taken for 1 at first, with standard deviation UNKNOWN. A factor
    whose standard deviation stays above TOLD cannot be found from the percentiles, and stays 1.
    """
    rows = [one for one in rows if one.observed_ms and one.high_ms is not None]
    width = np.array([(known(one.high_ms) - one.low_ms) / one.observed_ms / sqrt(12) for one in rows])
    weights = 1 / (np.array([SPREAD[one.percentile] for one in rows]) ** 2 + width**2)
    parts = next(data.parts for data in instance.performance if model in data.models)
    logs, free, spread = np.zeros(len(parts)), list(range(len(parts))), np.zeros(0)

    def simulated(change: Any = 0.0) -> Runs:
        return _simulated(instance, plan, seed, dict(zip(parts, np.exp(logs + change).tolist(), strict=True)), model)

    def off(then: Runs) -> Any:
        """The logarithms of observed over simulated percentiles; NaN where the simulation has no percentile."""
        return np.log([one.observed_ms / (then[one.workload, one.quantity][one.percentile != 50.0] or nan)
                       for one in rows])

    while free:
        for _ in range(ROUNDS):
            missing = off(simulated())
            slopes = np.array([missing - off(simulated(SLOPE * (np.arange(len(parts)) == at))) for at in free]) / SLOPE
            told = np.isfinite(slopes).all(axis=0)  # a percentile that a trial does not have tells nothing there
            missing, slopes = np.where(told, missing, 0.0), np.where(told, slopes, 0.0)
            inverse = np.linalg.inv((slopes * weights) @ slopes.T + np.eye(len(free)) / UNKNOWN**2)
            step = np.clip(inverse @ (slopes * weights @ missing - logs[free] / UNKNOWN**2), -STEP, STEP)
            logs[free] = np.clip(logs[free] + step, log(LEAST_FACTOR), -log(LEAST_FACTOR))
            if abs(step).max() < SETTLED:
                break
        spread = np.sqrt(inverse.diagonal())
        if spread.max() <= TOLD:
            break
        logs[free.pop(spread.argmax())] = 0.0
    factors = {parts[at]: exp(logs[at]) for at in free}
    then = simulated()
    chance = abs(off(then)) * np.sqrt(weights) <= CHANCE
    unknown = [part for part in parts if part not in factors]
    stays = f"; what was observed does not tell its {' and '.join(unknown)}: left as predicted" if unknown else ""
    if not free or not all(_explained(one, then) or fits for one, fits in zip(rows, chance, strict=True)):
        return {}, (f"{model}: no factor on its times explains what was observed; look at its arrivals, since bursts "
                    f"make long tails{stays}")
    return factors, f"{model}: " + ", ".join(
        f"its {part} {factor:.3g} times as predicted (+-{one:.0%})"
        for (part, factor), one in zip(factors.items(), spread, strict=True)) + stays


def _meet(low: float, high: float | None, band: tuple[float, float | None]) -> bool:
    """Whether what is observed, from ``low`` to ``high``, meets a band; None has no end."""
    return (band[1] is None or low <= band[1] * (1 + EDGE)) and (high is None or high >= band[0] * (1 - EDGE))


def _provenance(instance: Instance, rows: Iterable[Judged]) -> dict[str, Provenance]:
    """Where the two sides of the comparison come from."""
    found = {one.workload: Provenance(origin="observed", source=f"{one.requests:.0f} requests") for one in rows}
    for data in instance.performance:
        origin: Origin = "measured" if data.measured else "fitted"
        found[f"performance.{data.name}"] = Provenance(origin=origin, source=data.source or data.name)
    return found


def corrected(instance: Instance, factors: Mapping[str, Mapping[str, float]]
              ) -> tuple[list[PerformanceFile], list[str]]:
    """The performance data with the times of models multiplied by factors, and lines on what cannot be corrected so.

    Times of measured tables and of closed networks scale as a whole, those of language models by part. Other kinds of
    data have coefficients that one factor does not determine; they are to be fitted anew.
    """
    files: list[PerformanceFile] = []
    lines = []
    for data in instance.performance:
        here = {model: parts for model, parts in factors.items() if model in data.models}
        if not here:
            continue
        content = data.scaled(here)
        if content is None:
            lines.append(f"{data.name}: data of kind {data.kind} is not corrected by one factor; fit it anew with "
                         "provision fit")
        else:
            told = ", ".join(f"{model}'s {part} x {factor:.4g}" for model, parts in here.items()
                             for part, factor in parts.items())
            files.append(type(data).model_validate(content | {
                "name": f"{data.name}-calibrated", "source": f"{data.name}, calibrated: {told}"}))
    return files, lines

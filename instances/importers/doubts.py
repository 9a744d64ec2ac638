"""What looks wrong with measurements: units, times that fall as batches grow, fits that are far off.

None of it is refused, as a machine may do odd things; whoever measured reads it and decides.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from provision.models.performance.measured_segments import MeasuredSegments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint

MOST_ERROR = 0.15
"""Mean relative error of a fit from which on plans made with it are guesses."""
NOISE = 0.05
"""Part by which a larger batch may take less time than a smaller one, as measurements scatter."""
LEAST_MS, MOST_MS = 0.1, 60_000.0
"""What batches of DNNs take on a GPU: a fastest one under LEAST_MS is told in seconds, over MOST_MS in microseconds."""
CONTRADICTION = 30.0
"""Between a latency and the time that the throughput leaves for a batch: from here on one of them has another unit."""


def warnings(data: MeasuredSegments) -> list[str]:
    """Lines that warn of what looks wrong with measured tables."""
    return [f"warning: {line}" for line in doubts(data)]


def doubts(data: MeasuredSegments) -> list[str]:
    """Lines that say what looks wrong with measured tables."""
    lines = [line for model, measured in data.models.items() for line in (*_units(model, measured),
                                                                          *_falling(model, measured))]
    error = data.between_batches
    return lines + (poor_fit(error.mean, "interpolation between the measured batches") if error else [])


def poor_fit(error: float, what: str) -> list[str]:
    """A line where the mean relative ``error`` of a fit is above MOST_ERROR, else none."""
    if error <= MOST_ERROR:
        return []
    return [f"{what} is {error:.1%} off on average, more than {MOST_ERROR:.0%}: plans made with it are guesses; look "
            "for wrong units, a GPU that was busy, or runs of several configurations in one file"]


def _units(model: str, measured: MeasuredModel) -> Iterator[str]:
    """Latencies in seconds or microseconds, by themselves or beside the throughput."""
    odd = [point for point in measured.points if not 1 / CONTRADICTION < _leaves_ms(point) / point.latency_ms
           < CONTRADICTION]
    if odd:
        point = odd[0]
        yield (f"{_at(model, point)}: {point.throughput_rps:g} requests/s leave a batch {_leaves_ms(point):.3g} ms, "
               f"but latency_ms is {point.latency_ms:.3g}{_more(odd)}; are these requests/s and milliseconds?")
        return
    fastest = min(measured.points, key=lambda point: point.latency_ms)
    if not LEAST_MS <= fastest.latency_ms <= MOST_MS:
        unit = "seconds" if fastest.latency_ms < LEAST_MS else "microseconds"
        yield (f"{_at(model, fastest)}: latency_ms {fastest.latency_ms:g} is hardly in ms; if it is in "
               f"{unit}, convert the column")


def _falling(model: str, measured: MeasuredModel) -> Iterator[str]:
    """Batches that take less time than smaller ones of the same profile and processes."""
    odd = [(low, high) for series in measured.series.values() for low, high in pairwise(series)
           if high.latency_ms < low.latency_ms * (1 - NOISE)]
    if odd:
        low, high = odd[0]
        yield (f"{_at(model, high)}: takes {high.latency_ms:.3g} ms, less than batch {low.batch} with "
               f"{low.latency_ms:.3g} ms{_more(odd)}; measure these again, warmed up and alone")


def _leaves_ms(point: MeasuredPoint) -> float:
    """The time that the throughput leaves for a batch of each process."""
    return 1000 * point.batch * point.processes / point.throughput_rps


def _at(model: str, point: MeasuredPoint) -> str:
    processes = f", {point.processes} processes" if point.processes > 1 else ""
    return f"{model}, {point.profile}, batch {point.batch}{processes}"


def _more(odd: Sequence[object]) -> str:
    """How many others there are."""
    return f" ({len(odd) - 1} more like it)" if len(odd) > 1 else ""

"""Importers: formats of other tools' files, the options of each, the record that a file becomes, and warnings of
measurements that look wrong: wrong units, times that fall as batches grow, bad fits.

Such measurements are not refused, since machines may behave oddly; the user decides. Only the import of a table refuses
latencies that contradict its throughputs (``contradiction``).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from pydantic import BaseModel

from provision.models.base.fields import Record
from provision.models.base.register import Register
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments, period_ms

MOST_ERROR = 0.15
"""The mean relative error of a fit above which the user is warned that plans made with it are guesses."""
NOISE = 0.05
"""The fraction by which a larger batch may take less time than a smaller one without a warning; measurements vary."""
LEAST_MS, MOST_MS = 0.1, 60_000.0
"""The plausible range of batch latencies on a GPU. If a model's smallest latency is below LEAST_MS, the unit is
probably
seconds; if it is above MOST_MS, microseconds.
"""
CONTRADICTION = 30.0
"""The largest plausible ratio between a latency and the time per batch that follows from the throughput.

Above it their units differ.
"""


class Imported(NamedTuple):
    """The result of an import: a record to write, and lines to print on stdout (``told``) and on stderr (``notes``)."""

    record: BaseModel
    told: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Source(Record):
    """Base of what formats ask for: each field is an argument of ``provision import``, stated as those of verbs are
    (``models.base.arguments``).
    """

    def read(self) -> Imported:
        """Read the files.

        Raises
        ------
        InputError
            If a file cannot be used.
        """
        raise NotImplementedError


class Importer(NamedTuple):
    """A format of ``provision import``: what it is, and what it asks for."""

    summary: str
    source: type[Source]


IMPORTERS: Register[Importer] = Register("provision.importers")
"""The importers by format; other packages add importers as entry points."""


def warnings(data: MeasuredSegments) -> list[str]:
    """The lines of ``doubts``, each with "warning: " before it."""
    return [f"warning: {line}" for line in doubts(data)]


def doubts(data: MeasuredSegments) -> list[str]:
    """Lines that tell what looks wrong with measured tables."""
    lines = [line for model, measured in data.models.items() for line in (*_units(model, measured),
                                                                          *_falling(model, measured))]
    error = data.between_batches
    return lines + (poor_fit(error.mean, "interpolation between the measured batches") if error else [])


def poor_fit(error: float, what: str) -> list[str]:
    """A line if the mean relative ``error`` of a fit is above MOST_ERROR, else an empty list; ``what`` names the fit.
    """
    if error <= MOST_ERROR:
        return []
    return [f"{what} is {error:.1%} off on average, more than {MOST_ERROR:.0%}: plans made with it are guesses; look "
            "for wrong units, a GPU that was busy, or runs of several configurations in one file"]


def contradiction(model: str, measured: MeasuredModel) -> str | None:
    """A line if latencies and throughputs cannot both be in ms and requests/s; None if they can."""
    odd = [point for point in measured.points if not 1 / CONTRADICTION < period_ms(point) / point.latency_ms
           < CONTRADICTION]
    if not odd:
        return None
    point = odd[0]
    return (f"{_at(model, point)}: {point.throughput_rps:g} requests/s leave a batch {period_ms(point):.3g} ms, "
            f"but latency_ms is {point.latency_ms:.3g}{_more(odd)}; are these requests/s and milliseconds?")


def _units(model: str, measured: MeasuredModel) -> Iterator[str]:
    """Yield a line if latencies seem to be in seconds or microseconds, by themselves or beside the throughput."""
    if told := contradiction(model, measured):
        yield told
        return
    fastest = min(measured.points, key=lambda point: point.latency_ms)
    if not LEAST_MS <= fastest.latency_ms <= MOST_MS:
        unit = "seconds" if fastest.latency_ms < LEAST_MS else "microseconds"
        yield (f"{_at(model, fastest)}: latency_ms {fastest.latency_ms:g} is hardly in ms; if it is in "
               f"{unit}, convert the column")


def _falling(model: str, measured: MeasuredModel) -> Iterator[str]:
    """Yield a line on batches that take less time than smaller ones of the same profile and number of processes."""
    odd = [(low, high) for series in measured.series.values() for low, high in pairwise(series)
           if high.latency_ms < low.latency_ms * (1 - NOISE)]
    if odd:
        low, high = odd[0]
        yield (f"{_at(model, high)}: takes {high.latency_ms:.3g} ms, less than batch {low.batch} with "
               f"{low.latency_ms:.3g} ms{_more(odd)}; measure these again, warmed up and alone")


def _at(model: str, point: MeasuredPoint) -> str:
    processes = f", {point.processes} processes" if point.processes > 1 else ""
    return f"{model}, {point.profile}, batch {point.batch}{processes}"


def _more(odd: Sequence[object]) -> str:
    """The end of a sentence that tells how many other points look wrong."""
    return f" ({len(odd) - 1} more like it)" if len(odd) > 1 else ""

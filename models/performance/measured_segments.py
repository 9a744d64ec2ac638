"""Measured segments (ParvaGPU): tables of measured latency and throughput, optionally interpolated between batches."""

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.arrays import Floats
from provision.models.base.fields import Name, NonNegative, Positive, PositiveCount, Record, Text, absent, empty
from provision.models.hardware.gpu import WHOLE, gpu_type, no_profile
from provision.models.performance.fitted_networks import FittedError
from provision.models.performance.operating_points import Member, OperatingPoints, PerformanceData, Prediction

GRID = tuple(sorted({*range(1, 17), *(2**power for power in range(17)), *(3 * 2**power for power in range(15))}))
"""The batch sizes at which measurements are interpolated."""


class MeasuredPoint(NamedTuple):
    """A measured operating point; ``throughput_rps`` is the throughput of all processes together."""

    profile: Name
    batch: PositiveCount
    processes: PositiveCount
    throughput_rps: Positive
    latency_ms: Positive


class MeasuredModel(Record):
    """The measured points of one model."""

    points: tuple[MeasuredPoint, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _no_row_twice(self) -> Self:
        if len(self.rows) < len(self.points):
            keys = [point[:3] for point in self.points]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError("points measured twice: {}, batch {}, {} processes".format(*twice))
        return self

    @cached_property
    def rows(self) -> dict[tuple[str, int, int], MeasuredPoint]:
        """The measured points by (profile, batch, processes)."""
        return {point[:3]: point for point in self.points}

    @cached_property
    def series(self) -> dict[tuple[str, int], tuple[MeasuredPoint, ...]]:
        """The measured points by (profile, processes), in ascending order of batch size."""
        found: dict[tuple[str, int], list[MeasuredPoint]] = {}
        for point in sorted(self.points, key=lambda point: point.batch):
            found.setdefault((point.profile, point.processes), []).append(point)
        return {key: tuple(points) for key, points in found.items()}


class BetweenError(FittedError):
    """Relative errors of interpolation between batches.

    Interpolated times are lengthened by the fraction ``margin``, which covers nearly all times that interpolation
    underestimates.
    """

    margin: NonNegative


class MeasuredSegments(PerformanceData):
    """Measured tables (ParvaGPU). A point that is absent ran out of memory or was not measured.

    With ``between_batches`` plans may also use batch sizes between two measured batch sizes of the same profile and
    number of processes. The latency and the time that a process spends on a batch (batch * processes / throughput) are
    interpolated linearly in the batch size and lengthened by ``between_batches.margin``. ``error`` tells how far other
    measurements of the same GPU type differ from these measurements; ``command`` is the command that made the file.
    """

    measured = True
    kind: Literal["measured-segments"]
    models: dict[Name, MeasuredModel] = Field(min_length=1)
    between_batches: BetweenError | None = Field(default=None, exclude_if=absent)
    error: FittedError | None = Field(default=None, exclude_if=absent)
    command: Text = Field(default="", exclude_if=empty)

    @model_validator(mode="after")
    def _known_profiles(self) -> Self:
        known = {WHOLE, *gpu_type(self.gpu).profiles}
        for model, measured in self.models.items():
            for point in measured.points:
                if point.profile not in known:
                    raise ValueError(f"model {model}: {no_profile(self.gpu, point.profile)}")
        return self

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """See ``PerformanceData.up_to_batch``."""
        tables = {name: [row for row in model.points if row.batch <= most] for name, model in self.models.items()}
        models = {name: {"points": rows} for name, rows in tables.items() if rows}
        return self.model_dump(mode="json") | {"models": models} if models else None

    def scaled(self, factors: Mapping[str, Mapping[str, float]]) -> dict[str, Any] | None:
        """See ``PerformanceData.scaled``."""
        content = self.model_dump(mode="json", exclude={"bands"}, exclude_none=True)
        for model, parts in factors.items():
            for point in content["models"][model]["points"]:
                point[3], point[4] = point[3] / parts["times"], point[4] * parts["times"]
        return content

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """The measured operating points of a model on a profile, and with ``between_batches`` also interpolated points.
        """
        return self._points(model, profile, further=False)

    def longest_points(self, model: str, profile: str) -> OperatingPoints:
        """The points of ``operating_points``, each with the longest times of any batch size up to its own."""
        every, offered = self._points(model, profile, further=True).longest(), self.operating_points(model, profile)
        known = {key: at for at, key in enumerate(zip(every.batch.tolist(), every.processes.tolist(), strict=True))}
        at = [known[key] for key in zip(offered.batch.tolist(), offered.processes.tolist(), strict=True)]
        return replace(offered, latency_ms=every.latency_ms[at], throughput_rps=every.throughput_rps[at])

    def _points(self, model: str, profile: str, further: bool) -> OperatingPoints:
        """Measured and interpolated points; with ``further`` also the points at the first and last batch size of every
        interval (``ends``).
        """
        series = [points for (name, _), points in self.models[model].series.items() if name == profile]
        if self.between_batches is None:
            columns = np.array([row[1:] for row in self.models[model].points if row.profile == profile], float)
        else:
            factor = 1 + self.between_batches.margin
            several = [filled(points, factor, ends(points) if further else ()) for points in series]
            columns = np.concatenate(several) if several else np.empty(0)
        columns = columns.reshape(-1, 4).T
        return OperatingPoints(columns[0].astype(int), columns[1].astype(int), columns[3], columns[2])

    def _sizes(self, profile: str, member: Member) -> list[int]:
        series = self.models[member.model].series.get((profile, member.processes), ())
        further = ends(series) if self.between_batches is not None else ()
        return [size for size in (*(point.batch for point in series), *further) if size < member.batch]

    def _alone(self, profile: str, member: Member) -> Prediction | None:
        measured = self.models[member.model]
        row = measured.rows.get((profile, member.batch, member.processes))
        if row is None and self.between_batches is not None:
            series = measured.series.get((profile, member.processes), ())
            row = between(series, member.batch, 1 + self.between_batches.margin)
        return row and Prediction(row.latency_ms, row.throughput_rps, None)


def between(series: Sequence[MeasuredPoint], batch: int, factor: float = 1.0) -> MeasuredPoint | None:
    """The interpolated point of a batch size; None if the size is not between two measured batch sizes.

    Parameters
    ----------
    series
        The measured points of one profile and number of processes, in ascending order of batch size.
    batch
        A batch size that was not measured.
    factor
        The factor by which interpolated times are lengthened.
    """
    above = bisect(series, batch, key=lambda point: point.batch)
    if not 0 < above < len(series):
        return None
    low, high = series[above - 1], series[above]
    part = (batch - low.batch) / (high.batch - low.batch)
    latency_ms, between_ms = (
        factor * (one + part * (other - one))
        for one, other in ((low.latency_ms, high.latency_ms), (period_ms(low), period_ms(high)))
    )
    return MeasuredPoint(low.profile, batch, low.processes, 1000 * batch * low.processes / between_ms, latency_ms)


def ends(series: Sequence[MeasuredPoint]) -> tuple[int, ...]:
    """The least and the largest batch size strictly between each two neighbouring measured batch sizes. Between these
    two, times are linear; therefore one of the two takes longest.
    """
    return tuple(size for low, high in pairwise(series) for size in (low.batch + 1, high.batch - 1)
                 if low.batch < size < high.batch)


def filled(series: Sequence[MeasuredPoint], factor: float, further: Sequence[int] = ()) -> Floats:
    """The measured points, with interpolated points at the batch sizes of GRID and ``further`` that lie between them.

    Interpolated times are lengthened by ``factor``.

    Returns
    -------
    array (points, 4)
        Batch size (ascending), processes, throughput (requests/s), latency (ms).
    """
    batches, processes, throughput_rps, latency_ms = np.array([point[1:] for point in series], float).T
    grid = np.union1d(batches, [batch for batch in (*GRID, *further) if batches[0] < batch < batches[-1]])
    lengthened = np.where(np.isin(grid, batches), 1.0, factor)
    spent_ms = 1000 * batches * processes / throughput_rps
    times = [lengthened * np.interp(grid, batches, column) for column in (spent_ms, latency_ms)]
    count = np.full(len(grid), processes[0])
    rows = np.column_stack([grid, count, 1000 * grid * count / times[0], times[1]])
    rows[np.isin(grid, batches), 2] = throughput_rps
    return rows


def period_ms(point: MeasuredPoint) -> float:
    """The time that a process spends on a batch, in ms."""
    return 1000 * point.batch * point.processes / point.throughput_rps

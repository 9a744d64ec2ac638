"""Measured segments (ParvaGPU): a table of what each model did on each slice."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.fields import Name, Positive, PositiveCount, Record
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.operating_points import OperatingPoints, PerformanceData, Prediction

if TYPE_CHECKING:
    from provision.models.performance.operating_points import Member


class MeasuredPoint(NamedTuple):
    """A measured row; the throughput is that of all processes together."""

    profile: Name
    batch: PositiveCount
    processes: PositiveCount
    throughput_rps: Positive
    latency_ms: Positive


class MeasuredModel(Record):
    """The measured rows of one model."""

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
        """Measured points by (profile, batch, processes)."""
        return {point[:3]: point for point in self.points}


class MeasuredSegments(PerformanceData):
    """Measured tables (ParvaGPU): a row that is absent ran out of memory or was not measured."""

    kind: Literal["measured-segments"]
    models: dict[Name, MeasuredModel] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_profiles(self) -> Self:
        known = {WHOLE, *gpu_type(self.gpu).profiles}
        for model, measured in self.models.items():
            for point in measured.points:
                if point.profile not in known:
                    raise ValueError(f"model {model}: {self.gpu} has no profile {point.profile!r}")
        return self

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """The measured points of a model on a profile."""
        rows = [point for point in self.models[model].points if point.profile == profile]
        columns = np.array([row[1:] for row in rows], float).reshape(-1, 4).T
        return OperatingPoints(columns[0].astype(int), columns[1].astype(int), columns[3], columns[2])

    def _alone(self, profile: str, member: Member) -> Prediction | None:
        row = self.models[member.model].rows.get((profile, member.batch, member.processes))
        return row and Prediction(row.latency_ms, row.throughput_rps, None)

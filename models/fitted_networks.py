"""Fitted closed networks: the coefficients of several models on one GPU type, with their errors."""

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from provision.models.closed_network import ClosedNetwork, batch_latency_ms_array
from provision.models.fields import Name, PositiveCount, Record, Text
from provision.models.gpu import WHOLE, gpu_type
from provision.models.operating_points import OperatingPoints, PerformanceData, Prediction


class FittedError(Record):
    """Relative errors of a fit on the points it was judged on."""

    mean: float
    p95: float
    max: float
    points: PositiveCount


class FittedModel(Record):
    """Coefficients of one model and how well they fit."""

    coefficients: ClosedNetwork
    error: FittedError | None = None


class FittedNetworks(PerformanceData):
    """Closed-network coefficients, valid on the profiles and batch sizes named."""

    kind: Literal["closed-network"]
    command: Text = ""
    fitted: Text = ""
    profiles: tuple[Name, ...] = Field(min_length=1)
    batches: tuple[PositiveCount, ...] = Field(min_length=1)
    models: dict[Name, FittedModel] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_profiles(self):
        unknown = set(self.profiles) - {WHOLE, *gpu_type(self.gpu).profiles}
        if unknown:
            raise ValueError(f"{self.gpu} has no profile {min(unknown)!r}")
        return self

    def operating_points(self, model, profile):
        """The points of the batch grid that fit into the slice's memory."""
        network, gpu = self.models[model].coefficients, gpu_type(self.gpu)
        if profile not in self.profiles:
            return OperatingPoints(*(np.zeros(0, kind) for kind in (int, int, float, float)))
        grid = np.meshgrid(
            [batch for batch in self.batches if batch <= network.max_batch],
            np.arange(1, network.max_processes + 1),
            indexing="ij",
        )
        batch, processes = (axis.ravel() for axis in grid)
        fits = network.memory_gib(batch, processes) <= gpu.slice_memory_gib(profile)
        batch, processes = batch[fits], processes[fits]
        latency_ms = batch_latency_ms_array(network, batch, processes, gpu.slice_compute(profile))
        return OperatingPoints(batch, processes, latency_ms, 1000 * batch * processes / latency_ms)

    def _alone(self, profile, member):
        network, gpu = self.models[member.model].coefficients, gpu_type(self.gpu)
        batch, processes = member.batch, member.processes
        if profile not in self.profiles or batch > network.max_batch or processes > network.max_processes:
            return None
        compute = gpu.slice_compute(profile)
        return Prediction(
            network.batch_latency_ms(batch, processes, compute),
            network.throughput_rps(batch, processes, compute),
            network.memory_gib(batch, processes),
        )

"""Operating points (the ways to run a model on a slice), and the base class of all kinds of performance data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.arrays import Floats, Ints
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Record, Text, Version, absent
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.bands import ErrorBands
from provision.models.performance.tokens.requests import RequestTokens


class Member(NamedTuple):
    """One replica, as the input of a performance model. ``rate_rps`` is the rate routed to the replica, and ``fill_ms``
    the longest time that its batches may wait to fill. ``turn`` is as in a Replica of a plan. ``partly_filled`` tells
    whether batches smaller than ``batch`` may run too. ``tokens`` has the lengths of its requests, for language models.
    """

    model: str
    batch: int
    processes: int
    sm_share: float
    rate_rps: float = 0.0
    turn: int | None = None
    fill_ms: float = math.inf
    partly_filled: bool = False
    tokens: RequestTokens | None = None

    @property
    def filled(self) -> int:
        """The size of a batch that starts when it is full, or when its first request has waited for ``fill_ms``."""
        return int(min(self.batch, 1 + self.rate_rps * self.fill_ms / 1000 * (1 + TOLERANCE))) if self.rate_rps else 1


class Prediction(NamedTuple):
    """The prediction for one replica: batch execution latency (ms), throughput (requests/s), memory (GiB; None if
    unknown). ``in_turns`` tells whether the replica runs in turns with others: once per duty cycle it starts a batch of
    the waiting requests. The duty cycle is the time of one full batch at ``throughput_rps``.
    """

    latency_ms: float
    throughput_rps: float
    memory_gib: float | None
    in_turns: bool = False


@dataclass(frozen=True)
class OperatingPoints:
    """The operating points of one model alone on a slice of one profile: arrays with an element for every point.

    ``sm_share`` is a single number if all points have the same SM share.
    """

    batch: Ints
    processes: Ints
    latency_ms: Floats
    throughput_rps: Floats
    sm_share: Floats | float = 1.0

    def least_rps(self, budget_ms: float) -> float:
        """The highest throughput (requests/s) of the smallest SM share that keeps a latency budget (ms).

        It is infinite if no point keeps the budget.
        """
        kept = self.latency_ms <= budget_ms
        share = np.broadcast_to(self.sm_share, kept.shape)[kept]
        return float(self.throughput_rps[kept][share == share.min()].max()) if len(share) else math.inf

    def longest(self) -> OperatingPoints:
        """The same points, each with the most latency and the most time per batch of any batch size up to its own.

        Points are compared with those of the same number of processes and SM share. If batches may start before they
        are full, a replica runs smaller batches too, and these may take longer, since libraries choose other kernels.
        """
        share = np.broadcast_to(self.sm_share, self.batch.shape)
        order = np.lexsort((self.batch, share, self.processes))
        begins = np.flatnonzero((np.diff(self.processes[order]) != 0) | (np.diff(share[order]) != 0)) + 1
        latency_ms, hold_ms = self.latency_ms.copy(), 1000 * self.batch * self.processes / self.throughput_rps
        for group in np.split(order, begins):
            for times_ms in (latency_ms, hold_ms):
                times_ms[group] = np.maximum.accumulate(times_ms[group])
        return replace(self, latency_ms=latency_ms, throughput_rps=1000 * self.batch * self.processes / hold_ms)

    def where_processes(self, processes: int) -> OperatingPoints:
        """The operating points that have this number of processes."""
        at = self.processes == processes
        share = self.sm_share[at] if isinstance(self.sm_share, np.ndarray) else self.sm_share
        return OperatingPoints(self.batch[at], self.processes[at], self.latency_ms[at], self.throughput_rps[at], share)


class PerformanceData(Record):
    """Base of all kinds of performance data: one GPU type, and ``models`` by name. ``bands`` has the errors of the
    predictions, as far as they are known by slice type and batch size.

    Methods search the arrays of ``operating_points(model, profile)``; the verifier calls ``predict``, which computes
    single predictions. The two are implemented independently of each other, and tests compare them.
    """

    sharing: ClassVar[Literal["never", "if_allowed", "always"]] = "never"
    """Whether replicas of different workloads may run on one slice: never, only if the policy allows it, or always, as
    with data that was measured on shared GPUs.
    """
    feature: ClassVar[str] = "other_sharing"
    """The feature that a method must handle to plan with this data, if ``sharing`` is "always": a key of ``FEATURES``
    in `provision.models.problem.method`.
    """
    divides_sms: ClassVar[bool] = False
    """Whether every replica on a slice has a share of its SMs; the shares add up to at most 1."""
    turns: ClassVar[bool] = False
    """Whether replicas may run in turns on a part of a GPU (temporal sharing)."""
    measured: ClassVar[bool] = False
    """Whether every operating point was measured. Measured data takes precedence over fitted data."""
    of_tokens: ClassVar[bool] = False
    """Whether the models are language models, whose workloads name ``tokens``."""

    version: Version
    name: Name
    gpu: Name
    source: Text = ""
    bands: ErrorBands | None = Field(default=None, exclude_if=absent)
    stated_errors: ClassVar[Any] = {"bands"}
    """The fields of errors, on which no prediction depends, as pydantic's ``exclude`` takes them."""
    parts: ClassVar[tuple[str, ...]] = ("times",)
    """The parts of a model's times that ``scaled`` multiplies by factors of their own."""

    @model_validator(mode="after")
    def _known_gpu(self) -> Self:
        gpu_type(self.gpu)
        return self

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the content but for ``stated_errors``, in hexadecimal: of what predictions depend on."""
        return sha256(self.model_dump_json(exclude=self.stated_errors).encode()).hexdigest()

    def scaled(self, factors: Mapping[str, Mapping[str, float]]) -> dict[str, Any] | None:
        """The content with the times of models multiplied by factors, given by model and part, and without bands; None
        if coefficients of this kind of data do not scale so.
        """
        return None

    def predict(self, profile: str, members: Sequence[Member]) -> list[Prediction | None]:
        """Predict the latency, throughput and memory of the replicas that share one slice.

        Parameters
        ----------
        profile
            The name of the slice's profile; ``whole`` for a whole GPU.
        members
            All replicas on the slice.

        Returns
        -------
        list of Prediction
            The predictions in the order of the members; None if the data does not describe the case. Unless a subclass
            overrides this, data describes only a replica that has the slice to itself.
        """
        if len(members) != 1 or members[0].sm_share != 1:
            return [None] * len(members)
        [member] = members
        found = self._alone(profile, member)
        return [self._longest_alone(profile, member, found) if found and member.partly_filled else found]

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """All operating points of a model alone on a slice; the arrays are empty if the data does not describe the
        model on this slice.
        """
        raise NotImplementedError

    def longest_points(self, model: str, profile: str) -> OperatingPoints:
        """The points of ``operating_points`` for replicas whose batches may be partly filled (see
        ``OperatingPoints.longest``). If the data has no times for some batch sizes, only the sizes with times are
        compared.
        """
        return self.operating_points(model, profile).longest()

    def _longest_alone(self, profile: str, member: Member, planned: Prediction) -> Prediction:
        """The Prediction for a replica, with the most latency and the most time per batch of any batch size up to its
        own.
        """
        latency_ms, hold_ms = planned.latency_ms, 1000 * member.batch * member.processes / planned.throughput_rps
        for size in self._sizes(profile, member):
            found = self._alone(profile, member._replace(batch=size))
            if found is not None:
                latency_ms = max(latency_ms, found.latency_ms)
                hold_ms = max(hold_ms, 1000 * size * member.processes / found.throughput_rps)
        return planned._replace(latency_ms=latency_ms, throughput_rps=1000 * member.batch * member.processes / hold_ms)

    def _sizes(self, profile: str, member: Member) -> Iterable[int]:
        """The batch sizes below the member's own that have to be compared; they include the sizes that take longest."""
        return range(1, member.batch)

    def _alone(self, profile: str, member: Member) -> Prediction | None:
        """The Prediction for a replica that has the slice to itself; None if the data does not describe it."""
        raise NotImplementedError

    def helps_sharing(self, profile: str) -> bool:
        """Whether a replica that misses its SLO alone on a slice of this profile may keep the SLO beside others."""
        return False

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """The data as file content, without batch sizes above ``most``; None if nothing is left. Raises InputError if
        data of this kind has no batch sizes that could be left out.
        """
        raise InputError(f"performance data {self.name}: batches cannot be left out of data of this kind")

"""Operating points, the ways to run a model on a slice; and the base of all kinds of performance data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import model_validator

from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Record, Text, Version
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import gpu_type

if TYPE_CHECKING:
    from provision.models.base.arrays import Floats, Ints
    from provision.models.performance.tokens.lengths import RequestTokens



class Member(NamedTuple):
    """One replica as a performance model sees it.

    ``rate_rps`` is what is routed to it, ``turn`` as in a Replica; ``fill_ms`` how long its batches may wait to fill.
    ``partly_filled`` says that smaller batches than its own may run as well. ``tokens`` are those of its requests.
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
        """Requests of a batch that starts when it is full or its first request has waited for ``fill_ms``."""
        return int(min(self.batch, 1 + self.rate_rps * self.fill_ms / 1000 * (1 + TOLERANCE))) if self.rate_rps else 1


class Prediction(NamedTuple):
    """What one replica does: batch execution latency (ms), throughput (requests/s), memory (GiB or None).

    A replica ``in_turns`` with others starts a batch of what waits within a cycle: the time in which its throughput is
    one full batch.
    """

    latency_ms: float
    throughput_rps: float
    memory_gib: float | None
    in_turns: bool = False


@dataclass(frozen=True)
class OperatingPoints:
    """Every way to run one model alone on a slice of one profile, as arrays of one length.

    ``sm_share`` is a number where it is the same for all.
    """

    batch: Ints
    processes: Ints
    latency_ms: Floats
    throughput_rps: Floats
    sm_share: Floats | float = 1.0

    def least_rps(self, budget_ms: float) -> float:
        """The most that the smallest share that keeps a latency budget (ms) carries, requests/s; infinite for none."""
        kept = self.latency_ms <= budget_ms
        share = np.broadcast_to(self.sm_share, kept.shape)[kept]
        return float(self.throughput_rps[kept][share == share.min()].max()) if len(share) else math.inf

    def longest(self) -> OperatingPoints:
        """The same points, each with the latency and the hold time of the longest batch up to its own.

        Only points with as many processes and the same SM share are compared. Where batches start before they are full
        a replica runs smaller ones as well, and these may take longer: libraries choose other kernels for them.
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
    """What all kinds of performance data have in common: one GPU type, some ``models`` by name.

    Methods search arrays of ``operating_points(model, profile)``; the verifier takes the scalar path,
    ``predict``. The two are written apart and tests hold them together.
    """

    sharing: ClassVar[Literal["never", "if_allowed", "always"]] = "never"
    """Whether the data describes replicas of different workloads on one slice: only where the policy allows it, or
    always, as for data that was measured on shared GPUs."""
    single_pattern: ClassVar[bool] = False
    """Whether the pattern oracle of this kind plans a replica that is alone as well as several."""
    feature: ClassVar[str] = "other_sharing"
    """What an instance asks of a method where ``sharing`` is always: a key of `provision.models.problem.method`'s
    ``FEATURES``."""
    divides_sms: ClassVar[bool] = False
    """Whether replicas on one slice hold parts of its SMs, which together are no more than all of them."""
    turns: ClassVar[bool] = False
    """Whether replicas may take turns on a part of a GPU."""
    measured: ClassVar[bool] = False
    """Whether every operating point was measured. Such data comes before data that was fitted."""
    of_tokens: ClassVar[bool] = False
    """Whether the models are language models, whose workloads name ``tokens``."""

    version: Version
    name: Name
    gpu: Name
    source: Text = ""

    @model_validator(mode="after")
    def _known_gpu(self) -> Self:
        gpu_type(self.gpu)
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return sha256(self.model_dump_json().encode()).hexdigest()

    def predict(self, profile: str, members: Sequence[Member]) -> list[Prediction | None]:
        """What the replicas that share one slice do.

        Parameters
        ----------
        profile
            Profile name of the slice.
        members
            Every Member on it.

        Returns
        -------
        list of Prediction
            In the order of the members; None where the data does not describe the case. By default
            data describes a replica that has the slice to itself.
        """
        if len(members) != 1 or members[0].sm_share != 1:
            return [None] * len(members)
        [member] = members
        found = self._alone(profile, member)
        return [self._longest_alone(profile, member, found) if found and member.partly_filled else found]

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """Every way to run a model alone on a slice, as arrays; empty where the data does not describe it."""
        raise NotImplementedError

    def longest_points(self, model: str, profile: str) -> OperatingPoints:
        """``operating_points`` for replicas whose batches may be partly filled: their times are those of the longest.

        Subclasses that have no times for some sizes up to a batch are judged by those that they have.
        """
        return self.operating_points(model, profile).longest()

    def _longest_alone(self, profile: str, member: Member, planned: Prediction) -> Prediction:
        """The Prediction of the planned batch, with the latency and the hold time of the longest one up to it."""
        latency_ms, hold_ms = planned.latency_ms, 1000 * member.batch * member.processes / planned.throughput_rps
        for size in self._sizes(profile, member):
            found = self._alone(profile, member._replace(batch=size))
            if found is not None:
                latency_ms = max(latency_ms, found.latency_ms)
                hold_ms = max(hold_ms, 1000 * size * member.processes / found.throughput_rps)
        return planned._replace(latency_ms=latency_ms, throughput_rps=1000 * member.batch * member.processes / hold_ms)

    def _sizes(self, profile: str, member: Member) -> Iterable[int]:
        """Batch sizes below a replica's own, among them those that take longest."""
        return range(1, member.batch)

    def _alone(self, profile: str, member: Member) -> Prediction | None:
        """The Prediction for a replica that has the slice to itself; None when it is not in the data."""
        raise NotImplementedError

    def helps_sharing(self, profile: str) -> bool:
        """Whether a replica that misses its SLO alone on a slice of this profile may keep it there beside others."""
        return False

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """The content of a file without the operating points of larger batches; None where no others are left.

        Raises
        ------
        InputError
            Where data of this kind has no batches to leave out.
        """
        raise InputError(f"performance data {self.name}: batches cannot be left out of data of this kind")

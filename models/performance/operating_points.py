"""Operating points, the ways to run a model on a slice; and the base of all kinds of performance data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
        if len(members) == 1 and members[0].sm_share == 1:
            return [self._alone(profile, members[0])]
        return [None] * len(members)

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

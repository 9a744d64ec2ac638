"""Plans: the slices and replicas on every GPU. A plan is complete enough to be applied."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from provision.models.base.errors import InputError
from provision.models.base.fields import (
    Count,
    Flag,
    Fraction,
    Name,
    NonNegative,
    PositiveCount,
    Record,
    Text,
    Version,
    absent,
)
from provision.models.base.shown import Shown, frame
from provision.models.hardware.gpu import gpus_in

if TYPE_CHECKING:
    from pandas import DataFrame


class Replica(Record):
    """The server processes of one workload on one slice.

    ``sm_share`` is the fraction of the slice's SMs that each process may use, ``rate_rps`` the part of the workload's
    rate that is routed to this replica. Replicas on a slice with the same ``turn`` run in turns on one share of the
    slice's SMs; a replica without ``turn`` has its own share. ``model`` is the variant that runs, None for the
    workload's own model.
    """

    workload: Name
    batch: PositiveCount
    processes: PositiveCount = 1
    sm_share: Fraction = 1.0
    rate_rps: NonNegative
    turn: Count | None = None
    model: Name | None = None


class Slice(Record):
    """The part of a GPU on which replicas run: a MIG instance that begins at memory slice ``start``, or the ``whole``
    GPU.
    """

    profile: Name
    start: Count = 0
    replicas: tuple[Replica, ...] = ()

    @property
    def held_shares(self) -> list[float]:
        """The SM share of every replica; if n replicas run in turns on a share, 1/n of the share counts for each."""
        if len(self.replicas) == 1:
            return [self.replicas[0].sm_share]
        takers = Counter(replica.turn for replica in self.replicas)
        return [one.sm_share / (1 if one.turn is None else takers[one.turn]) for one in self.replicas]


class PlannedGpu(Record):
    """One GPU of a plan, with its slices, and the node on which it is if the instance has ``places``."""

    gpu: Name
    mig: Flag
    slices: tuple[Slice, ...]
    node: Name | None = Field(default=None, exclude_if=absent)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The replicas on all slices, in order."""
        return tuple(one for piece in self.slices for one in piece.replicas)

    def with_replicas(self, change: Callable[[Replica], Replica | None]) -> PlannedGpu:
        """The GPU with ``change`` applied to every replica. Replicas for which it gives None are left out, and so are
        slices that lose all their replicas.
        """
        changed = [tuple(one for one in map(change, piece.replicas) if one is not None) for piece in self.slices]
        return self.model_copy(update={"slices": tuple(
            piece.model_copy(update={"replicas": left}) for piece, left in zip(self.slices, changed, strict=True)
            if left or not piece.replicas
        )})

    def with_rates(self, factor: Mapping[str, float]) -> PlannedGpu:
        """The GPU with the rates of its replicas multiplied by factors, by workload; others keep their rates."""
        return self.with_replicas(
            lambda one: one.model_copy(update={"rate_rps": one.rate_rps * factor.get(one.workload, 1.0)}))


class Plan(Shown, Record):
    """A plan: its GPUs. ``digest`` is the digest of the instance for which the plan was made, empty if unknown."""

    version: Version
    instance: Name
    digest: Text = ""
    method: Text = ""
    gpus: tuple[PlannedGpu, ...]

    def replicas(self) -> Iterator[tuple[int, int, Slice, Replica]]:
        """Yield a tuple (GPU index, slice index, slice, replica) for every replica, in order."""
        for at, gpu in enumerate(self.gpus):
            for position, piece in enumerate(gpu.slices):
                for replica in piece.replicas:
                    yield at, position, piece, replica

    @property
    def gpu_count(self) -> int:
        """The number of GPUs; a node (such as 8xh100-80gb) counts as all of its GPUs."""
        return gpus_in(gpu.gpu for gpu in self.gpus)

    def with_replicas(self, change: Callable[[Replica], Replica | None]) -> Plan:
        """The plan with ``change`` applied to every replica. Replicas for which it gives None are left out, and so are
        slices and GPUs that lose all their replicas.
        """
        changed = [gpu.with_replicas(change) for gpu in self.gpus]
        return self.model_copy(update={"gpus": tuple(
            new for new, gpu in zip(changed, self.gpus, strict=True) if new.replicas or not gpu.replicas
        )})

    def with_rates(self, factor: Mapping[str, float]) -> Plan:
        """The plan with the rates of its replicas multiplied by factors, by workload; others keep their rates."""
        return self.model_copy(update={"gpus": tuple(gpu.with_rates(factor) for gpu in self.gpus)})

    def to_frame(self) -> DataFrame:
        """A pandas frame with a row per replica: its GPU, its slice, and its fields."""
        return frame([
            {"gpu": at, "type": self.gpus[at].gpu, "slice": position, "profile": piece.profile, "start": piece.start}
            | replica.model_dump() for at, position, piece, replica in self.replicas()
        ])

    def __repr__(self) -> str:
        by = f" by {self.method}" if self.method else ""
        replicas = sum(1 for _ in self.replicas())
        return f"<Plan of {self.instance}{by}: {self.gpu_count} GPUs, {replicas} replicas>"

    __str__ = __repr__

    def made_for_another(self, name: str, digest: str) -> str | None:
        """What the plan was made for, in words, if that is not the instance with this name and digest; else None."""
        if self.instance != name:
            return self.instance
        return f"another state of {name}" if self.digest not in ("", digest) else None

    def refuse_turns(self, verb: str) -> None:
        """Refuse a plan in which replicas run in turns, since only the server that starts their batches can keep the
        order. Raises InputError if replicas run in turns; the message names the first GPU with such replicas.
        """
        for at, _, _, replica in self.replicas():
            if replica.turn is not None:
                raise InputError(
                    f"GPU {at}: {replica.workload} shares turn {replica.turn}; {verb} takes no plan with turns: give "
                    "every replica an sm_share of its own"
                )


def carried_rps(gpus: Iterable[PlannedGpu]) -> defaultdict[str, float]:
    """The sum of the rates of each workload's replicas on some GPUs, in requests/s; 0 for other workloads."""
    rates: defaultdict[str, float] = defaultdict(float)
    for gpu in gpus:
        for one in gpu.replicas:
            rates[one.workload] += one.rate_rps
    return rates

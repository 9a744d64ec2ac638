"""Computes the batch times of the replicas on a slice, by the equations of the kind of data that describes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records import Slice, Tree, UndecidedError, UndescribedError
from . import gpulets, networks
from .profiled import colocation_times, igniter_times, measured_times

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Service:
    """Batch times of a replica with all its neighbours active, in ms; element k is that of batch size k + 1.

    A batch is answered ``answer_ms`` after its start, and its process can start the next batch ``hold_ms`` after that
    start. ``memory_gib`` is the memory of the replica; None if it is unknown.
    """

    answer_ms: Floats
    hold_ms: Floats
    memory_gib: float | None

    @property
    def longest_ms(self) -> float:
        """The time of the longest batch up to the planned size, in ms."""
        return float(self.answer_ms.max())

    def throughput_rps(self, processes: int) -> float:
        """The requests/s of all processes if every batch is full."""
        return 1000 * processes * len(self.hold_ms) / float(self.hold_ms[-1])


Times = tuple[Floats, Floats, float | None]
"""Answer times, hold times and memory of one replica."""


class Kind(NamedTuple):
    """What a kind of data says: the ``times`` of the replicas on a slice; of ``language`` models those of iterations.

    ``divided`` data describe whole GPUs whose replicas have parts of the SMs; with ``turns`` replicas may take turns,
    and replicas of one turn determine each other's times; ``together`` all replicas on a slice do.
    """

    times: Callable[[Tree, Slice], list[Times]] | None = None
    language: bool = False
    divided: bool = False
    turns: bool = False
    together: bool = False


KINDS: Mapping[str, Kind] = MappingProxyType({
    "igniter": Kind(igniter_times, divided=True),
    "colocation": Kind(colocation_times, divided=True),
    "gpulets": Kind(gpulets.times, divided=True, turns=True),
    "measured-segments": Kind(measured_times),
    "closed-network": Kind(networks.times, together=True),
    "tokens": Kind(language=True),
})
"""The kinds that are judged here, those that take precedence first."""


def kind_of(data: Tree) -> Kind:
    """The kind of performance data; of one that is not judged here nothing is known."""
    return KINDS.get(data["kind"], Kind())


def data_for(performance: tuple[Tree, ...], piece: Slice) -> Tree:
    """The performance data that describes the replicas of a slice.

    On whole GPUs, data of shared GPUs takes precedence, so that no neighbour makes a replica faster. Then come measured
    tables, then fitted networks. Raises UndescribedError if no data describes the slice, and UndecidedError if data of
    a kind that is not known here may describe it.
    """
    reasons = []
    if unknown := [data["kind"] for data in performance if data["kind"] not in KINDS]:
        raise UndecidedError(f"data of the kind {unknown[0]} is not judged here")
    for data in sorted(performance, key=lambda one: [*KINDS].index(one["kind"])):
        kind = kind_of(data)
        if data["gpu"] != piece.gpu_type or (kind.divided and piece.mig):
            continue
        missing = [one.model for one in piece.replicas if one.model not in data["models"]]
        if missing:
            reasons.append(f"{data['name']} has no {missing[0]}")
            continue
        try:
            if kind.times is not None:
                kind.times(data, piece)
        except UndecidedError as error:
            reasons.append(f"{data['name']}: {error}")
            continue
        return data
    raise UndescribedError("; ".join(reasons) or f"no performance data for {piece.gpu_type}")


def services(performance: tuple[Tree, ...], piece: Slice) -> list[Service]:
    """Batch times of the replicas on a slice, in order."""
    data = data_for(performance, piece)
    times = kind_of(data).times
    assert times is not None
    return [Service(*one) for one in times(data, piece)]

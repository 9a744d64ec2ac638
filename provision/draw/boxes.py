"""What drawings are made of: rows of GPUs with boxes for slices and replicas, the texts inside the boxes, and the
colours and patterns that tell workloads apart.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from provision.draw.output import number, printable
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Replica

DARK, LIGHT = "#16191d", "#ffffff"

PALETTE = (
    ("#56b4e9", DARK),
    ("#e69f00", DARK),
    ("#009e73", DARK),
    ("#ffaabb", DARK),
    ("#0072b2", LIGHT),
    ("#eedd88", DARK),
    ("#882255", LIGHT),
    ("#99ddff", DARK),
    ("#b07aa1", DARK),
    ("#ee7733", DARK),
)
"""Pairs of fill and text colours, after Okabe and Ito, and Tol; colour-blind people can tell them apart too."""

PATTERNS = 5
"""The number of fill patterns, which tell workloads of the same colour apart; the first pattern is plain."""


class FillStyle(NamedTuple):
    """The fill and text colours and the pattern of a workload's boxes; ``pattern`` counts from 0, which is plain."""

    colour: str
    text: str
    pattern: int


def styles(names: Iterable[str]) -> dict[str, FillStyle]:
    """A FillStyle for every name, assigned in natural order, so that the same names always look the same."""
    ordered = sorted(names, key=lambda name: ([_natural(part) for part in re.split(r"(\d+)", name)], name))
    return {
        name: FillStyle(*PALETTE[index % len(PALETTE)], index // len(PALETTE) % PATTERNS)
        for index, name in enumerate(ordered)
    }


def _natural(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdecimal() else (1, 0, part.casefold())


class ReplicaBox(NamedTuple):
    """A drawn replica; ``start`` and ``size`` are in memory slots, ``replicas`` has a replica for every GPU of the row.

    They differ in their rates only; in an overview also in what else they state of the same model. ``capacity_rps`` is
    the highest rate that the replica carries within its SLO, in requests/s; None if nothing predicts it.
    """

    start: float
    size: float
    replicas: tuple[Replica, ...]
    prediction: Prediction | None
    capacity_rps: float | None = None

    @property
    def workload(self) -> str:
        """The name of the workload; in an overview that of the model."""
        return self.replicas[0].workload

    @property
    def model(self) -> str | None:
        """The name of the model, if it is not the first model of its workload."""
        return self.replicas[0].model

    @property
    def rates_rps(self) -> tuple[float, ...]:
        """The rate of every replica, in requests/s."""
        return tuple(one.rate_rps for one in self.replicas)

    @property
    def batch(self) -> str:
        """The batch size as text, as a range if the replicas have different ones."""
        return _range(one.batch for one in self.replicas)

    @property
    def processes(self) -> str:
        """The number of processes as text, as a range if the replicas have different ones."""
        return _range(one.processes for one in self.replicas)

    @property
    def sm_percent(self) -> str:
        """The percentage of the SMs as text, as a range if the replicas have different ones."""
        return _range(100 * one.sm_share for one in self.replicas)

    @property
    def sm_share(self) -> float:
        """The mean share of the SMs."""
        return mean_share(self.replicas)

    @property
    def utilisation(self) -> float | None:
        """The largest rate divided by the predicted throughput; None if nothing predicts the throughput."""
        return self.prediction and max(self.rates_rps) / self.prediction.throughput_rps

    @property
    def rate(self) -> str:
        """The rate in requests/s as text, as a range if the GPUs of the row have different rates."""
        return _range(self.rates_rps, number)


def _range(values: Iterable[float], shown: Callable[[float], str] = "{:.3g}".format) -> str:
    """The least and the largest of some numbers as text; one number if they look alike."""
    several = list(values)
    low, high = shown(min(several)), shown(max(several))
    return low if low == high else f"{low}-{high}"


def mean_share(replicas: Sequence[Replica]) -> float:
    """The mean share of the SMs of some replicas, without rounding errors if all are equal."""
    shares = {one.sm_share for one in replicas}
    return shares.pop() if len(shares) == 1 else fmean(one.sm_share for one in replicas)


class SliceBox(NamedTuple):
    """A drawn slice; ``start`` and ``size`` are memory slots inside its GPU. ``problems`` tells what was changed so
    that the slice could be drawn there.
    """

    start: int
    size: int
    lane: int
    profile: str
    planned_start: int
    replicas: tuple[ReplicaBox, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """GPUs that look the same and are drawn once; ``idle`` has the runs of memory slots without a slice, as (start,
    size).
    """

    gpus: tuple[int, ...]
    gpu: str
    mig: bool
    slots: int
    lanes: int
    slices: tuple[SliceBox, ...]
    idle: tuple[tuple[int, int], ...]
    idle_compute: int
    problems: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of GPUs in this row."""
        return len(self.gpus)

    @property
    def idle_slots(self) -> int:
        """The number of memory slots without a slice on one GPU of the row."""
        return sum(size for _, size in self.idle)

    @property
    def boxes(self) -> list[tuple[SliceBox, ReplicaBox]]:
        """The pairs (slice box, replica box) of the row, in order."""
        return [(piece, replica) for piece in self.slices for replica in piece.replicas]


def facts(replica: ReplicaBox) -> list[str]:
    """Short texts on a replica: its SM share under MPS, batch size and processes, load if known, rate, and model
    variant.
    """
    share = [] if replica.sm_share == 1 else [f"SM {replica.sm_percent}%"]
    load = [] if replica.utilisation is None else [f"load {replica.utilisation:.0%}"]
    variant = [] if replica.model is None else [printable(replica.model)]
    return [*share, f"b{replica.batch} p{replica.processes}", *load, f"{replica.rate}/s", *variant]


def details(replica: ReplicaBox) -> list[str]:
    """Lines on a replica for boxes of different widths, from all of its facts to none; the SM percentage is left out
    last.
    """
    known = facts(replica)
    shorter = [" · ".join(known[:count]) for count in range(len(known), 0, -1)]
    return [*shorter, *([] if replica.sm_share == 1 else [f"{replica.sm_percent}%"]), ""]

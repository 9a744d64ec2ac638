"""Instances and plans as plain records of this verifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]
"""A mapping as YAML or JSON gives it."""


@dataclass(frozen=True)
class Policy:
    """The latency rule and what else holds for all workloads."""

    rule: str
    safety: float
    headroom: float
    share_slices: bool
    survive: int
    even_replicas: bool
    first_token: float = 1.0
    """A factor on the limits of first tokens that divides them, besides ``safety``."""


@dataclass(frozen=True)
class Workload:
    """One served model. ``rate_rps`` is the stated rate, ``arrivals`` the mapping of the file."""

    name: str
    models: tuple[str, ...]
    slo_ms: float
    rate_rps: float
    min_replicas: int
    max_replicas: int | None
    max_share_per_gpu: float
    arrivals: Tree
    routing: str
    percentile: float
    tokens: Tree | None
    token_slo: Tree | None


@dataclass(frozen=True)
class Workflow:
    """Workloads through which every request passes: ``members``, and edges (earlier, later)."""

    name: str
    members: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    percentile: float


@dataclass(frozen=True)
class FleetEntry:
    """GPUs of one type at one price (None: no price); ``count`` None is as many as needed."""

    gpu: str
    mig: bool
    mps: bool
    price_per_hour: float | None
    count: int | None


@dataclass(frozen=True)
class Instance:
    """A problem: fleet, workloads, performance data (mappings of the files) and policy."""

    name: str
    objective: str
    policy: Policy
    fleet: tuple[FleetEntry, ...]
    performance: tuple[Tree, ...]
    workloads: dict[str, Workload]
    workflows: tuple[Workflow, ...]

    def planned_rps(self, workload: str) -> float:
        """The rate that a plan must carry: the stated one and the headroom."""
        return self.workloads[workload].rate_rps * (1 + self.policy.headroom)


@dataclass(frozen=True)
class Replica:
    """Server processes of a workload on a slice. ``share`` is the part of the slice's SMs of each process."""

    workload: str
    model: str
    batch: int
    processes: int
    share: float
    rate_rps: float
    turn: int | None


@dataclass(frozen=True)
class Slice:
    """A MIG instance, or the whole of a GPU, with its replicas; ``gpu`` counts the GPUs of the plan from 0."""

    gpu: int
    gpu_type: str
    mig: bool
    profile: str
    start: int
    replicas: tuple[Replica, ...]

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"GPU {self.gpu}, {self.profile} at {self.start}" if self.mig else f"GPU {self.gpu}"


@dataclass(frozen=True)
class PlannedGpu:
    """One GPU of a plan."""

    gpu_type: str
    mig: bool
    slices: tuple[Slice, ...]


class UndecidedError(Exception):
    """Raised for what this verifier cannot judge; the message says why."""

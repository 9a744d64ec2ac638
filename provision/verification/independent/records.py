"""Instances and plans as plain records of this verifier."""

from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]
"""A mapping, as read from YAML or JSON."""


@dataclass(frozen=True)
class Policy:
    """The latency rule, and everything else that holds for all workloads."""

    rule: str
    safety: float
    headroom: float
    share_slices: bool
    survive: int
    even_replicas: bool
    first_token: float = 1.0
    """The limits on first tokens are divided by this factor, and also by ``safety``."""


@dataclass(frozen=True)
class Workload:
    """One served model. ``rate_rps`` is the stated rate, and ``arrivals`` is the mapping in the file."""

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
    """Workloads through which every request passes: ``members``, and edges as pairs (earlier, later)."""

    name: str
    members: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    percentile: float


@dataclass(frozen=True)
class FleetEntry:
    """GPUs of one type at one price (None for no price). ``count`` is None if there are as many as needed; those that
    are committed are paid for in any case.
    """

    gpu: str
    mig: bool
    mps: bool
    price_per_hour: float | None
    count: int | None
    committed: bool


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
    power: Tree
    places: bool = False

    def planned_rps(self, workload: str) -> float:
        """The rate that a plan must carry: the stated rate plus the headroom."""
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
    """A MIG instance or a whole GPU, with its replicas. ``gpu`` is the index of the GPU in the plan."""

    gpu: int
    gpu_type: str
    mig: bool
    profile: str
    start: int
    replicas: tuple[Replica, ...]

    @property
    def place(self) -> str:
        """Where the slice is, for messages."""
        return f"GPU {self.gpu}, {self.profile} at {self.start}" if self.mig else f"GPU {self.gpu}"


@dataclass(frozen=True)
class PlannedGpu:
    """One GPU of a plan."""

    gpu_type: str
    mig: bool
    slices: tuple[Slice, ...]


class UndecidedError(Exception):
    """Raised for anything that this verifier cannot judge. The message says why."""


class UndescribedError(UndecidedError):
    """Raised for replicas that no performance data describes. A plan must not have them."""

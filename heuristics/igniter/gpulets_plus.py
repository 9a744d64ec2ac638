"""gpu-lets as iGniter compares with it, under iGniter's interference (TPDS 2022, sections 2.3, 5.1 and 5.3: gpu-lets+).

Followed: parts of 20, 40, 50, 60 and 80 % or the whole, at most two on a GPU; a workload gets its most efficient part,
not the least that would do; the batch is the smallest that carries the rate there; the best-fit GPU. Interference
counts for the newcomer's latency alone: nobody looks again at who was there before, nor at throughputs, which are taken
as measured alone. So plans may violate; where the data says so, the outcome is ``unknown`` and says whom.

Guessed, as the paper does not say: workloads in descending order of rate (gpu-lets' Algorithm 1); the most efficient
part is the knee as in `heuristics.gpulets`, enlarged until it carries the rate alone; a second workload
gets all that is left of the GPU (gpu-lets' SPLIT). gpu-lets predicts interference by a linear model of pairs, for which
iGniter's data has no DRAM traffic; the newcomer's latency is that of iGniter's model, which is better informed.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from provision.heuristics.gpulets.gpulets import knee
from provision.models.contents.alone.feasibility import refusal
from provision.models.contents.alone.segments import best_segments
from provision.models.contents.turns.plans import late
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import Terms, solo_terms, together
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.plans.prediction import predict_slice
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome

if TYPE_CHECKING:
    from provision.models.base.arrays import Floats
    from provision.models.problem.instance import Instance
    from provision.models.problem.search import Search, Status
    from provision.models.problem.workload import Workload

NAME = "gpulets+"
SHARES = np.array([0.2, 0.4, 0.5, 0.6, 0.8, 1.0])


def solve(instance: Instance, control: Search) -> Outcome:
    """At most two workloads on a GPU, each on its most efficient part or what is left beside another."""
    started = perf_counter()
    refused = refusal(instance, best_segments(instance), started)
    if refused:
        return refused
    packing, count = _Packing(instance), instance.fleet[0].count
    beyond = packing.beyond()
    if beyond:
        reason = f"{NAME} serves a workload on one GPU, which is too little for {', '.join(beyond)}"
        return Outcome("unknown", "completed", reason=reason, solve_seconds=perf_counter() - started)
    for at in np.argsort(-packing.rates, kind="stable").tolist():
        packing.place(at)
    made, reason = packing.plan(), ""
    plan: Plan | None = made
    if count is not None and len(made.gpus) > count:
        plan, reason = None, f"{NAME} needs {len(made.gpus)} GPUs and the fleet has {count}"
    elif missed := late(instance, made):
        reason = f"{', '.join(missed)}: too slow beside others for the SLO or the rate"
    status: Status = "unknown" if reason else "feasible"
    return Outcome(status, "completed", plan, reason=reason, solve_seconds=perf_counter() - started)


class _Packing:
    """GPUs being filled, as lists of replicas; ``carried`` are requests/s alone, (workloads, shares, batches)."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.gpus: list[list[Replica]] = []
        self.data = instance.performance_of(instance.fleet[0].gpu, instance.workloads[0].model)
        unit = self.data.hardware.unit_share
        self.shares = np.round(np.rint(SHARES / unit) * unit, 9)
        self.rates = np.array([instance.planned_rps(one) for one in instance.workloads])
        self.carried = np.array([self._carried(one) for one in instance.workloads])

    def _carried(self, workload: Workload) -> Floats:
        """Requests/s alone, (shares, batches); 0 where a batch takes longer than the latency budget."""
        batch = np.arange(1, self.data.max_batch + 1)
        terms = solo_terms(self.data, workload.model, batch, self.shares[:, None])
        latency_ms, rps = together(self.data.hardware, Terms(*(column[..., None] for column in terms)))
        return np.where(latency_ms <= self.instance.budget_ms(workload), rps, 0.0)[..., 0]

    def beyond(self) -> list[str]:
        """Names of the workloads whose rate a whole GPU does not carry."""
        short = self.carried.max(axis=(1, 2)) < self.rates
        return [one.name for one, too_little in zip(self.instance.workloads, short, strict=True) if too_little]

    def place(self, at: int) -> None:
        """Put a workload where it leaves least, beside one other or on a new GPU."""
        carried = self.carried[at].max(axis=1)
        ideal = max(self.shares[knee(self.shares, carried)], self.shares[np.argmax(carried >= self.rates[at])])
        halves = [gpu for gpu in self.gpus if len(gpu) == 1 and _left(gpu) >= ideal]
        for gpu in sorted(halves, key=_left):
            newcomer = self._replica(at, _left(gpu))
            if self._in_time(at, (*gpu, newcomer)):
                gpu.append(newcomer)
                return
        self.gpus.append([self._replica(at, ideal)])

    def _replica(self, at: int, share: float) -> Replica:
        """A workload on a share with the smallest batch that carries its rate there."""
        carried = self.carried[at, np.flatnonzero(self.shares <= share)[-1]]
        return Replica(
            workload=self.instance.workloads[at].name, batch=int(np.argmax(carried >= self.rates[at])) + 1,
            sm_share=float(share), rate_rps=float(self.rates[at]),
        )

    def _in_time(self, at: int, replicas: tuple[Replica, ...]) -> bool:
        """Whether the last of the replicas meets its latency budget beside the others."""
        found = predict_slice(self.instance, self.data.gpu, Slice(profile=WHOLE, replicas=replicas))[-1]
        return found is not None and found.latency_ms <= self.instance.budget_ms(self.instance.workloads[at])

    def plan(self) -> Plan:
        """The Plan."""
        gpus = [
            PlannedGpu(gpu=self.data.gpu, mig=False, slices=(Slice(profile=WHOLE, replicas=tuple(gpu)),))
            for gpu in self.gpus
        ]
        name, digest = self.instance.name, self.instance.digest
        return Plan(version=1, instance=name, digest=digest, method=NAME, gpus=tuple(gpus))


def _left(gpu: Sequence[Replica]) -> float:
    """The share left beside the first replica of a GPU."""
    return round(1 - gpu[0].sm_share, 9)


METHODS = (
    Method(
        name=NAME,
        summary="at most two workloads on a GPU, the first beside a newcomer not looked at again",
        run=solve,
        source="iGniter, TPDS 2022, section 5.1; gpu-lets, ATC 2022",
        features=frozenset({"limited_counts", "without_mig", "interference", "max_throughput"}),
    ),
)

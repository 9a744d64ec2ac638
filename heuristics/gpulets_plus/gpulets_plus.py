"""gpu-lets+, the version of gpu-lets with which iGniter is compared (TPDS 2022, sections 2.3, 5.1 and 5.3).

From the paper: a share is 20, 40, 50, 60 or 80 % of a GPU, and a GPU has at most two. A workload gets shares of its
most efficient size, as many as its rate needs, each on the best-fit GPU, with the smallest batch that carries the rate
there. Interference is checked only for the latency of the added workload. The latency of the workload already on the
GPU is not checked again, and every throughput is the one that a workload reaches alone on its share. Therefore plans
may violate SLOs; if the data predicts this, the outcome is ``unknown`` and names the workloads. The most efficient
shares are inputs: the paper states them for its four models on a V100 (STATED). gpu-lets' own rule gives other shares
on the measured curves; it is used for all other models. A workload with ``max_replicas`` stays on one share, which is
enlarged until it carries the rate, up to the whole GPU. Two points are guessed, as the paper does not mention them:
workloads are placed in descending order of rate (gpu-lets' Algorithm 1); a second workload gets all that is left of the
GPU (gpu-lets' SPLIT). Latencies and throughputs come from the instance's performance data: iGniter's model, or
co-location fitted to measured pairs; they replace gpu-lets' linear model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from provision.formulations.search.feasibility import late, proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.gpulets.gpulets import DONE, knee
from provision.models.base.known import known
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.sm_shares import DIGITS
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.method import Method
from provision.models.problem.prediction import predict_slice
from provision.models.problem.search import Outcome

if TYPE_CHECKING:
    from provision.models.base.arrays import Floats
    from provision.models.performance.colocation import Colocation
    from provision.models.performance.igniter import IgniterProfiles
    from provision.models.problem.instance import Instance
    from provision.models.problem.search import Search, Status

NAME = "gpulets+"
SHARES = np.array([0.2, 0.4, 0.5, 0.6, 0.8, 1.0])
STATED = {"alexnet": 0.4, "resnet50": 0.6, "vgg19": 0.4, "ssd": 0.4}
"""The most efficient shares that the paper states (Table 1 and section 5.3). The share of SSD may also be 50 %: the
figures do not tell which.
"""
SLACK = 1e-9


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with at most two workloads on a GPU, each on its most efficient share or on the share that
    another workload leaves.
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return refused
    packing, count = _Packing(instance), instance.fleet[0].count
    beyond = packing.beyond()
    if beyond:
        reason = f"{NAME} finds no part of a GPU, or with max_replicas no single one, for {', '.join(beyond)}"
        return Outcome("unknown", "completed", reason=reason)
    for at in np.argsort(-packing.rates, kind="stable").tolist():
        packing.place(at)
    made, reason = packing.plan(), ""
    plan: Plan | None = made
    if count is not None and len(made.gpus) > count:
        plan, reason = None, f"{NAME} needs {len(made.gpus)} GPUs and the fleet has {count}"
    elif missed := late(instance, made):
        reason = f"{', '.join(missed)}: too slow beside others for the SLO or the rate"
    status: Status = "unknown" if reason else "feasible"
    return Outcome(status, "completed", plan, reason=reason)


class _Packing:
    """GPUs that are being filled, as lists of replicas; ``carried`` has, by workload, the requests/s alone as an array
    (shares, batches).
    """

    def __init__(self, instance: Instance) -> None:
        self.instance, self.gpu = instance, instance.fleet[0].gpu
        self.gpus: list[list[Replica]] = []
        self.rates = np.array([instance.planned_rps(one) for one in instance.workloads])
        alone = {model: self._alone(model) for model in {one.model for one in instance.workloads}}
        self.carried = [np.where(latency_ms <= instance.budget_ms(one), throughput_rps, 0.0)
                        for one in instance.workloads for latency_ms, throughput_rps in [alone[one.model]]]

    def _alone(self, model: str) -> tuple[Floats, Floats]:
        """(shares, batches), the batch time in ms and the requests/s of a model alone; infinite and 0 where the data
        describes no point.
        """
        data = cast("Colocation | IgniterProfiles", self.instance.performance_of(self.gpu, model))
        points = data.operating_points(model, WHOLE)
        latency_ms = np.full((len(SHARES), points.batch.max()), np.inf)
        throughput_rps = np.zeros_like(latency_ms)
        for at, share in enumerate(SHARES):
            here = np.isclose(points.sm_share, share)
            latency_ms[at, points.batch[here] - 1] = points.latency_ms[here]
            throughput_rps[at, points.batch[here] - 1] = points.throughput_rps[here]
        return latency_ms, throughput_rps

    def _splits(self, at: int) -> bool:
        """Whether a workload may have several parts."""
        return self.instance.workloads[at].max_replicas is None

    def _ideal(self, at: int) -> int | None:
        """The index of the share that a workload gets on a new GPU; None if no share is large enough."""
        carried, model = self.carried[at].max(axis=1), self.instance.workloads[at].model
        efficient = int(np.searchsorted(SHARES, STATED[model])) if model in STATED else knee(SHARES, carried)
        enough = carried[:-1] > 0 if self._splits(at) else (carried > 0) & (carried >= self.rates[at])
        enough[:efficient] = False
        return int(enough.argmax()) if enough.any() else None

    def beyond(self) -> list[str]:
        """The names of the workloads for which no share is large enough."""
        return [one.name for at, one in enumerate(self.instance.workloads) if self._ideal(at) is None]

    def place(self, at: int) -> None:
        """Place replicas of a workload until they carry its rate. Each goes to the GPU with the least free share that
        it fits, or to a new GPU if it fits none.
        """
        rate = float(self.rates[at])
        left = rate - self._place(at, rate)
        while left > DONE * rate:
            left -= self._place(at, left)

    def _place(self, at: int, left: float) -> float:
        """Place one part for the rest of a workload's rate; return the requests/s that it takes."""
        ideal = SHARES[known(self._ideal(at))]
        halves = [gpu for gpu in self.gpus if len(gpu) == 1 and _left(gpu) >= ideal - SLACK]
        for gpu in sorted(halves, key=_left):
            for newcomer in self._replicas(at, _left(gpu), left):
                if self._in_time(at, (*gpu, newcomer)):
                    gpu.append(newcomer)
                    return newcomer.rate_rps
        alone = next(self._replicas(at, ideal, left))
        self.gpus.append([alone])
        return alone.rate_rps

    def _replicas(self, at: int, share: float, rate: float) -> Iterator[Replica]:
        """Yield the replicas to try on a share: first with the smallest batch that carries the rate, then, if the
        workload may be split, with smaller batches.
        """
        carried = self.carried[at][np.searchsorted(SHARES, share + SLACK) - 1]
        enough = (carried > 0) & (carried >= rate)
        if not self._splits(at) and not enough.any():
            return
        largest = int(enough.argmax()) if enough.any() else int(carried.argmax())
        for size in range(largest, -1 if self._splits(at) else largest - 1, -1):
            if carried[size]:
                yield Replica(workload=self.instance.workloads[at].name, batch=size + 1, sm_share=float(share),
                              rate_rps=float(min(rate, carried[size])))

    def _in_time(self, at: int, replicas: tuple[Replica, ...]) -> bool:
        """Whether the last replica meets its latency budget beside the others."""
        found = predict_slice(self.instance, self.gpu, Slice(profile=WHOLE, replicas=replicas))[-1]
        return found is not None and found.latency_ms <= self.instance.budget_ms(self.instance.workloads[at])

    def plan(self) -> Plan:
        """The plan of the GPUs that were filled."""
        gpus = [
            PlannedGpu(gpu=self.gpu, mig=False, slices=(Slice(profile=WHOLE, replicas=tuple(gpu)),))
            for gpu in self.gpus
        ]
        return self.instance.plan_of(NAME, gpus)


def _left(gpu: Sequence[Replica]) -> float:
    """The share of a GPU that its first replica leaves."""
    return round(1 - gpu[0].sm_share, DIGITS)


METHODS = (
    Method(
        name=NAME,
        summary="at most two workloads on a GPU, the first beside a newcomer not looked at again",
        run=solve,
        source="iGniter, TPDS 2022, section 5.1; gpu-lets, ATC 2022",
        features=frozenset(
            {"limited_counts", "without_mig", "interference", "other_sharing", "max_replicas", "max_throughput"}
        ),
    ),
)

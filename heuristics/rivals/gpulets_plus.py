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
GPU (gpu-lets' SPLIT). Of several GPU types the first of the fleet that is left and has a large enough share is opened.
Latencies and throughputs come from the instance's performance data: iGniter's model, or
co-location fitted to measured pairs; they replace gpu-lets' linear model.
"""

import math
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from provision.formulations.search.feasibility import late, proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.gpulets.gpulets import DONE, knee
from provision.models.base.arrays import Floats
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.shared_gpus import DIGITS
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.prediction import predict_slice
from provision.models.problem.search import Outcome, Search, Status
from provision.models.problem.workload import Workload

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
    packing = _Packing(instance)
    beyond = packing.beyond()
    if beyond:
        reason = f"{NAME} finds no part of a GPU, or with max_replicas no single one, for {', '.join(beyond)}"
        return Outcome("unknown", "completed", reason=reason)
    for at in np.argsort(-packing.rates, kind="stable").tolist():
        packing.place(at)
    made, reason = packing.plan(), ""
    plan: Plan | None = made
    if packing.short:
        plan, reason = None, f"{NAME} needs {len(made.gpus)} GPUs, {packing.short} more than the fleet has for them"
    elif missed := late(instance, made):
        reason = f"{', '.join(missed)}: too slow beside others for the SLO or the rate"
    status: Status = "unknown" if reason else "feasible"
    return Outcome(status, "completed", plan, reason=reason)


class _Packing:
    """GPUs that are being filled, as pairs (index of the fleet entry, replicas). By fleet entry, ``shares`` has SHARES
    in units of its GPUs, and ``carried`` for each workload the requests/s alone within its budget as an array (shares,
    batches). ``short`` counts GPUs that the fleet lacks.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance, self.short = instance, 0
        self.gpus: list[tuple[int, list[Replica]]] = []
        self.rates = np.array([instance.planned_rps(one) for one in instance.workloads])
        self.left = [math.inf if entry.count is None else entry.count for entry in instance.fleet]
        self.shares: list[Floats] = []
        self.carried: list[list[Floats]] = []
        for entry in instance.fleet:
            found = [self._alone(entry.gpu, one) for one in instance.workloads]
            self.shares.append(found[0][0])
            self.carried.append([carried for _, carried in found])

    def _alone(self, gpu: str, workload: Workload) -> tuple[Floats, Floats]:
        """The largest shares that the data describes up to SHARES, and (shares, batches) the requests/s of a workload
        alone on them within its budget; 0 where the data describes no point.
        """
        data = cast("Colocation | IgniterProfiles", self.instance.performance_of(gpu, workload.model))
        points = data.operating_points(workload.model, WHOLE)
        held = np.asarray(points.sm_share)
        shares = np.array([held[held <= share + SLACK].max(initial=0.0) for share in SHARES])
        carried = np.zeros((len(SHARES), points.batch.max()))
        in_time = np.where(points.latency_ms <= self.instance.budget_ms(workload), points.throughput_rps, 0.0)
        for at, share in enumerate(shares):
            here = held == share
            carried[at, points.batch[here] - 1] = in_time[here]
        return np.round(shares, DIGITS), carried

    def _splits(self, at: int) -> bool:
        """Whether a workload may have several parts."""
        return self.instance.workloads[at].max_replicas is None

    def _ideal(self, entry: int, at: int) -> int | None:
        """The index of the share that a workload gets on a new GPU; None if no share is large enough."""
        carried, model = self.carried[entry][at].max(axis=1), self.instance.workloads[at].model
        efficient = int(np.searchsorted(SHARES, STATED[model])) if model in STATED else knee(SHARES, carried)
        enough = carried[:-1] > 0 if self._splits(at) else (carried > 0) & (carried >= self.rates[at])
        enough[:efficient] = False
        return int(enough.argmax()) if enough.any() else None

    def _entries(self, at: int) -> list[tuple[int, float]]:
        """The fleet entries on whose GPUs a workload fits, and the share that it gets there."""
        found = ((entry, self._ideal(entry, at)) for entry in range(len(self.left)))
        return [(entry, float(self.shares[entry][ideal])) for entry, ideal in found if ideal is not None]

    def beyond(self) -> list[str]:
        """The names of the workloads for which no share is large enough."""
        return [one.name for at, one in enumerate(self.instance.workloads) if not self._entries(at)]

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
        entries = self._entries(at)
        ideal = dict(entries)
        halves = [(entry, gpu) for entry, gpu in self.gpus
                  if len(gpu) == 1 and entry in ideal and _left(gpu) >= ideal[entry] - SLACK]
        for entry, gpu in sorted(halves, key=lambda one: _left(one[1])):
            for newcomer in self._replicas(entry, at, _left(gpu), left):
                if self._in_time(entry, at, (*gpu, newcomer)):
                    gpu.append(newcomer)
                    return newcomer.rate_rps
        entry, share = next((one for one in entries if self.left[one[0]]), entries[0])
        self.short += not self.left[entry]
        self.left[entry] = max(self.left[entry] - 1, 0)
        alone = next(self._replicas(entry, at, share, left))
        self.gpus.append((entry, [alone]))
        return alone.rate_rps

    def _replicas(self, entry: int, at: int, share: float, rate: float) -> Iterator[Replica]:
        """Yield the replicas to try on a share: first with the smallest batch that carries the rate, then, if the
        workload may be split, with smaller batches.
        """
        carried = self.carried[entry][at][np.searchsorted(self.shares[entry], share + SLACK) - 1]
        enough = (carried > 0) & (carried >= rate)
        if not self._splits(at) and not enough.any():
            return
        largest = int(enough.argmax()) if enough.any() else int(carried.argmax())
        for size in range(largest, -1 if self._splits(at) else largest - 1, -1):
            if carried[size]:
                yield Replica(workload=self.instance.workloads[at].name, batch=size + 1, sm_share=share,
                              rate_rps=float(min(rate, carried[size])))

    def _in_time(self, entry: int, at: int, replicas: tuple[Replica, ...]) -> bool:
        """Whether the last replica meets its latency budget beside the others."""
        gpu = self.instance.fleet[entry].gpu
        found = predict_slice(self.instance, gpu, Slice(profile=WHOLE, replicas=replicas))[-1]
        return found is not None and found.latency_ms <= self.instance.budget_ms(self.instance.workloads[at])

    def plan(self) -> Plan:
        """The plan of the GPUs that were filled."""
        return self.instance.plan_of(NAME, [
            PlannedGpu(gpu=self.instance.fleet[entry].gpu, mig=False,
                       slices=(Slice(profile=WHOLE, replicas=tuple(gpu)),))
            for entry, gpu in self.gpus
        ])


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
            {"several_gpu_types", "limited_counts", "without_mig", "interference", "other_sharing", "max_replicas",
             "max_throughput"}
        ),
    ),
)

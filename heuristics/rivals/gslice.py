"""GSLICE's self-tuning (SoCC 2020), in the version with which the authors of gpu-lets compare their own method. This
version uses profiles (ATC 2022, section 6.1).

From the papers: every workload gets parts of GPUs until its rate is carried. The parts have the workload's most
efficient size, and each carries the largest throughput that the SLO allows. Workloads do not run in turns, and
interference is ignored. If the data predicts that the plan misses an SLO because of neighbours, the outcome is
``unknown``, with this reason.

The papers leave three points open, which are guessed: workloads are placed in descending order of rate; each takes the
smallest free part of at least its size, and if there is none, a GPU is split; the most efficient size is the knee that
Algorithm 1 of gpu-lets computes.

GSLICE+, the version of GSLICE's self-tuning with which iGniter is compared (TPDS 2022, sections 2.3, 5.1 and 5.3).

The procedure follows iGniter's public program, github.com/icloud-ecnu/igniter. Workloads are placed as by iGniter.
Every workload starts with 30 % of the GPU and batch 1, and is then tuned on its own, whatever shares its neighbours
get. A round changes the batch up to five times, until no batch changes, and then the share once. After five rounds, or
a round that changes no share, the batch is tuned a last time:

    batch  x (1 + slack / latency), rounded up; kept while the slack is above 0 and below 10 % of half of the SLO
    share x (1 +- max(|slack| / latency, |surplus| / throughput)), less if both are above 0, more if one is below; kept
    while both are above 0 and below 10 % of half of the SLO and of the rate

where slack is half of the SLO minus the batch latency, and surplus is the throughput of back-to-back batches minus the
rate. The original program measures both beside the neighbours; here they are predicted from the performance data, for
shares in steps of 0.1 %. The plan has the nearest shares that the data describes. Shares may then add up to more than
the whole GPU, which the verifier reports; the data does not tell the cost of the contention for SMs. If the plan has
violations, the outcome is ``unknown``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from provision.formulations.search.feasibility import late, proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.gpulets.gpulets import (
    DONE,
    RESERVE,
    Gpus,
    chosen,
    efficient_shares,
    find_best_fit,
    planning_tables,
)
from provision.heuristics.gpulets.plans import FEATURES, outcome
from provision.heuristics.igniter import igniter
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import IgniterProfiles, igniter_data
from provision.models.performance.operating_points import Member, Prediction
from provision.models.performance.shared_gpus import share_of_units
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search, Status

NAME = "gslice+"
ROUNDS, BATCH_STEPS, DEAD_BAND = 5, 5, 0.1
FIRST_SHARE, LEAST_SHARE, STEP = 0.3, 0.01, 0.001


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with parts of the most efficient size for every workload."""
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return refused
    tables = planning_tables(instance, chosen(control), interference=False)
    gpus = Gpus(tables, instance.fleet[0].count)
    stuck = _fill(gpus)
    return outcome(tables, None if stuck else gpus.loads(), "gslice", stuck)


def _fill(gpus: Gpus) -> str:
    """Give all workloads their parts; return "", or the reason if a workload finds too few parts."""
    efficient = efficient_shares(gpus.tables)
    for workload in np.argsort(-gpus.tables.rates, kind="stable").tolist():
        left = rate = gpus.tables.rates[workload]
        while left > DONE * rate:
            found = find_best_fit(gpus, efficient[workload], workload, left)
            if not found:
                return f"no part left for workload {gpus.tables.instance.workloads[workload].name}; allow more GPUs"
            gpus.put(*found[:2])
            left -= found[2]
    return ""


@dataclass(frozen=True)
class _Tuned:
    """A workload that is being tuned: its batch and share (a fraction, not rounded), and the rate and latency that it
    must keep.
    """

    workload: str
    model: str
    rate_rps: float
    budget_ms: float
    batch: int = 1
    share: float = FIRST_SHARE

    def with_batch(self, met: Prediction, most: int) -> _Tuned:
        """A copy whose batch is changed by the rule above, given the prediction ``met``; the batch is at most ``most``.
        """
        slack_ms = self.budget_ms - met.latency_ms
        if 0 < slack_ms < DEAD_BAND * self.budget_ms:
            return self
        return replace(self, batch=math.ceil(np.clip(self.batch * (1 + slack_ms / met.latency_ms), 1, most)))

    def with_share(self, met: Prediction) -> _Tuned:
        """A copy whose share is changed by the rule above, given the prediction ``met``."""
        slack_ms, surplus_rps = self.budget_ms - met.latency_ms, met.throughput_rps - self.rate_rps
        if 0 < slack_ms < DEAD_BAND * self.budget_ms and 0 < surplus_rps < DEAD_BAND * self.rate_rps:
            return self
        change = max(abs(slack_ms) / met.latency_ms, abs(surplus_rps) / met.throughput_rps)
        sign = -1 if min(slack_ms, surplus_rps) < 0 else 1
        return replace(self, share=float(np.clip(self.share * (1 - sign * change), LEAST_SHARE, 1)))


def solve_plus(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with iGniter's placement and the shares and batches of self-tuning."""
    placed = igniter.METHODS[0].run(instance, control)
    if placed.plan is None:
        return placed
    known = igniter_data(instance.performance)
    gpus = tuple(
        gpu.model_copy(update={"slices": (_slice(_tuned(known[gpu.gpu], _start(instance, gpu)),
                                                 known[gpu.gpu].hardware.unit_share),)})
        for gpu in placed.plan.gpus
    )
    plan: Plan = placed.plan.model_copy(update={"method": NAME, "gpus": gpus})
    missed = [f"{name}: too slow for the SLO or the rate" for name in late(instance, plan)]
    full = [str(at) for at, gpu in enumerate(gpus) if sum(gpu.slices[0].held_shares) > 1 + TOLERANCE]
    missed += [f"SM shares of GPU {', '.join(full)} add up to more than 1"] if full else []
    status: Status = "unknown" if missed else "feasible"
    return Outcome(status, "completed", plan, reason="; ".join(missed))


def _start(instance: Instance, gpu: PlannedGpu) -> list[_Tuned]:
    """The workloads of a GPU before tuning."""
    served = [(one, instance.workload[one.workload]) for one in gpu.slices[0].replicas]
    return [_Tuned(one.workload, its.model, one.rate_rps, instance.budget_ms(its)) for one, its in served]


def _tuned(data: IgniterProfiles, state: list[_Tuned]) -> list[_Tuned]:
    """The workloads of a GPU after self-tuning of shares and batches."""
    data = data.model_copy(update={"hardware": data.hardware.model_copy(update={"unit_share": STEP})})
    for _ in range(ROUNDS):
        state = _batches(data, state)
        met = _met(data, state)
        changed = [one.with_share(found) for one, found in zip(state, met, strict=True)] if met else state
        if changed == state:
            break
        state = changed
    return _batches(data, state)


def _batches(data: IgniterProfiles, state: list[_Tuned]) -> list[_Tuned]:
    """The same workloads after up to BATCH_STEPS changes of their batches."""
    for _ in range(BATCH_STEPS):
        met = _met(data, state)
        changed = [one.with_batch(at, data.max_batch) for one, at in zip(state, met, strict=True)] if met else state
        if changed == state:
            break
        state = changed
    return state


def _met(data: IgniterProfiles, state: list[_Tuned]) -> list[Prediction]:
    """The predictions of all workloads beside each other; empty if they draw so much power that no clock is left."""
    found = data.predict(WHOLE, [Member(one.model, one.batch, 1, _rounded(one.share, STEP)) for one in state])
    described = [one for one in found if one is not None]
    return described if len(described) == len(found) else []


def _slice(state: list[_Tuned], unit: float) -> Slice:
    """The whole GPU as a slice with its replicas; each share is rounded to the nearest multiple of ``unit``."""
    replicas = tuple(
        Replica(workload=one.workload, batch=one.batch, rate_rps=one.rate_rps,
                sm_share=_rounded(one.share, unit))
        for one in state
    )
    return Slice(profile=WHOLE, replicas=replicas)


def _rounded(share: float, unit: float) -> float:
    """A share rounded to the nearest multiple of ``unit``, at least one unit."""
    return share_of_units(unit, max(round(share / unit), 1))


METHODS = (
    Method(
        name="gslice",
        summary="parts of the most efficient size, one workload on each, interference ignored",
        run=solve,
        source="GSLICE, SoCC 2020; gpu-lets, ATC 2022, section 6.1",
        features=FEATURES,
        parameters=RESERVE,
    ),
    Method(
        name=NAME,
        summary="iGniter's placement, shares and batches tuned one by one to what each workload meets",
        run=solve_plus,
        source="GSLICE, SoCC 2020; iGniter, TPDS 2022, section 5.1",
        features=frozenset({"several_gpu_types", "limited_counts", "without_mig", "interference", "max_throughput"}),
    ),
)

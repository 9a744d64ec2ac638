"""GSLICE's self-tuning as iGniter compares with it (TPDS 2022, sections 2.3, 5.1 and 5.3: GSLICE+), by replays.

Followed: iGniter's placement; the plan after five adjustments; every workload is adjusted on its own, by its mean batch
latency and its throughput, whatever the others on its GPU get. A workload gets more SMs when its batches take longer
than half of its SLO or its rate is not served, and fewer when they take less than that by more than the threshold
of 10 %. Batches are the largest that fit into half of the SLO alone (Table 1). What is measured comes from a replay of
the plan at constant arrivals, interference included; nothing is predicted.

Guessed, as the papers do not say: equal shares to begin with, steps of a tenth of the GPU. Shares may then add up to
more than the GPU has, which the verifier reports; what the SMs' contention would cost, the performance data does not
say. Where the plan violates something the outcome is ``unknown``.
"""

from time import perf_counter

from provision.heuristics.igniter import igniter
from provision.models.hardware.gpu import WHOLE
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome
from provision.simulation.simulate import MOST_REQUESTS, simulate
from provision.verification.verify import verify

NAME = "gslice+"
ADJUSTMENTS, THRESHOLD, STEP_SHARE = 5, 0.1, 0.1
REPLAY_S = 5.0
SERVED = 0.99
"""Part of a rate that counts as served: a replay ends amid a batch."""
ROUNDING = 9
"""Decimals of an SM share that are not noise."""


def solve(instance, control):
    """iGniter's placement with equal shares, adjusted round by round."""
    started = perf_counter()
    if REPLAY_S * sum(one.rate_rps for one in instance.workloads) > MOST_REQUESTS:
        return Outcome("unknown", "completed", reason=f"{NAME}: more requests than a replay can hold; use igniter")
    placed = igniter.METHODS[0].run(instance, control)
    if placed.plan is None:
        return placed
    plan = _mapped(placed.plan.model_copy(update={"method": NAME}), lambda gpu, replica: _sized(
        instance, replica, 1 / len(gpu.slices[0].replicas)
    ))
    for _ in range(ADJUSTMENTS):
        report = simulate(instance, plan, REPLAY_S, control.seed, arrival_cv=0.0)
        measured = {one.workload: one for one in report.workloads}
        plan = _mapped(plan, lambda _, replica, met=measured: _adjusted(instance, replica, met[replica.workload]))
    broken = verify(instance, plan).violations
    status, reason = ("unknown", broken[0].message) if broken else ("feasible", "")
    return Outcome(status, "completed", plan, reason=reason, solve_seconds=perf_counter() - started)


def _mapped(plan, change):
    """A plan with every replica changed."""
    gpus = []
    for gpu in plan.gpus:
        [piece] = gpu.slices
        replicas = tuple(change(gpu, replica) for replica in piece.replicas)
        gpus.append(gpu.model_copy(update={"slices": (piece.model_copy(update={"replicas": replicas}),)}))
    return plan.model_copy(update={"gpus": tuple(gpus)})


def _adjusted(instance, replica, met):
    """A replica with more or fewer SMs by what its requests met."""
    half_ms, batch_ms = instance.budget_ms(instance.workload[replica.workload]), _batch_ms(met)
    if batch_ms > half_ms or met.throughput_rps < SERVED * met.offered_rps:
        return _sized(instance, replica, replica.sm_share + STEP_SHARE)
    if batch_ms < (1 - THRESHOLD) * half_ms:
        return _sized(instance, replica, replica.sm_share - STEP_SHARE)
    return replica


def _batch_ms(met):
    """Mean time that a batch held the process; 0 where there was none."""
    return 1000 * met.utilisation * met.mean_batch / met.throughput_rps if met.throughput_rps else 0.0


def _sized(instance, replica, share):
    """A replica on a share of at least a step, with the largest batch that alone takes half of its SLO."""
    workload = instance.workload[replica.workload]
    data = instance.performance_of(instance.fleet[0].gpu, workload.model)
    unit, points = data.hardware.unit_share, data.operating_points(workload.model, WHOLE)
    units = int(min(max(share, STEP_SHARE), 1.0) / unit * (1 + 10**-ROUNDING))
    fits = (abs(points.sm_share / unit - units) < 0.5) & (points.latency_ms <= instance.budget_ms(workload))
    batch = int(points.batch[fits].max(initial=1))
    return replica.model_copy(update={"sm_share": round(units * unit, ROUNDING), "batch": batch})


METHODS = (
    Method(
        name=NAME,
        summary="iGniter's placement, shares tuned by what replays of the plan measure",
        run=solve,
        source="GSLICE, SoCC 2020; iGniter, TPDS 2022, section 5.1",
        features=frozenset({"limited_counts", "without_mig", "interference", "max_throughput"}),
        compiled=True,
    ),
)

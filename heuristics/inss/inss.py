"""InSS (section 5.4): a trained actor places workloads and chooses their shares; a binary search sets the batches.

From the paper: the decision of Algorithm 2, line 6, with the most likely action, and line 7 (Algorithm 1). Policies are
trained by ``provision train``; `provision.training` tells which parts of the training are from the paper and which are
guessed. The execution latencies are InSS's own (section 4.1, `provision.heuristics.inss.system`), with coefficients
from the instance's performance data, of kind igniter; InSS publishes its program, but not its coefficients. If a plan
violates SLOs or rates by the performance data, in which the clock falls with power, the outcome is ``unknown``, with
this reason. A plan that keeps the instance's own rule is ``feasible``, even if InSS's eq. 2 asks for more; the reason
tells it.

The method decides for an empty system: no replica is placed yet, and no request waits. Shipped policies are for the
instances ``inss`` and ``inss-six``, at any rates.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

import numpy as np

from provision.formulations.search.feasibility import late
from provision.heuristics.inss.batches import decide_batches, keeping
from provision.heuristics.inss.policy import provisioning, read_policy
from provision.heuristics.inss.system import Judged, System
from provision.models.base.errors import UnsupportedError
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.sm_shares import share_of_units
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome

if TYPE_CHECKING:
    from provision.heuristics.inss.policy import TrainedPolicy
    from provision.instances.files.files import FilePath
    from provision.models.base.arrays import Bools, Ints
    from provision.models.problem.instance import Instance
    from provision.models.problem.search import Search

NAME, BLIND = "inss", "inss-ni"
FEATURES = frozenset({"several_gpu_types", "limited_counts", "without_mig", "interference", "max_throughput",
                      "full_batches"})
FULL_BATCHES = "full_batches"
"""The latency rule that is InSS's eq. 2."""
SHIPPED = ""
"""The value of parameter ``policy`` that stands for the policies that come with the package."""
POLICIES = "inss.npz", "inss-six.npz"


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance by one decision of the actor."""
    return _decided(System(instance), NAME, control)


def solve_blind(instance: Instance, control: Search) -> Outcome:
    """Plan an instance like `solve`, but with batches chosen as if each replica were alone on its GPU (InSS-ni)."""
    return _decided(System(instance, interference=False), BLIND, control)


def _decided(system: System, name: str, control: Search) -> Outcome:
    instance = system.instance
    policy = policy_for(control.parameters["policy"], system)
    build_seconds = control.elapsed_s
    rates_rps, nothing = system.rates_rps[None], np.zeros((1, system.workloads))
    given = provisioning(system, policy.act(system, rates_rps, nothing))
    batch, _ = decide_batches(system, given, rates_rps, nothing)
    found = keeping(System(instance, judged=Judged.BY_DATA), given, batch, rates_rps, nothing)
    plan = plan_of(system, name, given.gpu[0], given.units[0], batch[0])
    if found.all():
        return Outcome("feasible", "completed", plan, build_seconds=build_seconds)
    names = missed(instance, found[0])
    if instance.policy.latency_budget != FULL_BATCHES and not late(instance, plan):
        rule = instance.policy.latency_budget
        reason = f"the plan keeps {rule}; by InSS's own eq. 2 requests of {names} wait too long"
        return Outcome("feasible", "completed", plan, None, reason, build_seconds)
    lacking = f"no batch meets the SLO and the rate of {names}; use --method auto, or another policy (provision train)"
    if not system.interference:
        lacking = f"{names}: too slow beside others for the SLO or the rate"
    return Outcome("unknown", "completed", plan, None, f"where the policy places them, {lacking}", build_seconds)


def policy_for(path: FilePath, system: System) -> TrainedPolicy:
    """The policy in a file, or the shipped one for ``""``; UnsupportedError if it was trained for another system."""
    policies = [read_policy(path)] if path != SHIPPED else [_shipped(name) for name in POLICIES]
    for policy in policies:
        if policy.trained.fits(system):
            return policy
    one, name = policies[0].trained, "the shipped policy" if path == SHIPPED else str(path)
    raise UnsupportedError(
        f"method {NAME}: {name} is for {len(one.models)} workloads ({', '.join(sorted(set(one.models)))}) on "
        f"{one.gpus} {one.gpu} with SLOs {', '.join(f'{slo:g}' for slo in one.slo_ms)} ms, not for "
        f"{system.instance.name}; train one with provision train INSTANCE --out F and add --set policy=F"
    )


def _shipped(name: str) -> TrainedPolicy:
    with as_file(files(__package__) / "data" / name) as path:
        return read_policy(path)


def plan_of(system: System, method: str, gpus: Ints, units: Ints, batch: Ints) -> Plan:
    """The plan of one system, without its empty GPUs; ``gpus``, ``units`` and ``batch`` are (workloads,)."""
    instance, shares = system.instance, [one.hardware.unit_share for one in system.data]
    replicas = [
        Replica(workload=one.name, batch=size, sm_share=share_of_units(shares[system.kind[gpu]], many),
                rate_rps=instance.planned_rps(one))
        for one, gpu, size, many in zip(instance.workloads, gpus, batch.tolist(), units.tolist(), strict=True)
    ]
    return instance.plan_of(method, (
        PlannedGpu(gpu=system.data[system.kind[at]].gpu, mig=False, slices=(
            Slice(profile=WHOLE, replicas=tuple(replicas[one] for one in np.flatnonzero(gpus == at))),
        ))
        for at in np.unique(gpus)
    ))


def missed(instance: Instance, found: Bools) -> str:
    """The names of the workloads for which no batch was found."""
    return ", ".join(instance.workloads[one].name for one in np.flatnonzero(~found))


METHODS = (
    Method(
        name=NAME,
        summary="a trained actor (SAC-D) for placement and SM shares, binary search for batches",
        run=solve,
        source="InSS, sections 4 and 5, Algorithms 1 and 2",
        features=FEATURES,
        parameters={"policy": SHIPPED},
    ),
    Method(
        name=BLIND,
        summary="inss without prediction of interference: batches as if every replica were alone",
        run=solve_blind,
        source="InSS, section 6.3 (InSS-ni)",
        features=FEATURES,
        parameters={"policy": SHIPPED},
    ),
)

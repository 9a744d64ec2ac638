"""InSS (section 5.4): a trained actor places workloads and shares GPUs out, binary search sets the batches.

Followed: the decision of Algorithm 2, line 6, with the most likely action, and line 7 (Algorithm 1). Training is
``provision train``; what it takes over from the paper and what had to be guessed stands in ``provision.training``. The
execution latencies of section 4.1 are those of the instance's performance data, of kind igniter, which has the same
effects of neighbours and one more, the clock that falls with power; InSS's own coefficients are not public.

Here the actor decides for every instance; the paper's runs when Algorithm 1 finds no batches under the placement that
stands. Nothing waits when an instance begins. The shipped policy is for the instance ``inss`` at any rates.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from provision.heuristics.inss.batches import decide_batches
from provision.heuristics.inss.policy import provisioning, read_policy
from provision.heuristics.inss.system import System
from provision.models.base.errors import UnsupportedError
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome

if TYPE_CHECKING:
    from provision.heuristics.inss.policy import TrainedPolicy
    from provision.instances.files.files import FilePath
    from provision.models.base.arrays import Bools, Ints
    from provision.models.problem.instance import Instance
    from provision.models.problem.search import Search, Status

NAME = "inss"
SHIPPED = ""
"""What stands for the policy that comes with the package."""


def solve(instance: Instance, control: Search) -> Outcome:
    """One decision of the scheduler."""
    started = perf_counter()
    system = System(instance)
    policy = _policy(control.parameters["policy"], system)
    built = perf_counter()
    nothing = np.zeros((1, system.workloads))
    given = provisioning(system, policy.act(system, nothing))
    batch, found = decide_batches(system, given, system.rates_rps[None], nothing)
    plan = _plan(system, given.gpu[0], given.units[0], batch[0])
    status: Status = "feasible" if found.all() else "unknown"
    reason = "" if found.all() else _missed(instance, found[0])
    return Outcome(status, "completed", plan, None, reason, built - started, perf_counter() - built)


def _policy(path: FilePath, system: System) -> TrainedPolicy:
    """The policy in a file, or the shipped one; it must have been trained for such a system."""
    if path == SHIPPED:
        with as_file(files(__package__) / "data" / "inss.npz") as shipped:
            policy, name = read_policy(shipped), "the shipped policy"
    else:
        policy, name = read_policy(path), str(path)
    if not policy.trained.fits(system):
        one = policy.trained
        raise UnsupportedError(
            f"method {NAME}: {name} is for {len(one.models)} workloads ({', '.join(sorted(set(one.models)))}) on "
            f"{one.gpus} {one.gpu} with SLOs {', '.join(f'{slo:g}' for slo in one.slo_ms)} ms, not for "
            f"{system.instance.name}; train one with provision train INSTANCE --out F and add --set policy=F"
        )
    return policy


def _plan(system: System, gpus: Ints, units: Ints, batch: Ints) -> Plan:
    """The plan of one system; GPUs that nobody is on are left out."""
    instance, share = system.instance, system.data.hardware.unit_share
    replicas = [
        Replica(workload=one.name, batch=size, sm_share=round(many * share, 9), rate_rps=instance.planned_rps(one))
        for one, size, many in zip(instance.workloads, batch.tolist(), units.tolist(), strict=True)
    ]
    return Plan(
        version=1, instance=instance.name, digest=instance.digest, method=NAME,
        gpus=tuple(
            PlannedGpu(gpu=system.data.gpu, mig=False, slices=(
                Slice(profile=WHOLE, replicas=tuple(replicas[one] for one in np.flatnonzero(gpus == at))),
            ))
            for at in np.unique(gpus)
        ),
    )


def _missed(instance: Instance, found: Bools) -> str:
    names = ", ".join(instance.workloads[one].name for one in np.flatnonzero(~found))
    return f"where the policy places them, no batch meets the SLO and the rate of {names}; train it for longer"


METHODS = (
    Method(
        name=NAME,
        summary="a trained actor (SAC-D) for placement and SM shares, binary search for batches",
        run=solve,
        source="InSS, sections 4 and 5, Algorithms 1 and 2",
        features=frozenset({"limited_counts", "without_mig", "interference", "max_throughput"}),
        parameters={"policy": SHIPPED},
    ),
)

"""InSS (section 5.4): a trained actor places workloads and chooses their shares; a binary search sets the batches.

From the paper: the decision of Algorithm 2, line 6, with the most likely action, and line 7 (Algorithm 1). Policies are
trained by ``provision train``; `provision.training` tells which parts of the training are from the paper and which are
guessed. The execution latencies are InSS's own (section 4.1, `provision.heuristics.inss.system`), with coefficients
from the instance's performance data, of kind igniter; InSS publishes its program, but not its coefficients. If a plan
violates SLOs or rates by the performance data, in which the clock falls with power, the outcome is ``unknown``, with
this reason. A plan that keeps the instance's own rule is ``feasible``, even if InSS's eq. 2 asks for more; the reason
tells it.

Where ``alone`` names a table of measurements of the models alone, running times are by locally weighted regression on
it, as in the paper (section 4.1); else they are the data's (eq. 11 of iGniter).

The method decides for an empty system: no replica is placed yet, and no request waits. `reconfigured` is InSS's
workflow for a running plan. Shipped policies are for the instances ``inss`` and ``inss-six``, at any rates.

InSS's running times alone (section 4.1): locally weighted regression on measured latencies of models alone.

The table has latencies of whole batches, so the transfers and the scheduling of kernels are subtracted as the
performance data has them.
"""

from collections.abc import Callable
from importlib.resources import as_file, files

import numpy as np

from provision.formulations.search.feasibility import late
from provision.heuristics.inss.batches import decide_batches, keeping
from provision.heuristics.inss.policy import TrainedPolicy, provisioning, read_policy
from provision.heuristics.inss.system import Judged, Provisioning, System
from provision.instances.files.files import FilePath
from provision.instances.importers.pairs import read_alone
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.fitting.latency_models import fit_lwr
from provision.models.fitting.profile_points import ProfilePoints
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import solo_terms
from provision.models.performance.shared_gpus import share_of_units
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search


def regressed_ms(path: str, system: System) -> dict[str, Floats]:
    """The running times alone in ms, by model, as arrays (batches, units) from batch 1 and one unit on.

    InputError if the table in the file ``path`` (see ``read_alone``) cannot be read or lacks a model, UnsupportedError
    if the GPUs have several types.
    """
    if len(system.data) > 1:
        raise UnsupportedError(f"{path}: is a table of one GPU type, and the fleet has several; leave out alone")
    [data], runs = system.data, read_alone(path)
    if lacking := {one.model for one in system.instance.workloads} - set(runs):
        raise InputError(f"{path}: has no rows of model {', '.join(sorted(lacking))}; measure it alone, too")
    shares = data.hardware.unit_share * np.arange(1.0, data.hardware.units + 1)
    batch, share = (axis.ravel() for axis in np.meshgrid(np.arange(1.0, data.max_batch + 1), shares, indexing="ij"))
    found = {}
    for name in sorted({one.model for one in system.instance.workloads}):
        run, terms = runs[name], solo_terms(data, name, batch, share)
        one = np.ones(len(run.batch))
        fitted = fit_lwr(ProfilePoints(run.batch, one, run.sm_share, one, run.latency_ms))
        latency_ms = fitted.latency_ms(batch, np.ones_like(batch), share)
        rest_ms = terms.load_ms + terms.feedback_ms + terms.scheduling_ms
        found[name] = np.maximum(latency_ms - rest_ms, 1e-3).reshape(-1, len(shares))
    return found


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
    return _decided(instance, NAME, control)


def solve_blind(instance: Instance, control: Search) -> Outcome:
    """Plan an instance like `solve`, but with batches chosen as if each replica were alone on its GPU (InSS-ni)."""
    return _decided(instance, BLIND, control)


def reconfigured(instance: Instance, before: Plan, policy: FilePath = SHIPPED) -> Plan:
    """The plan to which InSS changes if rates differ from the running plan's (section 5.5).

    Algorithm 1 decides batches for the placement that runs (case 1). If it finds none for some workload, the actor
    places all workloads anew, and Algorithm 1 runs again (case 2). A process whose GPU or share changes is replaced: a
    shadow process starts beside it, and takes over when it is ready.

    UnsupportedError if a workload does not run as one replica on one of the GPUs, or the policy is for another system.
    """
    system, nothing = System(instance), np.zeros((1, len(instance.workloads)))
    given = running(system, before)
    batch, found = decide_batches(system, given, system.rates_rps[None], nothing)
    if not found.all():
        given, batch = _anew(system, policy)
    return plan_of(system, NAME, given.gpu[0], given.units[0], batch[0])


def running(system: System, plan: Plan) -> Provisioning:
    """Where a plan has the only replica of every workload; UnsupportedError if it has not."""
    names = [system.data[kind].gpu for kind in system.kind]
    places: dict[str, list[tuple[int, Replica]]] = {one.name: [] for one in system.instance.workloads}
    for gpu in plan.gpus:
        if gpu.gpu in names:
            at = names.index(gpu.gpu)
            names[at] = ""
            for one in (replica for piece in gpu.slices for replica in piece.replicas):
                places.setdefault(one.workload, []).append((at, one))
    several = [name for name in system.instance.workload if len(places[name]) != 1]
    if several:
        raise UnsupportedError(f"{NAME} goes on from plans in which every workload has one replica on the fleet, not "
                               f"{', '.join(several)}; use solve")
    where = [places[one.name][0] for one in system.instance.workloads]
    shares = [system.data[system.kind[at]].hardware.unit_share for at, _ in where]
    units = [round(one.sm_share / share) for (_, one), share in zip(where, shares, strict=True)]
    return Provisioning(np.array([[at for at, _ in where]]), np.array([units]))


def _anew(system: System, policy: FilePath) -> tuple[Provisioning, Ints]:
    """The actor's placement for an empty system, and the batches for it (lines 6 and 7 of Algorithm 2)."""
    rates_rps, nothing = system.rates_rps[None], np.zeros((1, system.workloads))
    given = provisioning(system, policy_for(policy, system).act(system, rates_rps, nothing))
    return given, decide_batches(system, given, rates_rps, nothing)[0]


def _decided(instance: Instance, name: str, control: Search) -> Outcome:
    system = System(instance, name != BLIND)
    if control.parameters["alone"]:
        system.running_ms = regressed_ms(control.parameters["alone"], system)
    build_seconds = control.elapsed_s
    given, batch = _anew(system, control.parameters["policy"])
    nothing = np.zeros((1, system.workloads))
    found = keeping(System(instance, judged=Judged.BY_DATA), given, batch, system.rates_rps[None], nothing)
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


def _method(name: str, summary: str, run: Callable[[Instance, Search], Outcome], source: str) -> Method:
    return Method(name=name, summary=summary, run=run, source=source, features=FEATURES,
                  parameters={"policy": SHIPPED, "alone": ""}, files=frozenset({"policy", "alone"}))


METHODS = (
    _method(NAME, "a trained actor (SAC-D) for placement and SM shares, binary search for batches", solve,
            "InSS, sections 4 and 5, Algorithms 1 and 2"),
    _method(BLIND, "inss without prediction of interference: batches as if every replica were alone", solve_blind,
            "InSS, section 6.3 (InSS-ni)"),
)

"""The verifier: recomputes everything from the instance, the plan and the performance data.

It imports no formulation, no heuristic and none of the arrays that they search. Geometry is checked against the
placement tables slot by slot, latencies and throughputs by single predictions of the performance models.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from provision.instances.files.files import FilePath
from provision.instances.read import read, read_plan
from provision.models.base.errors import InputError
from provision.models.base.objects import uncollected
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import GpuType, gpu_type, gpus_in
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.plans.report import Kind, ReplicaPrediction, Report, Violation
from provision.models.problem.instance import Instance
from provision.models.problem.objective import cost_per_hour, draw_of
from provision.models.problem.prediction import (
    as_deployed,
    carried_rps,
    predict_slice,
    refuse_unequal_rates,
    slice_members,
    task_p99_ms,
)
from provision.models.problem.workload import FleetEntry, Workload
from provision.verification.deployment import (
    TokenReplays,
    has_profile,
    lost_together,
    misfits,
    misplaced,
    too_many_clients,
)

PREDICTED = set(ReplicaPrediction.model_fields)
"""The names of the fields of a ReplicaPrediction."""


@uncollected()
def verify(instance: Instance | FilePath, plan: Plan | FilePath) -> Report:
    """Check a plan against an instance.

    Parameters
    ----------
    instance
        An Instance, its shipped name or its path.
    plan
        A Plan, from any source, or its path.

    Returns
    -------
    Report
        All violations, the predictions of every replica, and the totals.

    Raises
    ------
    InputError
        If the workloads of a workflow have different rates, or the instance or plan cannot be read.
    """
    instance, plan = read(instance), read_plan(plan, instance)
    refuse_unequal_rates(instance)
    return _Verifier(as_deployed(instance, plan), plan).report()


def refuse_unsound(instance: Instance, plan: Plan) -> None:
    """Refuse a plan with violations. Raises InputError if there are violations. The message has the first one and their
    number.
    """
    report = verify(instance, plan)
    if not report.ok:
        first, count = report.violations[0].message, len(report.violations)
        raise InputError(f"the plan breaks {count} rules of {instance.name}: {first}; see provision verify")


class _Verifier:
    def __init__(self, instance: Instance, plan: Plan) -> None:
        self.instance, self.plan = instance, plan
        self.violations: list[Violation] = []
        self.predictions: list[ReplicaPrediction] = []
        self.sms, self.busy_sms, self.offered_sms, self.compute = 0.0, 0.0, 0, 0
        self.routed: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        self.carried: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        self.entries = {(entry.gpu, entry.partitioned): entry for entry in instance.fleet}
        self.sound: set[tuple[str, bool, tuple[tuple[str, int], ...]]] = set()
        self.tokens = TokenReplays(instance)
        self.cache: dict[tuple[Any, ...], list[Prediction | None]] = {}
        self.p99_ms: dict[tuple[Any, ...], float | None] = {}
        self.losses = _losses(instance, plan)

    def report(self) -> Report:
        """Run every check and return the report."""
        for at, gpu in enumerate(self.plan.gpus):
            entry = self.entries.get((gpu.gpu, gpu.mig))
            if entry is None:
                offered = ", ".join(f"{name} (MIG {'on' if mig else 'off'})" for name, mig in self.entries)
                shown = f"{gpu.gpu} (MIG {'on' if gpu.mig else 'off'})"
                self._violate("fleet", f"{shown} is not in the fleet, which has {offered}", at)
            self._check_gpu(at, gpu, entry)
        self._check_fleet()
        self._check_power()
        for workload in self.instance.workloads:
            self._check_rate(workload)
            if self.instance.policy.even_replicas:
                self._check_even(workload)
            if self.losses:
                self._check_survival(workload)
        for place, message in misplaced(self.instance.places, self.plan) if self.instance.places else ():
            self._violate("place", message, place)
        return self._summary()

    def _violate(self, kind: Kind, message: str, gpu: int | None = None, slice: int | None = None,
                 workload: str | None = None, value: float | None = None, limit: float | None = None) -> None:
        place = [f"GPU {gpu}"] * (gpu is not None) + [f"slice {slice}"] * (slice is not None)
        place += [f"workload {workload}"] * (workload is not None)
        text = f"{', '.join(place)}: {message}" if place else message
        self.violations.append(
            Violation(kind=kind, gpu=gpu, slice=slice, workload=workload, value=value, limit=limit, message=text)
        )

    def _check_gpu(self, at: int, gpu: PlannedGpu, entry: FleetEntry | None) -> None:
        """Check everything that concerns one GPU."""
        try:
            kind = gpu_type(gpu.gpu)
        except InputError:
            return
        self.offered_sms += sum(kind.profiles[p].sms for p in _full(kind)) if gpu.mig and kind.mig else kind.sms
        known = self._check_layout(at, gpu, kind)
        for position, piece in enumerate(gpu.slices):
            if known[position] and piece.replicas:
                self._check_slice(at, position, kind, entry, piece)
            for replica in piece.replicas:
                self._check_workload(at, position, replica)

    def _check_layout(self, at: int, gpu: PlannedGpu, kind: GpuType) -> list[bool]:
        """Check the layout of a GPU; return for each slice whether its profile exists. Equal valid layouts are checked
        only once.
        """
        layout = (gpu.gpu, gpu.mig, tuple((piece.profile, piece.start) for piece in gpu.slices))
        if layout not in self.sound:
            found = list(misfits(gpu))
            for one in found:
                self._violate(one.kind, one.message, at, one.position, value=one.value, limit=one.limit)
            if not found:
                self.sound.add(layout)
        known = [has_profile(gpu, piece) for piece in gpu.slices]
        self.compute += sum(kind.slice_compute(one.profile) for one, ok in zip(gpu.slices, known, strict=True) if ok)
        return known

    def _check_slice(self, at: int, position: int, kind: GpuType, entry: FleetEntry | None, piece: Slice) -> None:
        """Check SM shares, MPS clients and memory of a slice, and its replicas."""
        shares = sum(piece.held_shares)
        if len(piece.replicas) > 1 and self._divided(kind, piece) and _over(shares, 1):
            self._violate("capacity", f"SM shares add up to {shares:g}", at, position, value=shares, limit=1)
        if crowd := too_many_clients(kind, piece, mps=entry is None or entry.mps):
            self._violate(crowd.kind, crowd.message, at, position, value=crowd.value, limit=crowd.limit)
        predictions = self._predict(kind.name, piece)
        memory = sum(found.memory_gib or 0 for found in predictions if found)
        held = kind.slice_memory_gib(piece.profile)
        if _over(memory, held):
            message = f"needs {memory:.4g} GiB of memory, {piece.profile} has {held:g} GiB"
            self._violate("memory", message, at, position, value=memory, limit=held)
        self._count_sms(kind, piece, predictions)
        for replica, found in zip(piece.replicas, predictions, strict=True):
            if replica.workload in self.instance.workload:
                self._check_replica(at, position, piece, replica, found)

    def _divided(self, kind: GpuType, piece: Slice) -> bool:
        """Whether the SM shares of a slice's replicas must not exceed 1 in sum.

        They must not if some data says that it divides SMs, or if a replica has less than all SMs.
        """
        divided = any(data.divides_sms for data in self.instance.performance if data.gpu == kind.name)
        return divided or any(replica.sm_share < 1 for replica in piece.replicas)

    def _predict(self, gpu: str, piece: Slice) -> list[Prediction | None]:
        """The predictions for all replicas of a slice. Equal slices are predicted only once."""
        key = (gpu, piece.profile, slice_members(self.instance, piece))
        if key[2] is None or key not in self.cache:
            self.cache[key] = predict_slice(self.instance, gpu, piece)
        return self.cache[key]

    def _count_sms(self, kind: GpuType, piece: Slice, predictions: Sequence[Prediction | None]) -> None:
        """Add a slice to the sums of ParvaGPU's equations 3 and 4: its SMs, and its busy SMs at the routed rates."""
        shares = piece.held_shares
        held = min(1.0, sum(shares))
        busy = sum(
            share * replica.rate_rps / found.throughput_rps
            for share, replica, found in zip(shares, piece.replicas, predictions, strict=True)
            if found
        )
        self.sms += kind.slice_sms(piece.profile) * held
        self.busy_sms += kind.slice_sms(piece.profile) * min(held, busy)

    def _check_replica(self, at: int, position: int, piece: Slice, replica: Replica, found: Prediction | None) -> None:
        """Check one replica against its operating point, latency budget and throughput."""
        workload, where = self.instance.workload[replica.workload], (at, position, replica.workload)
        if found is None:
            longest = f", requests of up to {workload.tokens.most} tokens" if workload.tokens else ""
            message = (
                f"no performance data for {self.instance.model_of(replica)} at batch {replica.batch}, "
                f"{replica.processes} processes, SM share {replica.sm_share:g} on {piece.profile}{longest} with "
                f"{len(piece.replicas) - 1} neighbours (out of memory or never measured)"
            )
            self._violate("operating_point", message, *where)
            return
        if workload.tokens:
            self._check_tokens(piece.profile, replica, found, where)
            return
        budget, p99 = self.instance.budget_ms(workload), self._p99_ms(workload, replica, found)
        self.predictions.append(
            ReplicaPrediction.of_checked({
                "gpu": at, "slice": position, "workload": replica.workload, "latency_ms": found.latency_ms,
                "p99_ms": p99 if p99 != math.inf else None, "budget_ms": budget,
                "throughput_rps": found.throughput_rps, "rate_rps": replica.rate_rps, "memory_gib": found.memory_gib,
            }, PREDICTED)
        )
        percentile = self.instance.policy.percentile_of(workload)
        if self.losses and not _over(found.latency_ms, budget):
            self.carried[replica.workload].append((at, carried_rps(self.instance, replica, found)))
        if _over(found.latency_ms, budget):
            message = (
                f"batch latency {found.latency_ms:.6g} ms is {found.latency_ms / budget - 1:.1%} over the "
                f"{budget:.6g} ms that slo_ms {workload.slo_ms:g} leaves"
            )
            self._violate("latency", message, *where, found.latency_ms, budget)
        elif p99 == math.inf:
            load = replica.rate_rps / found.throughput_rps
            message = f"no P{percentile:g} holds at {load:.2%} of the throughput; route less here"
            self._violate("latency", message, *where, limit=budget)
        elif p99 and _over(p99, budget):
            message = (
                f"P{percentile:g} of {p99:.6g} ms at {replica.rate_rps:.6g} requests/s is {p99 / budget - 1:.1%} over "
                f"the {budget:.6g} ms that slo_ms {workload.slo_ms:g} leaves"
            )
            self._violate("latency", message, *where, p99, budget)
        self._check_throughput(replica, found, where)

    def _p99_ms(self, workload: Workload, replica: Replica, found: Prediction) -> float | None:
        """``task_p99_ms`` of a replica. Equal replicas are judged only once."""
        key = (workload.name, replica.batch, replica.processes, replica.rate_rps, found)
        if key not in self.p99_ms:
            self.p99_ms[key] = task_p99_ms(self.instance.policy, workload, replica, found)
        return self.p99_ms[key]

    def _check_throughput(self, replica: Replica, found: Prediction, where: tuple[int, int, str]) -> None:
        """Check that no more is routed to a replica than its throughput."""
        if _over(replica.rate_rps, found.throughput_rps):
            message = f"{replica.rate_rps:.6g} requests/s routed to a throughput of {found.throughput_rps:.6g}"
            self._violate("rate", message, *where, replica.rate_rps, found.throughput_rps)

    def _check_tokens(self, profile: str, replica: Replica, found: Prediction, where: tuple[int, int, str]) -> None:
        """Check one replica of a language model against the limits on its tokens, by a replay at its routed rate."""
        (at, position, name), budget_ms = where, self.instance.budget_ms(self.instance.workload[replica.workload])
        met = self.tokens.met(self.plan.gpus[at].gpu, profile, replica)
        self.predictions.append(
            ReplicaPrediction(
                gpu=at, slice=position, workload=name, latency_ms=found.latency_ms,
                p99_ms=met.times_ms[-1] if met else None, budget_ms=budget_ms,
                throughput_rps=found.throughput_rps, rate_rps=replica.rate_rps, memory_gib=None,
            )
        )
        for message, value, limit in met.complaints if met else ():
            self._violate("latency", message, *where, value, limit)
        self._check_throughput(replica, found, where)

    def _check_workload(self, at: int, position: int, replica: Replica) -> None:
        """Record a replica of a workload; check that the workload exists and has the model that the replica runs."""
        workload = self.instance.workload.get(replica.workload)
        if workload is None:
            message = f"the instance {self.instance.name} has no such workload"
            self._violate("operating_point", message, at, position, replica.workload)
            return
        self.routed[replica.workload].append((at, replica.rate_rps))
        if self.instance.model_of(replica) not in workload.models:
            message = f"runs {replica.model}, the models of the workload are {', '.join(workload.models)}"
            self._violate("operating_point", message, at, position, replica.workload)

    def _check_rate(self, workload: Workload) -> None:
        """Check a workload's rate: it is routed in full, to a permitted number of replicas, and not too much of it to
        one GPU.
        """
        routed, planned = self.routed[workload.name], self.instance.planned_rps(workload)
        total = sum(rate for _, rate in routed)
        if _over(planned, total):
            message = f"{total:.6g} of {planned:.6g} requests/s are routed"
            self._violate("rate", message, workload=workload.name, value=total, limit=planned)
        if len(routed) < workload.min_replicas:
            message = f"{len(routed)} replicas, min_replicas is {workload.min_replicas}"
            self._violate("rate", message, None, None, workload.name, len(routed), workload.min_replicas)
        if workload.max_replicas is not None and len(routed) > workload.max_replicas:
            message = f"{len(routed)} replicas, max_replicas is {workload.max_replicas}"
            self._violate("rate", message, None, None, workload.name, len(routed), workload.max_replicas)
        on_gpu: defaultdict[int, float] = defaultdict(float)
        for at, rate in routed:
            on_gpu[at] += rate
        limit = workload.max_share_per_gpu * planned
        for at, rate in on_gpu.items():
            if workload.max_share_per_gpu < 1 and _over(rate, limit):
                message = f"{rate:.6g} requests/s on one GPU, max_share_per_gpu allows {limit:.6g}"
                self._violate("rate", message, at, None, workload.name, rate, limit)

    def _check_even(self, workload: Workload) -> None:
        """Check that all replicas of a workload carry the same rate."""
        rates = [rate for _, rate in self.routed[workload.name]]
        if rates and _over(max(rates), min(rates)):
            message = (
                f"replicas carry {min(rates):.6g} to {max(rates):.6g} requests/s, even_replicas asks for equal rates"
            )
            self._violate("rate", message, None, None, workload.name, max(rates), min(rates))

    def _check_survival(self, workload: Workload) -> None:
        """Check that the remaining replicas carry a workload's whole rate within its SLO, whatever is lost.

        With ``even_replicas`` they get equal parts of the rate, whatever each of them could carry.
        """
        if workload.tokens:
            for at, message, value, limit in self.tokens.after_losses(self.plan, workload):
                self._violate("rate", message, at, None, workload.name, value, limit)
            return
        planned = self.instance.planned_rps(workload)
        stands = {at for at, _ in self.routed[workload.name]}
        for what, lost in self.losses.items():
            if not lost & stands:
                continue
            others = [rps for gpu, rps in self.carried[workload.name] if gpu not in lost]
            even = self.instance.policy.even_replicas
            left = len(others) * min(others, default=0.0) if even else math.fsum(others)
            if _over(planned, left):
                single = what if isinstance(what, int) else None
                message = f"after {'its loss' if single is not None else f'the loss of {what}'} the others carry " \
                          f"{left:.6g} of {planned:.6g} requests/s"
                self._violate("rate", message, single, None, workload.name, left, planned)

    def _check_fleet(self) -> None:
        """Check that the plan uses no more GPUs of an entry than the fleet has."""
        used = Counter((gpu.gpu, gpu.mig) for gpu in self.plan.gpus)
        for (gpu, mig), number in used.items():
            counts = [one.count for one in self.instance.fleet if (one.gpu, one.partitioned) == (gpu, mig)]
            limited = [count for count in counts if count is not None]
            if limited and len(limited) == len(counts) and number > sum(limited):
                message = f"{number} GPUs of type {gpu}, the fleet has {sum(limited)}"
                self._violate("fleet", message, value=number, limit=sum(limited))

    def _check_power(self) -> None:
        """Check that the GPUs draw no more than the limit, at full load."""
        power = self.instance.power
        if power is not None and power.limit_w is not None:
            full_w = math.fsum(power.of(gpu.gpu).full_w for gpu in self.plan.gpus)
            if _over(full_w, power.limit_w):
                message = f"the GPUs draw up to {full_w:.6g} W, power.limit_w is {power.limit_w:g}"
                self._violate("power", message, value=full_w, limit=power.limit_w)

    def _summary(self) -> Report:
        return Report(
            ok=not self.violations,
            violations=tuple(self.violations),
            predictions=tuple(self.predictions),
            gpus=gpus_in(gpu.gpu for gpu in self.plan.gpus),
            gpcs=self.compute,
            cost_per_hour=cost_per_hour(self.instance, self.plan),
            internal_slack=1 - self.busy_sms / self.sms if self.sms else 0.0,
            power=draw._asdict() if (draw := draw_of(self.instance, self.plan)) else None,
            external_fragmentation=max(0.0, 1 - self.sms / self.offered_sms) if self.offered_sms else 0.0,
        )


def _losses(instance: Instance, plan: Plan) -> dict[int | str, set[int]]:
    """The GPUs, by index, that each loss takes which a plan must survive, by the index of the GPU or the name of the
    node or zone that is lost.
    """
    found: dict[int | str, set[int]] = {at: {at} for at in range(len(plan.gpus))} if instance.policy.survive else {}
    return found | (lost_together(instance.places, plan) if instance.places else {})


def _full(kind: GpuType) -> list[str]:
    """The profile that spans the whole GPU, as a list."""
    return [max(kind.profiles, key=lambda name: kind.profiles[name].sms)]


def _over(value: float, limit: float) -> bool:
    """Whether a value exceeds a limit by more than rounding errors."""
    return value > limit + TOLERANCE * max(abs(value), abs(limit))

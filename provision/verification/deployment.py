"""Checks of single things in a plan, for the verifier; the applier and the exporters use them too, so that they never
disagree.

- Rates: a replica can serve its throughput or, under the rule ``queueing``, the highest rate that keeps its percentile.
- Places: all GPUs stand on nodes, and every rule of ``places`` is kept.
- GPUs: there is room for the slices, and MPS where processes share a slice. Source: NVIDIA MIG user guide (placements,
  media engines), NVIDIA MPS documentation (active thread percentage).
- Tokens: replicas of language models keep the limits on their tokens at their routed rates. Replays tell.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from provision.models.hardware.gpu import WHOLE, GpuType, gpu_type, split
from provision.models.hardware.places import DOMAINS, Domain, Places
from provision.models.performance.operating_points import OperatingPoints
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.requests import Limits
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.plans.report import Kind, ReplicaPrediction
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import as_deployed, tokens_rps
from provision.models.problem.workload import Workload

Stood = dict[tuple[str, Domain], set[str]]
"""The nodes, zones and pools in which each workload has replicas."""


def capacity_rps(instance: Instance, plan: Plan, predictions: Iterable[ReplicaPrediction]) -> defaultdict[str, float]:
    """The requests/s that a plan can serve within the SLOs, by workload; 0 for workloads without replicas.

    Parameters
    ----------
    instance
        The Instance.
    plan
        The Plan.
    predictions
        The verifier's predictions of the replicas that are to be counted.
    """
    instance = as_deployed(instance, plan)
    held: defaultdict[str, float] = defaultdict(float)
    for found in predictions:
        gpu = plan.gpus[found.gpu]
        if instance.workload[found.workload].tokens:
            held[found.workload] += tokens_rps(instance, gpu.gpu, gpu.slices[found.slice])
        else:
            held[found.workload] += _carried_rps(instance, gpu.slices[found.slice], found)
    return held


def _carried_rps(instance: Instance, piece: Slice, found: ReplicaPrediction) -> float:
    """The requests/s that one replica can serve; on a slice shared by several workloads, the rate that is routed to it.
    """
    rule, shared = instance.policy.rule_for(instance.workload[found.workload]), len(piece.replicas) > 1
    if shared and (instance.policy.share_slices or rule.random_arrivals):
        return found.rate_rps
    if not rule.random_arrivals:
        return found.throughput_rps
    replica = piece.replicas[0]
    point = OperatingPoints(
        np.array([replica.batch]), np.array([replica.processes]), np.array([found.latency_ms]),
        np.array([found.throughput_rps]),
    )
    return float(rule.best_points(point, replica.processes, np.array([found.budget_ms]))[0, 0])


def misplaced(places: Places, plan: Plan) -> Iterator[tuple[int | None, str]]:
    """Yield the index of a GPU (None for the plan as a whole) and a sentence for every rule that is broken."""
    machines = {one.name: one for one in places.machines}
    used, stood = Counter[str](), defaultdict[tuple[str, Domain], set[str]](set)
    for at, gpu in enumerate(plan.gpus):
        machine, (many, base) = machines.get(gpu.node or ""), split(gpu.gpu)
        if machine is None:
            yield at, "is on no node" if gpu.node is None else f"there is no node {gpu.node}"
            continue
        if machine.gpu != base:
            yield at, f"node {machine.name} has {machine.gpu}, not {base}"
        used[machine.name] += many
        for workload in {one.workload for one in gpu.replicas}:
            for kind in DOMAINS:
                stood[workload, kind].add(machine.domain(kind) or "")
    for name, taken in used.items():
        if taken > machines[name].gpus:
            yield None, f"node {name} has {machines[name].gpus} GPUs, the plan puts {taken} there"
    yield from ((None, line) for line in _broken(places, plan, stood))


def _broken(places: Places, plan: Plan, stood: Stood) -> Iterator[str]:
    """Yield a sentence for every rule about workloads that is broken."""
    for one in places.spread:
        found = stood.get((one.workload, one.over), set()) - {""}
        if len(found) < one.at_least:
            yield f"{one.workload} stands in {len(found)} {one.over}s, spread asks for {one.at_least}"
    for rule in places.together:
        if len({frozenset(stood.get((name, rule.on), set())) for name in rule.workloads}) > 1:
            yield f"{', '.join(rule.workloads)} do not stand on the same {rule.on}s"
    for rule in places.apart:
        for first, second in combinations(rule.workloads, 2):
            if common := sorted(stood.get((first, rule.on), set()) & stood.get((second, rule.on), set())):
                yield f"{first} and {second} both stand on {rule.on} {common[0]}, apart forbids it"
    for limit in places.within:
        for kind, allowed in (("zone", limit.zones), ("pool", limit.pools)):
            outside = stood.get((limit.workload, "zone" if kind == "zone" else "pool"), set()) - set(allowed)
            if allowed and outside:
                yield f"{limit.workload} stands in {kind} {sorted(outside)[0] or 'none'}, within allows {allowed[0]}"
    for quota in places.quotas:
        owned = set(quota.workloads)
        gpus = sum(split(gpu.gpu)[0] for gpu in plan.gpus if any(one.workload in owned for one in gpu.replicas))
        if gpus > quota.at_most:
            yield f"tenant {quota.tenant} stands on {gpus} GPUs, its quota is {quota.at_most}"


def lost_together(places: Places, plan: Plan) -> dict[str, set[int]]:
    """For each loss in ``survive``, by the name of what is lost: the indices of the GPUs that are lost with it."""
    machines = {one.name: one for one in places.machines}
    found: dict[str, set[int]] = {}
    for kind in places.losses:
        for at, gpu in enumerate(plan.gpus):
            machine = machines.get(gpu.node or "")
            if machine is not None and (name := machine.domain(kind)) is not None:
                found.setdefault(f"{kind} {name}", set()).add(at)
    return found


class Misfit(NamedTuple):
    """A reason why a GPU cannot take what is planned for it.

    Attributes
    ----------
    kind
        The kind of rule that is broken, as in a Violation.
    message
        What is wrong, without naming GPU and slice.
    position
        The index of the slice on the GPU; None if the GPU as a whole is concerned.
    value, limit
        The wrong number and its limit; None if the rule has no numbers.
    """

    kind: Kind
    message: str
    position: int | None = None
    value: float | None = None
    limit: float | None = None


def needs_mps(piece: Slice) -> bool:
    """Whether a slice needs an MPS daemon: it has several processes, or a process that may use only a part of the SMs.
    """
    return sum(replica.processes for replica in piece.replicas) > 1 or any(
        replica.sm_share < 1 for replica in piece.replicas
    )


def percentage(replica: Replica) -> str:
    """The active thread percentage of each process of a replica, as text for MPS."""
    return f"{100 * replica.sm_share:.6g}"


def has_profile(gpu: PlannedGpu, piece: Slice) -> bool:
    """Whether the GPU, in its MIG mode, offers slices of this profile."""
    kind = gpu_type(gpu.gpu)
    return piece.profile in kind.profiles if gpu.mig and kind.mig else piece.profile == WHOLE


def misfits(gpu: PlannedGpu) -> Iterator[Misfit]:
    """Yield every reason why the slices of a planned GPU cannot stand on it together: profiles, starts, overlaps,
    capacity. Raises InputError if there is no such GPU type.
    """
    kind = gpu_type(gpu.gpu)
    if gpu.mig and not kind.mig:
        yield Misfit("profile", f"{gpu.gpu} has no MIG; set mig to false")
    for position, piece in enumerate(gpu.slices):
        yield from _profile_misfits(gpu, kind, position, piece)
    yield from _overlaps(gpu, kind)
    yield from _excesses(gpu, kind)


def too_many_clients(kind: GpuType, piece: Slice, mps: bool = True) -> Misfit | None:
    """The misfit if a slice has more processes than may share it, else None. Without MPS, only one process may run."""
    clients, limit = sum(replica.processes for replica in piece.replicas), 1
    if mps:
        limit = kind.slice_mps_clients(piece.profile)
    if clients <= limit:
        return None
    why = f"MPS serves at most {limit} on {piece.profile}" if mps else "without MPS a slice runs one"
    return Misfit("clients", f"{clients} processes, {why}", value=clients, limit=limit)


def _profile_misfits(gpu: PlannedGpu, kind: GpuType, position: int, piece: Slice) -> Iterator[Misfit]:
    """Yield what is wrong with a slice's profile, or with its start."""
    if not has_profile(gpu, piece):
        if gpu.mig and kind.mig:
            message = f"{gpu.gpu} has no MIG profile {piece.profile!r}; it has {', '.join(kind.profiles)}"
        else:
            message = f"profile {piece.profile} needs MIG, which is off; use whole"
        yield Misfit("profile", message, position)
    elif piece.profile == WHOLE:
        if piece.start:
            yield Misfit("start", f"a whole GPU starts at memory slice 0, not {piece.start}", position, piece.start)
    elif piece.start not in (starts := kind.profiles[piece.profile].starts):
        message = f"{piece.profile} cannot start at memory slice {piece.start}; it can at {', '.join(map(str, starts))}"
        yield Misfit("start", message, position, piece.start)


def _overlaps(gpu: PlannedGpu, kind: GpuType) -> Iterator[Misfit]:
    """Yield a misfit for every slice that overlaps an earlier slice in memory."""
    taken: dict[int, int] = {}
    for position, piece in enumerate(gpu.slices):
        if not has_profile(gpu, piece):
            continue
        slots = memory_slices(kind, piece)
        for other in sorted({taken[slot] for slot in slots if slot in taken}):
            shared = [slot for slot in slots if taken.get(slot) == other]
            message = (
                f"{piece.profile} at {piece.start} overlaps {gpu.slices[other].profile} at "
                f"{gpu.slices[other].start} (slice {other}) on memory slices {', '.join(map(str, shared))}"
            )
            yield Misfit("overlap", message, position, len(shared), 0)
        taken |= {slot: position for slot in slots if slot not in taken}


def memory_slices(kind: GpuType, piece: Slice) -> range:
    """The memory slices that a slice takes; a whole GPU counts as one."""
    if piece.profile == WHOLE:
        return range(1)
    return range(piece.start, piece.start + kind.profiles[piece.profile].memory)


def _excesses(gpu: PlannedGpu, kind: GpuType) -> Iterator[Misfit]:
    """Yield where slices exceed the GPU: compute slices, memory slices, instances of a profile, media engines."""
    names = [piece.profile for piece in gpu.slices if piece.profile != WHOLE and has_profile(gpu, piece)]
    if not names or kind.mig is None:
        return
    profiles, media = [kind.profiles[name] for name in names], kind.with_media(dict.fromkeys(names))
    checks = [
        ("compute slices", sum(profile.compute for profile in profiles), kind.mig.compute_slices),
        ("memory slices", sum(profile.memory for profile in profiles), kind.mig.memory_slices),
        *((f"instances of {name}", n, kind.profiles[name].max) for name, n in Counter(names).items()),
        (f"sets of media engines ({' and '.join(media)})", len(media), 1),
    ]
    for what, value, limit in checks:
        if value > limit:
            yield Misfit("capacity", f"{value} {what}, the GPU has {limit}", None, value, limit)


TOKEN_TIMES = ("time to the first token", "time per output token", "time of the whole answer")
TOKEN_FIELDS = ("ttft_ms", "tpot_ms", "e2e_ms")
"""What the limits on tokens are limits of, in words, and the fields that state them."""
TOKEN_DIGITS = 6
"""The number of significant digits to which rates are rounded, so that nearly equal replicas are replayed only once."""


class Met(NamedTuple):
    """The percentiles of the times at a replica in ms, the limits, and the indices of the broken limits."""

    times_ms: tuple[float, ...]
    limits: Limits
    broken: tuple[int, ...]

    @property
    def complaints(self) -> list[tuple[str, float, float]]:
        """For every broken limit a line for messages, the time and the limit in ms."""
        return [
            (f"P{self.limits.percentile:g} of the {TOKEN_TIMES[at]} is {self.times_ms[at]:.6g} ms, "
             f"{self.times_ms[at] / self.limits.times_ms[at] - 1:.1%} over the {self.limits.times_ms[at]:.6g} ms that "
             f"{TOKEN_FIELDS[at]} leaves; route less here", self.times_ms[at], self.limits.times_ms[at])
            for at in self.broken
        ]  # fmt: skip


class TokenReplays:
    """Replays by the verifier's own engine, which keeps what it replayed."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def met(self, gpu: str, profile: str, replica: Replica) -> Met | None:
        """The times at a replica; None if no rate is routed to it. The performance data must describe the replica."""
        workload, model = self.instance.workload[replica.workload], self.instance.model_of(replica)
        data = self.instance.performance_of(gpu, model)
        if replica.rate_rps == 0 or workload.tokens is None or not isinstance(data, TokenModels):
            return None
        limits, traffic = self.instance.policy.limits_of(workload), self.instance.policy.traffic_of(workload)
        rate_rps = float(f"{replica.rate_rps:.{TOKEN_DIGITS}g}")
        from provision.verification.token_engine import tails_ms

        times_ms, late = tails_ms(data, model, profile, replica.batch, rate_rps, workload.tokens, limits, traffic)
        broken = tuple(at for at, part in enumerate(late) if part > limits.may_be_late)
        return Met(tuple(times_ms.tolist()), limits, broken)

    def after_losses(self, plan: Plan, workload: Workload) -> Iterator[tuple[int, str, float, float]]:
        """Yield what breaks if a GPU is lost and the other replicas take over in proportion to their rates.

        Yields
        ------
        tuple
            The index of the lost GPU, a line for messages, and the value and its limit. Both are times in ms, or
            requests/s if no replica is left.
        """
        mine = [(at, piece.profile, one) for at, _, piece, one in plan.replicas() if one.workload == workload.name]
        whole = sum(one.rate_rps for _, _, one in mine)
        for lost in sorted({at for at, _, one in mine if one.rate_rps > 0}):
            left = [(at, profile, one) for at, profile, one in mine if at != lost]
            rest = sum(one.rate_rps for _, _, one in left)
            if not rest:
                yield lost, f"after its loss the others carry 0 of {whole:.6g} requests/s", 0.0, whole
            for at, profile, one in left if rest else ():
                more = one.model_copy(update={"rate_rps": one.rate_rps * whole / rest})
                met = self.met(plan.gpus[at].gpu, profile, more)
                for message, value, limit in met.complaints if met else ():
                    yield lost, f"after its loss, on GPU {at} {message}", value, limit

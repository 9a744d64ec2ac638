"""Replans around the running plan: some GPUs are kept with all their replicas; the rest of the demand is planned anew.

This method takes every instance, with any way of sharing, with ``survive``, and with ``places``: kept GPUs stay on
their nodes. A running GPU is either kept with all its replicas or given up. Kept GPUs carry as much of the new demand
as they can. The rate that a workload still lacks is given to one new replica on a kept GPU if it fits there; ``auto``
plans the rest on the other GPUs of the fleet. At first all GPUs are kept whose replicas can keep their SLOs. Then ever
smaller groups of the least loaded GPUs are given up, if that lowers the sum of cost and changes. A plan made from
scratch is compared too. Its bound on the cost alone is also a bound on the sum, since the cost of changes is never
negative.
"""

from collections.abc import Iterator, Sequence

from provision.formulations.replanning.program import Replanned
from provision.models.base.clock import Deadline
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.disturbance import disturbance, matched, places_of
from provision.models.plans.plan import Plan, PlannedGpu, Replica, carried_rps
from provision.models.plans.result import Result
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import Workload
from provision.solving.repair import rest_of
from provision.solving.solve import solve
from provision.verification.verify import verify

SCRATCH = 0.4
"""The fraction of the time for a plan from scratch, whose bound is the proof."""
EACH = 0.1
"""The largest fraction of the time for planning the rest of the demand beside one choice of kept GPUs."""
MOST_FACTOR, STEPS = 4.0, 6
"""The largest factor on the rates that a GPU carries now, and the number of bisection steps that search for it."""
LEAST_SHARE, BATCHES = 0.02, (1, 2, 4, 8, 16, 32, 64)
"""The smallest fraction of a slice's SMs, and the batch sizes, that are tried for a replica added beside others."""


def replan_around(instance: Instance, plan: Plan, change_cost: float, allow: str = "slices", limit_s: float = 60.0,
                  others: Sequence[Plan] = ()) -> Replanned:
    """Replan by keeping whole GPUs of the running plan.

    Parameters
    ----------
    instance, plan
        The instance with the new demand, and the plan that runs.
    change_cost
        The cost of each destroyed slice and of each started replica, in units of the objective.
    allow
        What may change, as for ``replan``.
    limit_s
        Time limit in seconds.
    others
        Further plans to compare.

    Returns
    -------
    Replanned

    Raises
    ------
    UnsupportedError
        If the objective is max_throughput, which always uses the whole fleet.
    """
    if instance.objective == THROUGHPUT:
        raise UnsupportedError(f"replan weighs cost against changes, and {THROUGHPUT} has no cost; use solve")
    return _Around(instance, plan, change_cost, allow, limit_s).best(others)


class _Around:
    """The search for the plan with the least sum of cost and changes, with the best plan so far."""

    def __init__(self, instance: Instance, plan: Plan, change_cost: float, allow: str, limit_s: float) -> None:
        self.instance, self.before, self.change_cost, self.allow = instance, plan, change_cost, allow
        self.limit_s, self.until = limit_s, Deadline(limit_s)
        self.plan: Plan | None = None
        self.weighted = float("inf")
        self.planned_rps = {one.name: instance.planned_rps(one) for one in instance.workloads}
        self.entries = objective_of(instance).entries_of(plan)
        self.scaled = self._at_new_rates()
        self.factor = [self._most_factor(gpu) if entry >= 0 else 0.0
                       for gpu, entry in zip(self.scaled, self.entries, strict=True)]

    def best(self, others: Sequence[Plan]) -> Replanned:
        """Compare all kinds of plans that ``allow`` permits, and return the best."""
        scratch = self._solved(self.instance, SCRATCH)
        if scratch.status == "infeasible":
            return Replanned(f"infeasible: {scratch.reason}", 0.0, None)
        going_on = [at for at, factor in enumerate(self.factor) if factor > 0]
        if self.allow == "slices":
            for plan in (*others, scratch.plan):
                self._consider(plan)
            self._consider(self._around(going_on))
            self._give_up(going_on)
        elif len(going_on) == len(self.before.gpus):
            self._consider(self._around(going_on))
        bound = scratch.bound or 0.0
        if self.plan is None:
            return Replanned("unknown", bound, None)
        return Replanned(
            "optimal" if objective_of(self.instance).proved(self.weighted, bound) else "feasible", bound, self.plan
        )

    def _give_up(self, going_on: list[int]) -> None:
        """While time is left, try plans that give up ever smaller groups of kept GPUs, the least loaded GPUs first."""
        kept = sorted(going_on, key=self._load)
        many = len(kept)
        while many and not self.until.over:
            at = 0
            while at < len(kept) and not self.until.over:
                fewer = kept[:at] + kept[at + many :]
                if self._consider(self._around(fewer)):
                    kept = fewer
                else:
                    at += max(many // 2, 1)
            many //= 2

    def _load(self, gpu: int) -> float:
        """The load of a GPU of the running plan: the sum over its replicas of the fraction of the workload's rate."""
        planned = self.planned_rps
        return sum(one.rate_rps / planned[one.workload] if planned.get(one.workload) else 0.0
                   for one in self.scaled[gpu].replicas)

    def _consider(self, plan: Plan | None) -> bool:
        """Keep a plan if it is valid and better than the best plan so far; returns whether it was kept."""
        if plan is not None and self.instance.places is not None:
            plan = self._on_nodes(plan)
        if plan is None:
            return False
        weighted = objective_of(self.instance).value(plan) + self.change_cost * disturbance(self.before, plan).moved
        if weighted >= self.weighted * (1 - TOLERANCE) or not verify(self.instance, plan).ok:
            return False
        self.plan, self.weighted = plan, weighted
        return True

    def _on_nodes(self, plan: Plan) -> Plan | None:
        """The plan dealt to nodes, if possible so that GPUs stay where those that run now are like them. If there is no
        time to deal it, a plan that is on nodes stays as it is.
        """
        from provision.placing.deal import deal  # CP-SAT loads slowly

        bare = [gpu.model_copy(update={"node": None}) for gpu in plan.gpus]
        stay = list(bare)
        for old, new in matched(self.before.gpus, bare):
            if old is not None and new is not None:
                stay[new] = bare[new].model_copy(update={"node": self.before.gpus[old].node})
        dealt = (deal(self.instance, plan.model_copy(update={"gpus": tuple(one)}), self.until.left_s / 2)[0]
                 for one in (stay, bare))
        known = plan if all(gpu.node is not None for gpu in plan.gpus) else None
        return next((one for one in dealt if one is not None), known)

    def _at_new_rates(self) -> list[PlannedGpu]:
        """The running GPUs with the rates of every workload scaled to its new rate."""
        running = carried_rps(self.before.gpus)
        factor = {name: self.planned_rps.get(name, 0.0) / rate for name, rate in running.items() if rate}
        return [gpu.with_rates(factor) for gpu in self.before.gpus]

    def _most_factor(self, gpu: PlannedGpu) -> float:
        """The largest factor on a GPU's new rates at which all of its replicas keep their SLOs, by bisection; 0 if
        there is none.
        """
        if not {one.workload for one in gpu.replicas} <= self.instance.workload.keys():
            return 0.0
        now = self._holds(gpu, 1.0)
        if now and self._holds(gpu, MOST_FACTOR):
            return MOST_FACTOR
        low, high = (1.0, MOST_FACTOR) if now else (0.0, 1.0)
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._holds(gpu, middle) else (low, middle)
        return low

    def _holds(self, gpu: PlannedGpu, factor: float) -> bool:
        """Whether the replicas of a GPU keep their SLOs with their rates multiplied by a factor."""
        rates = carried_rps([gpu])
        alone = tuple(_free(self.instance.workload[name], rate * factor) for name, rate in rates.items())
        policy = self.instance.policy.without_room().model_copy(update={"survive": None, "even_replicas": False})
        instance = self.instance.replace(workloads=alone, workflows=(), policy=policy, places=None)
        plan = Plan(version=1, instance=instance.name, gpus=(gpu.with_rates(dict.fromkeys(rates, factor)),))
        return verify(instance, plan).ok

    def _around(self, kept: Sequence[int]) -> Plan | None:
        """The plan that keeps these GPUs of the running plan and serves the rest of the demand with new replicas; None
        if there is none.
        """
        gpus = [self.scaled[at].with_rates(dict.fromkeys(self.instance.workload, self.factor[at])) for at in kept]
        carried = carried_rps(gpus)
        rest = list(rest_of(self.instance, gpus))
        down = {name: min(1.0, self.planned_rps[name] / rate) for name, rate in carried.items() if rate}
        gpus = [gpu.with_rates(down) for gpu in gpus]
        if self.allow != "batches":
            rest = [one for one in rest if not self._joins(gpus, one)]
        if rest:
            more = self._planned(rest, kept)
            if more is None:
                return None
            gpus += more.gpus
        return self.instance.plan_of("replan", gpus)

    def _joins(self, gpus: list[PlannedGpu], workload: Workload) -> bool:
        """Add one replica, with all the rate that a workload lacks, to the first GPU that can take it; returns whether
        there is such a GPU.
        """
        if workload.min_replicas > 1:
            return False
        rate_rps = self.instance.planned_rps(workload)
        for at, gpu in enumerate(gpus):
            for larger in _joined(gpu, workload, rate_rps):
                if self._holds(larger, 1.0):
                    gpus[at] = larger
                    return True
        return False

    def _planned(self, rest: Sequence[Workload], kept: Sequence[int]) -> Plan | None:
        """A plan for the rest of the demand on the GPUs of the fleet that are not kept; None if there is none."""
        if self.allow == "batches":
            return None
        standing = self.instance.plan_of("", [self.before.gpus[at] for at in kept])
        fleet = objective_of(self.instance).fleet_without(standing)
        left = self.instance.replace(workloads=tuple(rest), workflows=(), fleet=fleet, places=None)
        return self._solved(left, EACH).plan

    def _solved(self, instance: Instance, part: float) -> Result:
        """The result of ``auto`` within the fraction ``part`` of the time limit, or within the time left if that is
        less. The long search from scratch runs where it can be left.
        """
        limit_s = max(min(part * self.limit_s, self.until.left_s), 0.1)
        return solve(instance, time_limit_s=limit_s, replay=False, strict=instance is self.instance, slack="no")


def with_spares(instance: Instance, before: Plan, plan: Plan) -> Plan:
    """The plan with the replicas that run now on slices that it leaves empty, since to stop them would save nothing.

    Each carries a part of its workload's rate; the others carry less. Replicas that would break a rule so stay out.
    """
    spare = {(new, at): held
             for old, new in matched(before.gpus, plan.gpus) if old is not None and new is not None
             for at, piece in enumerate(plan.gpus[new].slices) if not piece.replicas
             if (held := places_of(before.gpus[old]).get((piece.profile, piece.start)))}
    names = {one.workload for held in spare.values() for one in held} & instance.workload.keys()
    while names:
        gpus = [gpu.model_copy(update={"slices": tuple(
            piece.model_copy(update={"replicas": held}) if {one.workload for one in held} <= names else piece
            for at, piece in enumerate(gpu.slices) for held in [spare.get((new, at), piece.replicas)]
        )}) for new, gpu in enumerate(plan.gpus)]
        carried = carried_rps(gpus)
        down = {name: instance.planned_rps(instance.workload[name]) / carried[name] for name in names if carried[name]}
        grown = plan.model_copy(update={"gpus": tuple(gpu.with_rates(down) for gpu in gpus)})
        report = verify(instance, grown)
        if report.ok:
            return grown
        names -= set(report.violated) & names or names
    return plan


def _free(workload: Workload, rate_rps: float) -> Workload:
    """A workload with another rate and without limits on its replicas."""
    limits = {"min_replicas": 0, "max_replicas": None, "max_share_per_gpu": 1.0}
    return workload.model_copy(update={"rate_rps": rate_rps, **limits})


def _joined(gpu: PlannedGpu, workload: Workload, rate_rps: float) -> Iterator[PlannedGpu]:
    """Yield variants of a GPU with one more replica, on each of its slices and with each batch size of BATCHES.

    The new replica takes all SMs that are left on its slice. Slices on which replicas run in turns are left out.
    """
    for position, piece in enumerate(gpu.slices):
        left = 1.0 if all(one.sm_share == 1 for one in piece.replicas) else 1 - sum(piece.held_shares)
        if left < LEAST_SHARE or any(one.turn is not None for one in piece.replicas):
            continue
        for batch in BATCHES:
            more = Replica(workload=workload.name, batch=batch, sm_share=left, rate_rps=rate_rps)
            pieces = list(gpu.slices)
            pieces[position] = piece.model_copy(update={"replicas": (*piece.replicas, more)})
            yield gpu.model_copy(update={"slices": tuple(pieces)})

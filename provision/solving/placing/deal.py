"""Deals the GPUs of a plan to nodes by an exact program (CP-SAT), on as few nodes as possible.

    GPUs of a class on node m   whole numbers; equal GPUs are one class
    nodes                       GPUs on a node  <=  those that it has
    used(workload, domain)      whether a workload has a GPU there; the rules limit these
    losses                      what is left of a workload's capacity without a domain  >=  its planned rate
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from provision.models.hardware.gpu import split
from provision.models.hardware.places import Domain, Places
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import carried_rps, predict_slice

PARTS = 10**6
"""Capacities count in parts of the planned rate, rounded down."""
SURE = 1e-3
"""Solver's seconds at least."""


@dataclass(frozen=True)
class Dealt:
    """The plan with a node for every GPU; without one, the rule that stands in the way."""

    plan: Plan | None
    reason: str = ""


@dataclass
class _Class:
    """Equal GPUs of a plan: their indices, what they take of a node, and the part of each workload's planned rate that
    one of them can carry.
    """

    base: str
    many: int
    carries: dict[str, int]
    gpus: list[int] = field(default_factory=list)


def deal(instance: Instance, plan: Plan, seconds: float) -> Dealt:
    """Deal the GPUs of a plan to the nodes of an instance with ``places``."""
    dealing = _Dealing(instance, plan)
    if (found := dealing.solved(seconds)) is not None:
        return Dealt(found)
    if dealing.unknown:
        return Dealt(None, "the GPUs were not dealt to nodes in time")
    if len(dealing.rules) == 0 or dealing.solved(seconds, set(dealing.rules)) is None:
        taken = Counter(one.base for one in dealing.classes for _ in range(one.many * len(one.gpus)))
        wanted = ", ".join(f"{many} {gpu}" for gpu, many in taken.items())
        return Dealt(None, f"the nodes do not hold the GPUs of the plan ({wanted})")
    guilty = [rule for rule in dealing.rules if dealing.solved(seconds, {rule}) is not None]
    what = " or ".join(guilty) if guilty else "several rules together: " + "; ".join(dealing.rules)
    return Dealt(None, f"no dealing of the plan's GPUs to the nodes keeps {what}")


class _Dealing:
    """The program for one plan."""

    def __init__(self, instance: Instance, plan: Plan) -> None:
        assert instance.places is not None
        self.instance, self.plan, self.places, self.unknown = instance, plan, instance.places, False
        self.machines = self.places.machines

    @cached_property
    def classes(self) -> list[_Class]:
        """The classes of equal GPUs."""
        found: dict[str, _Class] = {}
        for at, gpu in enumerate(self.plan.gpus):
            alike = gpu.model_copy(update={"node": None}).with_replicas(
                lambda one: one.model_copy(update={"rate_rps": float(one.rate_rps > 0)}))
            key = alike.model_dump_json()
            if key not in found:
                many, base = split(gpu.gpu)
                found[key] = _Class(base, many, self._carries(gpu))
            found[key].gpus.append(at)
        return list(found.values())

    def _carries(self, gpu: PlannedGpu) -> dict[str, int]:
        """The parts of the planned rates that a GPU can carry, in PARTS; 0 where nothing may be lost."""
        found = dict.fromkeys((one.workload for one in gpu.replicas), 0)
        for piece in gpu.slices if self.places.losses else ():
            for one, told in zip(piece.replicas, predict_slice(self.instance, gpu.gpu, piece), strict=True):
                planned = self.instance.planned_rps(self.instance.workload[one.workload])
                if told is not None and planned > 0:
                    found[one.workload] += int(carried_rps(self.instance, one, told) / planned * PARTS)
        return found

    @cached_property
    def rules(self) -> dict[str, Callable[["_Program"], None]]:
        """What each rule adds to a program, by its name."""
        places, found = self.places, dict[str, Callable[[_Program], None]]()
        for one in places.spread:
            found[f"spread of {one.workload} over {one.at_least} {one.over}s"] = partial(
                _Program.spread, workload=one.workload, kind=one.over, least=one.at_least)
        for rule in places.together:
            found[f"{', '.join(rule.workloads)} together on a {rule.on}"] = partial(
                _Program.together, workloads=rule.workloads, kind=rule.on)
        for rule in places.apart:
            found[f"{', '.join(rule.workloads)} apart on {rule.on}s"] = partial(
                _Program.apart, workloads=rule.workloads, kind=rule.on)
        for limit in places.within:
            found[f"{limit.workload} within {', '.join((*limit.zones, *limit.pools))}"] = partial(
                _Program.within, workload=limit.workload, allowed=limit.allowed)
        for quota in places.quotas:
            found[f"the quota of {quota.tenant}, {quota.at_most} GPUs"] = partial(
                _Program.quota, workloads=quota.workloads, most=quota.at_most)
        for kind in places.losses:
            found[f"the loss of any one {kind}"] = partial(_Program.lose, kind=kind)
        return found

    def solved(self, seconds: float, without: Collection[str] = ()) -> Plan | None:
        """The plan with nodes, without some of the rules; None if there is none. ``unknown`` tells that time was over.
        """
        program = _Program(self.classes, self.places)
        for name, add in self.rules.items():
            if name not in without:
                add(program)
        found, self.unknown = program.solved(max(seconds, SURE))
        if found is None:
            return None
        node: dict[int, str] = {}
        for one, row in zip(self.classes, found, strict=True):
            names = [machine.name for machine, many in zip(self.machines, row, strict=True) for _ in range(many)]
            node |= dict(zip(one.gpus, names, strict=True))
        return self.plan.model_copy(update={"gpus": tuple(
            gpu.model_copy(update={"node": node[at]}) for at, gpu in enumerate(self.plan.gpus))})


class _Program:
    """The CP-SAT model of classes of GPUs on nodes, to which rules are added."""

    def __init__(self, classes: list[_Class], places: Places) -> None:
        self.model, self.classes, self.places = cp_model.CpModel(), classes, places
        self.x = [[self.model.new_int_var(0, len(one.gpus) if machine.gpu == one.base else 0, "")
                   for machine in places.machines] for one in classes]
        self.known: dict[tuple[str, Domain], dict[str, cp_model.IntVar]] = {}
        busy = []
        for at, machine in enumerate(places.machines):
            taken = sum(one.many * row[at] for one, row in zip(classes, self.x, strict=True))
            on = self.model.new_bool_var("")
            self.model.add(taken <= machine.gpus * on)
            busy.append(on)
        for one, row in zip(classes, self.x, strict=True):
            self.model.add(sum(row) == len(one.gpus))
        self.model.minimize(sum(busy))

    def used(self, workload: str, kind: Domain) -> dict[str, cp_model.IntVar]:
        """Whether a workload has a GPU in each domain; that of nodes outside of all domains is empty."""
        if (workload, kind) not in self.known:
            inside = defaultdict[str, list[cp_model.IntVar]](list)
            for one, row in zip(self.classes, self.x, strict=True):
                for machine, x in zip(self.places.machines, row, strict=True):
                    if workload in one.carries:
                        inside[machine.domain(kind) or ""].append(x)
            found = {name: self.model.new_bool_var("") for name in inside}
            for name, several in inside.items():
                self.model.add(sum(several) >= found[name])
                self.model.add(sum(several) <= len(several) * max(len(one.gpus) for one in self.classes) * found[name])
            self.known[workload, kind] = found
        return self.known[workload, kind]

    def spread(self, workload: str, kind: Domain, least: int) -> None:
        """The workload stands in at least so many domains."""
        self.model.add(sum(on for name, on in self.used(workload, kind).items() if name) >= least)

    def together(self, workloads: tuple[str, ...], kind: Domain) -> None:
        """The workloads stand in the same domains."""
        for first, second in pairwise(self.used(name, kind) for name in workloads):
            for name in first.keys() | second.keys():
                self.model.add((first.get(name, 0)) == (second.get(name, 0)))

    def apart(self, workloads: tuple[str, ...], kind: Domain) -> None:
        """No two of the workloads stand in one domain."""
        for first, second in combinations([self.used(name, kind) for name in workloads], 2):
            for name in first.keys() & second.keys():
                self.model.add(first[name] + second[name] <= 1)

    def within(self, workload: str, allowed: Mapping[Domain, Collection[str]]) -> None:
        """The workload stands in these zones and pools alone."""
        for kind, names in allowed.items():
            for name, on in self.used(workload, kind).items():
                if name not in names:
                    self.model.add(on == 0)

    def quota(self, workloads: tuple[str, ...], most: int) -> None:
        """The workloads stand on at most so many GPUs, which dealing cannot change."""
        if sum(one.many * len(one.gpus) for one in self.classes if one.carries.keys() & set(workloads)) > most:
            self.model.add_bool_or([])

    def lose(self, kind: Domain) -> None:
        """Without any one domain the others carry every planned rate."""
        total = Counter[str]()
        for one in self.classes:
            for name, part in one.carries.items():
                total[name] += part * len(one.gpus)
        for domain in self.places.domains(kind):
            for name, whole in (+total).items():
                gone = sum(one.carries.get(name, 0) * x for one, row in zip(self.classes, self.x, strict=True)
                           for machine, x in zip(self.places.machines, row, strict=True)
                           if machine.domain(kind) == domain)
                self.model.add(gone <= whole - PARTS)

    def solved(self, seconds: float) -> tuple[list[list[int]] | None, bool]:
        """The numbers of GPUs of each class on each node, None if there are none, and whether that is for lack of time.
        """
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 1
        status = solver.solve(self.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return [[solver.value(one) for one in row] for row in self.x], False
        return None, status != cp_model.INFEASIBLE

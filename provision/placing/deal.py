"""Deals the GPUs of a plan to nodes by an exact program (CP-SAT), on as few nodes as possible.

    GPUs of a class in lot m    whole numbers; GPUs that no rule tells apart are a class, such nodes a lot
    nodes                       GPUs in a lot  <=  those that its nodes have
    used(workload, domain)      whether a workload has a GPU there; the rules limit these
    losses                      what is left of a workload's capacity without a domain  >=  its planned rate
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import combinations, pairwise
from typing import NamedTuple

from ortools.sat.python import cp_model

from provision.models.base.objects import known
from provision.models.hardware.gpu import split
from provision.models.hardware.places import Domain, Machine, Places
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import carried_rps, predict_slice

PARTS = 10**6
"""Capacities count in parts of the planned rate, rounded down."""


class _Class(NamedTuple):
    """GPUs of a plan that no rule tells apart: what each takes of a node, the node on which they are already, the part
    of each workload's planned rate that one can carry (0 where no rule asks), and their indices.
    """

    base: str
    many: int
    node: str | None
    carries: dict[str, int]
    gpus: list[int]


def deal(instance: Instance, plan: Plan, seconds: float) -> tuple[Plan | None, str]:
    """Deal the GPUs of a plan to the nodes of an instance with ``places``. Those that are on a node stay there. Return
    the plan with a node for every GPU; without one, the rule that stands in the way.
    """
    places = known(instance.places)
    classes, rules = _classes(instance, places, plan), dict(_rules(places))

    def solved(without: Collection[str] = ()) -> tuple[dict[int, str] | None, bool]:
        program = _Program(classes, places)
        for name, add in rules.items():
            if name not in without:
                add(program)
        return program.solved(seconds)

    node, unknown = solved()
    if node is not None:
        return plan.model_copy(update={"gpus": tuple(
            gpu.model_copy(update={"node": node[at]}) for at, gpu in enumerate(plan.gpus))}), ""
    if unknown:
        return None, "the GPUs were not dealt to nodes in time"
    if not rules or solved(rules)[0] is None:
        taken = Counter[str]()
        for many, base in (split(gpu.gpu) for gpu in plan.gpus):
            taken[base] += many
        wanted = ", ".join(f"{many} {gpu}" for gpu, many in taken.items())
        return None, f"the nodes do not hold the GPUs of the plan ({wanted})"
    guilty = [rule for rule in rules if solved({rule})[0] is not None]
    what = " or ".join(guilty) if guilty else "several rules together: " + "; ".join(rules)
    return None, f"no dealing of the plan's GPUs to the nodes keeps {what}"


def _classes(instance: Instance, places: Places, plan: Plan) -> list[_Class]:
    """The classes of the GPUs of a plan."""
    ruled, found = places.ruled, dict[object, _Class]()
    for at, gpu in enumerate(plan.gpus):
        carries = _carries(instance, gpu) if places.losses else dict.fromkeys(
            {one.workload for one in gpu.replicas} & ruled, 0)
        many, base = split(gpu.gpu)
        key = gpu.gpu, gpu.node, *sorted(carries.items())
        found.setdefault(key, _Class(base, many, gpu.node, carries, [])).gpus.append(at)
    return list(found.values())


def _carries(instance: Instance, gpu: PlannedGpu) -> dict[str, int]:
    """The parts of the planned rates that a GPU can carry, in PARTS."""
    found = dict.fromkeys((one.workload for one in gpu.replicas), 0)
    for piece in gpu.slices:
        for one, told in zip(piece.replicas, predict_slice(instance, gpu.gpu, piece), strict=True):
            planned = instance.planned_rps(instance.workload[one.workload])
            if told is not None and planned > 0:
                found[one.workload] += int(carried_rps(instance, one, told) / planned * PARTS)
    return found


def _rules(places: Places) -> Iterator[tuple[str, Callable[["_Program"], None]]]:
    """Yield the name of each rule and what it adds to a program."""
    for one in places.spread:
        yield (f"spread of {one.workload} over {one.at_least} {one.over}s",
               partial(_Program.spread, workload=one.workload, kind=one.over, least=one.at_least))
    for what, rules, add in (("together on a {}", places.together, _Program.together),
                             ("apart on {}s", places.apart, _Program.apart)):
        for rule in rules:
            yield (f"{', '.join(rule.workloads)} {what.format(rule.on)}",
                   partial(add, workloads=rule.workloads, kind=rule.on))
    for limit in places.within:
        yield (f"{limit.workload} within {', '.join((*limit.zones, *limit.pools))}",
               partial(_Program.within, workload=limit.workload, allowed=limit.allowed))
    for quota in places.quotas:
        yield (f"the quota of {quota.tenant}, {quota.at_most} GPUs",
               partial(_Program.quota, workloads=quota.workloads, most=quota.at_most))
    for kind in places.losses:
        yield f"the loss of any one {kind}", partial(_Program.lose, kind=kind)


class _Program:
    """The CP-SAT model of classes of GPUs on lots of nodes, to which rules are added."""

    def __init__(self, classes: list[_Class], places: Places) -> None:
        self.model, self.classes, self.places = cp_model.CpModel(), classes, places
        sizes = {base: {one.many for one in classes if one.base == base} for base in {one.base for one in classes}}
        single = ("node" in places.kinds or any(len(one) > 1 for one in sizes.values())
                  or any(one.node is not None for one in classes))
        lots = defaultdict[object, list[Machine]](list)
        for machine in places.machines:
            if machine.gpu in sizes:
                lots[machine if single else machine[1:]].append(machine)
        self.lots = list(lots.values())
        self.x = [[self.model.new_int_var(
            0, len(one.gpus) if lot[0].gpu == one.base and one.node in (None, lot[0].name) else 0, "")
            for lot in self.lots] for one in classes]
        self.known: dict[tuple[str, Domain], dict[str, cp_model.IntVar]] = {}
        busy = []
        for at, lot in enumerate(self.lots):
            room = lot[0].gpus // min(sizes[lot[0].gpu]) * min(sizes[lot[0].gpu])
            busy.append(self.model.new_int_var(0, len(lot), ""))
            self.model.add(sum(one.many * row[at] for one, row in zip(classes, self.x, strict=True)) <= room * busy[at])
        for one, row in zip(classes, self.x, strict=True):
            self.model.add(sum(row) == len(one.gpus))
        self.model.minimize(sum(busy))

    def _inside(self, kind: Domain) -> Iterator[tuple[str, _Class, cp_model.IntVar]]:
        """Yield each domain (empty for nodes outside of all), class, and the number of its GPUs in a lot there."""
        return ((lot[0].domain(kind) or "", one, x) for one, row in zip(self.classes, self.x, strict=True)
                for lot, x in zip(self.lots, row, strict=True))

    def used(self, workload: str, kind: Domain) -> dict[str, cp_model.IntVar]:
        """Whether a workload has a GPU in each domain; that of nodes outside of all domains is empty."""
        if (workload, kind) not in self.known:
            inside = defaultdict[str, list[cp_model.IntVar]](list)
            for name, one, x in self._inside(kind):
                if workload in one.carries:
                    inside[name].append(x)
            most = sum(len(one.gpus) for one in self.classes if workload in one.carries)
            found = self.known[workload, kind] = {name: self.model.new_bool_var("") for name in inside}
            for name, several in inside.items():
                self.model.add(sum(several) >= found[name])
                self.model.add(sum(several) <= most * found[name])
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

    def quota(self, workloads: Iterable[str], most: int) -> None:
        """Limit the number of GPUs on which the workloads stand. Dealing cannot change that number."""
        if sum(one.many * len(one.gpus) for one in self.classes if one.carries.keys() & set(workloads)) > most:
            self.model.add_bool_or([])

    def lose(self, kind: Domain) -> None:
        """Without any one domain the others carry every planned rate."""
        whole, gone = Counter[str](), defaultdict[tuple[str, str], list[cp_model.LinearExpr]](list)
        for one in self.classes:
            for name, part in one.carries.items():
                whole[name] += part * len(one.gpus)
        for domain, one, x in self._inside(kind):
            for name, part in one.carries.items() if domain else ():
                gone[domain, name].append(part * x)
        for (_, name), several in gone.items():
            if whole[name]:
                self.model.add(sum(several) <= whole[name] - PARTS)

    def solved(self, seconds: float) -> tuple[dict[int, str] | None, bool]:
        """The node of every GPU, None if there are none, and whether that is for lack of time."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 1
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, status != cp_model.INFEASIBLE
        left, node = {one.name: one.gpus for one in self.places.machines}, dict[int, str]()
        for one, row in zip(self.classes, self.x, strict=True):
            waiting = iter(one.gpus)
            for lot, x in zip(self.lots, row, strict=True):
                for _ in range(solver.value(x)):
                    machine = next(each for each in lot if left[each.name] >= one.many)
                    left[machine.name] -= one.many
                    node[next(waiting)] = machine.name
        return node, False

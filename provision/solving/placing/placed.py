"""Plans instances with ``places``: plans of similar instances without them, whose GPUs are dealt to nodes.

The bound is that of the instance without rules, on as many GPUs as the nodes have (of losses D/(D - 1) times that, with
D domains), or the price of the cheapest GPU in every domain that a rule asks for. Where no dealing of its plan keeps
the rules, these instances follow, each planned on its own. The cheapest plan that can be dealt is kept:

- spread: no GPU carries more of a workload than its part of so many domains;
- losses: k/(k - 1) of the rates, 1/k of them at most per GPU, for some k; and 1/(k - 1) of the rates, k times;
- apart and quotas: workloads that must not share a node, or belong to different tenants, planned one group after the
  other, on GPUs of their own.
"""

from collections.abc import Iterator
from functools import partial

from provision.models.base.tolerances import FORGIVEN
from provision.models.hardware.places import Places
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload
from provision.solving.detour import Detour, Other, Run
from provision.solving.placing.deal import deal
from provision.solving.schedule import DETOUR

MOST_PARTS, DEAL_S = 4, 10.0
"""The most domains over which rates are increased, and the most seconds of one dealing."""
SAFE = 1 + FORGIVEN
"""The factor on rates; it exceeds the sum of the verifier's tolerances."""


def placed(instance: Instance, search: Search, run: Run) -> Outcome:
    """Find the best plan whose GPUs are dealt to nodes by all rules, and a bound."""
    assert instance.places is not None
    detour, reasons = Detour(instance, search, run), list[str]()

    def dealt(plan: Plan, part: float = 1.0, copies: int = 1) -> Plan:
        """The plan with a part of its rates, each GPU so many times, dealt to nodes; undealt if that is impossible."""
        scaled = plan.with_replicas(lambda one: one.model_copy(update={"rate_rps": one.rate_rps * part}))
        whole = scaled.model_copy(update={
            "digest": instance.digest, "gpus": tuple(gpu for gpu in scaled.gpus for _ in range(copies))})
        found = deal(instance, whole, min(DEAL_S, search.left_s))
        if found.plan is None:
            reasons.append(found.reason)
        return found.plan or whole

    plain = Other(_capped(instance, instance.places), dealt)
    base, others = _spread(plain.instance, instance.places), list[Other]()
    if base is not plain.instance:
        others.append(Other(base, dealt))
    most = min([len(instance.places.domains(kind)) for kind in instance.places.losses], default=1)
    for k in range(min(most, MOST_PARTS), 1, -1):
        others += [Other(_with_rates(base, 1 / (k - 1), 1.0), partial(dealt, part=(k - 1) / k, copies=k)),
                   Other(_with_rates(base, k / (k - 1), 1 / k), partial(dealt, part=(k - 1) / k))]
    grouped = False
    detour.progress.prove(_least(instance, instance.places))
    for one in detour.in_turns([plain, *others]):
        if plain.impossible:
            return Outcome("infeasible", "proved", reason=plain.reason)
        detour.progress.prove(None if plain.bound is None else plain.bound * _more(instance, instance.places))
        if not grouped and detour.progress.plan is None and one is (others[-1] if others else plain):
            grouped = True
            for planned in _in_groups([plain, *others], instance.places, search, run):
                detour.offer(planned)
    return detour.outcome(reasons[0] if reasons else plain.reason)


def _least(instance: Instance, places: Places) -> float | None:
    """What plans cost at least, since some workload stands in several domains; None where that is not so or GPUs are
    not what plans are compared by.
    """
    served = {one.name for one in instance.workloads if one.rate_rps > 0}
    domains = [one.at_least for one in places.spread if one.workload in served] + [2] * bool(places.losses and served)
    objective = objective_of(instance)
    if not domains or objective.counts_capacity:
        return None
    return max(domains) * min(map(objective.weight, instance.fleet))


def _more(instance: Instance, places: Places) -> float:
    """The least factor between the values of plans that survive losses and of plans that need not: without any one of
    D domains, in which all nodes are, the others are such a plan; of these D plans every GPU is in D - 1.
    """
    policy = instance.policy
    if policy.survive or policy.even_replicas or objective_of(instance).counts_capacity or any(
            one.max_share_per_gpu < 1 or one.min_replicas > 1 for one in instance.workloads):
        return 1.0
    domains = [len(places.domains(kind)) for kind in places.losses
               if all(one.domain(kind) is not None for one in places.machines)]
    return max((many / (many - 1) for many in domains), default=1.0)


def _capped(instance: Instance, places: Places) -> Instance:
    """The instance without places, with no more GPUs of a type than the nodes have."""
    fleet = []
    for entry in instance.fleet:
        most = places.count_of(entry.gpu)
        fleet.append(entry.model_copy(update={"count": most if entry.count is None else min(most, entry.count)}))
    return instance.replace(places=None, fleet=fleet)


def _spread(instance: Instance, places: Places) -> Instance:
    """The instance in which no GPU carries more of a workload than its part of the domains over which it is spread."""
    parts = {one.workload: 1 / one.at_least for one in sorted(places.spread, key=lambda one: one.at_least)}
    if not parts:
        return instance
    return instance.replace(workloads=[
        _limited(one, parts[one.name]) if one.name in parts else one for one in instance.workloads])


def _with_rates(instance: Instance, factor: float, share: float) -> Instance:
    """The instance with all rates times a factor, of which a GPU carries at most a share."""
    return instance.replace(workloads=[
        _limited(one.model_copy(update={"rate_rps": one.rate_rps * factor * SAFE}), share)
        for one in instance.workloads])


def _limited(one: Workload, share: float) -> Workload:
    return one.model_copy(update={"max_share_per_gpu": min(one.max_share_per_gpu, share)})


def _in_groups(several: list[Other], places: Places, search: Search, run: Run) -> Iterator[Plan]:
    """Yield plans in which workloads that must not share nodes, and those of different tenants, have GPUs of their own.
    """
    groups = _groups([one.name for one in several[0].instance.workloads], places)
    for other in several if len(groups) > 1 else ():
        left, gpus = other.instance, list[PlannedGpu]()
        for names in groups:
            few = left.replace(workloads=[one for one in left.workloads if one.name in names], workflows=())
            found = run(few, search.apart(min(DETOUR.turn_s, search.left_s / len(groups)), slack="no"))
            if found.plan is None:
                break
            gpus += found.plan.gpus
            left = left.replace(fleet=objective_of(left).fleet_without(found.plan))
        else:
            yield other.back(Plan(version=1, instance=left.name, method="auto", gpus=tuple(gpus)))


def _groups(names: list[str], places: Places) -> list[set[str]]:
    """The workloads in groups: of one tenant each, and without two that must stand apart."""
    tenant = {name: one.tenant for one in places.quotas for name in one.workloads}
    foes = {name: {other for one in places.apart if name in one.workloads for other in one.workloads} - {name}
            for name in names}
    found: list[tuple[str | None, set[str]]] = []
    for name in names:
        for owner, group in found:
            if owner == tenant.get(name) and not group & foes[name]:
                group.add(name)
                break
        else:
            found.append((tenant.get(name), {name}))
    return [group for _, group in found]

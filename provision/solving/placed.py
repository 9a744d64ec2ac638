"""Plans instances with ``places``: plans of similar instances without them, whose GPUs are dealt to nodes.

The bound is that of the instance without rules, on as many GPUs as the nodes have (of losses D/(D - 1) times that, with
D domains), or the price of the cheapest GPU in every domain that a rule asks for. Where no dealing of its plan keeps
the rules, these instances follow, each planned on its own. The cheapest plan that can be dealt is kept:

- spread: no GPU carries more of a workload than its part of so many domains;
- losses: k/(k - 1) of the rates, 1/k of them at most per GPU, for some k; and 1/(k - 1) of the rates, k times;
- apart and quotas: workloads that must not share a node, or belong to different tenants, planned one group after the
  other, on GPUs of their own.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from provision.models.base.objects import known
from provision.models.hardware.places import Places
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search
from provision.placing.deal import deal
from provision.solving.detour import Other, by_others, routed, with_spare_part
from provision.solving.schedule import DETOURS
from provision.solving.steps import GREEDY, Step, one_gpu, valid_for


def placed(instance: Instance, search: Search, run: Step) -> Outcome:
    """Find the best plan whose GPUs are dealt to nodes by all rules, and a bound.

    Parameters
    ----------
    instance, search
        The problem, with ``places``, and the Search.
    run
        Plans an instance without ``places``.
    """
    places, reasons = known(instance.places), list[str]()

    def dealt(plan: Plan) -> Plan:
        """The plan dealt to nodes; undealt if that is impossible."""
        found, reason = deal(instance, plan, min(DETOURS.deal_s, max(search.left_s, DETOURS.least_deal_s)))
        if found is None:
            reasons.append(reason)
        return found or plan

    def back(plan: Plan, copies: int) -> Plan:
        return dealt(routed(instance, plan, copies))

    progress, capped = Progress(instance, search), _capped(instance, places)
    progress.prove(_spread_over(instance, places) * one_gpu(instance) or None)
    plain = Other(capped, dealt)
    choices = [Other(one, partial(back, copies=copies)) for one, copies in _others(capped, places)]
    for plan in _in_groups([plain, *choices], places, search):
        progress.offer(valid_for(instance, plan))
    more = _more(instance, places)
    return by_others(progress, run, plain, choices, lambda: reasons[0] if reasons else "",
                     raised=lambda bound: bound * more)


def _others(plain: Instance, places: Places) -> Iterator[tuple[Instance, int]]:
    """Yield instances whose plans are spread over domains, and survive losses of domains, each with how often every GPU
    of its plan will stand.
    """
    parts = {one.workload: 1 / one.at_least for one in sorted(places.spread, key=lambda one: one.at_least)}
    spread = plain.replace(workloads=[one.model_copy(update={
        "max_share_per_gpu": min(one.max_share_per_gpu, parts.get(one.name, 1.0))}) for one in plain.workloads])
    if parts:
        yield spread, 1
    domains = min([len(places.domains(kind)) for kind in places.losses], default=1)
    for k in range(min(domains, 1 + DETOURS.spreads), 1, -1):
        for copies in (k, 1):
            yield spread.replace(workloads=[with_spare_part(one, k, copies) for one in spread.workloads]), copies


def _spread_over(instance: Instance, places: Places) -> int:
    """The most domains in which some workload must stand, each with a GPU of its own; at least 1."""
    served = {one.name for one in instance.workloads if one.rate_rps > 0}
    return max([1, *(one.at_least for one in places.spread if one.workload in served), *[2] * bool(places.losses)])


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


def _in_groups(several: Sequence[Other], places: Places, search: Search) -> Iterator[Plan]:
    """Yield quick plans in which workloads that must not share nodes, and those of different tenants, have GPUs of
    their own.
    """
    groups = _groups([one.name for one in several[0].instance.workloads], places)
    until = search.within(DETOURS.quick_s)
    for other in several if len(groups) > 1 else ():
        if until.over:
            return
        left, gpus = other.instance, list[PlannedGpu]()
        for names in groups:
            few = left.replace(workloads=[one for one in left.workloads if one.name in names], workflows=())
            found = GREEDY(few, search.apart()).plan
            if found is None:
                break
            gpus += found.gpus
            left = left.replace(fleet=objective_of(left).fleet_without(found))
        else:
            yield other.back(left.plan_of("auto", gpus))


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

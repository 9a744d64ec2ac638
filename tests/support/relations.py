"""Relations between instances, and what they say of answers: a bound on one refutes no plan of the other.

Whether a plan of one instance is one of the other is asked of the verifier. Relations say which plans must be: those of
a stricter instance on a looser one, and both ways where two instances differ in names, units or tiers alone.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from option_grid import KINDS, OPTIONS, RULES, agree, case

import provision
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import Workload

ROUNDING = 2e-6
"""Relative difference between values that counts as none: what solvers grant a bound on throughput."""
MOST_OPTIONS = 3
NAMES = "renamed {}"

Content = dict[str, Any]
Mapped = Callable[[Plan], Plan]


class Relation(NamedTuple):
    """A related instance.

    Attributes
    ----------
    name
        What was changed.
    other
        The related instance.
    onto
        Makes a plan of the instance one of the other; None where that need not be one.
    back
        The same from the other one.
    factor
        The value of a plan on the other over its value on the instance.
    sure
        Whether a plan that is carried over must hold; else the verifier decides.
    """

    name: str
    other: Instance
    onto: Mapped | None
    back: Mapped | None
    factor: float = 1.0
    sure: bool = True


class Answer(NamedTuple):
    """What a solve says: a plan that holds, its value, a bound, and whether there is no plan."""

    plan: Plan | None
    value: float | None
    bound: float | None
    infeasible: bool


def drawn(seed: int) -> Instance | None:
    """An instance of a data kind under a rule with up to MOST_OPTIONS options; None where they contradict each other.

    Its SLOs and rates are drawn too; everything follows from the seed.
    """
    rng = np.random.default_rng([seed, 25])
    kind, rule = list(KINDS)[seed % len(KINDS)], RULES[seed // len(KINDS) % len(RULES)]
    options = tuple(str(one) for one in rng.choice(OPTIONS, int(rng.integers(0, MOST_OPTIONS + 1)), replace=False))
    if not agree(options):
        return None
    content = case(kind, rule, options).content
    rate, slo = rng.uniform(0.3, 1.5), rng.uniform(0.8, 1.8)
    scaled = [one | {"rate_rps": one["rate_rps"] * rate} | ({"slo_ms": one["slo_ms"] * slo} if "slo_ms" in one else {})
              for one in content["workloads"]]
    try:
        return Instance.model_validate(content | {"name": f"{seed}: {kind}, {rule}, {', '.join(options)}",
                                                  "workloads": scaled})
    except ValueError:
        return None


def relations(instance: Instance) -> Iterator[Relation]:
    """All relations of an instance."""
    yield _renamed(instance)
    yield from _dearer(instance)
    yield from _second_tier(instance)
    yield from _rescaled(instance)
    yield from _halved(instance)
    yield from _loosened(instance)
    yield from _eased(instance)


def same(plan: Plan) -> Plan:
    """The plan itself."""
    return plan


def _renamed(instance: Instance) -> Relation:
    """Workloads in the opposite order, under other names."""
    there = {one.name: NAMES.format(at) for at, one in enumerate(instance.workloads)}
    here = {name: one for one, name in there.items()}
    workloads = [one.model_copy(update={"name": there[one.name]}) for one in reversed(instance.workloads)]
    flows = [one.model_copy(update={
        "stages": tuple(tuple(there[name] for name in stage) for stage in one.stages),
        "edges": tuple((there[a], there[b]) for a, b in one.edges)}) for one in instance.workflows]
    flows = [type(one).model_validate(one.model_dump()) for one in flows]
    return Relation("renamed and reversed", instance.replace(workloads=workloads, workflows=flows),
                    _named(there), _named(here))


def _named(names: dict[str, str]) -> Mapped:
    def mapped(plan: Plan) -> Plan:
        return plan.with_replicas(lambda one: one.model_copy(update={"workload": names[one.workload]}))

    return mapped


def _dearer(instance: Instance) -> Iterator[Relation]:
    if instance.fleet[0].price_per_hour is not None:
        fleet = [one.model_copy(update={"price_per_hour": 2 * (one.price_per_hour or 0)}) for one in instance.fleet]
        factor = 2.0 if instance.objective == "min_cost" else 1.0
        yield Relation("prices times two", instance.replace(fleet=fleet), same, same, factor)


def _second_tier(instance: Instance) -> Iterator[Relation]:
    """A dearer tier of a GPU type of which there are enough changes nothing; else it is more choice."""
    first = instance.fleet[0]
    if first.price_per_hour is not None and instance.objective != THROUGHPUT:
        tier = first.model_copy(update={"price_per_hour": first.price_per_hour + 0.25, "tier": "further", "count": 2})
        enough = first.count is None
        yield Relation("a dearer tier", instance.replace(fleet=(*instance.fleet, tier)), same, same if enough else None)


def _rescaled(instance: Instance) -> Iterator[Relation]:
    """Everything four times as slow, requests too; known how to of measured tables."""
    slower = 4.0
    if not all(isinstance(data, MeasuredSegments) for data in instance.performance):
        return
    files = [_slower(data, slower) for data in instance.performance]
    workloads = [one.model_copy(update={"slo_ms": one.slo_ms * slower, "rate_rps": one.rate_rps / slower})
                 for one in instance.workloads]
    factor = 1 / slower if instance.objective == THROUGHPUT else 1.0
    yield Relation("time times four", instance.replace(performance=files, workloads=workloads),
                   _rated(1 / slower), _rated(slower), factor)


def _slower(data: MeasuredSegments, slower: float) -> MeasuredSegments:
    content = data.model_dump(mode="json")
    for model in content["models"].values():
        model["points"] = [[*point[:3], point[3] / slower, point[4] * slower, *point[5:]] for point in model["points"]]
    return MeasuredSegments.model_validate(content)


def _rated(factor: float) -> Mapped:
    def mapped(plan: Plan) -> Plan:
        return plan.with_replicas(lambda one: one.model_copy(update={"rate_rps": one.rate_rps * factor}))

    return mapped


def _halved(instance: Instance) -> Iterator[Relation]:
    """The first workload as two with half of its rate each: its replicas are theirs together."""
    first = instance.workloads[0]
    named = {name for flow in instance.workflows for name in flow.workloads}
    if instance.policy.even_replicas or first.tokens or first.name in named or first.max_replicas == 1:
        return
    half = {"rate_rps": first.rate_rps / 2, "max_replicas": first.max_replicas and first.max_replicas // 2}
    least = 2 if instance.policy.survive else first.min_replicas
    if half["max_replicas"] is not None and half["max_replicas"] < least:
        return
    parts = [first.model_copy(update={"name": name, **half}) for name in ("half 0", "half 1")]
    others = {one.name: one.name for one in instance.workloads[1:]}
    yield Relation("a workload halved", instance.replace(workloads=(*parts, *instance.workloads[1:])), None,
                   _named({**others, "half 0": first.name, "half 1": first.name}))


def _loosened(instance: Instance) -> Iterator[Relation]:
    """One limit less, or one option more."""
    def each(name: str, **changes: object) -> Iterator[Relation]:
        workloads = [one.model_copy(update=changes) for one in instance.workloads]
        if workloads != list(instance.workloads):
            yield Relation(name, instance.replace(workloads=workloads), same, None)

    yield from each("no max_replicas", max_replicas=None)
    yield from each("no min_replicas", min_replicas=0)
    yield from each("no max_share_per_gpu", max_share_per_gpu=1.0)
    policy = instance.policy
    for name, changes in (("no survival", {"survive": None}), ("replicas need not be even", {"even_replicas": False}),
                          ("safety 1", {"safety": 1.0})):
        if any(getattr(policy, field) != value for field, value in changes.items()):
            yield Relation(name, instance.with_policy(**changes), same, None)
    if policy.headroom:
        yield Relation("no headroom", instance.with_policy(headroom=0.0), _rated(1 / (1 + policy.headroom)), None)
    if not policy.share_slices and not policy.survive:
        yield Relation("share_slices", instance.with_policy(share_slices=True), same, None)
    if any(entry.count is not None for entry in instance.fleet):
        more = [entry.model_copy(update={"count": None if entry.count is None else entry.count + 1})
                for entry in instance.fleet]
        yield Relation("more GPUs", instance.replace(fleet=more), same, None)


def _eased(instance: Instance) -> Iterator[Relation]:
    """Longer SLOs and lower rates: on slices that networks share batches fill otherwise, so the verifier decides."""
    longer = [Workload(**one.with_slo(1.25)) for one in instance.workloads]
    yield Relation("longer SLOs", instance.replace(workloads=longer), same, None, sure=False)
    fewer = [one.model_copy(update={"rate_rps": 0.8 * one.rate_rps}) for one in instance.workloads]
    yield Relation("lower rates", instance.replace(workloads=fewer), _rated(0.8), None, sure=False)


def answer(instance: Instance, time_limit_s: float, start: Plan | None = None) -> Answer:
    """What ``auto`` says of an instance."""
    found = provision.solve(instance, time_limit_s=time_limit_s, start=start, replay=False)
    holds = found.plan is not None and found.verified
    return Answer(found.plan if holds else None, found.objective if holds else None, found.bound,
                  found.status == "infeasible")


def contradictions(instance: Instance, relation: Relation, here: Answer, there: Answer) -> Iterator[str]:
    """What an answer on an instance and one on a related instance say against each other, each in a line."""
    what = f"{instance.name}; {relation.name}"
    ways = ((relation.onto, instance, here, relation.other, there, relation.factor, "here, there"),
            (relation.back, relation.other, there, instance, here, 1 / relation.factor, "there, here"))
    for mapped, _, known, target, claim, factor, way in ways:
        if mapped is None or known.plan is None or known.value is None:
            continue
        carried = mapped(known.plan)
        report = provision.verify(target, carried)
        if not report.ok:
            if relation.sure:
                yield f"{what} ({way}): the plan does not hold: {report.violations[0].message}"
            continue
        value = known.value * factor
        if claim.infeasible:
            yield f"{what} ({way}): infeasible, and a plan of {value:g}"
        elif claim.bound is not None and _beats(target, value, claim.bound):
            yield f"{what} ({way}): bound {claim.bound:.9g}, and a plan of {value:.9g}"


def behind_its_start(instance: Instance, relation: Relation, here: Answer, time_limit_s: float) -> Iterator[str]:
    """Whether ``auto`` that begins with the plan of an instance is behind it on the related one."""
    if relation.onto is None or here.plan is None or here.value is None:
        return
    start = relation.onto(here.plan)
    if not provision.verify(relation.other, start).ok:
        return
    found, value = answer(relation.other, time_limit_s, start), here.value * relation.factor
    if found.value is None or _beats(relation.other, value, found.value):
        yield f"{instance.name}; {relation.name}: begins with {value:.9g}, ends with {found.value}"


def _beats(instance: Instance, value: float, bound: float) -> bool:
    """Whether a value is better than a bound, or than another value, by more than rounding."""
    objective = objective_of(instance)
    return objective.loss(value) < objective.loss(bound) - ROUNDING * max(abs(bound), 1e-9)


def checked(seed: int, time_limit_s: float, most: int) -> tuple[list[str], list[str]] | None:
    """Contradictions of an instance and up to ``most`` relations drawn for it, and their names; None without one."""
    instance = drawn(seed)
    if instance is None:
        return None
    rng, found = np.random.default_rng([seed, 26]), list[str]()
    several = list(relations(instance))
    chosen = [several[at] for at in rng.permutation(len(several))[:most]]
    here = answer(instance, time_limit_s)
    found += _of_another_method(instance, here, time_limit_s)
    for relation in chosen:
        found += contradictions(instance, relation, here, answer(relation.other, time_limit_s))
    if chosen:
        found += behind_its_start(instance, chosen[0], here, time_limit_s)
    return found, [one.name for one in chosen]


def _of_another_method(instance: Instance, here: Answer, time_limit_s: float) -> Iterator[str]:
    """What greedy's plan says against ``auto``, which also begins with it."""
    try:
        other = provision.solve(instance, "greedy", time_limit_s=time_limit_s, replay=False)
    except provision.UnsupportedError:
        return
    if other.plan is None or not other.verified or other.objective is None:
        return
    given = Answer(other.plan, other.objective, None, False)
    relation = Relation("greedy's plan", instance, same, None)
    yield from contradictions(instance, relation, given, here)
    yield from behind_its_start(instance, relation, given, time_limit_s)

"""Do answers of several methods, and those on loosened instances, contradict each other or brute force?"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from combined import loosened, narrower
from small_solver import Answer as Small
from small_solver import solve as solve_small

import provision
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

ROUNDING = 2e-6
"""Relative difference between values that counts as none: what solvers grant a bound on throughput."""


class Answer(NamedTuple):
    """What a method, or brute force, says: the value of a plan that holds, a bound, and whether there is no plan."""

    method: str
    value: float | None
    bound: float | None
    infeasible: bool


def answers_of(instance: Instance, methods: Iterable[str], time_limit_s: float) -> tuple[list[Answer], list[str]]:
    """Answers of the methods that take an instance, and a line for each that ends in an error."""
    found, faults = [], []
    for name in methods:
        try:
            result = provision.solve(instance, name, time_limit_s=time_limit_s, replay=False)
        except provision.UnsupportedError:
            continue
        except Exception as error:  # whatever it is, no method may end so
            faults.append(f"{instance.name} {name}: {type(error).__name__}: {error}")
            continue
        value = result.objective if result.verified else None
        found.append(Answer(name, value, result.bound, result.status == "infeasible"))
    return found, faults


def brute_force(instance: Instance, told: Small | None = None) -> Answer:
    """What the small solver says, or has ``told``: the best plan that it lists, and a bound if it lists all plans."""
    told = told or solve_small(instance)
    return Answer("brute force", told.value, told.value if told.exact else None, told.exact and told.value is None)


def clashes(instance: Instance, plans: Sequence[Answer], claims: Sequence[Answer], what: str = "") -> list[str]:
    """Claims about an instance that plans refute, each in a line: a bound that is beaten, or that there is no plan."""
    lines = []
    for claim in claims:
        for plan in plans:
            if plan.value is None:
                continue
            if claim.infeasible:
                lines.append(f"{instance.name}{what}: infeasible by {claim.method}, {plan.value:g} by {plan.method}")
            elif claim.bound is not None and _beats(instance, plan.value, claim.bound):
                lines.append(f"{instance.name}{what}: bound {claim.bound:.9g} by {claim.method}, "
                             f"a plan of {plan.value:.9g} by {plan.method}")
    return lines


def _beats(instance: Instance, value: float, other: float) -> bool:
    return objective_of(instance).loss(value) < objective_of(instance).loss(other) - ROUNDING * abs(other)


def faults_of(instance: Instance, methods: Sequence[str], time_limit_s: float,
              loosenings: int | None = None, parts: int = 0, first: int = 0) -> tuple[list[str], list[Answer]]:
    """What is wrong with the answers on an instance and on what loosens it, and the answers on the instance itself.

    ``loosenings`` limits how many ways to loosen it are tried, None for all, and ``parts`` how many instances with a
    fleet entry less; ``first`` says with which one to begin.
    """
    answers, faults = answers_of(instance, methods, time_limit_s)
    brute = brute_force(instance)
    faults += clashes(instance, [*answers, brute], [*answers, brute])
    for what, easier in _some(list(loosened(instance)), loosenings, first):
        claims, errors = answers_of(easier, methods, time_limit_s)
        faults += errors + clashes(easier, [*answers, *claims, brute], claims, f", {what}")
    for what, part in _some(list(narrower(instance)), parts, first):
        plans, errors = answers_of(part, methods, time_limit_s)
        faults += errors + clashes(instance, plans, answers, f", beside a plan {what}")
    return faults, answers


def _some(changed: list[tuple[str, Instance]], most: int | None, first: int) -> list[tuple[str, Instance]]:
    """At most so many of some instances, from the one with this number on."""
    start = first % len(changed) if changed else 0
    return (changed[start:] + changed[:start])[:most]

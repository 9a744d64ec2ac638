"""One call from instance to verified result."""

import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from os import PathLike
from typing import Any

from provision.instances.read import read
from provision.models.base.errors import InputError, MethodError
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.problem.instance import ROUNDING, Instance
from provision.models.problem.method import needs
from provision.models.problem.search import Incumbent, Search
from provision.solving.methods import method as find_method
from provision.solving.size import check_size
from provision.verification.verify import verify

LONGEST_S = 1e7
FEW, FEWER, ITERATIONS, REHEARSAL_S = 12, 3, 10, 120.0
"""Workloads, or FEWER where all sets of them are listed, steps of ``lns`` and seconds at most of a rehearsal."""
_rehearsed = set()


def solve(
    instance: Instance | str | PathLike[str],
    method: str = "auto",
    time_limit_s: float = 60.0,
    seed: int = 0,
    report: Callable[[Incumbent], None] | None = None,
    start: Plan | None = None,
    **parameters: Any,
) -> Result:
    """Plan an instance with one method and verify the plan.

    Parameters
    ----------
    instance
        The Instance, or what ``provision.read`` finds it by: the name of a shipped one, or a path.
    method
        Name of a method; see ``provision.methods()``.
    time_limit_s
        Seconds after which a search returns its best plan.
    seed
        For methods that draw random numbers.
    report
        Called with an Incumbent whenever a plan or bound improves.
    start
        A plan to begin with, of a like instance; it counts where it holds on this one.
    parameters
        The method's own.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        For an unknown instance, method or parameter, a time limit or seed out of range, or an instance out of all
        proportion.
    UnsupportedError
        When the instance needs what the method cannot do.
    MethodError
        When the verifier rejects a plan that the method claims to be feasible, or the plan beats the method's bound.
    """
    if isinstance(instance, (str, PathLike)):
        instance = read(instance)
    chosen = find_method(method)
    check_time_limit(time_limit_s)
    if seed < 0:
        raise InputError(f"seed {seed}: must be 0 or more")
    for name in parameters:
        if name not in chosen.parameters:
            known = ", ".join(chosen.parameters) or "none"
            raise InputError(f"method {method} has no parameter {name!r}; it has: {known}")
    chosen.check(instance)
    check_size(instance)
    settings = dict(chosen.parameters) | parameters
    if chosen.compiled and "interference" in needs(instance):
        _rehearse(instance, chosen, settings)
    start = _holding(instance, start)
    control = Search(time_limit_s, seed, settings, report or (lambda incumbent: None), start)
    outcome = chosen.run(instance, control)
    verdict = verify(instance, outcome.plan) if outcome.plan is not None else None
    if verdict is not None and not verdict.ok and outcome.status != "unknown":
        raise MethodError(f"method {method} returned a plan that fails: {verdict.violations[0].message}")
    value = instance.value(outcome.plan) if outcome.plan is not None else None
    if verdict is not None and verdict.ok and _refuted(instance, value, outcome.bound):
        raise MethodError(f"method {method} claims a bound of {outcome.bound:.12g}, and its plan has {value:.12g}")
    return Result(
        instance=instance.name,
        digest=instance.digest,
        method=method,
        parameters=settings | {"time_limit_s": time_limit_s},
        seed=seed,
        status=outcome.status,
        termination=outcome.termination,
        reason=outcome.reason,
        plan=outcome.plan,
        report=verdict,
        objective=value,
        bound=outcome.bound,
        build_seconds=outcome.build_seconds,
        solve_seconds=outcome.solve_seconds,
        versions=_versions(),
    )


def check_time_limit(time_limit_s):
    """Refuse a time limit that is none.

    Raises
    ------
    InputError
        When it is not above 0 and of sensible length.
    """
    if not 0 < time_limit_s <= LONGEST_S:
        raise InputError(f"time limit {time_limit_s!r}: must be above 0 and at most {LONGEST_S:g} seconds")


def _refuted(instance, value, bound):
    """Whether a value is better than a bound on it, by more than rounding."""
    return bound is not None and instance.loss(value) < instance.loss(bound) - ROUNDING * abs(bound)


def _rehearse(instance, method, settings):
    """Let a method's kernels compile on a few workloads, once per process, before its time begins to count.

    Raises
    ------
    KeyboardInterrupt
        When that is where Ctrl-C falls: methods would take it for the end of the rehearsal alone.
    """
    key = method.name, len({entry.gpu for entry in instance.fleet})
    if key not in _rehearsed:
        _rehearsed.add(key)
        few = instance.workloads[: FEWER if "max_throughput" in needs(instance) else FEW]
        few = instance.replace(workloads=few, workflows=())
        found = method.run(few, Search(REHEARSAL_S, parameters=settings | {"iterations": ITERATIONS, "slack": "no"}))
        if found.termination == "stopped":
            raise KeyboardInterrupt


def _holding(instance, plan):
    """A plan as one of this instance; None where it does not hold on it."""
    if plan is None or not verify(instance, plan).ok:
        return None
    return plan.model_copy(update={"instance": instance.name, "digest": instance.digest})


@cache
def _versions():
    """Versions of what an answer depends on."""
    packages = ("provision", "numba", "numpy", "scipy", "pulp", "ortools")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}

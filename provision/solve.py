"""One call from instance to verified result."""

import platform
from functools import cache
from importlib.metadata import version

from provision.methods import method as find_method
from provision.models.errors import InputError
from provision.models.method import Control
from provision.models.result import Result
from provision.verify import verify


class MethodError(RuntimeError):
    """A method returned a plan that the verifier rejects: a defect of the method."""


def solve(instance, method="auto", time_limit_s=60.0, seed=0, report=None, **parameters):
    """Plan an instance with one method and verify the plan.

    Parameters
    ----------
    instance
        The Instance.
    method
        Name of a method; see ``provision.methods()``.
    time_limit_s
        Seconds after which a search returns its best plan.
    seed
        For methods that draw random numbers.
    report
        Called with an Incumbent whenever a plan or bound improves.
    parameters
        The method's own.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        For an unknown method or parameter, or a time limit that is not positive.
    UnsupportedError
        When the instance needs what the method cannot do.
    MethodError
        When the verifier rejects the method's plan.
    """
    chosen = find_method(method)
    if not time_limit_s > 0:
        raise InputError(f"time limit {time_limit_s!r} must be a number of seconds above 0")
    for name in parameters:
        if name not in chosen.parameters:
            known = ", ".join(chosen.parameters) or "none"
            raise InputError(f"method {method} has no parameter {name!r}; it has: {known}")
    chosen.check(instance)
    settings = dict(chosen.parameters) | parameters
    control = Control(time_limit_s, seed, settings, report or (lambda incumbent: None))
    outcome = chosen.run(instance, control)
    verdict = verify(instance, outcome.plan) if outcome.plan is not None else None
    if verdict is not None and not verdict.ok:
        raise MethodError(f"method {method} returned a plan that fails: {verdict.violations[0].message}")
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
        objective=instance.value(outcome.plan) if outcome.plan is not None else None,
        bound=outcome.bound,
        build_seconds=outcome.build_seconds,
        solve_seconds=outcome.solve_seconds,
        versions=_versions(),
    )


@cache
def _versions():
    """Versions of what an answer depends on."""
    packages = ("provision", "numpy", "scipy", "pulp", "ortools")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}

"""Rehearsals: a method runs briefly on a few workloads, so that its kernels are compiled before its own search begins.
Rehearsals do not count towards the method's time limit.
"""

from collections.abc import Callable

from provision.models.base.clock import COMPILING
from provision.models.base.compiled import unwarmed
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs

SHARED = {"interference", "other_sharing"}
"""The features of instances whose methods have kernels that take long to compile."""
KERNELS = SHARED | {"random_interference", "random_slices", "max_throughput"}
"""The features that have kernels of their own."""
REHEARSED, REHEARSED_IN_SETS, MOMENT_S, AGAIN_S = 12, 3, 0.2, 5.0
"""The number of workloads in a rehearsal (REHEARSED_IN_SETS for methods that list all sets of workloads), and the time
limit in seconds of its first run. As long as a run compiles kernels, it is followed by another with the limit AGAIN_S.
"""
_rehearsed: set[tuple[str, int, frozenset[str]]] = set()


def rehearse_once(name: str, instance: Instance, moment: Callable[[Instance, float], None]) -> None:
    """Rehearse a method once per process, if its kernels take long to compile. No Search or Deadline counts the time of
    a rehearsal.

    Parameters
    ----------
    name, moment
        The name of the method, and a function that runs it on an instance with few workloads for at most some seconds.
    instance
        The instance from which the few workloads are taken.
    """
    asked = needs(instance)
    key = name, len({entry.gpu for entry in instance.fleet}), frozenset(asked & KERNELS)
    if key in _rehearsed or not asked & SHARED:
        return
    _rehearsed.add(key)
    number = REHEARSED_IN_SETS if "max_throughput" in asked else REHEARSED
    COMPILING.begin()
    try:
        rehearse(instance.replace(workloads=instance.workloads[:number], workflows=(), places=None), moment)
    finally:
        COMPILING.end()


def rehearse(few: Instance, moment: Callable[[Instance, float], None]) -> None:
    """Call ``moment`` on the instance ``few`` again and again, until a call compiles no more kernels."""
    seconds, before = MOMENT_S, None
    while before != unwarmed():
        before = unwarmed()
        moment(few, seconds)
        seconds = AGAIN_S

"""Rehearsals: what calls compiled kernels runs for a moment on a few workloads, before its time begins to count."""

from collections.abc import Callable

from provision.models.base.clock import Stopwatch
from provision.models.base.compiled import unwarmed
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs

SHARED = {"interference", "other_sharing"}
"""Features of the instances whose kernels take long to compile."""
KERNELS = SHARED | {"random_interference", "random_slices", "max_throughput"}
"""Features with kernels of their own."""
REHEARSED, REHEARSED_IN_SETS, MOMENT_S, AGAIN_S = 12, 3, 0.5, 5.0
"""Workloads, or REHEARSED_IN_SETS where all sets of them are listed, and seconds at most of a rehearsal.

It is repeated with AGAIN_S where kernels were compiled.
"""
_rehearsed: set[tuple[str, int, frozenset[str]]] = set()


def rehearsed_s(name: str, instance: Instance, moment: Callable[[Instance, float], None]) -> float:
    """Rehearse once per process what ``name`` stands for, where it takes long to compile; the seconds that this took.

    Parameters
    ----------
    name, moment
        What is rehearsed, and a function that runs it on a few workloads of the instance, for some seconds at most.
    instance
        The Instance.

    Raises
    ------
    KeyboardInterrupt
        When ``moment`` does, after Ctrl-C.
    """
    asked = needs(instance)
    key = name, len({entry.gpu for entry in instance.fleet}), frozenset(asked & KERNELS)
    if key in _rehearsed or not asked & SHARED:
        return 0.0
    _rehearsed.add(key)
    watch = Stopwatch()
    number = REHEARSED_IN_SETS if "max_throughput" in asked else REHEARSED
    rehearse(instance.replace(workloads=instance.workloads[:number], workflows=()), moment)
    return watch.elapsed_s


def rehearse(few: Instance, moment: Callable[[Instance, float], None]) -> None:
    """Run something for moments until no kernel is compiled; a moment is over once the first one is."""
    seconds, before = MOMENT_S, None
    while before != unwarmed():
        before = unwarmed()
        moment(few, seconds)
        seconds = AGAIN_S

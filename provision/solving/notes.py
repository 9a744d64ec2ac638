"""Notes for an answer: which parts of the instance cannot be used, and what its latency rule does not guarantee."""

from collections.abc import Iterator

from provision.models.problem.instance import Instance
from provision.models.problem.memory import memory_notes
from provision.models.problem.workload import FleetEntry, Workload


def notes_of(instance: Instance) -> tuple[str, ...]:
    """The notes on an instance, one line each."""
    return (*_unused(instance), *_narrow(instance), *memory_notes(instance), *_rated_patterns(instance))


def _able(instance: Instance, entry: FleetEntry, workload: Workload) -> bool:
    """Whether there is performance data of a workload for some slice of a fleet entry."""
    pairs = ((model, profile) for model in workload.models for profile in entry.profiles)
    return any(len(data.operating_points(model, profile).batch) for model, profile in pairs
               if (data := instance.performance_of(entry.gpu, model, profile)) is not None)


def _unused(instance: Instance) -> Iterator[str]:
    """Yield a note on every fleet entry for which no workload has performance data."""
    for index, entry in enumerate(instance.fleet):
        if not any(_able(instance, entry, workload) for workload in instance.workloads):
            yield (f"fleet[{index}]: {entry.gpu} stays unused, since no performance data describes any workload on it; "
                   "add some under performance")


def _narrow(instance: Instance) -> Iterator[str]:
    """Yield a note on every workload that only some of the GPU types can run."""
    types = list(dict.fromkeys(entry.gpu for entry in instance.fleet
                               if any(_able(instance, entry, workload) for workload in instance.workloads)))
    for workload in instance.workloads if len(types) > 1 else ():
        able = dict.fromkeys(entry.gpu for entry in instance.fleet if _able(instance, entry, workload))
        if 0 < len(able) < len(types):
            missing = ", ".join(gpu for gpu in types if gpu not in able)
            yield (f"workload {workload.name} can run on {', '.join(able)} only: there is no performance data of "
                   f"{' or '.join(workload.models)} on {missing}")


def _rated_patterns(instance: Instance) -> Iterator[str]:
    """Yield a note on what the latency rule half_slo does not guarantee."""
    if not instance.random_arrivals:
        yield (f"latency_budget {instance.policy.latency_budget} is about batches; under random arrivals requests may "
               "still be late (provision simulate tells how many, latency_budget queueing plans for them)")

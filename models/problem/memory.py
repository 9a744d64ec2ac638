"""Looks up the memory that performance data states for shared GPUs, and notes for the user if it is unknown."""

from collections.abc import Iterator

from provision.models.performance.shared_gpus import SharedMemoryData
from provision.models.problem.instance import Instance


def memory_data(instance: Instance) -> Iterator[SharedMemoryData]:
    """Yield the performance data of the fleet's GPU types that describes replicas on shared GPUs."""
    gpus = {entry.gpu for entry in instance.fleet}
    yield from (data for data in instance.performance if isinstance(data, SharedMemoryData) and data.gpu in gpus)


def states_memory(instance: Instance) -> bool:
    """Whether performance data states the memory of some model; a search that ignores memory may then exceed it."""
    return any(data.states_memory for data in memory_data(instance))


def memory_notes(instance: Instance) -> Iterator[str]:
    """Yield lines on models whose memory is unknown or only estimated."""
    for data in memory_data(instance):
        models = [model for workload in instance.workloads for model in workload.models if model in data.stated]
        stated = {model: data.stated[model] for model in dict.fromkeys(models)}
        unknown = [model for model, one in stated.items() if not one.memory_mib]
        guessed = [model for model, one in stated.items() if one.memory_estimated]
        if unknown:
            yield (f"memory of {', '.join(unknown)} on {data.gpu} is not known and not checked; state memory_mib in "
                   f"{data.name}")
        if guessed:
            yield f"memory of {', '.join(guessed)} on {data.gpu} is estimated, not measured"

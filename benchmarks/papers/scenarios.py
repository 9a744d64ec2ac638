"""ParvaGPU's scenarios, for the benchmarks beside this file."""

from os import PathLike

import provision
from provision.instances.importers.parvagpu import import_scenario
from provision.models.problem.instance import Instance

SAFETY = 0.9


def scenario(folder: str | PathLike[str] | None, number: int) -> Instance:
    """A scenario on the measured tables of ParvaGPU's artefact, or without its folder the shipped one."""
    return import_scenario(folder, number, SAFETY) if folder else provision.read(f"parvagpu-s{number}")

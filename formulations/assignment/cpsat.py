"""Assignment in CP-SAT (`provision.formulations.assignment.cpsat_program`)."""

from provision.formulations.assignment import model
from provision.formulations.assignment.model import TAKEN, SmallInstances, beginning
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Search

NAME = "assignment-cpsat"


def solve(instance: Instance, search: Search) -> Outcome:
    """Plan an instance; see `provision.formulations.assignment.model`."""
    # OR-tools takes long to load, and few solves come to it.
    from provision.formulations.assignment.cpsat_program import CpSatProgram

    return model.solve(instance, search, CpSatProgram, NAME)


METHODS = (
    SmallInstances(
        name=NAME,
        summary="explicit GPUs, MIG slots and operating points, exact on small instances (CP-SAT)",
        run=solve,
        exact=True,
        source="this package",
        features=TAKEN,
        begins_with=beginning,
    ),
)

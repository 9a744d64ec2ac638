"""What gpu-lets' public program tolerates and its paper (ATC 2022) does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from provision.models.problem.search import Search


class Tolerances(NamedTuple):
    """How far gpu-lets may miss what is asked of them; the defaults allow nothing.

    ``served_share`` is the part of a rate that must find gpu-lets; ``slo_factor`` times the SLO is allowed; after the
    first gpu-let a workload looks for no further one when ``left_over_rps`` or less are left; ``models_per_part`` is
    how many workloads may take turns on a gpu-let.
    """

    served_share: float = 1.0
    slo_factor: float = 1.0
    left_over_rps: float = 1e-6
    models_per_part: int = 1000


EXACT = Tolerances()
PUBLISHED = Tolerances(served_share=0.85, slo_factor=1.05, left_over_rps=15.0, models_per_part=3)
"""Those of the public program, github.com/casys-kaist/glet."""


def parameters(tolerances: Tolerances) -> dict[str, Any]:
    """The tolerances as a method's own parameters and their defaults."""
    return tolerances._asdict()


def chosen(control: Search) -> Tolerances:
    """The tolerances of a search; what it does not name is exact.

    Raises
    ------
    InputError
        For a parameter that is no number above 0.
    """
    given = [name for name in Tolerances._fields if name in control.parameters]
    values: dict[str, Any] = {name: control.positive(name, type(getattr(EXACT, name))) for name in given}
    return EXACT._replace(**values)

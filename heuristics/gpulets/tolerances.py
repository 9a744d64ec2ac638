"""The tolerances of gpu-lets' public program, which its paper (ATC 2022) does not mention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from provision.models.problem.search import Search


class Tolerances(NamedTuple):
    """The tolerances by which a plan of gpu-lets may miss rates and SLOs; the defaults allow nothing.

    ``served_share`` is the fraction of a rate that must be assigned. Latencies may be up to ``slo_factor`` times the
    SLO. Once a workload has a gpu-let, a rest of at most ``left_over_rps`` requests/s is dropped. At most
    ``models_per_part`` workloads run in turns on a gpu-let.
    """

    served_share: float = 1.0
    slo_factor: float = 1.0
    left_over_rps: float = 1e-6
    models_per_part: int = 1000


EXACT = Tolerances()
PUBLISHED = Tolerances(served_share=0.85, slo_factor=1.05, left_over_rps=15.0, models_per_part=3)
"""The tolerances of the public program, github.com/casys-kaist/glet."""


def parameters(tolerances: Tolerances) -> dict[str, Any]:
    """A method's own parameters, by name, with these tolerances as defaults."""
    return tolerances._asdict()


def chosen(control: Search) -> Tolerances:
    """The tolerances that a search asks for; a tolerance that it does not name is exact.

    Raises
    ------
    InputError
        If a parameter is not a number above 0.
    """
    given = [name for name in Tolerances._fields if name in control.parameters]
    values: dict[str, Any] = {name: control.positive(name, type(getattr(EXACT, name))) for name in given}
    return EXACT._replace(**values)

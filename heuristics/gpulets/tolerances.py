"""The settings of gpu-lets' public program that its paper (ATC 2022) does not mention: the tolerances by which a plan
may miss rates and SLOs, and the reserve by which every latency is planned longer than it is.
"""

from typing import Any, NamedTuple

from provision.formulations.pricing.temporal.tables import GpuletTables
from provision.models.problem.instance import Instance
from provision.models.problem.search import Search


class Tolerances(NamedTuple):
    """The tolerances by which a plan of gpu-lets may miss rates and SLOs; the defaults allow nothing.

    ``served_share`` is the fraction of a rate that must be assigned. Latencies may be up to ``slo_factor`` times the
    SLO. Once a workload has a gpu-let, a rest of at most ``left_over_rps`` requests/s is dropped. At most
    ``models_per_part`` workloads run in turns on a gpu-let. ``latency_ratio`` is no tolerance but a reserve: planning
    takes every execution time times it, while plans are judged and replayed by the times themselves.
    """

    served_share: float = 1.0
    slo_factor: float = 1.0
    left_over_rps: float = 1e-6
    models_per_part: int = 1000
    latency_ratio: float = 1.0


EXACT = Tolerances()
PUBLISHED = Tolerances(served_share=0.85, slo_factor=1.05, left_over_rps=15.0, models_per_part=3, latency_ratio=1.1)
"""The settings of the public program, github.com/casys-kaist/glet. All four of its configurations state the ratio, for
squishy bin packing and guided self-tuning too."""
RESERVE = {"latency_ratio": EXACT.latency_ratio}
"""The parameters of the methods that have no tolerance but can plan with the reserve."""


def planning_tables(instance: Instance, settings: Tolerances, interference: bool = True) -> GpuletTables:
    """The tables that a method plans with: execution times with the reserve, SLOs with the tolerance."""
    tables = GpuletTables(instance, interference)
    tables.time_ms = tables.time_ms * settings.latency_ratio
    tables.allowed_ms = tables.allowed_ms * settings.slo_factor
    return tables


def chosen(control: Search) -> Tolerances:
    """The tolerances that a search asks for; a tolerance that it does not name is exact. Raises InputError if a
    parameter is not a number above 0.
    """
    given = [name for name in Tolerances._fields if name in control.parameters]
    values: dict[str, Any] = {name: control.positive(name, type(getattr(EXACT, name))) for name in given}
    return EXACT._replace(**values)

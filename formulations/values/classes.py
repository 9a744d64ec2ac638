"""Classes of similar workloads: the same models and traffic, one replica or any number, and SLOs that are close to each
other.

If all workloads of a class get its longest SLO, the result is a relaxation; with its shortest SLO, it is a restriction.
The rates stay as they are.
"""

import math
from typing import NamedTuple

import numpy as np

from provision.formulations.search.problem import Group
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import DUST, FORGIVEN
from provision.models.problem.instance import Instance


class WorkloadClass(NamedTuple):
    """Similar workloads.

    ``members`` are their indices and ``rates_rps`` the rates that are planned for them, in descending order.
    ``slo_ms`` holds their shortest and their longest SLO.
    """

    models: tuple[str, ...]
    slo_ms: tuple[float, float]
    members: Ints
    rates_rps: Floats

    def only(self, kept: Bools) -> "WorkloadClass":
        """The class of some of its workloads; ``kept`` (members,) tells which."""
        return self._replace(members=self.members[kept], rates_rps=self.rates_rps[kept])

    def group(self, longest: bool) -> Group:
        """The class as one Group of the highest rate, with its longest or its shortest SLO, without replica limits.

        Operating points are computed with the tolerances of bounds. So for plans the SLO is a little shorter, and the
        rate a little higher.
        """
        slo_ms = self.slo_ms[1] if longest else self.slo_ms[0] * (1 - 2 * FORGIVEN)
        rate_rps = float(self.rates_rps[0]) * (1 if longest else 1 + 2 * FORGIVEN)
        return Group(self.models, slo_ms, rate_rps, 1, math.inf, math.inf, tuple(self.members.tolist()))


def classes_of(instance: Instance, members: Ints, rates_rps: Floats, most: int) -> list[WorkloadClass]:
    """Divide workloads, or parts of workloads, into about ``most`` classes.

    ``members`` are the indices of the workloads, and ``rates_rps`` their rates or those of their parts. Workloads of a
    class agree in models, traffic, limits on tokens, and whether they may be split; and their SLOs are in one range.
    There are as many ranges for all such combinations.
    """
    alike: dict[object, list[int]] = {}
    for at, workload in enumerate(members.tolist()):
        one = instance.workloads[workload]
        limits = one.limits if one.tokens else None
        key = (one.models, instance.policy.traffic_of(one), one.tokens, limits, one.max_replicas == 1)
        alike.setdefault(key, []).append(at)
    ranges, found = most // max(len(alike), 1), []
    every_ms = np.array([instance.workloads[at].slo_ms for at in members.tolist()])
    for several in map(np.array, alike.values()):
        slo_ms, bin_of = every_ms[several], bins(every_ms[several], max(ranges, 1))
        for chosen in (np.flatnonzero(bin_of == one) for one in np.unique(bin_of)):
            order = several[chosen[np.argsort(-rates_rps[several[chosen]], kind="stable")]]
            ends = float(slo_ms[chosen].min()), float(slo_ms[chosen].max())
            found.append(WorkloadClass(instance.workloads[members[order[0]]].models, ends, members[order],
                                       rates_rps[order]))
    return found


def bins(values: Floats, most: int) -> Ints:
    """(values,) numbers of bins with equal ratios of highest to lowest value; few distinct values have a bin each.
    """
    distinct, of_value = np.unique(values, return_inverse=True)
    if len(distinct) <= most:
        return of_value
    wide = math.log(distinct[-1] / distinct[0]) * (1 + DUST)
    return np.minimum(np.log(values / distinct[0]) / wide * most, most - 1).astype(int)

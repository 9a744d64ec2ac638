"""The way in which replicas share whole GPUs under interference (iGniter's model, TPDS 2022): what greedy fills GPUs
with, and the patterns that carry rates (`rates`).
"""

from functools import partial

import numpy as np

from provision.formulations.pricing.mps.rates import interference_rates
from provision.formulations.pricing.mps.sets import demands_of, runs_of
from provision.formulations.pricing.mps.tables import least_units, tables_of
from provision.formulations.pricing.oracle import WayOfSharing
from provision.formulations.pricing.settings import Setting, role_ways
from provision.formulations.search.problem import Problem, Shareable
from provision.models.base.clock import Deadline
from provision.models.hardware.gpu import WHOLE


def interference_settings(problem: Problem, shared: Shareable, until: Deadline) -> list[Setting]:
    """The setting of a whole GPU, with a way for every role that the GPU can serve; an empty list for other slices, and
    without roles. Raises TimeIsUpError at the deadline.
    """
    if problem.segments.slice_types[shared.slice_type].profile != WHOLE or not problem.roles:
        return []
    tables = tables_of(shared.data, problem.instance.shared_rule, demands_of(problem.instance, problem.roles),
                       until=until)
    units = least_units(tables)
    shares = {at: float(units[at]) / tables.limit for at in np.flatnonzero(units <= tables.limit).tolist()}
    return [Setting(role_ways(problem, shares), processes=tables.most, points=tables, running=partial(runs_of, tables))]


oracle = WayOfSharing(rates=interference_rates, settings=interference_settings)
"""The way of sharing: whole GPUs under MPS."""

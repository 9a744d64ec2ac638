"""InSS's running times alone (section 4.1): locally weighted regression on measured latencies of models alone.

The table has latencies of whole batches, so the transfers and the scheduling of kernels are subtracted as the
performance data has them.
"""

import numpy as np

from provision.heuristics.inss.system import System
from provision.instances.importers.pairs import read_alone
from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.fitting import lwr
from provision.models.fitting.profile_points import ProfilePoints
from provision.models.performance.igniter import solo_terms


def regressed_ms(path: str, system: System) -> dict[str, Floats]:
    """The running times alone in ms, by model, as arrays (batches, units) from batch 1 and one unit on.

    InputError if the table in the file ``path`` (see ``read_alone``) cannot be read or lacks a model, UnsupportedError
    if the GPUs have several types.
    """
    if len(system.data) > 1:
        raise UnsupportedError(f"{path}: is a table of one GPU type, and the fleet has several; leave out alone")
    [data], runs = system.data, read_alone(path)
    if lacking := {one.model for one in system.instance.workloads} - set(runs):
        raise InputError(f"{path}: has no rows of model {', '.join(sorted(lacking))}; measure it alone, too")
    shares = data.hardware.unit_share * np.arange(1.0, data.hardware.units + 1)
    batch, share = (axis.ravel() for axis in np.meshgrid(np.arange(1.0, data.max_batch + 1), shares, indexing="ij"))
    found = {}
    for name in sorted({one.model for one in system.instance.workloads}):
        run, terms = runs[name], solo_terms(data, name, batch, share)
        one = np.ones(len(run.batch))
        fitted = lwr.fit(ProfilePoints(run.batch, one, run.sm_share, one, run.latency_ms))
        latency_ms = fitted.latency_ms(batch, np.ones_like(batch), share)
        rest_ms = terms.load_ms + terms.feedback_ms + terms.scheduling_ms
        found[name] = np.maximum(latency_ms - rest_ms, 1e-3).reshape(-1, len(shares))
    return found

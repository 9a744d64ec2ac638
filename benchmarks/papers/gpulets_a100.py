"""ParvaGPU's DNNs as gpu-lets would run them: parts of an A100 without MIG, derived from ParvaGPU's measured tables.

Nobody has measured them on MPS shares of a whole A100, nor what they do to each other there. Here a share of k/7 is
taken for the MIG instance with k compute slices, one process each; execution = fixed + per_request * batch /
share ** scaling is fitted to all points (relative errors; the scaling is the best of steps of 0.05). Memory is left
out, which is in gpu-lets' favour. How much slower a batch is beside another part is assumed, one factor for all: 1
where nothing else is said. On a V100 it was measured at 1.09 in the median and 1.20 at the 99th percentile of pairs.
"""

import numpy as np
from scipy.optimize import nnls

from provision.models.hardware.gpu import gpu_type
from provision.models.performance.gpulets import Gpulets

GPU = "a100-80gb"
SPLITS = ((1.0,), (1 / 7, 6 / 7), (2 / 7, 5 / 7), (3 / 7, 4 / 7))
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
SCALINGS = np.linspace(0, 1, 21)
NO_TRAFFIC = dict.fromkeys(("l2_fixed_ms", "l2_per_request_ms", "dram_fixed_ms", "dram_per_request_ms"), 0.0)
NO_INTERFERENCE = {"l2_own": 0.0, "l2_other": 0.0, "dram_own": 0.0, "dram_other": 0.0}


def without_mig(instance, slowdown=1.0):
    """An instance on ParvaGPU's tables with gpu-lets on whole GPUs in place of MIG instances.

    ``slowdown`` is the time of a batch beside another part over its time alone.
    """
    [entry], [tables] = instance.fleet, instance.performance
    return instance.replace(performance=derived(tables, slowdown), fleet=(entry.model_copy(update={"mig": False}),))


def derived(tables, slowdown=1.0):
    """Data of kind gpulets from measured tables, with an assumed slowdown beside another part."""
    dnns = tables.models.values()
    scaling = min(SCALINGS, key=lambda one: np.concatenate([_fit(dnn, one)[1] for dnn in dnns]).mean())
    models = {}
    for name, one in tables.models.items():
        (fixed_ms, per_request_ms), error = _fit(one, scaling)
        summary = {"mean": error.mean(), "p95": np.percentile(error, 95), "max": error.max()}
        found = {key: round(float(value), 5) for key, value in summary.items()} | {"points": len(error)}
        models[name] = NO_TRAFFIC | {"fixed_ms": float(fixed_ms), "per_request_ms": float(per_request_ms),
                                     "memory_gib": 0.0, "error": found}
    return Gpulets(version=1, name="gpulets-a100", gpu=GPU, kind="gpulets", splits=SPLITS, batches=BATCHES,
                   scaling=float(scaling), interference=NO_INTERFERENCE | {"constant": slowdown}, models=models)


def _fit(model, scaling):
    """Fixed and per-request time in ms, and the relative errors, of a MeasuredModel."""
    points = [one for one in model.points if one.processes == 1]
    share = np.array([gpu_type(GPU).slice_compute(one.profile) for one in points]) / 7
    batch, rps = (np.array([getattr(one, field) for one in points]) for field in ("batch", "throughput_rps"))
    terms = np.column_stack([np.ones(len(points)), batch / share**scaling]) / (1000 * batch / rps)[:, None]
    times_ms = nnls(terms, np.ones(len(points)))[0]
    return times_ms, abs(terms @ times_ms - 1)

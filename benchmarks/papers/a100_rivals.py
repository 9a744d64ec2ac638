"""ParvaGPU's DNNs as gpu-lets and iGniter would run them: parts of an A100 without MIG, derived from ParvaGPU's tables.

Nobody has measured them on MPS shares of a whole A100, nor what they do to each other there. Here a share of k/7 is
taken for the MIG instance with k compute slices, one process each; execution = fixed + per_request * batch /
share ** scaling is fitted to all points (relative errors; the scaling is the best of steps of 0.05). Memory is left
out, which is in gpu-lets' favour. How much slower a batch is beside another part is assumed, one factor for all: 1
where nothing else is said. On a V100 it was measured at 1.09 in the median and 1.20 at the 99th percentile of pairs.

For iGniter the five coefficients of its eq. 11 are fitted to the same points of every DNN (relative errors), shares are
multiples of its 2.5 %, batches those up to 128, transfers take no time, and every neighbour on the GPU, not only one,
adds the assumed part to a batch's time: what is known of its schedulers, caches and power is all in that factor.
"""

import numpy as np
from scipy.optimize import minimize_scalar, nnls

from provision.models.hardware.gpu import gpu_type
from provision.models.performance.gpulets import Gpulets
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import Instance

GPU = "a100-80gb"
SPLITS = ((1.0,), (1 / 7, 6 / 7), (2 / 7, 5 / 7), (3 / 7, 4 / 7))
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
SCALINGS = np.linspace(0, 1, 21)
NO_TRAFFIC = dict.fromkeys(("l2_fixed_ms", "l2_per_request_ms", "dram_fixed_ms", "dram_per_request_ms"), 0.0)
NO_DEMAND = {"load_bytes": 0.0, "feedback_bytes": 0.0, "kernels": 1, "kernel_delay_ms": 0.0, "power_w_per_rps": 0.0,
             "power_base_w": 0.0, "cache_per_rps": 0.0, "cache_base": 1.0}
A100 = {"pcie_gb_per_s": 20.0, "power_cap_w": 400.0, "max_clock_mhz": 1410.0, "idle_power_w": 0.0,
        "clock_slope_mhz_per_w": 0.0, "scheduling_slope_ms": 0.0, "scheduling_intercept_ms": 0.0, "unit_share": 0.025}
NO_INTERFERENCE = {"l2_own": 0.0, "l2_other": 0.0, "dram_own": 0.0, "dram_other": 0.0}


def without_mig(instance, slowdown=1.0) -> Instance:
    """An instance on ParvaGPU's tables with gpu-lets on whole GPUs in place of MIG instances.

    ``slowdown`` is the time of a batch beside another part over its time alone.
    """
    [entry], [tables] = instance.fleet, instance.performance
    return instance.replace(performance=derived(tables, slowdown), fleet=(entry.model_copy(update={"mig": False}),))


def derived(tables, slowdown=1.0) -> Gpulets:
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


def with_igniter(instance, slowdown=1.0) -> Instance:
    """An instance on ParvaGPU's tables with iGniter on whole GPUs, one replica of every workload.

    Its own program splits a workload that one GPU does not carry over whole GPUs; its paper does not.
    """
    [entry], [tables] = instance.fleet, instance.performance
    return instance.replace(performance=igniter_of(tables, slowdown),
                            fleet=(entry.model_copy(update={"mig": False}),))


def igniter_of(tables, slowdown=1.0) -> IgniterProfiles:
    """Data of kind igniter from measured tables; every neighbour adds ``slowdown - 1`` of a batch's time."""
    models = {name: {**_eq_11(one), **NO_DEMAND, "cache_sensitivity": slowdown - 1.0}
              for name, one in tables.models.items()}
    return IgniterProfiles(version=1, name="igniter-a100", gpu=GPU, kind="igniter", hardware=A100,
                           max_batch=BATCHES[-1], models=models)


def _eq_11(model) -> dict[str, object]:
    """k1_ms to k5_ms: (k1 b^2 + k2 b + k3) / (share + k4) + k5, and the relative errors."""
    points = [one for one in model.points if one.processes == 1]
    share = np.array([gpu_type(GPU).slice_compute(one.profile) for one in points]) / 7
    batch, rps = (np.array([getattr(one, field) for one in points]) for field in ("batch", "throughput_rps"))
    took_ms = 1000 * batch / rps

    def fitted(k4) -> tuple[np.ndarray, np.ndarray]:
        each = 1 / (share + k4)
        terms = np.column_stack([batch**2 * each, batch * each, each, np.ones(len(points))]) / took_ms[:, None]
        found = nnls(terms, np.ones(len(points)))[0]
        return found, abs(terms @ found - 1)

    k4 = float(minimize_scalar(lambda one: (fitted(one)[1] ** 2).sum(), bounds=(0, 2), method="bounded").x)
    (k1, k2, k3, k5), error = fitted(k4)
    told = {"mean": error.mean(), "p95": np.percentile(error, 95), "max": error.max()}
    summary = {key: round(float(value), 5) for key, value in told.items()} | {"points": len(error)}
    return {"k1_ms": float(k1), "k2_ms": float(k2), "k3_ms": float(k3), "k4_share": k4, "k5_ms": float(k5),
            "error": summary}


def _fit(model, scaling) -> tuple[np.ndarray, np.ndarray]:
    """Fixed and per-request time in ms, and the relative errors, of a MeasuredModel."""
    points = [one for one in model.points if one.processes == 1]
    share = np.array([gpu_type(GPU).slice_compute(one.profile) for one in points]) / 7
    batch, rps = (np.array([getattr(one, field) for one in points]) for field in ("batch", "throughput_rps"))
    terms = np.column_stack([np.ones(len(points)), batch / share**scaling]) / (1000 * batch / rps)[:, None]
    times_ms = nnls(terms, np.ones(len(points)))[0]
    return times_ms, abs(terms @ times_ms - 1)

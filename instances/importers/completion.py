"""Completes measured tables by networks fitted to a few measured points.

The points that are added have latencies at the upper end of an interval, so that plans made with them are safe.
"""

from collections.abc import Mapping

import numpy as np

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.fitting.families import KNOWN, population
from provision.models.fitting.few_points import LEAST_POINTS, FewPoints, fit_few
from provision.models.fitting.profile_points import ProfilePoints, profile_points
from provision.models.hardware.gpu import WHOLE, GpuType, gpu_type
from provision.models.performance.catalogue import load_performance
from provision.models.performance.fitted_networks import fitted_error, relative_errors
from provision.models.performance.measured_segments import GRID, MeasuredModel, MeasuredPoint, MeasuredSegments

KNOWN_GPU = load_performance(KNOWN).gpu
"""The GPU type whose fitted networks ship; they serve as a prior for this type only."""
DIGITS = 6
Key = tuple[str, int, int]
"""Profile, batch and processes."""


def completion(name: str, gpu: str, models: Mapping[str, MeasuredModel],
               held_gib: Mapping[tuple[str, str, int, int], float]) -> MeasuredSegments:
    """Return a table with the measured points unchanged, and further points at the upper end of their intervals.

    Parameters
    ----------
    name, gpu
        Name and GPU type of the table; the GPU type must be KNOWN_GPU.
    models
        The measured models.
    held_gib
        Measured memory in GiB by (model, profile, batch, processes).

    Returns
    -------
    MeasuredSegments
        The table has all plain MIG profiles, with batch sizes and numbers of processes up to the largest measured ones,
        wherever the memory is known to suffice. Its ``error`` is the leave-one-out error on measured points; None if no
        model has more points than a fit needs.

    Raises
    ------
    InputError
        If the GPU type is another, or a model has fewer points than a fit needs.
    """
    if gpu != KNOWN_GPU:
        raise InputError(f"--complete: the networks that ship are of {KNOWN_GPU}, no prior for {gpu}; leave it out")
    found, errors = {}, [np.empty(0)]
    for model, measured in models.items():
        if len(measured.points) < LEAST_POINTS:
            count = len(measured.points)
            raise InputError(f"--complete: {model} has {count} measured points; measure {LEAST_POINTS} or leave it out")
        held = {key[1:]: gib for key, gib in held_gib.items() if key[0] == model}
        found[model] = _completed(gpu_type(gpu), model, measured, held)
        if len(measured.points) > LEAST_POINTS:
            errors.append(_left_out(gpu_type(gpu), model, measured))
    judged = np.concatenate(errors)
    source = (
        "Own measurements; further points from networks fitted to them with those of other DNNs "
        f"({KNOWN}) as the prior, at the upper end of an interval."
    )
    return MeasuredSegments(
        version=1, name=name, kind="measured-segments", gpu=gpu, source=source, models=found,
        error=fitted_error(judged) if len(judged) else None,
    )


def _completed(gpu: GpuType, model: str, measured: MeasuredModel, held_gib: Mapping[Key, float]) -> MeasuredModel:
    """A model's measured points and the points that its fitted network adds."""
    fit = _fitted(gpu, model, measured)
    keys = _further(gpu, measured, held_gib)
    if not keys:
        return measured
    upper_ms = fit.upper_ms(profile_points(gpu, keys, np.full(len(keys), np.nan)))
    added = [
        MeasuredPoint(*key, _rounded(1000 * key[1] * key[2] / ms), _rounded(ms))
        for key, ms in zip(keys, upper_ms.tolist(), strict=True)
    ]
    return MeasuredModel(points=[*measured.points, *added])


def _further(gpu: GpuType, measured: MeasuredModel, held_gib: Mapping[Key, float]) -> list[Key]:
    """Return the points that were not measured and are known to fit the memory.

    A process needs at most the memory of a measured process with the same or a larger batch size. The memory of a
    measured process is known, or bounded by its part of the smallest slice on which it ran.
    """
    need_gib = {
        row[:3]: held_gib.get(row[:3], gpu.slice_memory_gib(row.profile)) / row.processes for row in measured.points
    }
    profiles = [one.name for one in gpu.profiles.values() if one.variant == "plain"]
    profiles += [WHOLE] * any(row.profile == WHOLE for row in measured.points)
    found = []
    for batch in (one for one in GRID if one <= max(row.batch for row in measured.points)):
        least_gib = min(gib for (_, size, _), gib in need_gib.items() if size >= batch)
        for processes in range(1, max(row.processes for row in measured.points) + 1):
            keys = ((profile, batch, processes) for profile in profiles
                    if processes * least_gib <= gpu.slice_memory_gib(profile)
                    and processes <= gpu.slice_mps_clients(profile))
            found += [key for key in keys if key not in measured.rows]
    return found


def _left_out(gpu: GpuType, model: str, measured: MeasuredModel) -> Floats:
    """The relative error of each measured point, (points,), if a network fitted to the other points predicts it."""
    points = _points(gpu, measured)
    count, known = len(measured.points), population(model)
    predicted_ms = [
        fit_few(points, [one for one in range(count) if one != at], known).latency_ms(points.take([at]))[0]
        for at in range(count)
    ]
    return relative_errors(predicted_ms, points.latency_ms)


def _fitted(gpu: GpuType, model: str, measured: MeasuredModel) -> FewPoints:
    return fit_few(_points(gpu, measured), np.arange(len(measured.points)), population(model))


def _points(gpu: GpuType, measured: MeasuredModel) -> ProfilePoints:
    """Measured points as arrays."""
    return profile_points(gpu, [row[:3] for row in measured.points], [row.latency_ms for row in measured.points])


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")

"""Fits iGniter's coefficients to measurements in the form of its public profile (TPDS 2022, section 3.1).

Active times and scheduling delays that were measured below the maximum clock are scaled to the maximum clock (eq. 4).
As in iGniter's public program, the processing abilities against which power and L2 utilisation are fitted are not
scaled, and power is fitted only to points at full clock.
"""

from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator
from scipy.optimize import minimize_scalar

from provision.models.base.arrays import Floats
from provision.models.base.fields import Name, NonNegative, Positive, PositiveCount, Record
from provision.models.fitting.left_out import distributions
from provision.models.performance.bands import ErrorBands, SeenErrors
from provision.models.performance.fitted_networks import fitted_error, relative_errors
from provision.models.performance.igniter import BYTES_PER_MS, IgniterHardware, IgniterModel, IgniterProfiles

BATCHES = np.array([1, 16, 32])
SHARES = np.array([0.1, 0.5, 1.0])
"""The batch sizes and SM shares at which a profile is measured."""

LARGEST_K4 = 1.0
JUDGED = "Five active times alone, each left out of the fit in turn. Times beside others were not judged."
"""A note in files: on which points the errors were computed."""
MOST_RATIO = 10.0
"""The largest ratio of measured to predicted times that is counted."""
SIGNIFICANT_DIGITS = 8

Triple = tuple[Positive, Positive, Positive]
Grid = tuple[Triple, Triple, Triple]
Series = Annotated[tuple[Positive, ...], Field(min_length=4)]


class MeasuredHardware(Record):
    """The data of a profile on the GPU; the series are over 1, 2, ... co-located copies of one model.

    ``idlepower`` and ``maxGPUpower`` in W, ``frequency`` and ``maxGPUfrequency`` in MHz, ``idletime`` is the
    scheduling delay per kernel in ms, ``unit`` in percent, ``bandwidth`` in bytes/ms.
    """

    model_config = ConfigDict(extra="ignore")
    idlepower: Positive
    power: Series
    frequency: Series
    idletime: Series
    maxGPUfrequency: Positive  # noqa: N815 - the profile's own name
    maxGPUpower: Positive  # noqa: N815
    unit: Annotated[Positive, Field(le=100)]
    bandwidth: Positive

    @model_validator(mode="after")
    def _series_fit(self) -> Self:
        if not len(self.power) == len(self.frequency) == len(self.idletime):
            raise ValueError("power, frequency and idletime must have one value per number of copies")
        if min(self.frequency[:2]) < self.maxGPUfrequency:
            raise ValueError("frequency: one and two copies must run at maxGPUfrequency")
        return self


class MeasuredIgniterModel(Record):
    """The data of a profile on one model.

    Grids are (batches, shares): ``gpulatency`` in ms, ``power`` in W, ``frequency`` in MHz. ``l2caches`` is the L2
    utilisation in percent on the grid's diagonal, ``l2cache`` the L2 utilisation of the neighbour in the co-location
    run. ``idletime_1`` and ``activetime_1`` (ms) were measured alone, ``activetime_2`` (ms) and ``frequency_2`` (MHz)
    beside a second copy of the model.
    """

    model_config = ConfigDict(extra="ignore")
    inputdata: NonNegative
    outputdata: NonNegative
    kernel: PositiveCount
    gpulatency: Grid
    power: Grid
    frequency: Grid
    l2caches: Triple
    l2cache: Positive
    idletime_1: Positive
    activetime_1: Positive
    activetime_2: Positive
    frequency_2: Positive


class IgniterMeasurements(Record):
    """A whole profile: the data on one GPU and on some models on it."""

    hardware: MeasuredHardware
    models: dict[Name, MeasuredIgniterModel] = Field(min_length=1)


def fit(measurements: IgniterMeasurements, **about: str) -> IgniterProfiles:
    """Fit IgniterProfiles to measurements; coefficients are rounded.

    Parameters
    ----------
    measurements
        The measured profile.
    about
        ``name``, ``gpu`` and other fields of the file.

    Raises
    ------
    ValueError
        If the fitted coefficients make no sense (a negative active time, power or L2 utilisation).
    """
    clock_mhz = measurements.hardware.maxGPUfrequency
    return IgniterProfiles(
        version=1,
        kind="igniter",
        hardware=_hardware(measurements.hardware),
        max_batch=int(BATCHES.max()),
        models={name: _model(one, measurements.hardware, clock_mhz) for name, one in measurements.models.items()},
        bands=ErrorBands(source=JUDGED, command=about.get("command", ""), models={
            name: _left_out(one, clock_mhz) for name, one in measurements.models.items()}),
        **about,
    )


def _hardware(measured: MeasuredHardware) -> IgniterHardware:
    slope_ms, intercept_ms = _scheduling(measured)
    return IgniterHardware(
        pcie_gb_per_s=measured.bandwidth / BYTES_PER_MS,
        power_cap_w=measured.maxGPUpower,
        max_clock_mhz=measured.maxGPUfrequency,
        idle_power_w=measured.idlepower,
        clock_slope_mhz_per_w=rounded(_clock_slope(measured)),
        scheduling_slope_ms=rounded(slope_ms),
        scheduling_intercept_ms=rounded(intercept_ms),
        unit_share=measured.unit / 100,
    )


def _clock_slope(measured: MeasuredHardware) -> float:
    """The coefficient alpha_f of eq. 9 in MHz/W, of a line through the point (power cap, maximum clock); 0 if the clock
    never fell.

    At its power cap a GPU draws less power than its workloads demand. The demand of further copies is therefore
    extrapolated by the mean increase per copy at full clock.
    """
    power, clock = np.array(measured.power), np.array(measured.frequency)
    full = int(np.argmax(np.append(clock, 0) < measured.maxGPUfrequency))
    step = (power[full - 1] - power[0]) / (full - 1)
    excess = power[full - 1] + step * np.arange(1, len(power) - full + 1) - measured.maxGPUpower
    return float(excess @ (clock[full:] - measured.maxGPUfrequency) / (excess @ excess)) if len(excess) else 0.0


def _scheduling(measured: MeasuredHardware) -> tuple[float, float]:
    """The pair (alpha_sch, beta_sch) of eq. 6 in ms: a line fitted to the increases of the delay with 2 and more
    copies.
    """
    delay_ms = np.array(measured.idletime) * np.array(measured.frequency) / measured.maxGPUfrequency
    slope_ms, intercept_ms = np.polyfit(np.arange(2, len(delay_ms) + 1), delay_ms[1:] - delay_ms[0], 1)
    return slope_ms, intercept_ms


def _model(measured: MeasuredIgniterModel, hardware: MeasuredHardware, clock_mhz: float) -> IgniterModel:
    """The fitted coefficients of one model."""
    latency_ms, clock = np.array(measured.gpulatency), np.array(measured.frequency)
    times = _active_times(measured, clock_mhz)
    coefficients = _active_time(*times)
    ability_rps = 1000 * BATCHES[:, None] / (latency_ms - measured.idletime_1)
    full = clock >= clock_mhz
    power = np.polyfit(ability_rps[full], np.array(measured.power)[full] - hardware.idlepower, 1)
    cache = np.polyfit(np.diag(ability_rps), np.array(measured.l2caches) / 100, 1)
    slower = measured.activetime_2 * measured.frequency_2 / clock_mhz / measured.activetime_1 - 1
    return IgniterModel(
        load_bytes=measured.inputdata,
        feedback_bytes=measured.outputdata,
        kernels=measured.kernel,
        kernel_delay_ms=rounded(measured.idletime_1 / measured.kernel),
        **dict(zip(("k1_ms", "k2_ms", "k3_ms", "k4_share", "k5_ms"), map(rounded, coefficients), strict=True)),
        power_w_per_rps=rounded(power[0]),
        power_base_w=rounded(power[1]),
        cache_per_rps=rounded(cache[0]),
        cache_base=rounded(cache[1]),
        cache_sensitivity=rounded(max(100 * slower / measured.l2cache, 0.0)),
        error=fitted_error(relative_errors(_predicted_ms(*times[:2], coefficients), times[2])),
    )


def _active_times(measured: MeasuredIgniterModel, clock_mhz: float) -> tuple[Floats, Floats, Floats]:
    """(9,) each: batch sizes, SM shares, and active times at full clock, in ms."""
    batch, share = (axis.ravel() for axis in np.meshgrid(BATCHES, SHARES, indexing="ij"))
    latency_ms = np.array(measured.gpulatency) * np.array(measured.frequency) / clock_mhz
    return batch, share, (latency_ms - measured.idletime_1).ravel()


def _active_time(batch: Floats, share: Floats, active_ms: Floats) -> tuple[float, ...]:
    """k1 to k5 of eq. 11, by least squares.

    For a given k4 the equation is linear in the other coefficients; therefore only k4 is searched for.
    """

    def best(k4: float) -> NDArray[np.floating[Any]]:
        return np.linalg.lstsq(_design(batch, share, k4), active_ms, rcond=None)[0]

    def squares(k4: float) -> float:
        return np.sum((_design(batch, share, k4) @ best(k4) - active_ms) ** 2)

    low = -0.99 * SHARES.min()
    k4 = minimize_scalar(squares, bounds=(low, LARGEST_K4), method="bounded", options={"xatol": 1e-12}).x
    *numerator, k5 = best(k4)
    return (*numerator, k4, k5)


def _design(batch: Floats, share: Floats, k4: float) -> Floats:
    """(points, 4), the terms of eq. 11 that k1, k2, k3 and k5 multiply."""
    return np.column_stack([np.vander(batch, 3) / (share + k4)[:, None], np.ones(len(batch))])


def _predicted_ms(batch: Floats, share: Floats, coefficients: tuple[float, ...]) -> Floats:
    """(points,), the active times of eq. 11, in ms."""
    k1, k2, k3, k4, k5 = coefficients
    return _design(batch, share, k4) @ np.array([k1, k2, k3, k5])


def _left_out(measured: MeasuredIgniterModel, clock_mhz: float) -> tuple[SeenErrors, ...]:
    """The distribution of the errors of eq. 11 on active times that are left out in turn: those at the middle batch
    size or the middle share. Without a corner of the grid a fit would extrapolate, which the whole fit never does.
    """
    batch, share, active_ms = _active_times(measured, clock_mhz)
    inner = np.flatnonzero((batch == BATCHES[1]) | (share == SHARES[1]))
    logs = np.empty(len(inner))
    for place, at in enumerate(inner):
        rest = np.arange(len(batch)) != at
        coefficients = _active_time(batch[rest], share[rest], active_ms[rest])
        predicted_ms = _predicted_ms(batch[[at]], share[[at]], coefficients)[0]
        logs[place] = np.log(active_ms[at] / max(predicted_ms, active_ms[at] / MOST_RATIO))
    return distributions(logs, batch[inner])


def rounded(value: float) -> float:
    """A number rounded to SIGNIFICANT_DIGITS significant digits."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")

"""VELTAIR's interference proxy: slowdown as a linear function of L3 counters (ASPLOS 2022, section 4.3).

From the paper: the interference level is a mean slowdown of layers; a linear model predicts it from the miss rate and
the accesses of L3. The paper reads hardware counters and measures slowdowns; here both come from the analytical model
of `provision.models.cpu.cpu`: a random tenth of all layers, in the versions fastest alone, runs next to a background of
a random level, and least squares fits the mean slowdowns. Every other sample is held out to judge the fit.
"""

from typing import NamedTuple

import numpy as np

from provision.heuristics.veltair.blocks import least_cores
from provision.heuristics.veltair.events import counters
from provision.heuristics.veltair.profile import Catalogue
from provision.models.base.arrays import Floats
from provision.models.cpu.cpu import Cpu, pressed

SAMPLES = 400


class CounterProxy(NamedTuple):
    """The fitted proxy: a slowdown is the sum of what ``counters`` gives (1, the miss rate, the accesses), times
    ``weights``. ``r_squared`` is computed on the held-out samples.
    """

    weights: Floats
    r_squared: float


def fit_proxy(catalogue: Catalogue, cpu: Cpu, seed: int = 0) -> CounterProxy:
    """The CounterProxy fitted for the networks of a Catalogue."""
    random = np.random.default_rng(seed)
    found = [_sample(catalogue, cpu, random) for _ in range(SAMPLES)]
    features, slowdowns = (np.array(part) for part in zip(*found, strict=True))
    weights = np.linalg.lstsq(features[::2], slowdowns[::2], rcond=None)[0]
    error = slowdowns[1::2] - features[1::2] @ weights
    return CounterProxy(weights, 1 - error.var() / slowdowns[1::2].var())


def _sample(catalogue: Catalogue, cpu: Cpu, random: np.random.Generator) -> tuple[Floats, float]:
    """(counters, mean slowdown) of random layers beside a background of a random level; the levels are distributed like
    LEVELS.
    """
    level, count = random.random() ** 2, len(catalogue.target_s) - 1
    layers = random.choice(count, max(count // 10, 1), replace=False)
    cores = [least_cores(catalogue.until_s[-1], catalogue.target_s, layer, layer + 1) for layer in layers]
    running = list(zip(catalogue.versions[-1, layers], cores, strict=True))
    found = np.array([pressed(version, number, level, cpu) for version, number in running])
    alone_s = np.array([pressed(version, number, 0.0, cpu)[0] for version, number in running])
    access_bps, miss_bps = found[:, 1:].sum(axis=0) / found[:, 0].sum()
    access_bps += level * cpu.cores * cpu.core_l3_bps
    return counters(access_bps, miss_bps + level * cpu.dram_bps), np.mean(found[:, 0] / alone_s)

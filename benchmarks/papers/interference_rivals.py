"""Models of interference that others published, on measured pairs: iGniter's, gpu-lets', and InSS's regression."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from provision.instances.files.csv_cells import number, numbered_rows
from provision.models.fitting.colocation import FOLDS, Pairs, fit_pairwise
from provision.models.fitting.latency_models import LocalRegression, fit_lwr
from provision.models.fitting.profile_points import ProfilePoints
from provision.models.fitting.waves import SoloRuns
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import load_performance
from provision.models.performance.fitted_networks import relative_errors
from provision.models.performance.operating_points import Member

LWR_BATCHES, LWR_PERCENT = (2, 8, 16, 32), (20, 40, 60, 80)
LEAST_SEEN = 40
"""With fewer pairs to fit to, the linear model is cross-validated on those that are judged."""
WHOLE_PAIR, APART = ((0, 1),), ((0,), (1,))
"""Members side by side, and each alone."""


class Tables(NamedTuple):
    """What was measured: models alone, their L2 and DRAM utilisations by configuration, pairs seen and unseen."""

    runs: dict[str, SoloRuns]
    used: dict[tuple[str, int, int], tuple[float, float]]
    seen: Pairs
    unseen: Pairs


def utilisations(path: str) -> dict[tuple[str, int, int], tuple[float, float]]:
    """L2 and DRAM utilisation alone, as fractions, by model, batch and percent of the SMs, where measured."""
    found = {}
    for line, row in numbered_rows(path, ("model", "batch", "share_percent", "l2_percent", "dram_percent")):
        if row["l2_percent"]:
            key = (row["model"], int(row["batch"]), round(float(row["share_percent"])))
            found[key] = number(path, line, row, "l2_percent") / 100, number(path, line, row, "dram_percent") / 100
    return found


def igniter_errors(pairs: Pairs) -> np.ndarray:
    """(pairs, 2) errors of iGniter's model."""
    return relative_errors(_igniter_ms(pairs, WHOLE_PAIR), pairs.latency_ms)


def _igniter_ms(pairs: Pairs, groups: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """(pairs, 2) batch times by iGniter's model of the members, side by side in these groups."""
    data, found = load_performance("igniter-v100"), np.empty(pairs.batch.shape)
    for at, row in enumerate(_members(pairs)):
        for group in groups:
            found[at, list(group)] = [one.latency_ms for one in data.predict(WHOLE, [row[side] for side in group])]
    return found


def _members(pairs: Pairs) -> list[list[Member]]:
    """Both Members of every pair."""
    columns = zip(pairs.model.tolist(), pairs.batch.astype(int).tolist(), pairs.sm_share.tolist(), strict=True)
    return [[Member(model, batch, 1, share) for model, batch, share in zip(*row, strict=True)] for row in columns]


def gpulets_errors(tables: Tables) -> np.ndarray:
    """(pairs, 2) errors of gpu-lets' linear model."""
    judged, seen = tables.unseen, tables.seen
    if len(seen.batch) >= LEAST_SEEN:
        return _linear_errors(tables, seen, judged)
    fold, found = np.arange(len(judged.batch)) % FOLDS, np.empty(judged.batch.shape)
    for one in range(FOLDS):
        found[fold == one] = _linear_errors(tables, judged.take(fold != one), judged.take(fold == one))
    return found


def _linear_errors(tables: Tables, seen: Pairs, judged: Pairs) -> np.ndarray:
    """(pairs, 2) errors of a linear model fitted to some pairs, on others."""
    alone_ms, used = _beside(tables, seen)
    l2_own, l2_other, dram_own, dram_other = used
    model = fit_pairwise(l2_own, l2_other, dram_own, dram_other, seen.latency_ms.ravel() / alone_ms)
    alone_ms, used = _beside(tables, judged)
    return relative_errors(alone_ms * model.slowdown(*used), judged.latency_ms.ravel()).reshape(judged.batch.shape)


def _beside(tables: Tables, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Per member: latency alone (ms); and (4, members) own and other L2, own and other DRAM utilisation."""
    own = np.array([[tables.used[key] for key in row] for row in _configurations(pairs)])
    other = own[:, ::-1]
    alone_ms = _each_model(pairs, lambda name, batch, share: _measured(tables.runs[name], batch, share))
    return alone_ms.ravel(), np.stack([side[..., at].ravel() for at in (0, 1) for side in (own, other)])


def _configurations(pairs: Pairs) -> list[list[tuple[str, int, int]]]:
    """Model, batch and percent of every member."""
    percent = np.rint(100 * pairs.sm_share).astype(int)
    rows = zip(pairs.model.tolist(), pairs.batch.astype(int).tolist(), percent.tolist(), strict=True)
    return [list(zip(*row, strict=True)) for row in rows]


def _measured(runs: SoloRuns, batch: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Latencies alone at configurations that were measured, in ms."""
    rows = zip(runs.batch, runs.sm_share.round(6), runs.latency_ms, strict=True)
    known = {(batch, share): latency for batch, share, latency in rows}
    return np.array([known[key] for key in zip(batch, share.round(6), strict=True)])


def _each_model(pairs: Pairs, times: Callable[[str, np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """(pairs, 2) times of all members, asked model by model."""
    found = np.empty(pairs.batch.shape)
    for name in np.unique(pairs.model):
        here = pairs.model == name
        found[here] = times(str(name), pairs.batch[here], pairs.sm_share[here])
    return found


def _regression(runs: SoloRuns) -> tuple[LocalRegression, np.ndarray]:
    """Locally weighted regression by InSS's protocol, and the mask of the 16 runs that it saw."""
    seen = np.isin(runs.batch, LWR_BATCHES) & np.isin(np.rint(100 * runs.sm_share), LWR_PERCENT)
    some, one = runs.take(seen), np.ones(int(seen.sum()))
    return fit_lwr(ProfilePoints(some.batch, one, some.sm_share, one, some.latency_ms)), seen


def lwr_errors(tables: Tables) -> np.ndarray:
    """(pairs, 2) errors of the regression times iGniter's slowdown."""
    def times(name: str, batch: np.ndarray, share: np.ndarray) -> np.ndarray:
        return _regression(tables.runs[name])[0].latency_ms(batch, np.ones_like(batch), share)

    unseen = tables.unseen
    slowdown = _igniter_ms(unseen, WHOLE_PAIR) / _igniter_ms(unseen, APART)
    return relative_errors(_each_model(unseen, times) * slowdown, unseen.latency_ms)


def lwr_alone(runs: dict[str, SoloRuns]) -> float:
    """Mean error of the regression on the runs alone that it did not see."""
    found = []
    for one in runs.values():
        model, seen = _regression(one)
        rest = one.take(~seen)
        found.append(
            relative_errors(model.latency_ms(rest.batch, np.ones_like(rest.batch), rest.sm_share), rest.latency_ms)
        )
    return float(np.concatenate(found).mean())

"""How far models of interference are from measured pairs on a V100 (iGniter, TPDS 2022, section 5.2).

Run as ``python benchmarks/papers/interference_error.py SOLO PAIRS``: tables of models alone and of models side by
side, as iGniter published them. Every system is judged on the same latencies, those of pairs that the shipped co-
location data was not fitted to. When a file has no such pair, all pairs are judged, co-location by cross-validation.
The last line is ``pairs N mean E p95 E`` (relative errors in percent) for co-location.

- iGniter: the shipped coefficients, fitted to its profile of 11 configurations per model.
- gpu-lets: measured latencies alone times a slowdown linear in L2 and DRAM utilisations, fitted to the other pairs.
- InSS: locally weighted regression from 4 batches x 4 shares per model, alone, times the slowdown that iGniter
  predicts, whose form InSS takes over.
- few: co-location from 11 configurations per model alone and at most 10 pairs per model; judged on the pairs left.
"""

import argparse
from collections.abc import Callable

import numpy as np
import results
from interference_rivals import (
    LEAST_SEEN,
    Tables,
    gpulets_errors,
    igniter_errors,
    lwr_alone,
    lwr_errors,
    utilisations,
)

from provision.draw.output import print_table
from provision.instances.importers.pairs import read_alone, read_beside
from provision.models.fitting import colocation
from provision.models.fitting.colocation import Pairs
from provision.models.fitting.waves import SoloRuns
from provision.models.performance.catalogue import load_performance

GPU = "v100"
FEW_ALONE = ((1, 20), (1, 80), (2, 40), (4, 20), (4, 60), (8, 50), (8, 80), (16, 40), (32, 20), (32, 50), (32, 80))
"""Batches and shares (percent): the corners, and the middle with each batch and share about as often."""
FEW_PAIRS = 10


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solo", help="models alone (CSV)")
    parser.add_argument("pairs", help="models side by side (CSV)")
    results.add_results(parser)
    options = parser.parse_args()
    runs, pairs = read_alone(options.solo), read_beside(options.pairs)
    shipped = load_performance("colocation-v100")
    fitted = np.isin(pairs.keys, shipped.fitted_pairs)
    whole = bool(fitted.all())
    judged = pairs if whole else pairs.take(~fitted)
    tables = Tables(runs, utilisations(options.solo), pairs.take(fitted), judged)
    ours = cross_validated(runs, pairs, GPU) if whole else colocation.errors(shipped, judged)
    few, left = _few(tables)
    systems = {
        "iGniter": (igniter_errors(judged), judged),
        "gpu-lets": (gpulets_errors(tables), judged),
        "InSS (LWR)": (lwr_errors(tables), judged),
        "co-location": (ours, judged),
        "co-location, few": (few, left),
    }
    _print(systems, lwr_alone(runs))
    rows = [[system, name, *_percent(wrong[pairs.model == name])] for system, (wrong, pairs) in systems.items()
            for name in np.unique(pairs.model).tolist()]
    rows += [[system, "all", *_percent(wrong)] for system, (wrong, _) in systems.items()]
    alone = 100 * lwr_alone(runs)
    results.write(options.results, "igniter-interference", ("system", "model", "mean", "p95", "pairs"),
                  [*rows, ["InSS (LWR)", "alone", alone, None, None]])
    if whole:
        print("no pair of the file is new to the shipped fit: co-location's errors are cross-validated")
    print(f"pairs {len(ours)} mean {100 * ours.mean():.2f} p95 {100 * np.percentile(ours, 95):.2f}")


def _percent(wrong: np.ndarray) -> tuple[float, float, int]:
    """Mean and 95th percentile in percent, and how many pairs."""
    return 100 * float(wrong.mean()), 100 * float(np.percentile(wrong, 95)), len(wrong)


def cross_validated(runs: dict[str, SoloRuns], pairs: Pairs, gpu: str) -> np.ndarray:
    """(pairs, 2) relative errors, each pair predicted by a fit to the other four fifths."""
    fold, found = colocation.fold_of(pairs), np.empty(pairs.latency_ms.shape)
    for one in np.unique(fold):
        others = colocation.fit(runs, pairs.take(fold != one), gpu, name="fold")
        found[fold == one] = colocation.errors(others, pairs.take(fold == one))
    return found


def _few(tables: Tables) -> tuple[np.ndarray, Pairs]:
    """Errors of a fit to few measurements, and the pairs that they are of."""
    runs = {name: one.take(_among(one, FEW_ALONE)) for name, one in tables.runs.items()}
    from_seen = len(tables.seen.batch) >= LEAST_SEEN
    chosen = _few_pairs(tables.seen if from_seen else tables.unseen)
    pairs, left = (tables.seen.take(chosen), tables.unseen) if from_seen else (
        tables.unseen.take(chosen), tables.unseen.take(~chosen))
    return colocation.errors(colocation.fit(runs, pairs, GPU, name="few"), left), left


def _among(runs: SoloRuns, wanted: tuple[tuple[int, int], ...]) -> np.ndarray:
    """(runs,) mask of the configurations wanted."""
    there = zip(runs.batch.astype(int).tolist(), np.rint(100 * runs.sm_share).astype(int).tolist(), strict=True)
    return np.array([key in wanted for key in there])


def _few_pairs(pairs: Pairs) -> np.ndarray:
    """(pairs,) mask: in the order of keys, up to 10 per model and 4 per combination of models."""
    mask, count = np.zeros(len(pairs.batch), bool), dict.fromkeys(np.unique(pairs.model).tolist(), 0)
    together: dict[frozenset[str], int] = {}
    for at in np.argsort(pairs.keys):
        names = pairs.model[at].tolist()
        both = frozenset(names)
        if all(count[name] < FEW_PAIRS for name in names) and together.get(both, 0) < 4:
            mask[at], together[both] = True, together.get(both, 0) + 1
            for name in names:
                count[name] += 1
    return mask


def _print(systems: dict[str, tuple[np.ndarray, Pairs]], regression: float) -> None:
    """Errors by model, and along figures 11 and 12."""
    names = np.unique(next(iter(systems.values()))[1].model).tolist()
    print("Mean relative error (and 95th percentile) in percent, on unseen pairs, both members' latencies:")
    rows = [
        [system, len(wrong), *(_shown(wrong[pairs.model == name]) for name in names), _shown(wrong)]
        for system, (wrong, pairs) in systems.items()
    ]
    print_table(("system", "pairs", *names, "all"), rows)
    print(f"InSS's regression alone, on the configurations it did not see: {100 * regression:.2f}")
    _figure("Figure 11: VGG-19 beside SSD, by share", systems, ("vgg19", "ssd"), lambda pairs: pairs.sm_share * 100)
    _figure("Figure 12: AlexNet beside ResNet-50 at 50 %, by batch", systems, ("alexnet", "resnet50"), _batch_at_half)
    print("Figure 13, four models at 25 %: nobody has published these measurements.")


def _batch_at_half(pairs: Pairs) -> np.ndarray:
    """(pairs, 2) batches where both have half of the GPU, else 0."""
    return np.where(np.isclose(pairs.sm_share, 0.5), pairs.batch, 0)


def _figure(
    title: str,
    systems: dict[str, tuple[np.ndarray, Pairs]],
    models: tuple[str, str],
    axis: Callable[[Pairs], np.ndarray],
) -> None:
    """Mean errors of the pairs of two models along an axis, 0 on which stands for pairs that the figure lacks."""
    found: dict[tuple[str, float], list[str]] = {}
    for wrong, pairs in systems.values():
        both = np.all(np.sort(pairs.model, axis=1) == sorted(models), axis=1)[:, None]
        at = np.where(both, axis(pairs), 0).round(6)
        for name in models:
            for value in np.unique(at[at > 0]):
                here = (at == value) & (pairs.model == name)
                found.setdefault((name, value), []).append(_shown(wrong[here]))
    print(title)
    rows = [[name, f"{value:g}", *cells] for (name, value), cells in sorted(found.items())]
    print_table(("model", "at", *systems), rows)


def _shown(wrong: np.ndarray) -> str:
    """Mean and 95th percentile in percent."""
    return f"{100 * wrong.mean():.2f} ({100 * np.percentile(wrong, 95):.1f})" if wrong.size else ""


if __name__ == "__main__":
    main()

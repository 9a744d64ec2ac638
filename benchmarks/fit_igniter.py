"""Fits iGniter's coefficients to its public V100 profile; writes them, and what is derived: a T4's, and variants.

Run as ``python benchmarks/fit_igniter.py PROFILE [SOLO PAIRS]``. SOLO and PAIRS, iGniter's tables of models alone and
side by side on the same V100, are not fitted: the errors on them stand in the file (``bands``).
"""

import argparse
from pathlib import Path

import numpy as np
import yaml

from provision.instances.importers.igniter_profile import import_igniter
from provision.instances.importers.pairs import read_alone, read_beside
from provision.models.fitting.igniter import rounded
from provision.models.fitting.left_out import distributions
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.bands import ErrorBands
from provision.models.performance.igniter import IgniterModel, IgniterProfiles
from provision.models.performance.operating_points import Member

OUT = Path(__file__).resolve().parents[1] / "models/performance/data"
ABOUT = {"command": "python benchmarks/fit_igniter.py PROFILE", "fitted": "2026-11-21"}
COMPUTE_RATIO = 2
BANDWIDTH_RATIO = 3
"""The V100's computing resources and memory bandwidth over the T4's (iGniter, section 5.3)."""

DERIVED_SOURCE = (
    "Derived, NOT measured: nobody measured these on a T4. From the V100 coefficients and iGniter's remark that "
    "a V100 has 2x the computing resources and 3x the memory bandwidth of a T4: active times twice as long, time "
    "lost to L2 misses three times, power in proportion to the caps, power and L2 utilisation as on a V100 at the "
    "same use of the GPU; PCIe, kernels and scheduling delays unchanged. Good for weighing a T4's price against a "
    "V100's, for no more."
)
FASTER, HUNGRIER = 0.85, 3
"""Factors for active times and for L2 utilisation and sensitivity of variants with large tiles; assumed."""
TILES = "-large-tiles"
VARIANTS_SOURCE = (
    "The four models as in igniter-v100, fitted to measurements, and of each a variant NAME-large-tiles that is "
    "DERIVED, NOT measured: made up to illustrate the choice of variants. Rule, after VELTAIR (ASPLOS 2022, section "
    "4), where code with larger tiles is faster alone and loses more beside others: active times 15 % shorter; L2 "
    "utilisation, and the slowdown by that of others, three times those of the measured model at the same batch and "
    "share; power the same there; transfers, kernels and scheduling delays unchanged. The factors are assumed: VELTAIR "
    "gives none for GPUs."
)
SEEN_ON = (
    "iGniter's tables of models alone (batches 1 to 32, SM shares 10 to 100 %) and of pairs side by side on the same "
    "V100, github.com/icloud-ecnu/igniter; none of them was fitted."
)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path, metavar="PROFILE", help="the profile, one JSON object per line")
    parser.add_argument("solo", metavar="SOLO", nargs="?", help="models alone (CSV)")
    parser.add_argument("pairs", metavar="PAIRS", nargs="?", help="models side by side (CSV)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder to write to")
    arguments = parser.parse_args()
    v100 = import_igniter(arguments.profile).model_copy(update=ABOUT)
    if arguments.pairs:
        bands = seen_errors(v100, read_alone(arguments.solo), read_beside(arguments.pairs))
        v100 = v100.model_copy(update={"bands": bands})
    for data in (v100, derived_t4(v100), derived_variants(v100)):
        content = data.model_dump(mode="json")
        text = yaml.safe_dump(content, sort_keys=False, width=110, default_flow_style=None)
        (arguments.out / f"{data.name}.yaml").write_text(text)
    _print_table(v100)


def seen_errors(v100, runs, pairs) -> ErrorBands:
    """The errors of the coefficients on times alone and side by side to which they were not fitted."""
    models = {}
    for name in v100.models:
        alone, beside = _alone(v100, name, runs[name]), _beside(v100, name, pairs)
        models[name] = distributions(*alone, beside=False) + distributions(*beside, beside=True)
    return ErrorBands(source=SEEN_ON, command=f"{ABOUT['command']} SOLO PAIRS", models=models)


def _alone(v100, name, runs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(runs,) each: logarithms of measured over predicted times alone, batch sizes, SM shares."""
    rows = zip(runs.batch.tolist(), runs.sm_share.tolist(), strict=True)
    found = [v100.predict(WHOLE, [Member(name, int(batch), 1, share)])[0].latency_ms for batch, share in rows]
    return np.log(runs.latency_ms / found), runs.batch, runs.sm_share


def _beside(v100, name, pairs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(members of pairs that run the model,) each: as ``_alone`` returns it."""
    found = np.empty(pairs.model.shape)
    for at, rows in enumerate(zip(pairs.model, pairs.batch, pairs.sm_share, strict=True)):
        members = [Member(str(model), int(batch), 1, float(share)) for model, batch, share in zip(*rows, strict=True)]
        found[at] = [one.latency_ms for one in v100.predict(WHOLE, members)]
    here = pairs.model == name
    return np.log(pairs.latency_ms / found)[here], pairs.batch[here], pairs.sm_share[here]


def derived_t4(v100) -> IgniterProfiles:
    """The T4 file; see DERIVED_SOURCE."""
    t4 = gpu_type("t4")
    power_ratio = t4.power_cap_w / v100.hardware.power_cap_w
    clock_ratio = t4.max_clock_mhz / v100.hardware.max_clock_mhz
    hardware = v100.hardware.model_copy(
        update={
            "power_cap_w": t4.power_cap_w,
            "max_clock_mhz": t4.max_clock_mhz,
            "idle_power_w": rounded(v100.hardware.idle_power_w * power_ratio),
            "clock_slope_mhz_per_w": rounded(v100.hardware.clock_slope_mhz_per_w * clock_ratio / power_ratio),
        }
    )
    models = {name: _derived_model(model, power_ratio) for name, model in v100.models.items()}
    about = {"name": "igniter-t4-derived", "gpu": "t4", "source": DERIVED_SOURCE, "bands": None}
    return v100.model_copy(update=about | {"hardware": hardware, "models": models})


def _derived_model(model, power_ratio) -> IgniterModel:
    """The GPU is as busy as a V100 at half the processing ability."""
    factors = {
        **dict.fromkeys(("k1_ms", "k2_ms", "k3_ms", "k5_ms", "cache_per_rps"), COMPUTE_RATIO),
        "cache_sensitivity": BANDWIDTH_RATIO / COMPUTE_RATIO,
        "power_w_per_rps": COMPUTE_RATIO * power_ratio,
        "power_base_w": power_ratio,
    }
    scaled = {name: rounded(getattr(model, name) * factor) for name, factor in factors.items()}
    return model.model_copy(update=scaled | {"error": None})


def derived_variants(v100) -> IgniterProfiles:
    """The file with variants on the V100; see VARIANTS_SOURCE."""
    large = {name + TILES: _large_tiles(model) for name, model in v100.models.items()}
    about = {"name": "igniter-v100-variants-derived", "source": VARIANTS_SOURCE}
    return v100.model_copy(update=about | {"models": v100.models | large})


def _large_tiles(model) -> IgniterModel:
    """Power and L2 utilisation are linear in the processing ability, which grows as active times fall."""
    factors = {
        **dict.fromkeys(("k1_ms", "k2_ms", "k3_ms", "k5_ms", "power_w_per_rps"), FASTER),
        "cache_per_rps": FASTER * HUNGRIER,
        **dict.fromkeys(("cache_base", "cache_sensitivity"), HUNGRIER),
    }
    scaled = {name: rounded(getattr(model, name) * factor) for name, factor in factors.items()}
    return model.model_copy(update=scaled | {"error": None})


def _print_table(profiles) -> None:
    """Errors of eq. 11 on the active times it was fitted to."""
    print(f"{'model':10} {'mean %':>7} {'p95 %':>7} {'max %':>7}")
    for name, model in profiles.models.items():
        error = model.error
        print(f"{name:10} {100 * error.mean:7.2f} {100 * error.p95:7.2f} {100 * error.max:7.2f}")


if __name__ == "__main__":
    main()

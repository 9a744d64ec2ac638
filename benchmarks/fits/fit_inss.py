"""Derives coefficients of InSS's six models on RTX 2060s from what is published of them; prints how well they fit.

InSS's program imports its coefficients from modules that its repository lacks. Published are, for the RTX 2060 Super:

- the throughputs H_i of six models with batch 1 on a whole GPU (``TS/env.py`` of its program),
- latencies of AlexNet, ResNet-50 and VGG-16 on 30 % of a GPU by batch size (its Table 2), of MnasNet by share and of
  EfficientNet beside MobileNet (its Table 3), some of them beside other models,
- one number of MB per model and per GPU type (``TS/env.py``); how memory depends on the batch is not published.

Eq. 11 is fitted to these with k4 = 0, and k1 = 0 where one batch size above 1 is known; times grow up to batch 16, the
largest that is published and the largest of the data. The result file also tells how well a fit does whose times grow
up to batch 32, to which the paper searches. All models have the same sensitivity to their neighbours' L2
utilisation, and the same utilisation at the largest batch on a whole GPU. MobileNet, of which H_i alone is known, is
MnasNet with all times in proportion. The RTX 2060's times are the Super's with the work in proportion to the SMs.

Run as ``python benchmarks/fits/fit_inss.py [--out DIR] [--results DIR]``. With ``--out`` the data are written; those in
``models/performance/data`` ship. A row of the result file is a published latency, the fitted one, and by how many
percent they differ.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import yaml
from scipy.optimize import least_squares

from provision.draw.output import print_table
from provision.models.fitting.igniter import rounded
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.operating_points import Member

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

COLUMNS = ("model", "batch", "units", "beside", "published_ms", "fitted_ms", "error_percent")
SUPER, PLAIN = "rtx2060-super", "rtx2060"
UNITS = {SUPER: 17, PLAIN: 15}
"""Levels of the SM share in the public program: two SMs each."""
ALONE_RPS = {"alexnet": 788.64144, "resnet50": 215.8676, "vgg16": 146.90275, "mnasnet": 443.52946,
             "mobilenet_v3": 306.51298, "efficientnet": 217.31929}
MEMORY_MB = {"alexnet": 1000, "resnet50": 1900, "vgg16": 1500, "mnasnet": 1500, "mobilenet_v3": 1000,
             "efficientnet": 1900}
MIB_PER_MB = 1e6 / 2**20
LOAD, FEEDBACK = 602112.0, 4000.0
"""Bytes of a request and of its answer, as of iGniter's models of the same inputs."""
LARGEST, SEARCHED = 16, 32
FULL = 0.3
"""L2 utilisation at the largest batch on a whole GPU: about that of iGniter's models on a V100."""
FORTY, THIRTY, EIGHTEEN = 7, 5, 3
"""Units of 40, 30 and 18 % of a GPU."""
A4, R4, V4 = ("alexnet", 4, THIRTY), ("resnet50", 4, THIRTY), ("vgg16", 4, THIRTY)
FIGURE_7 = 18.7
"""Percent that ResNet-50 takes longer beside others, at most."""


def published() -> list[tuple[float, list[tuple[str, int, float]]]]:
    """What is published: (ms, members), of which the first is measured, each as (model, batch, units)."""
    found = [(1000 / rps, [(model, 1, UNITS[SUPER])]) for model, rps in ALONE_RPS.items()]
    for batch, *ms in ((1, 8.690, 2.848, 18.196), (4, 23.285, 5.674, 62.009), (8, 43.422, 8.898, 120.382),
                       (16, 71.456, 10.191, 176.308)):
        beside = [[], [R4], [A4, R4]]
        found += [(one, [(model, batch, THIRTY), *others])
                  for one, model, others in zip(ms, ("resnet50", "alexnet", "vgg16"), beside, strict=True)]
    for units, mnasnet, efficientnet in ((1, 13.686, 15.515), (4, 4.241, 16.170), (7, 3.468, 16.958),
                                         (10, 3.409, 17.516)):
        found.append((mnasnet, [("mnasnet", 4, units)]))
        found.append((efficientnet, [("efficientnet", 4, EIGHTEEN), ("mobilenet_v3", 4, units)]))
    return found


def coefficients(values, largest) -> dict[str, dict[str, object]]:
    """Models by name from the numbers that are fitted, logarithms of coefficients and of what divides k1."""
    k = np.exp(values)
    times = {name: _bent(*k[4 * at : 4 * at + 4], largest) for at, name in enumerate(("alexnet", "resnet50", "vgg16"))}
    times["mnasnet"] = np.array([0.0, *k[12:15]])
    times["efficientnet"] = np.array([0.0, k[15], 0.0, k[16]])
    times["mobilenet_v3"] = times["mnasnet"] * ALONE_RPS["mnasnet"] / ALONE_RPS["mobilenet_v3"]
    return {name: _model(name, *times[name], k[17], largest) for name in ALONE_RPS}


def _bent(bend, k2, k3, k5, largest) -> np.ndarray:
    """k1, k2, k3 and k5 of a time that grows up to the largest batch, the less so the smaller ``bend``."""
    return np.array([-k2 / (2 * largest * (1 + bend)), k2, k3, k5])


def _model(name, k1, k2, k3, k5, sensitivity, largest) -> dict[str, object]:
    """One model's coefficients; the upload counts within a batch's time, as in InSS."""
    memory_mib = MEMORY_MB[name] * MIB_PER_MB
    return {
        "load_bytes": 0.0, "feedback_bytes": LOAD + FEEDBACK, "kernels": 80, "kernel_delay_ms": 0.0,
        "k1_ms": k1, "k2_ms": k2, "k3_ms": k3, "k4_share": 0.0, "k5_ms": k5, "power_w_per_rps": 0.0,
        "power_base_w": 0.0, "cache_per_rps": FULL * (k1 * largest**2 + k2 * largest + k3 + k5) / (1000 * largest),
        "cache_base": 0.0, "cache_sensitivity": sensitivity,
        "memory_mib": [[1, memory_mib], [largest, memory_mib]], "memory_estimated": True,
    }


def profiles(gpu, models, largest=LARGEST) -> IgniterProfiles:
    """The performance data of a GPU type; its clock does not fall with power, as InSS has no such term."""
    size = gpu_type(gpu)
    return IgniterProfiles.model_validate({
        "version": 1, "name": f"inss-{gpu}-derived", "gpu": gpu, "source": SOURCE[gpu], "kind": "igniter",
        "command": "python benchmarks/fits/fit_inss.py", "fitted": "2026-11-23",
        "hardware": {
            "pcie_gb_per_s": 10.0, "power_cap_w": float(size.power_cap_w), "max_clock_mhz": float(size.max_clock_mhz),
            "idle_power_w": 0.0, "clock_slope_mhz_per_w": 0.0, "scheduling_slope_ms": 0.0047506535,
            "scheduling_intercept_ms": -0.0090224257, "unit_share": 1 / UNITS[gpu],
        },
        "max_batch": largest, "models": models,
    })


SOURCE = {
    SUPER: "Derived from what is published of InSS's models on an RTX 2060 Super (its Tables 2 and 3 and the H_i of "
           "its program): few points per model, of MobileNet one. Memory as its program states it, one number per "
           "model; how it depends on the batch is not published. Transfers and delays as on iGniter's V100.",
    PLAIN: "Derived, NOT measured: inss-rtx2060-super-derived with the work in proportion to the SMs, 34 / 30.",
}


def fitted(
    largest=LARGEST,
) -> tuple[dict[str, dict[str, object]], np.ndarray, list[tuple[float, list[tuple[str, int, float]]]]]:
    """The data of the Super, and the predicted and the published ms."""
    known = published()

    def predicted(values) -> np.ndarray:
        data = profiles(SUPER, coefficients(values, largest), largest)
        return np.array([data.predict("whole", [
            Member(model, batch, 1, units * data.hardware.unit_share) for model, batch, units in members
        ])[0].latency_ms for _, members in known])

    ms = np.array([one for one, _ in known])
    start = np.log([*[1, 0.3, 0.3, 0.5], *[1, 1.5, 0.5, 2.0], *[1, 3.0, 0.5, 2.0], *[0.2, 0.2, 1.5], 0.5, 3.0, 0.3])
    found = least_squares(lambda values: np.log(predicted(values) / ms), start, bounds=(-12, 6))
    models = {
        name: {field: rounded(value) if isinstance(value, float) else value for field, value in one.items()}
        for name, one in coefficients(found.x, largest).items()
    }
    return models, predicted(found.x), known


def slower(model) -> dict[str, object]:
    """A model on the RTX 2060."""
    ratio = gpu_type(SUPER).sms / gpu_type(PLAIN).sms
    times = {field: model[field] * ratio for field in ("k1_ms", "k2_ms", "k3_ms", "cache_per_rps")}
    return model | {field: rounded(value) for field, value in times.items()}


def most_beside(data) -> float:
    """How much longer ResNet-50 takes on 40 % of a GPU beside others, at most (section 2.2, figure 7)."""
    unit = data.hardware.unit_share
    slower = []
    for batch in (1, 4, 8, LARGEST):
        mine = Member("resnet50", batch, 1, FORTY * unit)
        for others in ([A4], [V4], [("alexnet", 4, 2 * THIRTY)], [("vgg16", 4, 2 * THIRTY)], [A4, V4]):
            beside = [mine, *(Member(model, size, 1, units * unit) for model, size, units in others)]
            slower.append(data.predict("whole", beside)[0].latency_ms / data.predict("whole", [mine])[0].latency_ms - 1)
    return max(slower)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write the data to")
    results.add_results(parser)
    options = parser.parse_args()
    models, predicted, known = fitted()
    rows = [[*members[0], len(members) - 1, truth, float(ms), float(100 * abs(ms / truth - 1))]
            for ms, (truth, members) in zip(predicted, known, strict=True)]
    print_table(COLUMNS, rows)
    wrong = np.array([row[-1] for row in rows])
    table = np.array([len(members) > 1 or members[0][2] < UNITS[SUPER] for _, members in known])
    longest = 100 * most_beside(profiles(SUPER, models))
    told = [["ResNet-50 slower at most, not fitted", *[None] * 3, FIGURE_7, longest, None],
            ["all", *[None] * 5, float(wrong.mean())], ["largest", *[None] * 5, float(wrong.max())],
            ["its Tables 2 and 3", *[None] * 5, float(wrong[table].mean())],
            ["its Tables 2 and 3, largest", *[None] * 5, float(wrong[table].max())]]
    models_32, predicted_32, _ = fitted(SEARCHED)
    wrong_32 = 100 * np.abs(predicted_32 / [one for one, _ in known] - 1)
    longest_32 = 100 * most_beside(profiles(SUPER, models_32, SEARCHED))
    told += [["ResNet-50 slower at most, growing to batch 32", *[None] * 3, FIGURE_7, longest_32, None],
             ["its Tables 2 and 3, growing to batch 32", *[None] * 5, float(wrong_32[table].mean())]]
    print_table(COLUMNS, told)
    results.write(options.results, "inss-fit", COLUMNS, [*told, *rows])
    if options.out is None:
        return
    for gpu, those in ((SUPER, models), (PLAIN, {name: slower(one) for name, one in models.items()})):
        data = profiles(gpu, those)
        text = yaml.safe_dump(data.model_dump(mode="json"), sort_keys=False, width=110, default_flow_style=None)
        (options.out / f"{data.name}.yaml").write_text(text)


if __name__ == "__main__":
    main()

"""P99 predicted for MLPerf's server scenario against P99 measured.

Run as ``python benchmarks/traffic/mlperf.py FILE``; FILE is a CSV with one row per system and model: what ran
(devices, batch, streams, delays), the throughput without arrivals (``offline_sps``), the rate (``server_qps``) and the
P99 at it. A row of a system that the shipped constants were calibrated on is predicted by constants from all other
systems (leave one system out); a row of another system by those from all. Where FILE has the row's limit
(``server_target_p99_ms``) no prediction is above it: a submission counts only if its P99 is within the limit, so that a
higher prediction is known to be wrong. In batches larger than any that the constants come from the limit is all that is
known. The last line counts the rows predicted below the measured P99 (M of N) and gives the median R of predicted over
measured; the results also count the rows whose prediction is the limit.

With ``--calibrate OUT`` the constants are calibrated on FILE and written to OUT; with ``--others`` rows are predicted
by constants from the other systems of FILE. ``--results DIR`` writes the ratios by GPU type, to ``--name``.

``benchmarks/mlperf_server_v4.1.csv`` has the 113 valid rows of vision and BERT on NVIDIA's GPUs in the closed division
of v4.1 (mlcommons/inference_results_v4.1 at 198fc467, Apache-2.0) whose configuration its submitter published. The
constants that ship are of v1.1 and of other GPU types.
"""

import argparse
import math
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from fit_tails import FIXED_SHARE, fit_tails, unknown_tail
from measured_tails import (
    SEED,
    MeasuredTails,
    Station,
    family,
    in_requests,
    queue_p99_ms,
    shipped_tails,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

from provision.draw.output import print_table
from provision.instances.files.csv_cells import number, numbered_rows, text
from provision.models.base.errors import InputError

COLUMNS = ("system", "model", "devices", "server_qps", "server_p99_ms", "offline_sps", "batch")
DELAYS = ("deque_timeout_us", "max_queue_delay_us")
LIMIT = "server_target_p99_ms"
MARGIN = 1.1
SOURCE = "MLPerf Inference v1.1, closed division, NVIDIA's submissions: mlcommons/inference_results_v1.1 at 7fc4335"
ITEMS_PER_REQUEST = {"dlrm": 270.0}
"""A DLRM request holds 100 to 700 pairs of users and items, 270 on average (MLPerf Inference rules)."""


class Row(NamedTuple):
    """A measured row."""

    system: str
    model: str
    station: Station
    p99_ms: float
    limit_ms: float


def main() -> int:
    """Print every row and the summary, or calibrate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--calibrate", metavar="OUT")
    parser.add_argument("--others", action="store_true", help="constants from the other systems of FILE")
    parser.add_argument("--name", default="mlperf-tails", help="of the result file")
    results.add_results(parser)
    options = parser.parse_args()
    try:
        rows = read_rows(options.file)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if options.calibrate:
        constants = calibrated(rows).model_dump()
        Path(options.calibrate).write_text(yaml.safe_dump(constants, sort_keys=False))
    else:
        ratios, limited = compare(rows, calibrated(rows) if options.others else shipped_tails())
        types = np.array([gpu_of(row) for row in rows])
        lines = [_line(name, ratios[of], limited[of]) for name in [*sorted(set(types)), "all"]
                 for of in [(types == name) | (name == "all")]]
        results.write(options.results, options.name, ("gpu", "rows", "below", "median", "largest", "limited"),
                      lines, seeds=[SEED])
    return 0


def gpu_of(row: Row) -> str:
    """The GPU type of a row's system, which its name holds; slices apart from whole GPUs."""
    found = re.search(r"GH200|H100|H200|L40S|A100|A10|A30", row.system.upper())
    return (found[0] if found else row.system) + (" MIG" if "MIG" in row.system else "")


def _line(name: str, ratios: np.ndarray, limited: np.ndarray) -> tuple[object, ...]:
    """The row of a GPU type: rows, ratios below 1, their median and largest, and predictions at the limit."""
    return name, len(ratios), int((ratios < 1).sum()), float(np.median(ratios)), float(ratios.max()), int(limited.sum())


def compare(rows: list[Row], tails: MeasuredTails) -> tuple[np.ndarray, np.ndarray]:
    """Predict every row and print what was predicted, what was measured, and the summary; returns the ratios, and
    whether the limit is the prediction."""
    table, ratios, limited = [], [], []
    for row in rows:
        predicted_ms = min(tails.p99_ms(row.station, row.model, row.system), row.limit_ms)
        ratios.append(predicted_ms / row.p99_ms)
        limited.append(predicted_ms == row.limit_ms)
        known = "other systems" if row.system in tails.without else "all systems"
        known = known if tails.tail(row.model, row.system) != tails.unknown else "unknown model"
        table.append([row.system, row.model, known, round(row.p99_ms, 2), round(predicted_ms, 2), round(ratios[-1], 2)])
    print_table(["system", "model", "calibrated on", "measured P99 ms", "predicted ms", "ratio"], table)
    left_out = sum(row.system in tails.without for row in rows)
    print(f"{left_out} rows by leave-one-system-out, {len(rows) - left_out} of systems that were not calibrated on")
    below = sum(ratio < 1 for ratio in ratios)
    print(f"rows {len(rows)} below {below} median {np.median(ratios):.2f}")
    return np.array(ratios), np.array(limited)


def calibrated(rows: list[Row]) -> MeasuredTails:
    """The constants from these rows, and for each of their systems those from the rows of all others."""
    families, systems = (np.array(column) for column in zip(*((family(r.model), r.system) for r in rows), strict=True))
    queue_ms = queues_ms(rows, [FIXED_SHARE.get(name, 0.0) for name in families.tolist()])
    measured_ms = np.array([row.p99_ms for row in rows])
    others = {name: systems != name for name in sorted({row.system for row in rows})}
    return MeasuredTails(
        source=SOURCE, licence="Apache-2.0", margin=MARGIN, items_per_request=ITEMS_PER_REQUEST,
        largest_batch={name: max(row.station.batch for row in rows if family(row.model) == name)
                       for name in sorted(set(families.tolist()))},
        unknown=unknown_tail(queues_ms(rows, [1.0] * len(rows)), measured_ms),
        models=fit_tails(families, queue_ms, measured_ms),
        without={name: fit_tails(families[of], queue_ms[of], measured_ms[of]) for name, of in others.items()},
    )


def queues_ms(rows: list[Row], fixed_shares: list[float]) -> np.ndarray:
    """P99 of the queue of every row, in ms."""
    stations = [in_requests(row.station, row.model, ITEMS_PER_REQUEST) for row in rows]
    return np.array([queue_p99_ms(station, share) for station, share in zip(stations, fixed_shares, strict=True)])


def read_rows(path: str) -> list[Row]:
    """The rows of a file.

    Raises
    ------
    InputError
        When it cannot be read, or a row lacks a number that the prediction needs.
    """
    return [_row(path, line, cells) for line, cells in numbered_rows(path, COLUMNS)]


def _row(path: str, line: int, cells: dict[str, str]) -> Row:
    """One row; a missing number of streams is 1, a missing delay 0."""
    values = {name: _positive(path, line, cells, name) for name in COLUMNS[2:]}
    streams = _positive(path, line, cells, "streams") if cells.get("streams") else 1.0
    delays_us = [number(path, line, cells, name) for name in DELAYS if cells.get(name)]
    station = Station(
        devices=int(values["devices"]), processes=int(streams), batch=int(values["batch"]),
        delay_ms=max(delays_us, default=0.0) / 1000, rate_rps=values["server_qps"], full_rps=values["offline_sps"],
    )
    limit_ms = _positive(path, line, cells, LIMIT) if cells.get(LIMIT) else math.inf
    return Row(text(path, line, cells, "system"), text(path, line, cells, "model"), station, values["server_p99_ms"],
               limit_ms)


def _positive(path: str, line: int, cells: dict[str, str], name: str) -> float:
    """A number above 0."""
    found = float(number(path, line, cells, name))
    if found <= 0:
        raise InputError(f"{path}:{line}: {name} should be above 0 (got {found:g})")
    return found


if __name__ == "__main__":
    sys.exit(main())

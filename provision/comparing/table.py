"""The table of a comparison: runs, means with confidence intervals, and conversion to pandas, CSV, LaTeX and pictures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from provision.instances.files.files import FilePath, check_writable, write_text
from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.base.shown import frame
from provision.models.plans.result import relative_gap
from provision.models.problem.objective import REQUESTS
from provision.sweeps.table import TableRow, aligned, as_csv

if TYPE_CHECKING:
    from pandas import DataFrame

CONFIDENCE = 0.95
FEWEST = 3
"""The fewest values that have an interval: of two, Student's t makes one six times as wide as their distance."""
NOT_APPLICABLE = "not applicable"
SUFFIXES = (".csv", ".tex", ".png", ".svg")
ROUNDING = 1e-12
"""Values that differ by no more than this fraction are equal, but for rounding."""
MOST_COLUMNS = 8
"""The most instances that a LaTeX table has columns for."""
METRICS = {"excess": "above the best", "gap": "gap to the bound", "seconds": "seconds"}
"""What is averaged over instances, and its heading."""
SPECIAL = str.maketrans({char: f"\\{char}" for char in "&%$#_{}"})
"""Characters with a special meaning in LaTeX, with their escapes."""


def mean_and_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The mean and half the width of its 95 % confidence interval (Student's t). Fewer than FEWEST values have no
    interval, none have no mean: then it is None.
    """
    if not values:
        return None, None
    count, mean = len(values), float(np.mean(values))
    if count < FEWEST:
        return mean, None
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2) * np.std(values, ddof=1) / math.sqrt(count))
    return mean, half if half > ROUNDING * abs(mean) else 0.0


def tightest(unit: str, bounds: Iterable[float | None]) -> float | None:
    """The tightest of several bounds on an objective of this unit; None if there are none."""
    return (min if unit == REQUESTS else max)((bound for bound in bounds if bound is not None), default=None)


@dataclass(frozen=True, repr=False)
class ComparisonTable:
    """The results of several methods on several instances.

    Attributes
    ----------
    runs
        A row per instance, method and seed, with the fields of ``provision compare --json``.
    units
        The unit of the objective, by instance.
    missing
        The number of runs that are not done, because Ctrl-C ended the comparison.
    """

    runs: tuple[TableRow, ...]
    units: Mapping[str, str]
    missing: int = 0

    @property
    def methods(self) -> list[str]:
        """The methods, in the order in which they were given."""
        return list(dict.fromkeys(run["method"] for run in self.runs))

    @property
    def rows(self) -> list[TableRow]:
        """A row per instance and method that can plan it: the numbers of runs and of valid plans, and means with
        intervals.

        ``excess`` is the distance of the mean objective from the best mean of all methods, as a fraction of that, and
        ``gap`` its distance from the tightest bound that any method proves, as a fraction of the mean objective.
        ``violating`` is the mean objective of plans that break SLOs, of a method none of whose plans hold.
        """
        found = [self._row(name, method) for name in self.units for method in self.methods]
        rows = [row for row in found if row is not None]
        for row in rows:
            name, objective = row["instance"], row["objective"]
            beside = [one for one in rows if one["instance"] == name]
            row["excess"] = self._behind(name, objective, [one["objective"] for one in beside if one["objective"]])
            row["gap"] = relative_gap(objective, tightest(self.units[name], [one["bound"] for one in beside]))
        return rows

    @property
    def overall(self) -> list[TableRow]:
        """A row per method: over how many instances it has plans that hold, and METRICS as means over these instances
        with their intervals; ``gap`` over those that have a bound, whose number is ``bounded``.
        """
        found, every = [], self.rows
        for method in self.methods:
            rows = [row for row in every if row["method"] == method and row["objective"] is not None]
            means = {name: mean_and_interval([row[name] for row in rows if row[name] is not None]) for name in METRICS}
            bounded = sum(row["gap"] is not None for row in rows)
            found.append({"method": method, "instances": len(rows), "bounded": bounded} | {
                f"{name}{suffix}": value for name, pair in means.items()
                for suffix, value in zip(("", "_ci"), pair, strict=True)})
        return [row for row in found if row["instances"]]

    def _row(self, name: str, method: str) -> TableRow | None:
        runs = [run for run in self.runs if (run["instance"], run["method"]) == (name, method)]
        if all(run["status"] == NOT_APPLICABLE for run in runs):
            return None
        good = [run for run in runs if run.get("verified") and run.get("objective") is not None]
        objective, interval = mean_and_interval([run["objective"] for run in good])
        seconds, spread = mean_and_interval([run["build_seconds"] + run["solve_seconds"] for run in runs
                                             if run.get("solve_seconds") is not None])
        gpus, _ = mean_and_interval([run["gpus"] for run in good])
        bound = tightest(self.units[name], [run.get("bound") for run in runs])
        broken = [run["objective"] for run in runs if run.get("objective") is not None]
        late = [run["late_workloads"] for run in runs if run.get("late_workloads") is not None]
        return {
            "instance": name, "method": method, "runs": len(runs), "hold": len(good), "objective": objective,
            "objective_ci": interval, "gpus": gpus, "bound": bound, "seconds": seconds, "seconds_ci": spread,
            **({"late_workloads": mean_and_interval(late)[0]} if late else {}),
            **({"violating": mean_and_interval(broken)[0]} if broken and not good else {}),
        }

    def _behind(self, name: str, objective: float | None, beside: Sequence[float]) -> float | None:
        if objective is None or not beside:
            return None
        return max(beside) / objective - 1 if self.units[name] == REQUESTS else objective / min(beside) - 1

    @property
    def refused(self) -> list[str]:
        """The methods that can plan none of the instances."""
        planned = {run["method"] for run in self.runs if run["status"] != NOT_APPLICABLE}
        return [method for method in self.methods if method not in planned]

    def ratios(self) -> dict[str, Floats]:
        """The ratios of each method's runs to the best run for the same instance and seed, in ascending order. The
        best run has ratio 1; a run without a valid plan has an infinite ratio. The sorted ratios are a performance
        profile (Dolan and More, 2002): the fraction of problems that a method solves within a factor of the best.
        """
        best: dict[tuple[str, int], float] = {}
        loss = {id(run): self._loss(run) for run in self.runs}
        for run in self.runs:
            key = run["instance"], run["seed"]
            best[key] = min(best.get(key, math.inf), loss[id(run)])
        found: dict[str, list[float]] = {method: [] for method in self.methods if method not in self.refused}
        for run in self.runs:
            least = best[run["instance"], run["seed"]]
            if run["method"] in found and math.isfinite(least):
                found[run["method"]].append(loss[id(run)] / least if least else 1.0)
        return {method: np.sort(values) for method, values in found.items()}

    def _loss(self, run: TableRow) -> float:
        """The objective of a run as a value to minimise (for throughput, the reciprocal); infinite without a valid
        plan.
        """
        if not run.get("verified") or run.get("objective") is None:
            return math.inf
        return 1 / run["objective"] if self.units[run["instance"]] == REQUESTS else float(run["objective"])

    def to_frame(self) -> DataFrame:
        """A pandas frame of the means, a row per instance and method."""
        return frame(self.rows)

    def runs_to_frame(self) -> DataFrame:
        """A pandas frame with a row per run."""
        return frame(aligned(self.runs))

    def to_csv(self) -> str:
        """The means as CSV text."""
        return as_csv(self.rows)

    def to_latex(self) -> str:
        """LaTeX tables (booktabs) of means with half intervals: methods by instances where these are few, the best of
        each bold; and of several instances, methods by METRICS.
        """
        rows = {(row["instance"], row["method"]): row for row in self.rows}
        tables = []
        if len(self.units) <= MOST_COLUMNS:
            tables.append(_latex([f"{name} ({unit})" for name, unit in self.units.items()], {
                method: [_cell(rows.get((name, method))) for name in self.units]
                for method in self.methods if method not in self.refused}))
        if len(self.units) > 1:
            tables.append(_latex(["instances", *METRICS.values()], {
                row["method"]: [str(row["instances"]), *(_mean(row[name], row[f"{name}_ci"]) for name in METRICS)]
                for row in self.overall}))
        return "\n".join(tables)

    def draw(self, path: FilePath, force: bool = False) -> None:
        """Write a picture (.png, .svg): mean objectives as bars with their intervals, and the performance profile."""
        from provision.draw.comparison import comparison_figure
        from provision.draw.figures import write_figure

        write_figure(comparison_figure(self), path, force)

    def write(self, path: FilePath, force: bool = False) -> None:
        """Write the table to a file whose suffix is the format: ``.csv``, ``.tex``, or a picture ``.png`` or ``.svg``.

        Raises
        ------
        InputError
            If the suffix is another, or the file exists and ``force`` is not set.
        """
        check_table(path, force)
        suffix = Path(path).suffix.lower()
        if suffix in (".csv", ".tex"):
            write_text(path, self.to_csv() if suffix == ".csv" else self.to_latex(), force)
        else:
            self.draw(path, force)

    def _repr_html_(self) -> str:
        from provision.draw.html import table

        rows = aligned(self.rows)
        return table(list(rows[0]), [[_rounded(value) for value in row.values()] for row in rows]) if rows else ""

    def __repr__(self) -> str:
        count = len(self.runs)
        return f"<ComparisonTable: {len(self.methods)} methods, {len(self.units)} instances, {count} runs>"


def check_table(path: FilePath, force: bool = False) -> None:
    """Refuse a file to which a comparison cannot be written; it is called before the work. Raises InputError if the
    suffix is not a format of tables, or the file cannot be written.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: a comparison is written as {', '.join(SUFFIXES)}; end the name so")
    check_writable(path, force)


def _latex(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A LaTeX table with a row of cells per method."""
    head = " & ".join(["method", *(name.translate(SPECIAL) for name in columns)])
    lines = [" & ".join([method.translate(SPECIAL), *cells]) + r" \\" for method, cells in rows.items()]
    return "\n".join([rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule", head + r" \\", r"\midrule", *lines,
                      r"\bottomrule", r"\end{tabular}", ""])


def _cell(row: TableRow | None) -> str:
    """The LaTeX cell of a row, bold if the mean is the best of its instance."""
    if row is None:
        return "--"
    return _mean(row["objective"], row["objective_ci"], row["excess"] is not None and row["excess"] < 1e-9)


def _mean(mean: float | None, half: float | None, bold: bool = False) -> str:
    """The LaTeX cell of a mean with half its interval."""
    if mean is None:
        return "--"
    digits = max(0, 1 - math.floor(math.log10(half))) if half else 0
    text = rf"{mean:.{digits}f} \pm {half:.{digits}f}" if half else f"{mean:.4g}"
    return rf"$\mathbf{{{text}}}$" if bold else f"${text}$"


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value

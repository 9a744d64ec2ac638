"""``provision bench``: solve the benchmark families and compare with the ledger of best-known values."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from provision import InputError, UnsupportedError, compare, read, write
from provision.commands import interrupted
from provision.commands.verb import Seconds, Writing, until_stopped
from provision.draw.figures import check_picture
from provision.draw.output import rows_of
from provision.draw.progress import progress, telling
from provision.instances.files.files import check_writable
from provision.instances.ledger.ledger import better, entry, joined, ledger
from provision.instances.read import FAMILIES
from provision.models.base.arguments import local, operand, option
from provision.models.base.fields import Count, Name
from provision.models.base.register import one_of
from provision.models.base.tolerances import TOLERANCE
from provision.models.problem.objective import objective_of
from provision.sweeps.run import Settings, solved
from provision.sweeps.table import TableRow

COLUMNS = ("instance", "method", "status", "objective", "bound", "gap", "best_known", "excess", "seconds")
NOT_APPLICABLE = "not applicable"
METHODS = {
    "parvagpu": ("parvagpu", "parvagpu-single", "parvagpu-unoptimized", "mig-serving-fast", "paris"),
    "parvagpu-shared": ("parvagpu", "parvagpu-single", "mig-serving-fast"),
    "parvagpu-repeated": ("parvagpu", "mig-serving-fast"),
    "igniter": ("igniter", "ffd", "ffd++", "gpulets+", "gslice+"),
    **dict.fromkeys(("gpulets", "gpulets-2022"),
                    ("gpulets", "gpulets-without-interference", "gpulets-ideal", "nexus", "gslice")),
    "inss": ("inss", "inss-ni", "gpulets+bda"),
    "variants": ("igniter",),
    "mlperf": ("inferno", "melange"),
}
"""The methods that the paper of each family proposes or compares with."""


class Bench(Writing):
    more_help: ClassVar[str] = "; exit 1 when an answer is worse."

    families: tuple[str, ...] = operand("FAMILY", f"any of {', '.join(FAMILIES)} (default: all)", (), nargs="*")
    method: Name = option("auto", "M", "one of `provision methods`")
    time_limit_s: Seconds = option(60.0, "S", "seconds each")
    seed: Count = option(0, "N", "for methods that draw numbers")
    figures: str | None = local(None, "DIR", "draw every family, with its paper's methods beside --method")
    ledger: str | None = local(None, "DIR", "write entries that know more than the ledger here")

    def run(self) -> int:
        for family in self.families:
            if family not in FAMILIES:
                raise InputError(f"unknown family {family!r}; {one_of(family, FAMILIES)}")
        names = _names(self.families)
        pictures = {family: Path(self.figures or ".") / f"{family}.png" for family in self.families or FAMILIES}
        for picture in pictures.values() if self.figures else ():
            check_picture(picture, self.force)
        if self.ledger:
            check_writable(Path(self.ledger) / "entry.json", force=True)
        settings = {"method": self.method, "time_limit_s": self.time_limit_s, "seed": self.seed}
        rows = until_stopped(lambda name: _row(name, settings, self.ledger), names)
        stopped = len(rows) < len(names)
        short = [{name: round(one, 4) if isinstance(one, float) else one for name, one in row.items()} for row in rows]
        self.answer(settings | {"stopped": stopped, "rows": rows}, [rows_of(short, COLUMNS)])
        if stopped:
            return interrupted()
        for family, picture in pictures.items() if self.figures else ():
            several = list(dict.fromkeys([*METHODS.get(family, ()), self.method]))
            with telling(f"drawing {family}") as report:
                table = compare(FAMILIES[family], several, [self.seed], self.time_limit_s, report=report)
            if table.missing:
                return interrupted()
            table.draw(picture, self.force)
            print(f"picture written to {picture}", file=sys.stderr)
        worse = [row["instance"] for row in rows if row["best_known"] is not None and row["status"] != NOT_APPLICABLE
                 and (row["objective"] is None or (row["excess"] or 0) > TOLERANCE)]
        if worse:
            print(f"exit code 1: of {', '.join(worse)} a better plan is known than {self.method} has after "
                  f"{self.time_limit_s:g} s; a longer --time-limit may reach it", file=sys.stderr)
        return 1 if worse else 0


def _names(families: Sequence[str]) -> list[str]:
    """The names of the instances of these families; of all families if none is given."""
    return [name for family in families or FAMILIES for name in FAMILIES[family]]


def _row(name: str, settings: Settings, folder: str | None) -> TableRow:
    """The row of an instance, solved; a result better than the ledger's is written into ``folder``, if given."""
    instance, known = read(name), ledger().get(name)
    row = dict.fromkeys(COLUMNS) | {"instance": name, "method": settings["method"]}
    if known and known.digest == instance.digest:
        row["best_known"] = known.value
    try:
        with progress(f"{settings['method']} on {name}") as report:
            result = solved(instance, settings, report=report)
    except UnsupportedError:
        return row | {"status": NOT_APPLICABLE}
    if folder and result.verified and better(instance, entry(result), known):
        write(joined(instance, entry(result), known), Path(folder) / f"{name}.json", force=True)
    seconds = round(result.build_seconds + result.solve_seconds, 2)
    found = {"status": result.status, "objective": result.objective, "bound": result.bound, "gap": result.gap}
    loss, best = objective_of(instance).loss, row["best_known"]
    worse = None if result.objective is None or not best else (loss(result.objective) - loss(best)) / best
    return row | found | {"excess": worse, "seconds": seconds}

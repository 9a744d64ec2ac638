"""``provision veltair``: repeat the experiments behind VELTAIR's figures, on a modelled CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from provision.commands.common import counting, print_json, print_table
from provision.commands.verb import Writing
from provision.draw.figures import check_picture
from provision.heuristics.veltair.fit import measured_networks
from provision.instances.files.files import check_writable, write_text
from provision.models.base.arguments import local
from provision.models.base.fields import Count, PositiveCount
from provision.models.cpu.cpu import CPUS
from provision.models.cpu.networks import BERT_TOKENS, networks
from provision.models.cpu.times import LayerTimes
from provision.studies.veltair.layer_times import read_layer_times
from provision.studies.veltair.shapes import Shape, differences, shapes
from provision.studies.veltair.study import FIGURES, Study, searches
from provision.sweeps.table import TableRow, as_csv

HIDDEN = ("cut",)
"""The columns that only JSON has."""


class Veltair(Writing):
    """``provision veltair``."""

    more_help: ClassVar[str] = "; exit 1 when a shape does not come out."
    figure: str = local("all", None, "which", choices=(*FIGURES, "all"))
    queries: Annotated[int, Field(ge=100)] = local(2000, "N", "queries a run, enough to tell 95 % of them")
    seed: Count = local(0, "N", "of the arrivals")
    cpu: str = local("published", None, "published: fitted to VELTAIR's layer times (default); calibrated: to its "
                                        "gains", choices=(*CPUS,))
    bert_tokens: PositiveCount = local(
        BERT_TOKENS, "N", f"length of bert-large's queries (default: {BERT_TOKENS}, as in VELTAIR's program)")
    measured: str | None = local(None, "F", "layers as efficient as measured: a file of profile-layers or a shipped "
                                            "name")
    out: str | None = local(None, "DIR", "write the tables (.csv) and pictures (.png) here")

    def run(self) -> int:
        """Print the figures as tables, and whether the paper's shapes come out."""
        figures = FIGURES if self.figure == "all" else {self.figure: FIGURES[self.figure]}
        _check(self, figures)
        times = read_layer_times(self.measured) if self.measured else None
        with counting("searching for capacities", searches(figures)) as advance:
            tokens = self.bert_tokens
            served = measured_networks(times, tokens) if times else networks(tokens)
            study = Study(self.queries, self.seed, advance, served, CPUS[self.cpu])
            found = {part: getattr(study, f"figure_{part}")() for parts in figures.values() for part in parts}
        judged, why = shapes(found), differences(figures)
        files = _write(found, Path(self.out), self.force) if self.out else []
        if self.as_json:
            tables = {f"figure_{part}": rows for part, rows in found.items()}
            print_json(tables | {"shapes": [shape._asdict() for shape in judged], "differences": why,
                                 "queries": self.queries, "seed": self.seed, "cpu": self.cpu,
                                 "bert_tokens": self.bert_tokens, "measured": self.measured, "files": files})
        else:
            _print(times, found, judged, why, files)
        return 0 if all(shape.holds for shape in judged) else 1


def _check(options: Veltair, figures: Mapping[str, Sequence[str]]) -> None:
    """Refuse options that cannot work, before any work."""
    if options.out:
        for name, parts in figures.items():
            check_picture(Path(options.out) / f"figure-{name}.png", options.force)
            for part in parts:
                check_writable(Path(options.out) / f"figure-{part}.csv", options.force)


def _write(found: Mapping[str, Sequence[TableRow]], folder: Path, force: bool) -> list[str]:
    """Write tables and pictures; returns their paths."""
    from provision.studies.veltair.drawing import draw_veltair  # loads matplotlib

    for part, rows in found.items():
        write_text(folder / f"figure-{part}.csv", as_csv(_shown(rows)), force)
    tables = [folder / f"figure-{part}.csv" for part in found]
    return [str(path) for path in (*tables, *draw_veltair(found, folder, force))]


def _shown(rows: Sequence[TableRow]) -> list[TableRow]:
    return [{name: value for name, value in row.items() if name not in HIDDEN} for row in rows]


def _print(
    times: LayerTimes | None, found: Mapping[str, Sequence[TableRow]], judged: Sequence[Shape], why: Sequence[str],
    files: Sequence[str],
) -> None:
    print("modelled, not measured: no code ran on the paper's testbed for these numbers")
    if times:
        print(f"how efficient each layer is: as measured on {times.machine.cpu} with PyTorch {times.machine.torch}")
    for part, rows in found.items():
        print(f"\nFigure {part}")
        rows = _shown(rows)
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    print("\nThe paper's shapes")
    print_table(("figure", "shape", "comes out", "ours", "paper"), [
        [shape.figure, shape.claim, "yes" if shape.holds else "NO", shape.ours, shape.paper] for shape in judged
    ])
    print("Why numbers differ:")
    for text in why:
        print(f"- {text}")
    for path in files:
        print(f"written to {path}")

"""``provision veltair``: repeat the experiments behind VELTAIR's figures, on a modelled CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from provision.commands.common import add_force, add_json, counting, print_json, print_table
from provision.draw.figures import check_picture
from provision.heuristics.veltair.fit import measured_networks
from provision.instances.files.files import check_writable, write_text
from provision.models.base.errors import InputError
from provision.models.cpu.cpu import CPUS
from provision.models.cpu.networks import BERT_TOKENS, networks
from provision.studies.veltair.layer_times import read_layer_times
from provision.studies.veltair.shapes import differences, shapes
from provision.studies.veltair.study import FIGURES, Study, searches
from provision.sweeps.table import as_csv

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.cpu.times import LayerTimes
    from provision.studies.veltair.shapes import Shape
    from provision.sweeps.table import TableRow

HIDDEN = ("cut",)
"""The columns that only JSON has."""
FEWEST_QUERIES = 100


def add_veltair(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = f"{str(parser.description)[:-1]}; exit 1 when a shape does not come out."
    parser.add_argument("--figure", default="all", choices=(*FIGURES, "all"), help="which (default: all)")
    parser.add_argument("--queries", type=int, default=2000, metavar="N", help="queries a run (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the arrivals (default: 0)")
    parser.add_argument("--cpu", default="published", choices=(*CPUS,),
                        help="published: fitted to VELTAIR's layer times (default); calibrated: to its gains")
    parser.add_argument("--bert-tokens", type=int, default=BERT_TOKENS, metavar="N",
                        help=f"length of bert-large's queries (default: {BERT_TOKENS}, as in VELTAIR's program)")
    parser.add_argument("--measured", metavar="F",
                        help="layers as efficient as measured: a file of profile-layers or a shipped name")
    parser.add_argument("--out", metavar="DIR", help="write the tables (.csv) and pictures (.png) here")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    figures = FIGURES if options.figure == "all" else {options.figure: FIGURES[options.figure]}
    _check(options, figures)
    times = read_layer_times(options.measured) if options.measured else None
    with counting("searching for capacities", searches(figures)) as advance:
        tokens = options.bert_tokens
        served = measured_networks(times, tokens) if times else networks(tokens)
        study = Study(options.queries, options.seed, advance, served, CPUS[options.cpu])
        found = {part: getattr(study, f"figure_{part}")() for parts in figures.values() for part in parts}
    judged, why = shapes(found), differences(figures)
    files = _write(found, Path(options.out), options.force) if options.out else []
    if options.json:
        tables = {f"figure_{part}": rows for part, rows in found.items()}
        print_json(tables | {"shapes": [shape._asdict() for shape in judged], "differences": why,
                             "queries": options.queries, "seed": options.seed, "cpu": options.cpu,
                             "bert_tokens": options.bert_tokens, "measured": options.measured, "files": files})
    else:
        _print(times, found, judged, why, files)
    return 0 if all(shape.holds for shape in judged) else 1


def _check(options: Namespace, figures: Mapping[str, Sequence[str]]) -> None:
    """Refuse options that cannot work, before any work."""
    if options.queries < FEWEST_QUERIES:
        raise InputError(f"--queries {options.queries}: should be at least {FEWEST_QUERIES}, to tell 95 % of them")
    if options.bert_tokens < 1:
        raise InputError(f"--bert-tokens {options.bert_tokens}: should be 1 or more")
    if options.seed < 0:
        raise InputError(f"--seed {options.seed}: should be 0 or more")
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

"""The laws of operators that ship, fitted to aiconfigurator's tables.

    .venv/bin/python benchmarks/fit_operators.py ../shared/data/aiconfigurator

writes models/performance/operators/data/operators.yaml, and prints each law's residual: the median and the 90th
percentile of relative errors on all rows of its table. The tables themselves are not shipped.
"""

import argparse
from importlib.metadata import version
from pathlib import Path

import yaml

from provision.models.fitting.operators.laws import FOLDERS, SEED, fit_operators, has_tables

OUT = Path(__file__).parents[1] / "models/performance/operators/data/operators.yaml"
KINDS = ("gemm", "decode", "prefill", "experts", "reduce")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", metavar="TABLES", help="folder of aiconfigurator's tables, a folder per GPU type")
    parser.add_argument("--out", type=Path, default=OUT, metavar="F", help="file to write (default: what ships)")
    arguments = parser.parse_args()
    found = {}
    for gpu in (one for one in FOLDERS if has_tables(arguments.tables, one)):
        laws = fit_operators(arguments.tables, gpu)
        found[gpu] = laws.model_dump(mode="json", exclude_none=True)
        for kind in KINDS:
            for name, law in getattr(laws, kind).items():
                print(f"{gpu:12} {kind:8} {name:10} median {law.residual.median:6.1%} P90 {law.residual.p90:6.1%} "
                      f"rows {law.residual.rows}", flush=True)
    head = ("# Laws of operators (bytes/ms, operations/ms, ms), fitted to aiconfigurator's tables (Apache-2.0)\n"
            f"# by benchmarks/fit_operators.py, seed {SEED}, scipy {version('scipy')}. Residuals: errors on all\n"
            "# rows.\n")
    arguments.out.write_text(head + yaml.safe_dump(found, sort_keys=False, width=120, default_flow_style=None))


if __name__ == "__main__":
    main()

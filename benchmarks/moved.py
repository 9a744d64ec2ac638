"""Whether result files still say what their commands give: those that take under ten minutes are made anew.

Run as ``python benchmarks/moved.py [NAME ...]`` (all of QUICK where none is named). Every file's own command runs, and
its cells are compared with those in ``benchmarks/results``, times apart. Ends with exit 1 when a cell has moved, naming
it. Files whose command needs public data that is not there are skipped and named.
"""

import argparse
import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent / "papers"))
import results

QUICK = {
    "explained": (), "few-designs": (), "gpulets-ideal": (), "gpulets-published": (), "igniter-interference": (),
    "igniter-text": (), "inss-fit": (), "inss-methods": ("ms",), "inss-six-methods": ("ms",), "inss-workflow": (),
    "latency-models": (), "mlperf-language": (), "mlperf-tails": (),
    "mlperf-v4.1": (), "mlperf-v4.1-others": (), "slices": (), "slices-small": (), "parvagpu-figures": (),
    "silicon-bare": (),
    "silicon-laws": (), "silicon-shipped": (), "sweeps-composed": (), "systems-gpulets": ("s",),
    "systems-igniter": ("s",), "systems-parvagpu": ("s",), "trust-bands": (), "trust-percentiles": (),
    "two-waves": (), "veltair-gains": (), "veltair-networks": (), "veltair-shapes": (), "veltair-tolerant": (),
}
"""The files, and the columns of each that are times."""
TIMED = ("12 workloads, ms", "1000 workloads, ms", "12 workloads, MB", "1000 workloads, MB", "delay")
"""Rows with such a cell are times, or memory that depends on the versions of packages."""
CLOSE, TINY = 1e-4, 1e-6
"""Numbers that differ by at most this part, or by so little, are the same."""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(QUICK)}")
    options = parser.parse_args()
    unknown = set(options.names) - set(QUICK)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not among {', '.join(QUICK)}")
    moved = 0
    for name in options.names or QUICK:
        old = results.read(results.FOLDER / f"{name}.csv")
        command = shlex.split(old.header["command"])
        missing = [word for word in command if word.startswith("../") and not (results.ROOT / word).exists()]
        if missing:
            print(f"{name}: skipped, there is no {missing[0]}", flush=True)
            continue
        with TemporaryDirectory() as folder:
            command[command.index("--results") + 1] = folder
            made = Path(folder) / f"{name}.csv"
            if "--only" in command:  # the other parts stay
                shutil.copy(results.FOLDER / f"{name}.csv", made)
            done = subprocess.run([sys.executable, *command[1:]], cwd=results.ROOT, check=False,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            found = list(differences(old, results.read(made), QUICK[name])) if made.exists() else ["  no result file"]
        if done.returncode:
            found.append(f"  the command ended with exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        print("\n".join([f"{name}: {len(found)} cells moved", *found]), flush=True)
        moved += len(found)
    return 1 if moved else 0


def differences(old: results.Result, new: results.Result, times: tuple[str, ...]) -> Iterator[str]:
    """A line for every cell that moved, columns of times apart, and for tables of another shape."""
    if (old.columns, len(old.rows)) != (new.columns, len(new.rows)):
        yield f"  {len(old.rows)} rows of {old.columns} were {len(new.rows)} of {new.columns}"
        return
    for was, now in zip(old.rows, new.rows, strict=True):
        if not set(TIMED).isdisjoint(was.values()):
            continue
        for column in old.columns:
            if column not in times and not same(was[column], now[column]):
                yield f"  {', '.join(list(was.values())[:2])}: {column} was {was[column]}, is {now[column]}"


def same(was: str, now: str) -> bool:
    """Whether two cells say the same."""
    try:
        return was == now or math.isclose(float(was), float(now), rel_tol=CLOSE, abs_tol=TINY)
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main())

"""Result files: what a benchmark found, with the command, seeds, versions and commit that it was found with.

A benchmark that has results for the documents takes ``--results DIR`` and writes ``DIR/NAME.csv`` there: lines that
begin with ``#`` say how it was run, a CSV table follows. ``pages.py`` beside this file fills the documents' tables from
these files, and a test fails when a table says something else.
"""

import csv
import io
import platform
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks/results"
PACKAGES = ("numpy", "scipy", "PuLP", "ortools", "numba")
HEADER = ("command", "seeds", "versions", "commit")
PROGRAM = ("models/*.py", "formulations/*.py", "heuristics/*.py", "instances/*.py", "provision/*.py", "benchmarks/*.py")
DATA = ("models/*.yaml", "instances/*.yaml", "heuristics/*.npz")
"""What numbers depend on, as git names paths."""
MARK = "# "


class Result(NamedTuple):
    """A result file: how it came about, by HEADER, its columns, and its rows as dicts of texts."""

    header: dict[str, str]
    columns: list[str]
    rows: list[dict[str, str]]


def add_results(parser: ArgumentParser) -> None:
    """Declare ``--results``."""
    parser.add_argument("--results", metavar="DIR", help="write result files here")


def write(folder: str | None, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]],
          seeds: Iterable[int] = (), commit: str = "") -> None:
    """Write a result file, where a folder is given.

    Parameters
    ----------
    folder
        Where to; None for nowhere.
    name
        That of the file, without its ending.
    columns, rows
        The table; the first columns tell its rows apart.
    seeds
        Those that its numbers depend on.
    commit
        What ran; by default what runs now.
    """
    if folder is None:
        return
    text = io.StringIO()
    values = _command(), _runs(seeds) or "none", _versions(), commit or _commit()
    told = dict(zip(HEADER, values, strict=True))
    text.writelines(f"{MARK}{key}: {value}\n" for key, value in told.items())
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows(["" if cell is None else _cell(cell) for cell in row] for row in rows)
    path = Path(folder) / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.getvalue())


class Tally:
    """Counts to which a long benchmark adds in several calls: it goes on where its result file ends.

    Parameters
    ----------
    folder, name
        The result file; with no folder nothing is read or written.
    columns
        What tells the rows apart, and then what is counted.
    """

    def __init__(self, folder: str | None, name: str, columns: Sequence[str]) -> None:
        self.folder, self.name, self.columns = folder, name, list(columns)
        self.known = earlier(folder, name)
        self.rows = {row[columns[0]]: Counter({one: int(row[one]) for one in columns[1:]}) for row in self.known.rows}

    def add(self, key: str, *counted: str) -> None:
        """Count one more of each of some columns in a row."""
        self.rows.setdefault(key, Counter()).update(counted)

    def write(self, seeds: Iterable[int] = ()) -> None:
        """Write all counts; these seeds add to those that are known."""
        rows = [[key, *(counts[one] for one in self.columns[1:])] for key, counts in sorted(self.rows.items())]
        write(self.folder, self.name, self.columns, rows, {*_numbers(self.known.header.get("seeds", "")), *seeds},
              commits(self.known))


def read(path: Path) -> Result:
    """A result file."""
    lines = path.read_text().splitlines()
    told = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    rows = list(csv.DictReader(line for line in lines if not line.startswith(MARK)))
    return Result(dict(line.split(": ", 1) for line in told), list(rows[0]) if rows else [], rows)


def earlier(folder: str | None, name: str) -> Result:
    """The Result that an earlier call of a long benchmark wrote; an empty one if there is none."""
    path = Path(folder or "") / f"{name}.csv"
    return read(path) if folder is not None and path.exists() else Result({}, [], [])


def commits(known: Result) -> str:
    """The commits that wrote a result file, and the one that adds to it."""
    return "; ".join(dict.fromkeys([*filter(None, known.header.get("commit", "").split("; ")), _commit()]))


def _runs(numbers: Iterable[int]) -> str:
    """Whole numbers in ascending order, each run of them as its ends: ``0-3 5``."""
    grouped = groupby(enumerate(sorted(set(numbers))), lambda one: one[1] - one[0])
    runs = [[number for _, number in run] for _, run in grouped]
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _numbers(runs: str) -> Iterable[int]:
    """The numbers in such a text; none in that of a file without seeds."""
    for first, _, last in (part.partition("-") for part in runs.split() if part != "none"):
        yield from range(int(first), int(last or first) + 1)


def _cell(cell: object) -> object:
    """Six digits tell a float."""
    return f"{cell:.6g}" if isinstance(cell, float) else cell


def _command() -> str:
    script = Path(sys.argv[0]).resolve()
    shown = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    return shlex.join(["python", str(shown), *sys.argv[1:]])


def _versions() -> str:
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in PACKAGES)])


def _git(*words: str) -> str:
    """What git prints; empty outside a git checkout."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


STARTED = _git("rev-parse", "HEAD")
"""The commit that was checked out when the benchmark began: it goes on with this code when files change meanwhile."""


def _commit() -> str:
    """The last commit that changed the code that this process loaded, or the data that ships, and whether that differs
    from the commit; without a git checkout the version of the package."""
    if not STARTED:
        return f"version {version('gpu-provision')}, not a git checkout"
    paths = ["--", *_rests_on()]
    changed = _git("diff", "--name-only", STARTED, *paths)
    return _git("log", "-1", "--format=%h %cs", STARTED, *paths) + (" and changes" if changed else "")


def _rests_on() -> list[str]:
    """The paths, as git names them, of the modules that are loaded and of the data; of all that there are where other
    processes may have loaded them."""
    if "multiprocessing.pool" in sys.modules or "concurrent.futures.process" in sys.modules:
        return [*PROGRAM, *DATA]
    files = (Path(path).resolve() for one in list(sys.modules.values()) if (path := getattr(one, "__file__", None)))
    return [*(str(path.relative_to(ROOT)) for path in files
              if path.is_relative_to(ROOT) and ".venv" not in path.relative_to(ROOT).parts), *DATA]

"""Fills the tables of the documents from result files.

Run as ``python benchmarks/papers/pages.py [--check]``. A page has its tables between ``<!-- table: NAME -->`` and
``<!-- end -->``; ``benchmarks/tables/NAME.md`` is the table with figures left open, each as ``{file; key; ...;
column:format}``: the row of ``benchmarks/results/file.csv`` whose first columns have these keys, and how its number is
shown (as Python's format does; as it stands in the file where no format is given). ``{one above other:format}`` is by
what part one figure is above another, ``{one less other:format}`` their difference. The column ``date`` of a file,
with no keys, is the day of the code that wrote it. ``--check`` writes nothing and ends with exit 1 when a page and the
files differ. ``--anew TABLE`` runs the commands in the heads of the table's result files first.
"""

import argparse
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import results

DOCS = results.ROOT / "docs"
TABLES = results.ROOT / "benchmarks/tables"
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
BETWEEN = {" above ": lambda one, other: one / other - 1, " less ": lambda one, other: one - other}
"""What a figure may be of two others."""
WORDS = re.compile("|".join(BETWEEN))


class UnknownFigureError(Exception):
    """A table asks for what no result file has."""


@cache
def result(name: str) -> results.Result:
    """A result file by name."""
    path = results.FOLDER / f"{name}.csv"
    if not path.exists():
        raise UnknownFigureError(f"no result file {name}.csv")
    return results.read(path)


def files_of(table: str) -> set[str]:
    """Names of the result files that a table's template asks for."""
    texts = [one for words, _ in FIGURE.findall(table) for one in WORDS.split(words)]
    return {text.split("; ")[0] for text in texts}


def shown(words: str, form: str | None) -> str:
    """A figure, or what it is of two others, as a table shows it."""
    texts = [figure(one) for one in WORDS.split(words)]
    if len(texts) == 1:
        return format(float(texts[0]), form) if form else texts[0]
    return format(BETWEEN[WORDS.findall(words)[0]](*map(float, texts)), form or "+.1%")


def figure(words: str) -> str:
    """One figure of a result file."""
    name, *wanted, column = words.split("; ")
    found = result(name)
    if column == "date" and not wanted:
        return found.header["commit"].split("; ")[-1].split()[1]
    rows = [row for row in found.rows if [row[key] for key in found.columns[: len(wanted)]] == wanted]
    if len(rows) != 1 or column not in found.columns:
        raise UnknownFigureError(f"{name}.csv has {len(rows)} rows {wanted} and the columns {found.columns}: {column}")
    return rows[0][column]


def filled(name: str) -> str:
    """A table with its figures."""
    return FIGURE.sub(lambda found: shown(*found.groups()), (TABLES / f"{name}.md").read_text())


def rewritten(text: str) -> str:
    """A page with its tables as the result files have them."""
    return BLOCK.sub(lambda block: block[1] + filled(block[2]) + block[4], text)


def tables(page: Path) -> list[str]:
    """Names of the tables of a page."""
    return [name for _, name, *_ in BLOCK.findall(page.read_text())]


def made_anew(table: str) -> None:
    """Run the commands that wrote a table's result files; those first that write what ships."""
    commands = {result(name).header["command"] for name in files_of((TABLES / f"{table}.md").read_text())}
    for command in sorted(commands, key=lambda one: ("--write" not in one, one)):
        print(command, flush=True)
        subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=results.ROOT, check=True)
    result.cache_clear()


def differing() -> list[Path]:
    """The pages that say something else than the result files."""
    return [page for page in sorted(DOCS.glob("*.md")) if rewritten(page.read_text()) != page.read_text()]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--anew", metavar="TABLE", choices=sorted(path.stem for path in TABLES.glob("*.md")))
    options = parser.parse_args()
    if options.anew:
        made_anew(options.anew)
    try:
        stale = differing()
    except UnknownFigureError as error:
        parser.error(str(error))
    for page in stale:
        print(f"{page.relative_to(results.ROOT)}: " + ("differs from the result files" if options.check else "written"))
        if not options.check:
            page.write_text(rewritten(page.read_text()))
    print(f"{len(stale)} pages differ")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())

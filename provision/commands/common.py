"""What verbs share: they read instances and plans, print JSON and tables on stdout, and progress on stderr."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from provision.draw.output import Output
from provision.draw.terminal import drawn
from provision.instances.files.instance_file import shipped_instances
from provision.instances.generators.families import generated
from provision.instances.read import read, read_plan
from provision.models.base.clock import now_s
from provision.models.base.compiled import unwarmed
from provision.models.base.errors import InputError
from provision.models.base.plain import finite
from provision.models.plans.plan import Plan
from provision.models.plans.result import relative_gap
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of, unit_in_words
from provision.models.problem.search import Incumbent
from provision.verification.verify import verify

UNKNOWN = 3
"""The exit code if the time limit was reached without a plan and without a proof that there is none."""
GUTTER, LONG_TEXT, LONG_TABLE = 3, 36, 1000
"""Widths in characters: the gap between two columns, the longest text that is not folded, and the width above which a
table counts as not printed on a terminal.
"""
PLAIN = TextColumn("{task.description}", markup=False)
"""The progress column for texts with names that users chose; brackets in them are not markup."""


def print_json(content: object) -> None:
    """Print a JSON object on stdout, with null for numbers that are not finite."""
    json.dump(finite(content), sys.stdout, indent=1)
    sys.stdout.write("\n")


class Rows(NamedTuple):
    """A table to print: the names of its columns, and its rows; whether long texts are folded off terminals too."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    folded: bool = False


def rows_of(several: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None,
            cell: Callable[[Any], Any] = lambda value: value, folded: bool = False) -> Rows:
    """The table of some rows by column; of all columns unless some are named."""
    columns = columns or list(several[0])
    return Rows(columns, [[cell(one[name]) for name in columns] for one in several], folded)


Shown = str | Iterable[str | Rows]
"""What people read: a text, or texts and tables, one below the other."""


def show(text: Shown) -> None:
    """Print a text, or several and tables, on stdout."""
    for part in [text] if isinstance(text, str) else text:
        if isinstance(part, str):
            print(part)
        else:
            print_table(*part)


def verdict(yes: bool, status: str) -> int:
    """The exit code of an answer: 0 for yes, 1 for no, 3 if the search ended without an answer."""
    return 0 if yes else UNKNOWN if status == "unknown" else 1


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], folded: bool = False) -> None:
    """Print a table on stdout; columns of numbers are aligned to the right.

    On a terminal, columns that do not fit into its width are printed in further tables below, each of which repeats the
    first column, and texts longer than LONG_TEXT are folded. Elsewhere the table is as wide as needed; with ``folded``
    long texts are folded there too.
    """
    console = Output(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    texts = [[shown(cell) for cell in row] for row in rows]
    widths = [max(cell_len(text) for text in (name, *cells)) for name, *cells in zip(columns, *texts, strict=True)]
    numeric = [all(isinstance(row[at], (int, float, type(None))) for row in rows) for at in range(len(columns))]
    for group in _beside(widths, console.width):
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for at in group:
            table.add_column(
                Text(columns[at]), justify="right" if numeric[at] else "left", overflow="fold",
                no_wrap=at == 0 or widths[at] <= LONG_TEXT, max_width=LONG_TEXT if folded and at else None,
            )
        for row in texts:
            table.add_row(*(Text(row[at]) for at in group))
        console.print(table)


def _beside(widths: Sequence[int], most: int) -> list[list[int]]:
    """Groups of column indices; the columns of a group fit side by side into ``most`` characters, and every group
    begins with the first column.
    """
    groups, taken = [[0]], widths[0]
    for at, width in enumerate(widths[1:], start=1):
        needed = GUTTER + (width if most > LONG_TABLE else min(width, LONG_TEXT))
        if len(groups[-1]) > 1 and taken + needed + GUTTER > most:
            groups.append([0])
            taken = widths[0]
        groups[-1].append(at)
        taken += needed
    return groups


def until_stopped(row: Callable[[str], dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of all names; after Ctrl-C, the rows that were finished before it."""
    rows = []
    try:
        for name in names:
            rows.append(row(name))
    except KeyboardInterrupt:
        print(f"stopped: {len(rows)} of {len(names)} done", file=sys.stderr)
    return rows


def shown(value: object) -> str:
    """A value as the text of a table cell; None is a dash."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Kernels(ProgressColumn):
    """A progress column that shows the number of kernels compiled so far, if it is not 0."""

    def render(self, task: Task) -> Text:
        """The column's text."""
        return Text(f"{unwarmed()} kernels compiled" if unwarmed() else "")


@contextmanager
def _bar(what: str, *columns: ProgressColumn, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a task with these columns on a terminal; yields the function that updates it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda **changes: None
        return
    with Progress(*columns, console=console, transient=True) as bar:
        yield partial(bar.update, bar.add_task(what, total=total))


@contextmanager
def progress(what: str) -> Iterator[Callable[[Incumbent], None]]:
    """Show elapsed time, incumbent, bound and gap on a terminal; yields the function to which methods report
    incumbents.
    """
    with _bar(what, SpinnerColumn(), PLAIN, TimeElapsedColumn(), Kernels()) as update:
        yield lambda incumbent: update(description=f"{what}: {_standing(incumbent)}")


@contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """Show elapsed time and the current step on a terminal; yields the function to call with the name of each step."""
    with _bar(what, SpinnerColumn(), PLAIN, TimeElapsedColumn()) as update:
        yield lambda step: update(description=f"{what}: {step}")


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many of ``total`` parts (None: unknown) are done; yields the function that adds to the
    number of parts done.
    """
    with _bar(what, PLAIN, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), total=total) as update:
        yield lambda number: update(advance=number)


def _standing(incumbent: Incumbent) -> str:
    """The objective, bound and gap of an incumbent in words."""
    text = f"best {shown(incumbent.objective)}, bound {shown(incumbent.bound)}"
    if incumbent.objective and incumbent.bound is not None:
        text += f", gap {abs(incumbent.objective - incumbent.bound) / incumbent.objective:.1%}"
    return text


LARGE_BYTES = 100_000
"""The size in bytes from which on reading a file takes noticeably long."""


def read_instance(name_or_path: str) -> Instance:
    """The instance that ``provision.read`` returns for a name or path.

    Raises
    ------
    InputError
        If the instance does not exist or cannot be used.
    """
    size = os.path.getsize(name_or_path) if os.path.isfile(name_or_path) else 0
    if size < LARGE_BYTES:
        return read(name_or_path)
    with progress(f"reading {name_or_path} ({size / 1e6:.1f} MB)"):
        return read(name_or_path)


def given_plan(plan_file: str, instance_file: str | None) -> tuple[Plan, Instance | None]:
    """The pair (plan, instance). The instance is the given one; if none is given, the shipped instance if it has not
    changed since the plan was made, otherwise None.

    Raises
    ------
    InputError
        If a file cannot be used.
    """
    if instance_file:
        instance = read_instance(instance_file)
        return read_plan(plan_file, instance), instance
    plan = read_plan(plan_file)
    if plan.instance not in shipped_instances() and generated(plan.instance) is None:
        return plan, None
    instance = read(plan.instance)
    return plan, instance if plan.digest in ("", instance.digest) else None


def instance_of(plan_file: str, instance_file: str | None, plan: Plan) -> Instance:
    """The instance in a file; if none is named, the shipped instance for which the plan was made."""
    if instance_file is None and plan.instance not in shipped_instances():
        raise InputError(f"{plan_file}: made for {plan.instance}, which does not ship; name its file before it")
    return read(instance_file or plan.instance)


EVERY_S = 1.0
"""The least number of seconds between two drawings of a plan, since drawing takes time from the search."""
MOST_SLICES = 2000
"""The most slices of a plan that is drawn while the search runs."""


class Watch(NamedTuple):
    """The functions to call during a search: ``report`` with every incumbent, and ``tell`` with the current activity in
    words.
    """

    report: Callable[[Incumbent], None]
    tell: Callable[[str], None]


@contextmanager
def planning(instance: Instance, method: str) -> Iterator[Watch]:
    """Show the best verified plan so far and the current activity on a terminal until the block ends; yields the Watch
    that updates them.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Watch(lambda incumbent: None, lambda text: None)
        return
    bar = Progress(SpinnerColumn(), PLAIN, TimeElapsedColumn(), Kernels(), console=console)
    task = bar.add_task(f"{instance.name}: looking for a plan")
    with Live(bar, console=console, transient=True, vertical_overflow="crop") as live:
        yield _Screen(instance, method, live, bar, lambda text: bar.update(task, description=text)).watch


class _Screen:
    """A live display of the best plan and the progress bar."""

    def __init__(self, instance: Instance, method: str, live: Live, bar: Progress, say: Callable[[str], None]) -> None:
        self.instance, self.method, self.live, self.bar, self.say = instance, method, live, bar, say
        self.value: float | None = None
        self.drawn_at = -EVERY_S

    @property
    def watch(self) -> Watch:
        """The functions that update this screen."""
        return Watch(self.report, lambda text: self.say(f"{self.instance.name}: {text}"))

    def report(self, news: Incumbent) -> None:
        """Draw the plan of an incumbent if it is better, and show what is left to prove."""
        self.say(f"{self.instance.name}: {doing(self.instance, news)}")
        due = now_s() - self.drawn_at >= EVERY_S
        if news.plan is not None and due and objective_of(self.instance).better(news.objective, self.value):
            self._draw(news.plan)

    def _draw(self, plan: Plan) -> None:
        if sum(len(gpu.slices) for gpu in plan.gpus) > MOST_SLICES or not verify(self.instance, plan).ok:
            return
        self.drawn_at, self.value = now_s(), objective_of(self.instance).value(plan)
        picture = drawn(plan, self.instance, self.live.console.width)
        self.live.update(Group(self.bar, picture), refresh=True)


def doing(instance: Instance, news: Incumbent) -> str:
    """The activity of a search that has this incumbent, in words."""
    if news.objective is None:
        return "looking for a plan"
    gap = relative_gap(news.objective, news.bound)
    unit = unit_in_words(objective_of(instance).unit)
    best = f"best so far {news.objective:,.6g} {unit}"
    return f"{best}; proving" if gap is None else f"{best}; proving, gap {gap:.1%}"

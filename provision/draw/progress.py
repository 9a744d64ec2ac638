"""Shows progress, and the best plan so far, on stderr, if it is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

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
from rich.text import Text

from provision.draw.output import shown
from provision.draw.terminal import drawn
from provision.models.base.clock import now_s
from provision.models.base.compiled import unwarmed
from provision.models.plans.plan import Plan
from provision.models.plans.result import relative_gap
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of, unit_in_words
from provision.models.problem.search import Incumbent
from provision.verification.verify import verify

PLAIN = TextColumn("{task.description}", markup=False)
"""The progress column for texts with names that users chose; brackets in them are not markup."""


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

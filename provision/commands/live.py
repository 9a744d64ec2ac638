"""Shows on a terminal, while an instance is planned, the current activity and the best plan so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

from provision.commands.common import PLAIN, Kernels
from provision.draw.terminal import drawn
from provision.models.base.clock import now_s
from provision.models.plans.plan import Plan
from provision.models.plans.result import relative_gap
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent
from provision.verification.verify import verify

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
    unit = objective_of(instance).unit.replace("price", "$")
    best = f"best so far {news.objective:,.6g} {unit}"
    return f"{best}; proving" if gap is None else f"{best}; proving, gap {gap:.1%}"

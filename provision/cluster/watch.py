"""``provision watch``: looks at the rates again and again, and decides when the plan should change, and to what.

- *Band.* A rate is within its band as long as the plan carries it within its SLO. When a rate, now or as forecast,
  leaves its band, a new plan is decided at once, for these rates.
- *Interval.* Otherwise it decides once per interval, for the highest rates since the decision before: GPUs are given
  back only when a whole interval would have done without them (hysteresis).
- *Room for nothing.* Of plans that cost the same the one is taken that carries the most growth of all rates together.
- *Patience.* A change that failed is tried again when a rate goes beyond those that it was for, else after an interval,
  after two, after four, and so on.

Every plan is one of `provision.replan`, within a limit of time. By default nothing acts: the journal tells what would
be done, and the next decision goes on from there. Intervals are measured by a monotonic clock.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from provision.cluster.journal import BEGUN, Decision, Journal
from provision.instances.files.demand import at_rates
from provision.models.base.clock import Deadline, Stopwatch, now_s, present_stop
from provision.models.base.errors import InputError, MethodError
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.replanning.replan import Replan, replan
from provision.replanning.trace import ahead
from provision.verification.deployment import capacity_rps
from provision.verification.verify import verify

GROWTHS = (0.4, 0.2, 0.1, 0.05)
"""The growth of all rates for which a plan is sought that costs no more, the most first."""
NAMED = 3
"""The most workloads that a reason names."""
MOST_WAITS = 6
"""After so many failures in a row the wait for the next attempt no longer doubles: 32 intervals."""
Act = Callable[[Instance, Plan], str]
"""What carries a plan out; returns the outcome in the words of the applier."""


@dataclass(frozen=True)
class Rules:
    """When a watch decides, and for how long.

    Attributes
    ----------
    look_s
        The seconds from one look at the rates to the next.
    interval_s
        The seconds after which it decides although every rate is within its band.
    decide_s
        The most seconds for a decision.
    headroom
        What is planned beyond the rates, as a fraction of them.
    forecast
        Whether rates are forecast from the journal; needs statsforecast.
    """

    look_s: float = 15.0
    interval_s: float = 300.0
    decide_s: float = 10.0
    headroom: float = 0.0
    forecast: bool = False

    def __post_init__(self) -> None:
        for name in ("look_s", "interval_s", "decide_s"):
            if not 0 < getattr(self, name) < inf:
                raise InputError(f"watch: {name} {getattr(self, name)}: should be above 0")
        if not 0 <= self.headroom < 10:
            raise InputError(f"watch: headroom {self.headroom}: should be from 0 to below 10")


class Watcher:
    """Decides; knows nothing of where rates come from, or how plans are carried out.

    Parameters
    ----------
    instance, plan
        What is watched, and the plan that runs. A change that the journal knows as standing takes the plan's place
        (``standing``); with ``act``, one that was only advised does not. One that was cut off is carried out again by
        ``resume``.
    rules
        The rules.
    journal
        The journal.
    act
        What carries a plan out; None to advise only.
    clock
        A monotonic clock in seconds.
    """

    def __init__(self, instance: Instance, plan: Plan, rules: Rules, journal: Journal, act: Act | None = None,
                 clock: Callable[[], float] = now_s) -> None:
        self.instance, self.rules, self.journal, self.act, self.clock = instance, rules, journal, act, clock
        self.rates = {one.name: one.rate_rps for one in instance.workloads}
        self.highest: dict[str, float] = {}
        self.decided_at, self.sees = clock(), True
        self.told = ""
        self.failed: Mapping[str, float] = {}
        self.failures, self.again_at = 0, 0.0
        self.standing = journal.standing(advised=act is None)
        self.plan = plan if self.standing is None or self.standing.plan is None else self.standing.plan
        self.carries = self._carries(self.plan)

    def resume(self) -> Iterator[Decision]:
        """Carry out again what was cut off; yields it before and after."""
        last = next(iter(self.journal.decisions(1)), None)
        if last is not None and last.outcome == BEGUN and self.act is not None and last.plan is not None:
            yield last
            yield self._carry_out(last, last.plan)

    def sight(self, sees: bool, why: str = "rates can be read again") -> Decision | None:
        """Note whether rates can be read, and why not; told when it changes. Meanwhile the plan stays."""
        if sees == self.sees:
            return None
        self.sees = sees
        return self._add("sees" if sees else "blind", why)

    def _add(self, action: Literal["sees", "blind", "stuck", "unforecast"], why: str, **more: Any) -> Decision:
        """Journal that the plan stays."""
        gpus = self.plan.gpu_count
        return self.journal.add(Decision(action=action, why=why, gpus=gpus, gpus_then=gpus, **more))

    def look(self, rates_rps: Mapping[str, float]) -> Decision | None:
        """Look at the present rates; returns the decision if one was made that is worth telling.

        Workloads that are not named keep the rate that was known last.
        """
        self.rates |= rates_rps
        self.highest = {name: max(rate, self.highest.get(name, 0.0)) for name, rate in self.rates.items()}
        due = self.clock() - self.decided_at >= self.rules.interval_s
        short = self._short(self.rates)
        if not due and (not short or self._waits(self.rates)):
            return None
        highest = self.highest
        if due:
            self.journal.add_rates(highest)
            self.highest, self.decided_at = {}, self.clock()  # these rates have counted
        expected, note = (self.rates, None) if short else self._with_forecast(highest)
        return note if self._waits(expected) else self._decide(expected, short or self._short(expected)) or note

    def _waits(self, rates: Mapping[str, float]) -> bool:
        """Whether the last change failed, and neither time nor rates beyond those that it was for ask for another."""
        return self.clock() < self.again_at and all(rate <= self.failed[name] for name, rate in rates.items())

    def _with_forecast(self, rates: Mapping[str, float]) -> tuple[Mapping[str, float], Decision | None]:
        """The rates, or what is forecast for the next interval where they are likely to rise; and why nothing is."""
        past = self.journal.rates() if self.rules.forecast else []
        try:
            told = ahead([[row.get(name, 0.0) for name in rates] for row in past], self.rules.decide_s / 2)
        except InputError as error:
            return rates, self._stuck(str(error), rates, "unforecast")
        return rates if told is None else dict(zip(rates, told, strict=True)), None

    def _short(self, rates: Mapping[str, float]) -> list[str]:
        """The workloads whose rate, with the headroom, the plan does not carry."""
        grown = 1 + self.rules.headroom
        return [name for name, rate in rates.items() if rate * grown > self.carries[name] * (1 + TOLERANCE)]

    def _carries(self, plan: Plan) -> Mapping[str, float]:
        return capacity_rps(self.instance, plan, verify(self.instance, plan).predictions)

    def _decide(self, rates: Mapping[str, float], short: list[str]) -> Decision | None:
        """Decide for these rates, and act if asked to."""
        watch, objective = Stopwatch(), objective_of(self.instance)
        deadline = Deadline(self.rules.decide_s)
        best = self._planned(rates, 0.0, deadline.left_s / 2)
        if present_stop().asked:  # a search that was cut short proves nothing
            return None
        if isinstance(best, str) or best.plan is None:
            why = f"{_named(short)} beyond what the plan carries, and no plan was found: " if short else "no plan: "
            return self._stuck(why + (best if isinstance(best, str) else best.status), rates)
        cost, now = objective.value(best.plan), objective.value(self.plan)
        if not short and cost >= now * (1 - TOLERANCE):
            return None
        plan, found, planned = best.plan, best, 0.0
        for growth in GROWTHS:
            more = self._planned(rates, growth, deadline.left_s / 2) if deadline.left_s > 0 else ""
            if not isinstance(more, str) and more.plan is not None \
                    and objective.value(more.plan) <= cost * (1 + TOLERANCE):
                plan, found, planned = more.plan, more, growth
                break
        why = f"{_named(short)} beyond what the plan carries" if short else (
            f"{now - cost:.4g} {objective.unit} less are enough for the highest rates of the last "
            f"{self.rules.interval_s:g} s")
        decision = self.journal.add(Decision(
            action="change", why=why, outcome=BEGUN if self.act else "advised", rates_rps=self._grown(rates, planned),
            gpus=self.plan.gpu_count, gpus_then=plan.gpu_count, seconds=watch.elapsed_s, plan=plan,
            changes=dict(found.changes._asdict()) if found.changes else {}))
        self.told = ""
        return self._carry_out(decision, plan)

    def _planned(self, rates: Mapping[str, float], growth: float, limit_s: float) -> Replan | str:
        """The plan for rates that grow, or why there is none."""
        try:
            wanted = at_rates(self.instance, self._grown(rates, growth))
            return replan(wanted, self.plan, time_limit_s=max(limit_s, 0.1), gap=1e-3)
        except (InputError, MethodError) as error:
            return str(error)

    def _grown(self, rates: Mapping[str, float], growth: float) -> dict[str, float]:
        """The rates with the headroom and their growth."""
        return {name: rate * (1 + self.rules.headroom) * (1 + growth) for name, rate in rates.items()}

    def _carry_out(self, decision: Decision, plan: Plan) -> Decision:
        """Carry a decision out if asked to; the plan counts as running if that succeeds, or if it is only advice."""
        if self.act is not None:
            wanted = at_rates(self.instance, decision.rates_rps)
            try:
                outcome = self.act(wanted, plan)
            except InputError as error:
                outcome = f"refused: {error.lines[0]}"
            decision = self.journal.ended(decision, outcome)
        if decision.stands:
            self.plan, self.carries = plan, self._carries(plan)
            self.failures, self.again_at = 0, 0.0
        else:
            self.failures, self.failed = self.failures + 1, decision.rates_rps
            self.again_at = self.clock() + self.rules.interval_s * 2 ** (min(self.failures, MOST_WAITS) - 1)
        return decision

    def _stuck(self, why: str, rates: Mapping[str, float], action: Literal["stuck", "unforecast"] = "stuck"
               ) -> Decision | None:
        """Journal why there is no plan or forecast, unless the same was told last."""
        if why == self.told:
            return None
        self.told = why
        return self._add(action, why, rates_rps=dict(rates))


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}: rates are"


def watch(watcher: Watcher, read: Callable[[], Mapping[str, float]], tell: Callable[[Decision], None],
          looks: int | None = None, seen: Callable[[Watcher, float], None] = lambda watcher, seconds: None) -> None:
    """Look until the present Stop is asked for.

    Parameters
    ----------
    watcher
        What decides.
    read
        Reads the present rates; an InputError means that they cannot be read now.
    tell
        Called with every decision.
    looks
        The number of looks after which it ends; None for no end.
    seen
        Called after every look, with the seconds that it took.
    """
    stop, pause, number = present_stop(), threading.Event(), 0
    for decision in watcher.resume():
        tell(decision)
    while not stop.asked and (looks is None or number < looks):
        number += 1
        clock = Stopwatch()
        try:
            rates = read()
        except InputError as error:
            decisions = [watcher.sight(False, error.lines[0])]
        else:
            decisions = [watcher.sight(True), watcher.look(rates)]
        for made in filter(None, decisions):
            tell(made)
        seen(watcher, clock.elapsed_s)
        while looks != number and not stop.asked and (left := watcher.rules.look_s - clock.elapsed_s) > 0:
            pause.wait(min(left, 0.2))

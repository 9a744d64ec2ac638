"""Reviews a change of an instance: what it costs, what it moves, and how close every workload then is to its SLO."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from provision.answers.difference import difference, touched
from provision.answers.explain import limits_of
from provision.answers.margins import margins_of
from provision.draw.output import number, plural
from provision.draw.verdict import money, sentence, slos_of
from provision.instances.files.files import FilePath
from provision.instances.read import read, read_plan
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError
from provision.models.base.objects import known
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.disturbance import Disturbance, disturbance
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import HOURS_PER_MONTH, cost_per_hour, objective_of
from provision.models.problem.search import Outcome, Status
from provision.replanning.replan import replan
from provision.solving.solve import check_time_limit, solve
from provision.verification.verify import verify

PART = 0.22
"""The fraction of the time for each of four steps: the plan before with its replay, the least cost after the change,
the plan that moves little, its replay. The rest is for margins.
"""
MOST_FIELDS, MOST_TEXT = 12, 60
"""The most changed fields that are listed, and the longest value that is printed, in characters."""
COLUMNS = "SLO", "before", "after", "limit", "breaks at, before", "breaks at, after"
"""The columns of the table of SLOs; the last two tell how much more traffic the workload bears."""


class Limit(NamedTuple):
    """A limit that a change must keep: its name, what was asked, what was found (None if it is not known), whether it
    is kept, and all of this in words.
    """

    name: str
    asked: float
    found: float | None
    kept: bool
    told: str


@dataclass(frozen=True)
class Side:
    """An instance with its plan: the Result, by workload the part by which its traffic may grow, as far as it is known,
    and the tightest limits in words.
    """

    instance: Instance
    result: Result
    headroom: Mapping[str, float]
    tightest: list[str]

    @property
    def plan(self) -> Plan:
        """The plan."""
        return known(self.result.plan)

    @property
    def cost_per_hour(self) -> float | None:
        """The price per hour; None if the fleet has no prices."""
        return cost_per_hour(self.instance, self.plan)

    def __str__(self) -> str:
        cost = "" if self.cost_per_hour is None else f", {money(self.cost_per_hour)}"
        return f"{plural(self.plan.gpu_count, 'GPU')}{cost}"


@dataclass(frozen=True)
class Review:
    """What a change of an instance does. ``after`` is None if the changed instance has no plan; ``status`` is then
    infeasible or unknown, otherwise that of the plan (optimal, feasible, refuted, violated), with ``reason`` if it does
    not hold. ``fields`` lists what differs in the instance, ``running`` says whether the plan that runs still holds.
    """

    status: str
    reason: str
    fields: list[str]
    running: str
    before: Side
    after: Side | None
    limits: list[Limit] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if the changed instance has a plan within the limits; 1 if it has none, or its plan does not hold; 3 if no
        plan was found, or a limit is exceeded or unknown.
        """
        if self.status in ("infeasible", "refuted", "violated"):
            return 1
        return 0 if self.after is not None and all(one.kept for one in self.limits) else 3

    @property
    def changes(self) -> Disturbance | None:
        """The slices and replicas that move; None if the change has no plan."""
        return None if self.after is None else disturbance(self.before.plan, self.after.plan)

    @property
    def verdict(self) -> str:
        """What comes of the change, in words."""
        missed = [one for one in self.limits if not one.kept]
        how = "exceeded" if all(one.found is not None for one in missed) else "exceeded or not known"
        within = "within all limits" if self.limits else "can be planned"
        told = {0: within, 1: "no plan that holds"}.get(self.exit_code, f"{plural(len(missed), 'limit')} {how}")
        name = (self.after or self.before).instance.name
        return f"{name}: {told if self.after or self.exit_code == 1 else 'no plan in time'}"

    def sections(self) -> dict[str, list[str]]:
        """The review in sentences by title; groups without sentences are left out."""
        found = {"The change": self.fields or ["None: both files state the same."],
                 "Limits": [f"{'kept' if one.kept else 'not kept'}: {one.told}" for one in self.limits]}
        if self.after is None:
            why = self.reason or "no plan was found in the time given; a longer --time-limit may help"
            found |= {"Plan": [f"{self.status}: {why}", self.running]}
        else:
            told = (sentence(self.after.instance, self.after.result) if self.after.result.verified
                    else f"{self.after}. provision replan makes one that holds.")
            costs = [f"before: {self.before}.", f"after: {told}"]
            broken = [f"Does not hold: {self.reason}"] if self.reason else []
            cost, *moves = difference(self.after.instance, self.before.plan, self.after.plan, self.before.instance)
            tight = [f"{when}: {line}" for when, one in (("before", self.before), ("after", self.after))
                     for line in one.tightest]
            found |= {"Cost": [cost, *costs, *broken], "What moves": [self.running, *moves], "What binds": tight}
        return {title: lines for title, lines in found.items() if lines}

    def rows(self) -> list[dict[str, Any]]:
        """A row per SLO: its name, what is timed, and limit, value (ms) and the part by which traffic may grow, each
        before the change (``_before``) and after it; None where it is not known.
        """
        old, new = _slos(self.before), _slos(self.after) if self.after else {}
        return [{"name": name, "what": (new.get(name) or old[name])["what"]}
                | {f"{key}{suffix}": side.get(name, {}).get(key)
                   for suffix, side in (("_before", old), ("", new)) for key in ("limit_ms", "met_ms", "headroom")}
                for name in dict.fromkeys([*old, *new])]

    def table(self) -> list[list[str]]:
        """The rows as texts, in COLUMNS."""
        def shown(value: float | None) -> str:
            return "-" if value is None else f"{number(value)} ms"

        return [[f"{one['name']}, {one['what']}", shown(one["met_ms_before"]), shown(one["met_ms"]),
                 shown(one["limit_ms"] or one["limit_ms_before"]), _grown(one["headroom_before"]),
                 _grown(one["headroom"])] for one in self.rows()]

    def markdown(self) -> str:
        """The review as Markdown, such as for a pull request."""
        parts = [f"## {_plain(self.verdict)}\n"]
        for title, lines in self.sections().items():
            parts += [f"### {title}\n", *(f"- {_plain(line.strip())}" for line in lines), ""]
        if rows := self.table():
            parts += [f"| {' | '.join(line)} |" for line in (COLUMNS, ["---"] * len(COLUMNS),
                                                             *([*map(_plain, row)] for row in rows))]
        return "\n".join(parts)

    def summary(self) -> dict[str, Any]:
        """The JSON object that ``provision review --json`` prints, except for ``plan_file``."""
        old, new = self.before, self.after
        found: dict[str, Any] = {"status": self.status, "reason": self.reason, "exit_code": self.exit_code,
                                 "fields": self.fields, "running": self.running}
        for suffix, one in (("_before", old), ("", new)):
            per_hour, result = one and one.cost_per_hour, one and one.result
            found |= {f"cost_per_month{suffix}": per_hour and per_hour * HOURS_PER_MONTH,
                      f"gpus{suffix}": one and Counter(gpu.gpu for gpu in one.plan.gpus),
                      f"objective{suffix}": result and result.objective, f"bound{suffix}": result and result.bound,
                      f"tightest{suffix}": one.tightest if one else []}
        return found | {
            "cost_increase": _increase(old, new)[0] if new else None,
            "proof": sentence(new.instance, new.result) if new else None,
            **(self.changes._asdict() if self.changes else dict.fromkeys(Disturbance._fields)),
            "touched": [line.strip() for line in touched(old.plan, new.plan)] if new else [],
            "slos": self.rows(), "limits": [one._asdict() for one in self.limits]}


def review(base: Instance | FilePath, instance: Instance | FilePath, before: Plan | FilePath | None = None,
           after: Plan | FilePath | None = None, max_cost_increase: float | None = None,
           min_headroom: float | None = None, max_disturbance: int | None = None, time_limit_s: float = 60.0) -> Review:
    """Review a change of an instance.

    Parameters
    ----------
    base, instance
        The Instance before and after the change, its shipped name or its path.
    before
        The Plan that runs, or its path; None to plan ``base`` first.
    after
        The Plan that comes with the change, or its path; None for one that moves little from the plan that runs.
    max_cost_increase
        The most by which the cost may grow, as a fraction; without prices the number of GPUs counts as the cost.
    min_headroom
        The least part by which the traffic of every workload must be able to grow before it misses its SLO.
    max_disturbance
        The most slices destroyed and replicas started.
    time_limit_s
        Seconds for all plans, replays and margins together.

    Raises
    ------
    InputError
        If ``base`` has no plan to compare with, or a setting is out of range.
    """
    check_time_limit(time_limit_s)
    for name, asked in (("max_cost_increase", max_cost_increase), ("min_headroom", min_headroom),
                        ("max_disturbance", max_disturbance)):
        if asked is not None and not 0 <= asked < math.inf:
            raise InputError(f"{name} {asked}: should be 0 or more")
    base, instance = read(base), read(instance)
    before = None if before is None else read_plan(before, base)
    after = None if after is None else read_plan(after, instance)
    part_s, end = time_limit_s * PART, Deadline(time_limit_s)
    first = solve(base, time_limit_s=part_s) if before is None else _judged(base, before, None, part_s)
    if first.plan is None:
        raise InputError(f"{base.name}: {first.reason or first.status}: nothing to compare with; give the plan that "
                         "runs (--before) or a longer --time-limit")
    same = base.digest == instance.digest
    second = first if same and before is after is None else _changed(instance, first.plan, after, part_s)
    holds = verify(instance, first.plan)
    running = ("The plan before still holds." if holds.ok
               else f"The plan before no longer holds: {holds.violations[0].message}.")
    old = _side(base, first, end)
    if second.plan is None:
        return Review(second.status, second.reason, list(_fields(base, instance)), running, old, None)
    same = same and second.plan.gpus == first.plan.gpus
    new = replace(old, result=replace(second, replay=first.replay)) if same else _side(instance, second, end)
    limits = [*_limits(old, new, max_cost_increase, min_headroom, max_disturbance)]
    return Review(second.status, _fault(second), list(_fields(base, instance)), running, old, new, limits)


def _changed(instance: Instance, running: Plan, after: Plan | None, part_s: float) -> Result:
    """The Result of the changed instance: of the plan that comes with it, or of one that moves little."""
    least = solve(instance, time_limit_s=part_s, replay=False, start=running)
    plan = after
    if after is None and instance.objective == THROUGHPUT:
        plan = least.plan
    elif after is None and least.status != "infeasible":
        others = [] if least.plan is None else [least.plan]
        plan = replan(instance, running, time_limit_s=part_s, others=others).plan or least.plan
    return least if plan is None else _judged(instance, plan, least.bound, part_s)


def _judged(instance: Instance, plan: Plan, bound: float | None, limit_s: float) -> Result:
    """The Result of a plan, verified and replayed. Its status is violated if it breaks a rule."""
    ok, value = verify(instance, plan).ok, objective_of(instance)
    status: Status = "unknown" if not ok else "optimal" if value.proved(value.value(plan), bound) else "feasible"
    outcome = Outcome(status, "completed", plan, bound if ok else None)
    found = solve(instance, lambda *_: outcome, limit_s, replay=None if ok else False)
    return replace(found, method=plan.method, status=found.status if ok else "violated")


def _side(instance: Instance, result: Result, end: Deadline) -> Side:
    """One side of a review. Of a plan that breaks rules, only its Result is known."""
    plan, ok = known(result.plan), result.verified
    margins = (margins_of(instance, plan, end) if ok else None) or ()
    return Side(instance, result, {one.workload: one.rate - 1 for one in margins if one.rate is not None},
                [*limits_of(instance, plan)] if ok else [])


def _fault(result: Result) -> str:
    """What is wrong with a plan, in words; empty if it holds."""
    if result.status == "violated":
        return known(result.report).violations[0].message
    late = ", ".join(result.replay.late) if result.replay else ""
    return f"late beyond chance in replays: {late}" if result.status == "refuted" else ""


def _slos(side: Side) -> dict[str, dict[str, Any]]:
    """What is known of each SLO of a side whose plan holds."""
    found = {}
    for one in slos_of(side.instance, side.result) if side.result.verified else ():
        owner = next((name for name in side.instance.workload if one.name == name or one.name.startswith(f"{name}: ")),
                     one.name)
        found[one.name] = {"what": one.what, "limit_ms": one.limit_ms, "met_ms": one.met_ms,
                           "headroom": side.headroom.get(owner)}
    return found


def _grown(part: float | None) -> str:
    return "-" if part is None else f"{math.floor(1000 * part + 1e-6) / 10:+.1f}% traffic"


def _increase(old: Side, new: Side) -> tuple[float, str]:
    """The increase of the cost, as a fraction, and what counts as the cost."""
    costs, what = (old.cost_per_hour, new.cost_per_hour), "cost"
    if None in costs:
        costs, what = (old.plan.gpu_count, new.plan.gpu_count), "GPUs"
    before, after = map(float, map(known, costs))
    return (after / before - 1 if before else math.inf if after else 0.0), what


def _limits(old: Side, new: Side, cost: float | None, headroom: float | None, moves: int | None) -> Iterator[Limit]:
    """Yield the limits that are asked for."""
    if cost is not None:
        found, what = _increase(old, new)
        yield Limit("max_cost_increase", cost, found, found <= cost + TOLERANCE,
                    f"{what} {found:+.1%}, at most {cost:+.1%}")
    if headroom is not None:
        names = [one.name for one in new.instance.workloads if one.rate_rps > 0]
        bears = {name: part for name in names if (part := new.headroom.get(name)) is not None}
        first = min(bears, key=lambda name: bears[name], default=None)
        least, unknown = None if first is None else bears[first], [name for name in names if name not in bears]
        low = least is not None and least < headroom - TOLERANCE
        told = [] if first is None else [f"{first} breaks at {_grown(least)}, at least {headroom:+.1%} is asked for"]
        told += [f"policy.headroom {headroom:g} plans for it"] if low else []
        told += [f"not known in time of {', '.join(unknown[:MOST_FIELDS])}"] if unknown else []
        yield Limit("min_headroom", headroom, least, not low and not unknown, "; ".join(told))
    if moves is not None:
        moved = disturbance(old.plan, new.plan).moved
        yield Limit("max_disturbance", moves, moved, moved <= moves,
                    f"{plural(moved, 'slice')} destroyed or replicas started, at most {moves}")


def _fields(base: Instance, instance: Instance) -> Iterator[str]:
    """Yield a line for every field of an instance that differs."""
    lines = [*_differing("", _fields_by_name(base), _fields_by_name(instance))]
    yield from lines[:MOST_FIELDS]
    if len(lines) > MOST_FIELDS:
        yield f"and {plural(len(lines) - MOST_FIELDS, 'more field')}"


def _fields_by_name(instance: Instance) -> dict[str, Any]:
    """The fields of an instance; lists of named things by name, performance data by GPU type and digest."""
    found = instance.model_dump(mode="json", exclude={"version", "source", "performance"}, exclude_none=True)
    for name in ("workloads", "workflows"):
        found[name] = {one["name"]: one for one in found[name]}
    fleet = {".".join(filter(None, (one["gpu"], one.get("tier")))): one for one in found["fleet"]}
    data = {f"{one.kind} of {one.gpu}": one.digest for one in instance.performance}
    return found | {"fleet": fleet if len(fleet) == len(found["fleet"]) else found["fleet"], "performance": data}


def _differing(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _differing(f"{path}.{key}" if path else key, old.get(key), new.get(key))
    elif old != new:
        whole = path.startswith("performance.") or isinstance(old or new, (dict, list))
        change = "added" if old is None else "removed" if new is None else "changed"
        yield f"{path}: {change if whole else f'{_value(old)} -> {_value(new)}'}"


def _value(value: Any) -> str:
    text = "not stated" if value is None else f"{value:,g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def _plain(text: str) -> str:
    """A text in which Markdown sees no table and no tags."""
    return text.replace("|", "\\|").replace("<", "&lt;")

"""``provision replan`` and ``simulate-trace``: plan for new demand with little disturbance, once or over hours."""

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import Field

from provision import InputError, Instance, Plan, draw, methods, read_plan, write
from provision.answers.difference import difference, touched
from provision.commands.verb import Given, Seconds, Writing, planned, read_instance, verdict
from provision.draw.figures import write_figure
from provision.draw.output import Rows, plural, rows_of
from provision.draw.progress import counting
from provision.draw.verdict import money
from provision.instances.files.demand import COLUMNS, TWO_WAVES, Demand, at_rates, read_demand, two_waves
from provision.instances.files.files import write_text
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.clock import end_if_asked
from provision.models.base.fields import Count, Flag, Name, NonNegative, Positive, PositiveCount
from provision.models.base.objects import known
from provision.models.base.register import did_you_mean
from provision.models.problem.objective import cost_per_hour
from provision.models.problem.policy import MOST_HEADROOM
from provision.replanning.prometheus import rates_now
from provision.replanning.replan import CHANGE_COST, METHODS, after_loss, curve, replan, replan_lost
from provision.replanning.replan import Replan as Replanned
from provision.replanning.trace import ReplanPolicy, Window, compare_policies
from provision.sweeps.parameters import changed
from provision.sweeps.table import as_csv

LIMIT_S = 60.0
LABEL = "model"
"""The label of Prometheus' series that names the workload."""
NAMED = ("replan", "static", "ewma")
POLICIES = f"{', '.join(NAMED)}, or a method that solves each window from scratch"
DEFAULT = ("replan", "auto", "static")
EWMA_PERIOD_S, EWMA_DELAY_S = 20, 12.5
"""The policy of gpu-lets: the seconds between plans, and those (10 to 15 in the paper) until one takes effect."""

CURVE = {"weight": "weight", "status": "status", "objective": "objective", "gpus": "GPUs",
         "slices_destroyed": "destroyed", "slices_created": "created", "replicas_started": "started",
         "batch_changes": "batches"}
"""The fields that the table of the trade-off shows, with the titles of their columns: 80 characters in all."""
CURVE_KEY = """weight: what a change counts, as a part of the price of the cheapest GPU
slices destroyed and created, replicas started, replicas with other batch sizes"""

CHANGE = option(None, "C", f"what a destroyed slice or started replica counts, in units of the objective (default: "
                           f"{CHANGE_COST:g} of the cheapest GPU)")
Csv = Annotated[str, Field(strict=True, max_length=4 * 2**20)]


class Replan(Writing):
    """``provision replan``: for new rates, by a factor for all or by workload, or after the loss of a GPU."""

    instance: str = operand("INSTANCE", "a shipped instance or a file, with the new demand")
    plan: str = operand("PLAN", "the plan that runs")
    rate: Positive | None = option(None, "F", "new rates: those of the instance times this")
    rates_rps: dict[Name, NonNegative] = option({}, "WORKLOAD=RPS", "the new rate of one workload, in requests/s",
                                                "--rate-of")
    lost: Count | None = option(None, "GPU", "this GPU of the plan, counted from 0, has failed")
    prometheus: str | None = local(None, "URL", "new rates: those that this server measures now")
    query: str | None = local(None, "Q", "PromQL of requests/s by workload (default: Triton's counters)")
    label: str | None = local(None, "L", f"its label with the workload (default: {LABEL})")
    change_cost: NonNegative | None = CHANGE
    allow: Literal["batches", "replicas", "slices"] = option(
        "slices", None, "what may change: batch sizes and rate shares only, replicas and new slices too, everything")
    method: str = local(METHODS[0], None, "auto weighs cost against changes; parvagpu places changed workloads anew; "
                                          "inss changes batches and, where that is not enough, places all anew",
                        choices=METHODS)
    curve: Flag = local(False, None, "the trade-off between cost and changes, as a table")
    time_limit_s: Seconds = option(LIMIT_S, "S", "seconds per plan")
    out: str | None = written("write the plan here (.json, else YAML)")

    def job(self, given: Given) -> dict[str, Any]:
        found = self._found(self._demanded(given.instance), given.plan)
        return found.summary() | {"verified": found.plan is not None} | planned(found.plan, found.report)

    def run(self) -> int:
        weighs = (self.lost, self.curve, self.allow, self.change_cost, self.time_limit_s)
        if self.method != METHODS[0] and weighs != (None, False, "slices", None, LIMIT_S):
            raise InputError(f"--method {self.method}: knows no --lost, --curve, --allow, --change-cost and "
                             "--time-limit; leave them out")
        instance, plan = self._with_new_rates(read_instance(self.instance)), read_plan(self.plan)
        if self.curve:
            if self.out or self.change_cost is not None:
                raise InputError("--curve: plans for many change costs and writes none; leave out --out and "
                                 "--change-cost")
            if self.lost is not None:
                instance, plan = after_loss(instance, plan, self.lost)
            traded = curve(instance, plan, self.allow, self.time_limit_s)
            rows = [{"weight": weight} | one.summary() for weight, one in traded]
            table = Rows(tuple(CURVE.values()), [[row[name] for name in CURVE] for row in rows])
            why = [row["reason"] for row in rows if row["reason"]]
            return self.answer({"curve": rows}, [table, *why, CURVE_KEY],
                               0 if any(row["objective"] is not None for row in rows) else 1)
        running = (instance, plan) if self.lost is None else after_loss(instance, plan, self.lost)
        found = self._found(instance, plan)
        if self.out and found.plan is not None:
            write(found.plan, self.out, self.force)
        content = {
            "instance": instance.name, "digest": instance.digest, "allow": self.allow, **found.summary(),
            "cost_per_hour_before": cost_per_hour(*running),
            "cost_per_hour": found.plan and cost_per_hour(running[0], found.plan),
            "touched": [line.strip() for line in touched(running[1], found.plan)] if found.plan else [],
            "plan_file": self.out if found.plan else None}
        return self.answer(content, _told(*running, found, self), verdict(found.plan is not None, found.status))

    def _found(self, instance: Instance, plan: Plan) -> Replanned:
        asked = self.change_cost, self.allow, self.time_limit_s
        found = replan(instance, plan, *asked, method=self.method) if self.lost is None else replan_lost(
            instance, plan, self.lost, *asked)
        if found.plan is None:
            end_if_asked()
        return found

    def _demanded(self, instance: Instance, field: str = "rates_rps") -> Instance:
        """The instance with the rates that are stated; ``field`` is what the sender calls rates by workload."""
        if self.rate is not None:
            instance = changed(instance, {"rate": self.rate})
        if unknown := [name for name in self.rates_rps if name not in instance.workload]:
            raise InputError(f"{field}: the instance has no workload {unknown[0]!r}"
                             f"{did_you_mean(unknown[0], instance.workload)}")
        return at_rates(instance, self.rates_rps)

    def _with_new_rates(self, instance: Instance) -> Instance:
        """The instance with the rates that are stated or measured."""
        if self.prometheus and (self.rate is not None or self.rates_rps):
            raise InputError("--rate and --prometheus: use one of them")
        if self.prometheus:
            return at_rates(instance, rates_now(self.prometheus, instance, self.query, self.label or LABEL))
        for flag, given in (("--query", self.query), ("--label", self.label)):
            if given:
                raise InputError(f"{flag}: asks a Prometheus server; add --prometheus URL")
        return self._demanded(instance, "--rate-of")


def _told(instance: Instance, plan: Plan, found: Replanned, options: Replan) -> Iterator[str]:
    if found.plan is None:
        none = f"nothing fits with --allow {options.allow}; `provision ration` tells who can be served"
        why = "a longer --time-limit may help" if found.status == "unknown" else none
        yield f"{found.status}: {found.reason or why}"
        return
    cost_per_hour = known(found.report).cost_per_hour
    cost = f", {money(cost_per_hour)}" if cost_per_hour is not None else ""
    proven = "proven best" if found.status == "optimal" else found.status
    yield f"{plural(found.plan.gpu_count, 'GPU')}{cost}: {proven} for cost and changes together, verified."
    if options.lost is not None:
        yield f"Compared with what the loss of GPU {options.lost} leaves running, {plural(plan.gpu_count, 'GPU')}:"
    yield from difference(instance, plan, found.plan)
    yield _during(known(found.staying), found.unserved)
    if options.out:
        yield f"Plan written to {options.out}"


def _during(staying: float, unserved: Sequence[str] = ()) -> str:
    """What replicas that are left alone serve: ``staying`` of every rate, and nothing of the workloads ``unserved``."""
    if staying >= 1:
        return "While that happens, all traffic is served by replicas that are left alone."
    if staying > 0:
        return ("While that happens, replicas that are left alone serve every workload, each at "
                f"{math.floor(100 * staying)}% of its rate or more.")
    return f"While that happens, these are not served, since no replica of theirs is left alone: {', '.join(unserved)}."


class SimulateTrace(Writing):
    instance: str = operand("INSTANCE", "a shipped instance or a file")
    demand: str = operand("DEMAND", f"CSV with the columns {','.join(COLUMNS)}, or {TWO_WAVES} (default)", TWO_WAVES,
                          remote=Csv, nargs="?")
    policies: tuple[Name, ...] = option(DEFAULT, "P,P", f"any of {POLICIES}", most=10)
    forecast: Literal["known", "last", "ewma"] = option("known", None, "what is expected")
    headroom: Annotated[NonNegative, Field(le=MOST_HEADROOM)] = option(0.0, "H", "planned beyond what is expected")
    every: PositiveCount = option(1, "N", "windows from one plan to the next")
    delay_s: NonNegative = option(0.0, "S", "seconds that a change takes")
    change_cost: NonNegative | None = CHANGE
    time_limit_s: Seconds = option(5.0, "S", "seconds per plan")
    seed: Count = option(0, "N", f"of the demand {TWO_WAVES}")
    out: str | None = written("write every window of every policy here (.csv)")
    png: str | None = written("draw GPUs and changes over time here (.png or .svg)", what="picture")

    def job(self, given: Given) -> dict[str, Any]:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".csv") as file:
            file.write(self.demand)
            file.flush()
            try:
                demand = self._demand(TWO_WAVES if self.demand == TWO_WAVES else file.name, given.instance)
            except InputError as error:
                raise InputError(str(error).replace(file.name, "demand")) from None
        return self._found(given.instance, demand, given.progress)[0]

    def run(self) -> int:
        instance = read_instance(self.instance)
        demand = self._demand(self.demand, instance)
        windows = len(demand.times_s)
        with counting(f"replaying {windows} windows", windows * len(self.policies)) as advance:
            found, of_policy = self._found(instance, demand, lambda done, total: advance(1))
        if self.out:
            write_text(self.out, as_csv(found["windows"]), self.force)
        if self.png:
            write_figure(draw.convergence.trace_figure(demand, of_policy), self.png, self.force)
        for line in () if self.as_json else self.files_told:
            print(line, file=sys.stderr)
        return self.answer(found, [rows_of(found["policies"])])

    def _found(self, instance: Instance, demand: Demand, progress: Callable[[int, int | None], None]
               ) -> tuple[dict[str, Any], Mapping[str, Sequence[Window]]]:
        """The rows of the policies and of all windows as plain content, and the windows by policy."""
        policies = [_policy(name, self, demand) for name in self.policies]
        done = count(1)
        rows, windows = compare_policies(
            instance, demand, policies, self.change_cost, self.time_limit_s,
            lambda name, window: progress(next(done), len(demand.times_s) * len(policies)))
        lines = [{"policy": name} | vars(window) for name, found in windows.items() for window in found]
        return {"policies": rows, "windows": lines, "window_s": demand.window_s}, windows

    def _demand(self, given: str, instance: Instance) -> Demand:
        """The demand in a file, or the built-in demand of this name."""
        if given == TWO_WAVES:
            return two_waves(instance, self.seed)
        if not os.path.exists(given) and (meant := did_you_mean(given, [TWO_WAVES])):
            raise InputError(f"{given}: no such file{meant}")
        return read_demand(given)


def _policy(name: str, options: SimulateTrace, demand: Demand) -> ReplanPolicy:
    """The ReplanPolicy that a name on the command line and the options describe."""
    rest: dict[str, Any] = {"every": options.every, "headroom": options.headroom, "delay_s": options.delay_s}
    if name == "static":
        return ReplanPolicy(name, "static")
    if name == "ewma":
        return ReplanPolicy(name, "greedy", max(1, round(EWMA_PERIOD_S / demand.window_s)), "ewma", options.headroom,
                      EWMA_DELAY_S, background=True)
    if name != "replan" and name not in methods():
        meant = did_you_mean(name, [*NAMED, *methods()])
        raise InputError(f"--policies: unknown policy {name!r}{meant or f'; use any of {POLICIES}'}")
    return ReplanPolicy(name, name, forecast=options.forecast, **rest)

"""Carries out each verb of a job in a worker process: settings, instance and plan become a result of plain content.

A result, and each of the ``rows`` of a result, may hold a plan under the key ``plan``; the store keeps plans as
separate documents.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from provision import InputError, Instance, Plan, simulate, solve, verify
from provision.answers.comparison import Comparison
from provision.answers.explain import explain
from provision.applier.layout import Observed
from provision.applier.match import target_layout
from provision.applier.steps import steps_between
from provision.applier.target import Commands
from provision.applier.verified import apply
from provision.exporters.export import render
from provision.formulations.marginal.prices import marginal_prices
from provision.instances.files.demand import TWO_WAVES, at_rates, read_demand, two_waves
from provision.instances.files.files import validate
from provision.models.base.known import known
from provision.models.plans.result import Result
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.replanning.loss import replan_lost
from provision.replanning.replan import replan
from provision.replanning.trace import ReplanPolicy, compare_policies
from provision.solving.methods import method
from provision.sweeps import words
from provision.sweeps.breakpoints import breakpoints
from provision.sweeps.grid import made, points_of, values_of
from provision.sweeps.parameters import changed
from provision.sweeps.run import run

KEEP_S = 5.0
"""The time limit in seconds for the replacement plan of a solve that was stopped before it had a plan."""
Report = Callable[[str, dict[str, Any]], None]
"""A function that reports an event, given its kind (incumbent, progress) and its content."""


class Given:
    """The input of a job: the settings (``request``), the instance, the plan (None if the job has none), and the
    Report.
    """

    def __init__(self, request: dict[str, Any], instance: Any, plan: Any, report: Report):
        self.request, self.report = request, report
        self.instance: Instance = validate(Instance, instance, "instance")
        self.plan: Plan | None = None if plan is None else validate(Plan, plan, "plan")

    def incumbent(self, found: Any) -> None:
        """Report that a search has found an Incumbent."""
        self.report("incumbent", {"objective": found.objective, "bound": found.bound})

    def progress(self, done: int, total: int | None = None) -> None:
        """Report that ``done`` of ``total`` parts are done."""
        self.report("progress", {"done": done, "total": total})

    @property
    def search(self) -> dict[str, Any]:
        """The keyword arguments of ``solve`` that all searches share: time limit and seed."""
        return {"time_limit_s": self.request["time_limit_s"], "seed": self.request["seed"]}


def perform(verb: str, given: Given) -> dict[str, Any]:
    """Carry out a job; returns its result as plain content.

    Raises
    ------
    InputError
        If the verb cannot do what the job asks for.
    MethodError
        If a method fails.
    KeyboardInterrupt
        If the job is cancelled before there is anything to keep.
    """
    return VERBS[verb](given)


def _solve(given: Given) -> dict[str, Any]:
    name, parameters = given.request["method"], given.request["parameters"]
    result = solve(given.instance, name, report=given.incumbent, **given.search, **parameters)
    if result.plan is None and result.termination == "stopped":
        raise KeyboardInterrupt
    return _solved(result)


def _solved(result: Result) -> dict[str, Any]:
    """The result of a solve as plain content."""
    return result.summary() | {"plan_file": None} | _planned(result.plan, result.report)


def keep(verb: str, given: Given) -> dict[str, Any] | None:
    """A result for a solve that was stopped before it had a plan: greedy's plan, or auto's if greedy cannot plan the
    instance. None for other verbs, or if no plan is found.
    """
    if verb != "solve":
        return None
    able = not needs(given.instance) - method("greedy").features
    found = solve(given.instance, "greedy" if able else "auto", KEEP_S, given.request["seed"], replay=False)
    note = f"stopped before {given.request['method']} had a plan; this one is of {found.method}, made at once"
    return _solved(replace(found, termination="stopped", notes=(*found.notes, note))) if found.plan else None


def _planned(plan: Any, report: Any) -> dict[str, Any]:
    """A plan and the verifier's report on it as plain content."""
    return {
        "plan": plan and plan.model_dump(mode="json", exclude_none=True),
        "report": report and report.model_dump(mode="json"),
    }


def _compare(given: Given) -> dict[str, Any]:
    names = given.request["methods"]
    comparison = Comparison(**given.search, simulate_s=given.request["simulate_s"])
    rows: list[dict[str, Any]] = []
    try:
        for name in names:
            row, plan = comparison.row(given.instance, name, given.incumbent)
            rows.append(row | _planned(plan, None))
            given.progress(len(rows), len(names))
    except KeyboardInterrupt:
        if not rows:
            raise
    return {"rows": rows, "complete": len(rows) == len(names)}


def _what_if(given: Given) -> dict[str, Any]:
    request, instance = given.request, given.instance
    settings = {"method": request["method"], **given.search}
    sweep = made(request["vary"], request["one_at_a_time"]) if request["vary"] else None
    values, points = (values_of(sweep), points_of(sweep)) if sweep else ({}, [])
    found: dict[str, Any] = {"base": run(instance, [{}], settings)[0]}
    if request["prices"]:
        found["prices"] = [price._asdict() for price in marginal_prices(instance, request["prices_of"])]
    done: list[Any] = []

    def tell(number: int, rows: list[Any]) -> None:
        done.extend(rows)
        given.progress(len(done), len(points))

    rows = run(instance, points, settings, tell=tell)
    unproven: list[str] = []
    changes = {name: _breakpoints(given, name, values, settings, unproven) for name in request["breakpoints"]}
    answers = words.answers(found["base"], values, rows, changes, objective_of(instance).unit) if rows else []
    answers += [line for name, ones in changes.items() for line in words.changes(name, ones)] + unproven
    plain = {name: [one._asdict() for one in ones] for name, ones in changes.items()}
    return found | {"rows": rows, "breakpoints": plain, "answers": answers, "unit": objective_of(instance).unit}


def _breakpoints(given: Given, name: str, values: dict[str, Any], settings: dict[str, Any], unproven: list[str]
                 ) -> list[Any]:
    return breakpoints(given.instance, name, values.get(name, []), settings, given.progress, unproven.append)


def _explain(given: Given) -> dict[str, Any]:
    request = given.request
    found = explain(given.instance, known(given.plan), request["workload"], request["on"], None,
                    request["time_limit_s"])
    return found.summary() | {"sections": found.sections()}


def _verify(given: Given) -> dict[str, Any]:
    return verify(given.instance, known(given.plan)).model_dump(mode="json")


def _simulate(given: Given) -> dict[str, Any]:
    names = ("seconds", "seed", "replications", "arrival_cv", "service_cv", "service_factor", "shadow")
    return simulate(given.instance, known(given.plan), **{name: given.request[name] for name in names}).summary()


def _simulate_trace(given: Given) -> dict[str, Any]:
    demand = _demand(given)
    names = given.request["policies"]
    policies = [ReplanPolicy(name, name) for name in names]
    done: list[Any] = []

    def tell(policy: str, window: int) -> None:
        done.append(window)
        given.progress(len(done), len(demand.times_s) * len(policies))

    rows, windows = compare_policies(
        given.instance, demand, policies, None, given.request["time_limit_s"], tell
    )
    lines = [{"policy": name} | vars(window) for name, found in windows.items() for window in found]
    return {"policies": rows, "windows": lines, "window_s": demand.window_s}


def _demand(given: Given) -> Any:
    """The Demand that the request gives as a CSV text; or, for ``two-waves``, the demand generated for the instance."""
    if given.request["demand"] == TWO_WAVES:
        return two_waves(given.instance, given.request["seed"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "demand.csv")
        path.write_text(given.request["demand"], encoding="utf-8")
        try:
            return read_demand(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), "demand")) from None


def _replan(given: Given) -> dict[str, Any]:
    request, instance = given.request, given.instance
    if request["rate"] is not None:
        instance = changed(instance, {"rate": request["rate"]})
    if unknown := [name for name in request["rates_rps"] if name not in instance.workload]:
        raise InputError(f"rates_rps: the instance has no workload {unknown[0]!r}")
    instance = at_rates(instance, request["rates_rps"])
    asked, lost = (request["change_cost"], request["allow"], request["time_limit_s"]), request["lost"]
    plan = known(given.plan)
    found = replan(instance, plan, *asked) if lost is None else replan_lost(instance, plan, lost, *asked)
    return found.summary() | {"verified": found.plan is not None} | _planned(found.plan, found.report)


def _export(given: Given) -> dict[str, Any]:
    return {"files": render(known(given.plan), given.request["to"], given.instance, given.request["gpus_per_node"])}


def _diff(given: Given) -> dict[str, Any]:
    state = {name: value for name, value in given.request["status"].items() if name != "last_run"}
    present = validate(Observed, state, "status")
    return _steps(present, steps_between(present, target_layout(known(given.plan), present, Commands())))


def _steps(present: Any, steps: Any) -> dict[str, Any]:
    return {"steps": [step.described(present) for step in steps]}


def _apply(given: Given) -> dict[str, Any]:
    done = apply(given.instance, known(given.plan), gpus=given.request["gpus"], report=lambda step: given.progress(1))
    return done.model_dump(mode="json")


ACTING = ("apply",)
"""The verbs that an exception ends, between two steps. All others run compiled code, and are asked to stop."""
VERBS: dict[str, Callable[[Given], dict[str, Any]]] = {
    "solve": _solve,
    "compare": _compare,
    "what-if": _what_if,
    "explain": _explain,
    "verify": _verify,
    "simulate": _simulate,
    "simulate-trace": _simulate_trace,
    "replan": _replan,
    "export": _export,
    "diff": _diff,
    "apply": _apply,
}

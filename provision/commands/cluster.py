"""The verbs that look at what runs. ``provision/cluster/`` has the functions behind them."""

from typing import Any

from provision import InputError, Instance, Plan, layout, read_plan, recommend, write
from provision.answers.clusters import export_paths, layout_told, moves_told, recommendation_told, write_exports
from provision.cluster.calibrate import calibrate, corrected, observed_by, read_observed
from provision.cluster.defragment import Defragmentation, defragment
from provision.cluster.metrics import WINDOW_S, measured, metrics_table
from provision.cluster.state import Observation, State, read_state
from provision.commands.verb import UNKNOWN, Answering, Given, Seconds, Writing, read_instance
from provision.draw.output import Rows
from provision.instances.files.files import check_writable, validate
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.fields import Count, Flag, Name, PositiveCount

STATE = operand("STATE", "what import kubernetes or import gpus wrote")
RUNS = "a shipped instance, a file, or without PLAN a state"
"""What the operand INSTANCE of verbs on a running plan is."""


def running(instance: str, plan: str | None) -> tuple[Instance, Plan, dict[str, Observation]]:
    """The instance and the plan that runs; without a file of the plan those of a state, with what was observed then."""
    if plan is None:
        state = read_state(instance)
        return state.instance, state.plan(), state.observations
    found = read_instance(instance)
    return found, read_plan(plan, found), {}


class Layout(Answering):
    gpu: str = operand("GPU", "a GPU type, such as a100-80gb")
    profiles: tuple[str, ...] = operand("PROFILE", "the instances to create, in this order", nargs="+")
    on: tuple[str, ...] = option((), "PROFILE@START", "instances that exist and stay", nargs="+")

    def run(self) -> int:
        answer = layout(self.gpu, self.profiles, self.on)
        return self.answer(answer.model_dump(mode="json"), layout_told(answer), 0 if answer.legal else 1)

    def job(self, given: Given) -> dict[str, Any]:
        return layout(self.gpu, self.profiles, self.on).model_dump(mode="json")


class Recommend(Writing):
    state: str = STATE
    max_moves: Count | None = option(None, "N", "at most so many slices destroyed and replicas started")
    keep: tuple[str, ...] = option((), "NAMESPACE", "GPUs of this namespace stay", action="append")
    time_limit_s: Seconds = option(60.0, "S", "seconds")
    markdown: Flag = local(False, None, "print Markdown, for a pull request")
    out: str | None = written("write the target plan here (.json, else YAML)")
    export: str | None = local(None, "DIR", "write the target for mig-parted, DRA and the device plugin")

    def run(self) -> int:
        state = read_state(self.state)
        for path in export_paths(self.export) if self.export else ():
            check_writable(path, self.force)
        found = recommend(state, self.max_moves, self.keep, self.time_limit_s)
        if self.out:
            write(found.plan, self.out, self.force)
        exports, whole = write_exports(found, self.export, self.force) if self.export else ([], True)
        content = found.model_dump(mode="json") | {"plan_file": self.out, "exports": exports}
        return self.answer(content, [*recommendation_told(found, self.markdown), *exports], 0 if whole else 1)

    def job(self, given: Given) -> dict[str, Any]:
        return recommend(given.state, self.max_moves, self.keep, self.time_limit_s).model_dump(mode="json")


class Calibrate(Writing):
    instance: str = operand("INSTANCE", RUNS)
    plan: str | None = operand("PLAN", "the plan that runs; after a state, leave it out", None, nargs="?")
    prometheus: str | None = local(None, "URL", "the server that has the latency histograms")
    metrics: str | None = local(None, "FILE", "rows for the table of metric names")
    window_s: Seconds = local(float(WINDOW_S), "S", "seconds over which latencies are taken")
    observed: str | dict[Name, Observation] | None = option(
        None, "FILE", "or a table: workload,requests,p50_ms,p99_ms", remote=dict[Name, Observation])
    out: str | None = local(None, "F", "write corrected performance data here, if anything is outside")

    def run(self) -> int:
        instance, plan, observed = running(self.instance, self.plan)
        if (self.prometheus and self.observed) or not (self.prometheus or self.observed or observed):
            raise InputError("calibrate: give --prometheus URL or --observed FILE, and not both; or a state that was "
                             "imported with --prometheus")
        for path in {self.out, *_corrected_paths(self.out, len(instance.performance))} if self.out else ():
            check_writable(path, self.force)
        if self.prometheus:
            observed = observed_by(measured(self.prometheus, metrics_table(self.metrics), self.window_s), instance)
        elif self.observed:
            observed = read_observed(str(self.observed))
        found = calibrate(instance, plan, observed)
        lines = list(found.notes)
        if self.out and found.factors:
            files, further = corrected(instance, found.factors)
            lines += further
            for data, path in zip(files, _corrected_paths(self.out, len(files)), strict=True):
                write(data, path, self.force)
                lines.append(f"{data.source}: written to {path}")
        table = Rows(("workload", "percentile", "observed ms", "predicted ms", "band ms", "inside", "requests"), [
            (one.workload, one.label, one.observed_ms, one.predicted_ms,
             None if one.band_ms is None else f"{one.band_ms[0]:.4g} to {one.band_ms[1] or float('inf'):.4g}",
             {True: "yes", False: "NO", None: "-"}[one.inside], round(one.requests)) for one in found.rows])
        text = [table, *lines, "everything is inside its band" if found.ok else "the prediction does not hold"]
        return self.answer(found.model_dump(mode="json") | {"lines": lines}, text, 0 if found.ok else 1)

    def job(self, given: Given) -> dict[str, Any]:
        found = calibrate(given.instance, given.plan, validate(dict[Name, Observation], self.observed, "observed"))
        files, lines = corrected(given.instance, found.factors)
        return found.model_dump(mode="json") | {
            "lines": [*found.notes, *lines], "performance": [one.model_dump(mode="json") for one in files]}


def _corrected_paths(out: str, files: int) -> list[str]:
    """The paths of so many files of corrected data."""
    return [out] if files == 1 else [f"{out}.{number}.yaml" for number in range(files)]


class Defragment(Answering):
    state: str = STATE
    free: PositiveCount | None = option(None, "N", "let so many GPUs stand empty")
    free_node: str | None = option(None, "NODE", "let this machine stand empty")
    admit: str | None = option(None, "PROFILE", "make room for a slice: PROFILE, or GPUTYPE:PROFILE")
    max_moves: Count | None = option(None, "N", "at most so many slices move")
    keep: tuple[str, ...] = option((), "NAMESPACE", "slices of it stay", action="append")
    budget: dict[Name, Count] = option({}, "WORKLOAD=N", "at most N slices of a workload move")
    time_limit_s: Seconds = option(60.0, "S", "seconds")

    def run(self) -> int:
        found = self._found(read_state(self.state))
        code = UNKNOWN if found.status == "unknown" else int(found.status == "impossible")
        return self.answer(found.model_dump(mode="json"), moves_told(found), code)

    def job(self, given: Given) -> dict[str, Any]:
        return self._found(given.state).model_dump(mode="json")

    def _found(self, state: State) -> Defragmentation:
        for name in self.budget:
            if name not in state.instance.workload:
                raise InputError(f"--budget {name}: write WORKLOAD=N with a workload of the state: "
                                 f"{', '.join(list(state.instance.workload)[:10])}")
        return defragment(state, self.free, self.free_node, self.admit, self.max_moves, self.keep, self.budget,
                          self.time_limit_s)

// Questions about a plan: what if, what one more request costs, replays, two plans side by side.

import * as api from "./api.js";
import { bar, steps } from "./charts.js";
import { byId, h, percent, table } from "./dom.js";
import { drawing } from "./drawing.js";
import { run, sweep } from "./questions.js";

export function setUpStudies(state, parameters) {
  byId("parameter").append(...parameters.filter((one) => one.numeric).map((one) => h("option", { value: one.name, title: one.what }, one.name)));
  on("what-if", "what-if-result", () => whatIf(state));
  on("prices", "what-if-result", () => prices(state));
  on("replay", "replay-result", () => replay(state));
  on("day", "replay-result", () => day(state));
  on("compare", "compare-result", () => sideBySide());
}

/** Let a button fill a place with what an action makes, and say how far it is, or why it cannot. */
function on(button, place, action) {
  byId(button).addEventListener("click", async () => {
    byId(button).disabled = true;
    byId(place).replaceChildren(h("p", { className: "faint" }, "working"));
    try {
      byId(place).replaceChildren(...[await action()].flat().filter(Boolean));
    } catch (error) {
      byId(place).replaceChildren(h("p", { className: "problem" }, error.message));
    } finally {
      byId(button).disabled = false;
    }
  });
}

async function whatIf(state) {
  const of = byId("of").value, name = byId("parameter").value + (of ? `.${of}` : "");
  const result = await sweep("what-if-result", state.name, name, byId("values").value);
  const marks = Object.values(result.breakpoints).flat().map((one) => one.above);
  const points = result.rows.filter((row) => row.objective !== null).map((row) => [row[name], row.objective]);
  const line = (label, key, className) => ({ name: label, className,
    points: atBreakpoints(result.rows.filter((row) => row[key] !== null).map((row) => [row[name], row[key]]), marks) });
  return [
    h("ul", {}, result.answers.map((answer) => h("li", {}, answer))),
    points.length ? steps(`objective along ${name}`, result.unit, [line("best plan", "objective", "best"), line("proven bound", "bound", "bound")], { across: name, marks }) : null,
  ];
}

/** Points with the step to the next one where its breakpoint is, where there is one alone between the two. */
function atBreakpoints(points, marks) {
  return points.flatMap(([x, y], at) => {
    const between = marks.filter((mark) => at && points[at - 1][0] < mark && mark < x);
    return between.length === 1 ? [[between[0], y], [x, y]] : [[x, y]];
  });
}

async function prices(state) {
  const { result } = await run("what-if-result", { verb: "what-if", instance: state.name, prices: true, time_limit_s: 20 });
  return table(`What one more request/s and one ms of SLO cost at the margin (${result.unit})`,
    ["workload", "per request/s", "part of the whole", "1 ms less SLO costs", "1 ms more saves"],
    result.prices.map((one) => [one.workload, one.per_rps, percent(one.share), one.tighter_per_ms, one.looser_per_ms]));
}

function planned(state) {
  if (!state.job) throw new Error("Plan first, or open a job that has a plan.");
  return { instance: state.job.instance_digest, plan: state.job.id };
}

async function replay(state) {
  const { result } = await run("replay-result", { verb: "simulate", ...planned(state), seconds: Number(byId("replay-seconds").value) });
  const rows = [...result.workloads, ...result.workflows].map((one) => [one.workload, one.slo_ms, one.p50_ms, one.p99_ms,
    one.p99_ms === null ? "never" : bar(one.p99_ms / one.slo_ms), percent(one.violation_rate, 2), one.throughput_rps]);
  return [
    h("p", { className: result.ok ? "good" : "problem" }, result.ok ? "Every P99 that was met is within its SLO." : "Some P99 is over its SLO."),
    table("Replayed requests", ["workload", "SLO ms", "P50 ms", "P99 ms", "P99 of SLO", "late", "served/s"], rows),
    h("ul", { className: "faint" }, result.notes.map((note) => h("li", {}, note))),
  ];
}

async function day(state) {
  const [file] = byId("demand").files, demand = file ? await file.text() : "two-waves";
  const { result } = await run("replay-result", { verb: "simulate-trace", instance: state.name, demand });
  const lines = result.policies.map(({ policy }, at) => ({
    name: policy, className: at ? "bound" : "best", points: toTheEnd(result.windows.filter((one) => one.policy === policy), result.window_s),
  }));
  return [
    steps("GPUs over the day by policy", "GPUs", lines, { across: "seconds" }),
    table("Policies", ["policy", "GPU-hours", "cost", "slices destroyed", "replicas started", "not served"],
      result.policies.map((one) => [one.policy, one.gpu_hours, one.cost, one.slices_destroyed, one.replicas_started, percent(one.not_served, 2)])),
  ];
}

/** GPUs by time, with the last window drawn to its end. */
function toTheEnd(windows, window_s) {
  const points = windows.map((one) => [one.time_s, one.gpus]);
  return points.length ? [...points, [points.at(-1)[0] + window_s, points.at(-1)[1]]] : points;
}

async function sideBySide() {
  const ids = [byId("before").value, byId("after").value];
  if (!ids.every(Boolean)) throw new Error("Two plans are needed; plan twice.");
  const [before, after, changes] = await Promise.all([
    api.text(`/jobs/${ids[0]}/drawing`), api.text(`/jobs/${ids[1]}/drawing`), api.get(`/jobs/${ids[1]}/changes?before=${ids[0]}`)]);
  return [
    h("ul", {}, changes.map((line) => h("li", {}, line))),
    h("div", { className: "side-by-side" }, [["Before", before], ["After", after]].map(([title, html]) =>
      h("section", { "aria-label": title }, h("h3", {}, title), drawing(html).element))),
  ];
}

// Why a workload stands where it does: its place, its tight limits, what its next GPU is due to, what a request costs.

import { byId, h, percent, plural, shown } from "./dom.js";
import { run, sweep } from "./questions.js";

const FACTORS = [1, 1.1, 1.25, 1.5, 2];

/** Explain a workload of a drawn plan; `job` is the one that made the plan. */
export async function explain(job, plan, one) {
  const place = byId("why"), found = h("ul", {}), working = h("div", { id: "why-working" });
  place.replaceChildren(
    h("h3", { id: "why-title", tabIndex: -1 }, `Why ${one.name} stands where it does`),
    h("ul", {}, [...places(plan, one), ...limits(one)].map((line) => h("li", {}, line))), found, working);
  byId("why-title").focus();
  const tell = (lines) => found.append(...lines.map((line) => h("li", {}, line)));
  for (const ask of [nextGpu, price, reasons]) {
    try {
      tell(await ask(job, one));
    } catch (error) {
      tell([error.message]);
    }
    if (!place.contains(found)) return;  // another workload was asked for meanwhile
    working.replaceChildren();
  }
}

/** The slices that its replicas run in. */
function places(plan, one) {
  const index = plan.workloads.indexOf(one);
  const lines = plan.rows.flatMap((row) => row.slices.flatMap((slice) => slice.replicas
    .filter((replica) => replica.workload === index)
    .map((replica) => `${row.count > 1 ? `${shown(row.count)} × ` : ""}${slice.profile} of ${row.gpu} (GPU ${row.gpus}): ${replica.facts.join(" · ")}`)));
  return lines.length > 8 ? [...lines.slice(0, 8), `and ${plural(lines.length - 8, "more place")}`] : lines;
}

/** How much of its limits it uses, and what is left. */
function limits(one) {
  const used = one.used.p99 ?? one.used.latency, what = one.used.p99 ? "The P99" : "A batch";
  const lines = [];
  if (used !== undefined) {
    lines.push(`${what} takes ${shown(one.p99_ms ?? one.latency_ms)} of the ${shown(one.budget_ms)} ms that the rule gives it: ${percent(used, 0)}${used > 0.95 ? ", tight" : ""}.`);
  }
  if (one.throughput_rps) {
    const spare = one.throughput_rps - one.planned_rps;
    lines.push(`Its replicas can carry ${shown(one.throughput_rps)} requests/s and are planned for ${shown(one.planned_rps)}: ${spare > 0.005 * one.planned_rps ? `room for ${shown(spare)} more` : "no room for more, tight"}.`);
  }
  return lines;
}

async function nextGpu(job, one) {
  const name = `rate.${one.name}`, result = await sweep("why-working", job.instance_digest, name, FACTORS);
  const next = result.answers.filter((line) => line.startsWith("The next GPU"));
  const [now, more] = FACTORS.map((factor) => result.rows.find((row) => row[name] === factor)?.objective);
  const lines = next.length ? next : [`Up to twice the traffic of ${one.name} no further GPU is due.`];
  if (now == null || more == null) return [...lines, "A tenth more traffic cannot be served."];
  const change = more === now ? "as now" : `instead of ${worth(now, result.unit)}`;
  return [...lines, `With a tenth more traffic the whole takes ${worth(more, result.unit)}, ${change}.`];
}

/** A value of the objective in words: the price per hour needs no word for what is counted. */
const worth = (value, unit) => `${shown(value)} ${unit.replace("price ", "")}`;

/** Why these GPU types, what it costs, what binds and what more would give: as `provision explain` tells it. */
async function reasons(job, one) {
  const { result } = await run("why-working", { verb: "explain", instance: job.instance_digest, plan: job.id, workload: one.name });
  return Object.entries(result.sections).flatMap(([title, lines]) => lines.map((line) => `${title}: ${line.trim()}`));
}

async function price(job, one) {
  const { result } = await run("why-working", { verb: "what-if", instance: job.instance_digest, prices: true, prices_of: [one.name], time_limit_s: 20 });
  const [found] = result.prices, unit = result.unit;
  const shorter = found.tighter_per_ms === null ? "a shorter SLO cannot be met" : `one ms less SLO costs ${shown(found.tighter_per_ms)}`;
  return [`At the margin one more request/s costs ${worth(found.per_rps, unit)}; ${shorter}, one ms more saves ${shown(found.looser_per_ms)}.`];
}

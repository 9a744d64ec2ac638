// Why a workload stands where it does: its places, what its next GPU is due to, what a request costs, what `explain` says.

import { byId, h, plural, shown } from "./dom.js";
import { run, sweep } from "./questions.js";

const FACTORS = [1, 1.1, 1.25, 1.5, 2];
const MOST_PLACES = 8;

/** Explain a workload of a drawn plan; `job` is the one that made the plan. */
export async function explain(job, plan, name) {
  const place = byId("why"), found = h("ul", {}), working = h("div", { id: "why-working" });
  place.replaceChildren(h("h3", { id: "why-title", tabIndex: -1 }, `Why ${name} stands where it does`), found, working);
  byId("why-title").focus();
  const tell = (lines) => found.append(...lines.map((line) => h("li", {}, line)));
  for (const ask of [places, nextGpu, price, reasons]) {
    try {
      tell(await ask(job, name, plan));
    } catch (error) {
      tell([error.message]);
    }
    if (!place.contains(found)) return;  // another workload was asked for meanwhile
    working.replaceChildren();
  }
}

/** The slices that its replicas run in: every box tells its facts line by line, the name first. */
function places(job, name, plan) {
  const lines = plan.gpus.flatMap((gpu) => [...gpu.querySelectorAll(".box")].map((box) => box.title.split("\n"))
    .filter(([first]) => first === name).map(([, ...facts]) => `${[...gpu.querySelector(".label").children].map((one) => one.textContent).join(", ")}: ${facts.join(", ")}`));
  return lines.length > MOST_PLACES ? [...lines.slice(0, MOST_PLACES), `and ${plural(lines.length - MOST_PLACES, "more place")}`] : lines;
}

async function nextGpu(job, workload) {
  const name = `rate.${workload}`, result = await sweep("why-working", job.instance_digest, name, FACTORS);
  const next = result.answers.filter((line) => line.startsWith("The next GPU"));
  const [now, more] = FACTORS.map((factor) => result.rows.find((row) => row[name] === factor)?.objective);
  const lines = next.length ? next : [`Up to twice the traffic of ${workload} no further GPU is due.`];
  if (now == null || more == null) return [...lines, "A tenth more traffic cannot be served."];
  const change = more === now ? "as now" : `instead of ${worth(now, result.unit)}`;
  return [...lines, `With a tenth more traffic the whole takes ${worth(more, result.unit)}, ${change}.`];
}

/** A value of the objective in words: the price per hour needs no word for what is counted. */
const worth = (value, unit) => `${shown(value)} ${unit.replace("price ", "")}`;

async function price(job, name) {
  const { result } = await run("why-working", { verb: "what-if", instance: job.instance_digest, prices: true, prices_of: [name], time_limit_s: 20 });
  const [found] = result.prices, unit = result.unit;
  const shorter = found.tighter_per_ms === null ? "a shorter SLO cannot be met" : `one ms less SLO costs ${shown(found.tighter_per_ms)}`;
  return [`At the margin one more request/s costs ${worth(found.per_rps, unit)}; ${shorter}, one ms more saves ${shown(found.looser_per_ms)}.`];
}

/** Why these GPU types, what it costs, what binds and what more would give: as `provision explain` tells it. */
async function reasons(job, name) {
  const { result } = await run("why-working", { verb: "explain", instance: job.instance_digest, plan: job.id, workload: name });
  return Object.entries(result.sections).flatMap(([title, lines]) => lines.map((line) => `${title}: ${line.trim()}`));
}

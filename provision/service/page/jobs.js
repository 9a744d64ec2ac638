// The lists of jobs and of the decisions of `provision watch`, and the choice of two plans to compare.

import * as api from "./api.js";
import { byId, h, table } from "./dom.js";

const PLANNING = ["solve", "replan"];

/** Show the latest jobs; the two latest plans for one instance are offered to be compared. */
export async function listJobs() {
  const { jobs } = await api.get("/jobs?limit=50");
  const when = (one) => new Date(one.created_at).toLocaleString();
  byId("jobs").replaceChildren(jobs.length
    ? table("Latest jobs", ["instance", "verb", "status", "begun", "open"], jobs.map((one) => [one.instance, one.verb, one.status, when(one),
      PLANNING.includes(one.verb) ? h("a", { href: `#job=${one.id}` }, "show") : "–"]))
    : h("p", { className: "faint" }, "None yet."));
  const plans = jobs.filter((one) => PLANNING.includes(one.verb) && ["done", "cancelled"].includes(one.status));
  const latest = plans.filter((one) => one.instance === plans[0].instance);
  for (const [at, id] of ["before", "after"].entries()) {
    byId(id).replaceChildren(...plans.map((one) => h("option", { value: one.id }, `${one.instance} · ${when(one)}`)));
    byId(id).value = (latest[1 - at] ?? latest[0])?.id ?? "";
  }
}

/** Show what `provision watch` decided, if the service was given its journal. */
export async function listDecisions() {
  const decisions = await api.get("/decisions");
  byId("decisions").hidden = !decisions.length;
  byId("decisions-list").replaceChildren(table("Latest decisions", ["at", "action", "GPUs", "then", "outcome", "why"], decisions.map((one) =>
    [new Date(one.at).toLocaleString(), one.action, one.gpus, one.gpus_then, one.action === "change" ? one.outcome : "", one.why])));
}

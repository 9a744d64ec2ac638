// Jobs that answer questions about a plan: taken on, told about in a place of the page, stopped on demand.

import * as api from "./api.js";
import { byId, h } from "./dom.js";

/** Take on a job, tell in a place how many of its parts are done, and let people stop it; the job with its result. */
export async function run(place, content) {
  const progress = h("span", { className: "faint" }, "working");
  const stop = h("button", { type: "button" }, "Stop");
  byId(place).replaceChildren(h("p", {}, progress, " ", stop));
  const job = await api.job(content, (kind, found) => {
    if (kind === "id") stop.addEventListener("click", () => api.cancel(found));
    if (kind === "progress") progress.textContent = `${found.done}${found.total ? ` of ${found.total}` : ""} done`;
  });
  if (!job.result) throw new Error("Stopped before there was an answer.");
  return job;
}

/** The answer of a what-if job along one parameter, with its breakpoints; it tells itself which cannot be proven. */
export async function sweep(place, instance, name, values) {
  const several = Array.isArray(values) || values.includes(":");
  const ask = { verb: "what-if", instance, vary: { [name]: values }, breakpoints: several ? [name] : [], time_limit_s: 20 };
  return (await run(place, ask)).result;
}

// Planning: start a solve, watch incumbent and bound close in on each other, show the plan and its proof.

import * as api from "./api.js";
import { steps } from "./charts.js";
import { byId, shown } from "./dom.js";
import { drawing } from "./drawing.js";
import { listJobs } from "./jobs.js";
import { explain } from "./why.js";

export function setUpPlan(state) {
  byId("plan-form").addEventListener("submit", (event) => { event.preventDefault(); solve(state); });
  byId("report").addEventListener("click", () => reported(state));
  byId("plan-file").addEventListener("click", () =>
    api.save(new Blob([JSON.stringify(state.job.result.plan, null, 1)], { type: "application/json" }), `${state.job.instance}-plan.json`));
  byId("export").addEventListener("click", () => exported(state));
}

async function solve(state) {
  const content = {
    verb: "solve", instance: state.name, method: byId("method").value,
    time_limit_s: Number(byId("seconds").value), seed: Number(byId("seed").value),
  };
  const seen = [], started = performance.now();
  const clock = setInterval(() => tell(`searching for ${Math.round((performance.now() - started) / 1000)} s${standing(seen.at(-1))}`), 1000);
  byId("search").replaceChildren();
  tell("The job is in the queue.");
  byId("solve").disabled = true;
  try {
    const job = await api.job(content, (kind, found) => {
      if (kind === "id") stoppable(found);
      if (kind === "status") tell(`The job is ${found.status}.`);
      if (kind === "incumbent") { seen.push(found); byId("search").replaceChildren(curves(seen)); }
    });
    clearInterval(clock);
    history.replaceState(null, "", `#job=${job.id}`);
    await show(state, job);
  } catch (error) {
    tell(error.message, true);
  } finally {
    clearInterval(clock);
    byId("solve").disabled = false;
    byId("cancel").hidden = true;
    await listJobs();
  }
}

function stoppable(id) {
  byId("cancel").hidden = false;
  byId("cancel").onclick = () => api.cancel(id);
}

export function tell(message, wrong = false) {
  byId("status").textContent = message;
  byId("status").className = wrong ? "problem" : "";
}

function standing(incumbent) {
  if (!incumbent) return "";
  return ` · best ${shown(incumbent.objective)} · bound ${shown(incumbent.bound)}`;
}

/** Incumbent and bound over the seconds of the search. */
function curves(incumbents) {
  const line = (name, key, className) => ({
    name, className, points: incumbents.filter((one) => one[key] !== null).map((one) => [one.seconds, one[key]]),
  });
  return steps("best plan and proven bound over time", "objective",
    [line("best plan", "objective", "best"), line("proven bound", "bound", "bound")], { across: "seconds" });
}

/** Show a job's plan, its proof and how it was found. */
export async function show(state, job) {
  const { result } = job;
  byId("search").replaceChildren(...(job.incumbents.length > 1 ? [curves(job.incumbents)] : []));
  if (job.problem || !result?.plan) {
    byId("result").hidden = true;
    tell(job.problem?.detail ?? (result ? `${result.status ?? job.status}: ${result.reason ?? ""}` : `The job is ${job.status}.`), true);
    return;
  }
  state.job = job;
  tell(`${job.instance}: ${job.status}, by ${result.method ?? job.verb}.`);
  const html = await api.text(`/jobs/${job.id}/drawing`);
  byId("result").hidden = false;
  byId("drawing").replaceChildren(drawing(html, (name, plan) => explain(job, plan, name)).element);
  byId("why").replaceChildren();
}

async function reported(state) {
  try {
    await api.download(`/jobs/${state.job.id}/report`, `${state.job.instance}.html`);
  } catch (error) {
    tell(error.message, true);
  }
}

async function exported(state) {
  tell("exporting");
  try {
    const job = await api.job({ verb: "export", instance: state.job.instance_digest, plan: state.job.id, to: byId("target").value });
    await api.download(`/jobs/${job.id}/files`, `${state.job.instance}-${byId("target").value}.zip`);
    tell("The export is downloaded.");
  } catch (error) {
    tell(error.message, true);
  }
}

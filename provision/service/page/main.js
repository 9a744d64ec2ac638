// The page: which instance is open, its form, and what happens when it changes.

import * as api from "./api.js";
import { byId, h, plural, shown } from "./dom.js";
import { complain, fill } from "./form.js";
import { listDecisions, listJobs } from "./jobs.js";
import { setUpPlan, show } from "./plan.js";
import { setUpStudies } from "./studies.js";

/** What the parts of the page share: the name and content of the open instance, and the job whose plan is shown. */
const state = { name: null, instance: null, job: null };
const known = { gpus: [], models: [], performance: [] };

async function start() {
  const [instances, methods, gpus, performance, targets, parameters] = await Promise.all(
    ["/instances", "/methods", "/gpus", "/performance", "/targets", "/parameters"].map(api.get));
  known.gpus = gpus.map((one) => one.name);
  known.models = [...new Set(performance.flatMap((one) => one.models))].sort();
  known.performance = performance;
  byId("method").append(...methods.map((one) => h("option", { value: one.name, title: one.summary }, one.name)));
  byId("target").append(...targets.map((one) => h("option", { value: one }, one)));
  byId("target").value = "kubernetes";
  listInstances(instances);
  setUpPlan(state);
  setUpStudies(state, parameters);
  byId("instance").addEventListener("change", () => open(byId("instance").value));
  byId("upload").addEventListener("change", upload);
  byId("edit").addEventListener("click", edit);
  window.addEventListener("hashchange", fromAddress);
  await open(instances.some((one) => one.name === "parvagpu-s3") ? "parvagpu-s3" : instances[0].name);
  await fromAddress();
  await listJobs();
  await listDecisions();
}

function listInstances(instances) {
  const group = (label, ones) => h("optgroup", { label }, ones.map((one) =>
    h("option", { value: one.shipped ? one.name : one.digest, title: one.source }, one.shipped ? one.name : `${one.name} (${one.digest.slice(0, 8)})`)));
  const own = instances.filter((one) => !one.shipped), shipped = instances.filter((one) => one.shipped);
  byId("instance").replaceChildren(...[own.length ? group("Stored", own) : null, group("Shipped", shipped)].filter(Boolean));
}

async function open(name) {
  state.instance = await api.get(`/instances/${encodeURIComponent(name)}`);
  state.name = name;
  const options = [...byId("instance").options];
  byId("instance").value = (options.find((one) => one.value === name) ?? options.find((one) => one.value === state.instance.name))?.value ?? "";
  const { workloads, fleet, objective } = state.instance;
  const rate = workloads.reduce((sum, one) => sum + one.rate_rps, 0);
  byId("instance-facts").textContent = [plural(workloads.length, "workload"), `${shown(rate)} requests/s`,
    [...new Set(fleet.map((one) => one.gpu))].join(", "), objective, state.instance.source].filter(Boolean).join(" · ");
  byId("of").replaceChildren(h("option", { value: "" }, "all"),
    ...[...workloads.map((one) => one.name), ...new Set(fleet.map((one) => one.gpu))].map((one) => h("option", { value: one }, one)));
  byId("instance-file").onclick = (event) => {
    event.preventDefault();
    api.download(`/instances/${encodeURIComponent(name)}?format=yaml`, `${state.instance.name}.yaml`);
  };
  byId("instance-file").href = "#";
  if (!byId("editor").hidden) fill(byId("editor"), state.instance, known, save);
}

async function edit() {
  const editor = byId("editor");
  editor.hidden = !editor.hidden;
  byId("edit").setAttribute("aria-expanded", String(!editor.hidden));
  if (!editor.hidden) fill(editor, state.instance, known, save);
}

async function save(content, type, path = "/instances") {
  const saved = await taken(() => api.post(path, content, type));
  if (!saved) return;
  listInstances(await api.get("/instances"));
  await open(saved.digest);
  byId("status").textContent = `${saved.name} is stored.`;
}

/** One file is an instance by itself; several are an instance and the performance data that it names. */
async function upload() {
  const files = [...byId("upload").files];
  if (files.length === 1) {
    await save(await files[0].text(), files[0].name.endsWith(".json") ? "application/json" : "application/yaml");
  } else if (files.length) {
    const texts = await Promise.all(files.map(async (file) => [file.name, await file.text()]));
    await save(JSON.stringify({ files: Object.fromEntries(texts) }), "application/json", "/instances/files");
  }
  byId("upload").value = "";
}

/** What an action returns; where the service refuses, the form says why. */
async function taken(action) {
  try {
    return await action();
  } catch (error) {
    if (!(error instanceof api.Problem)) throw error;
    if (byId("editor").hidden) await edit();
    complain(byId("editor"), error);
    return null;
  }
}

/** Show the job that the address names, as #job=ID, and open its instance. */
async function fromAddress() {
  const id = new URLSearchParams(location.hash.slice(1)).get("job");
  if (!id || id === state.job?.id) return;
  const job = await api.get(`/jobs/${encodeURIComponent(id)}`);
  if (job.instance_digest) await open(job.instance_digest);
  await show(state, job);
}

start().catch((error) => { byId("status").textContent = `The service does not answer: ${error.message}`; });

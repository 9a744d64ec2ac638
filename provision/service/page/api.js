// The HTTP interface: requests with the token, jobs and their events, downloads.

import { byId } from "./dom.js";

const BASE = "/api/v1";
let token = sessionStorage.getItem("provision-token");

/** What the service refuses: the problem document, with the fields that are to blame. */
export class Problem extends Error {
  constructor(document) {
    super(document.detail || document.title);
    this.errors = document.errors || [];
  }
}

async function request(path, options = {}) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(BASE + path, { ...options, headers });
  if (response.status === 401) {
    await askForToken();
    return request(path, options);
  }
  if (!response.ok) throw new Problem(await response.json());
  return response;
}

function askForToken() {
  const dialog = byId("token-dialog");
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    token = byId("token").value;
    sessionStorage.setItem("provision-token", token);
    resolve();
  }, { once: true }));
}

export const get = async (path) => (await request(path)).json();
export const text = async (path) => (await request(path)).text();

/** Send content as JSON, or a text of another type as it is. */
export async function post(path, content, type = "application/json") {
  const body = typeof content === "string" ? content : JSON.stringify(content);
  return (await request(path, { method: "POST", body, headers: { "Content-Type": type } })).json();
}

export const cancel = (id) => request(`/jobs/${id}`, { method: "DELETE" });

/** Take on a job and follow it to its end; `tell(kind, content)` hears of everything on the way. */
export async function job(content, tell = () => {}) {
  const { id } = await post("/jobs", content);
  tell("id", id);
  return follow(id, tell);
}

/** Follow a job to its end, over broken connections too; the job with its result. */
export async function follow(id, tell = () => {}) {
  const seen = { last: 0, ended: false };
  while (!seen.ended) {
    try {
      await listen(id, seen, tell);
    } catch (error) {
      if (error instanceof Problem) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
  const found = await get(`/jobs/${id}`);
  if (found.problem) throw new Problem(found.problem);
  return found;
}

async function listen(id, seen, tell) {
  const response = await request(`/jobs/${id}/events`, { headers: { "Last-Event-ID": String(seen.last) } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (held + part.value).split("\n\n");
    held = events.pop();
    for (const text of events) {
      const fields = Object.fromEntries(text.split("\n").map((line) => [line.split(":")[0], line.slice(line.indexOf(":") + 2)]));
      if (fields.id) seen.last = Number(fields.id);
      if (fields.event === "end") seen.ended = true;
      else if (fields.event) tell(fields.event, JSON.parse(fields.data));
    }
  }
}

/** Save what a path answers as a file. */
export async function download(path, name) {
  save(await (await request(path)).blob(), name);
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

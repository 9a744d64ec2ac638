// The form of an instance: the fields that people change, with what is wrong said at the field.

import { byId, h } from "./dom.js";

const WORKLOAD = [["name", "text"], ["model", "text"], ["slo_ms", "number"], ["rate_rps", "number"], ["min_replicas", "number"]];
const FLEET = [["gpu", "text"], ["price_per_hour", "number"], ["count", "number"]];
const POLICY = [["latency_budget", ["queueing", "half_slo"]], ["safety", "number"], ["headroom", "number"]];
const OBJECTIVES = ["min_cost", "min_gpus", "max_throughput"];

/** Fill a form with an instance; `save(content)` is called with what it holds then. */
export function fill(form, instance, known, save) {
  const content = structuredClone(instance);
  content.policy ??= {};
  const redraw = () => fill(form, content, known, save);
  form.replaceChildren(
    h("p", { className: "problem", id: "form-problem", role: "alert" }),
    datalist("known-gpus", known.gpus), datalist("known-models", known.models),
    h("div", { className: "bar-of-fields" },
      field(content, "name", "text", "name"), field(content, "objective", OBJECTIVES, "objective"),
      POLICY.map(([name, kind]) => field(content.policy, name, kind, `policy.${name}`))),
    performance(content, known.performance),
    rows("Fleet", content, "fleet", FLEET, { gpu: known.gpus[0] ?? "" }, redraw),
    rows("Workloads", content, "workloads", WORKLOAD, { name: "", model: "", slo_ms: 100, rate_rps: 10 }, redraw),
    h("button", { className: "primary", type: "submit" }, "Save"));
  form.onsubmit = (event) => { event.preventDefault(); save(content); };
}

const datalist = (id, values) => h("datalist", { id }, values.map((value) => h("option", { value })));

/** A labelled input that writes into `holder[name]`, with room for what is wrong with it. */
function field(holder, name, kind, path, hidden = false) {
  const id = `field-${path.replace(/\W/g, "-")}`;
  const shared = { id, "data-field": path, "aria-describedby": `${id}-problem` };
  const lists = { gpu: "known-gpus", model: "known-models" };
  const input = Array.isArray(kind)
    ? h("select", shared, kind.map((value) => h("option", { value, selected: value === holder[name] }, value)))
    : h("input", { ...shared, type: "text", inputMode: kind === "number" ? "decimal" : "text", value: holder[name] ?? "", list: lists[name] });
  input.addEventListener("input", () => {
    if (input.value === "") delete holder[name];
    else holder[name] = kind === "number" && input.value.trim() !== "" && Number.isFinite(Number(input.value)) ? Number(input.value) : input.value;
  });
  const label = hidden ? { className: "hidden" } : {};
  return h("div", { className: "field-of-form" }, h("label", { for: id, ...label }, name.replaceAll("_", " ")), input,
    h("span", { className: "problem", id: `${id}-problem` }));
}

/** The rows of a list as a table of fields, with buttons to add and remove. */
function rows(title, content, list, fields, fresh, redraw) {
  const act = (label, action, properties = {}) => {
    const button = h("button", { type: "button", ...properties }, label);
    button.addEventListener("click", () => { action(); redraw(); });
    return button;
  };
  return h("fieldset", { "data-field": list }, h("legend", {}, title),
    h("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": title }, h("table", { className: "cards" },
      h("thead", {}, h("tr", {}, fields.map(([name]) => h("th", { scope: "col" }, name.replaceAll("_", " "))), h("th", { scope: "col" }, h("span", { className: "hidden" }, "remove")))),
      h("tbody", {}, content[list].map((one, at) => h("tr", {},
        fields.map(([name, kind]) => h("td", {}, field(one, name, kind, `${list}[${at}].${name}`, true))),
        h("td", {}, act("×", () => content[list].splice(at, 1), { "aria-label": `remove ${one.name ?? one.gpu ?? at}` }))))))),
    act("Add a row", () => content[list].push({ ...fresh })));
}

/** Which shipped performance data counts; data that the instance brings itself stays. */
function performance(content, shipped) {
  const given = [content.performance].flat(), own = given.filter((one) => typeof one !== "string");
  const boxes = shipped.map((one) => {
    const input = h("input", { type: "checkbox", checked: given.includes(one.name) });
    input.addEventListener("change", () => {
      const names = [content.performance].flat().filter((other) => typeof other === "string" && other !== one.name);
      content.performance = [...(input.checked ? [...names, one.name] : names), ...own];
    });
    return h("label", { className: "choice" }, input, `${one.name} (${one.gpu})`);
  });
  return h("details", { "data-field": "performance" },
    h("summary", {}, `Performance data: ${given.map((one) => one.name ?? one).join(", ")}`), h("div", { className: "choices" }, boxes));
}

/** Say at the fields what a problem document says of them; what has no field is said at the top. */
export function complain(form, problem, prefix = "") {
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  for (const place of form.querySelectorAll(".problem")) place.textContent = "";
  const rest = [];
  for (const error of problem.errors) {
    const input = form.querySelector(`[data-field="${CSS.escape(error.field.replace(prefix, ""))}"]`);
    const place = input && byId(`${input.id}-problem`);
    if (!place) { rest.push(`${error.field}: ${error.detail}`); continue; }
    input.setAttribute("aria-invalid", "true");
    place.textContent = error.detail;
  }
  byId("form-problem").textContent = problem.errors.length ? rest.join(" · ") : problem.message;
  form.querySelector("[aria-invalid]")?.focus();
}

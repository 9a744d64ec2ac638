// GPUs drawn to scale: slices in memory slots, replicas by their MPS share; thousands as a map first.

import { bar } from "./charts.js";
import { h, more, plural, shown, table } from "./dom.js";

const CHUNK = 60, BESIDE_MAP = 8, MAP_FROM = 40, SEARCHED_FROM = 20;
/** Cells of the map: pixels, and how many stand beside each other at most. */
const CELL = 14, ACROSS = 80, NARROW = 640, NARROW_CELL = 8;

/** The drawing of a plan: problems, a map where there are many GPUs, and the rows, so many at a time. */
export function drawing(plan) {
  const total = plan.rows.reduce((sum, row) => sum + row.count, 0);
  const body = h("div", { className: "gpus" });
  return h("div", { className: "plan" },
    h("p", {}, plan.summary),
    notes(plan),
    total > MAP_FROM ? map(plan, total) : null,
    body, more(body, plan.rows, (row) => gpu(row, plan.workloads), total > MAP_FROM ? BESIDE_MAP : CHUNK, "row", CHUNK),
    h("p", { className: "faint" }, "grey hatching: idle · b batch · p processes · % and bar: load · /s requests per second"));
}

function notes(plan) {
  const lines = [...plan.violations, ...plan.problems];
  return lines.length ? h("ul", { className: "wrong" }, lines.slice(0, 50).map((line) => h("li", {}, line))) : null;
}

function gpu(row, workloads) {
  const names = row.slices.flatMap((slice) => slice.replicas.map((one) => workloads[one.workload].name));
  const boxes = row.slices.flatMap((slice) => [holder(slice, row), ...slice.replicas.map((one) => replica(one, slice, row, workloads))]);
  const field = h("div", { className: "field", role: "img", "aria-label": `${row.gpu}: ${names.join(", ") || "idle"}` },
    row.idle.map(([start, size]) => placed(h("div", { className: "idle" }), start, size, row)), boxes);
  field.style.setProperty("--lanes", row.lanes);
  return h("div", { className: "gpu" },
    h("div", { className: "label" }, h("b", {}, `${row.count > 1 ? `${shown(row.count)} × ` : ""}${row.gpu}`), h("span", {}, `GPU ${row.gpus}`)),
    field);
}

function placed(element, start, size, row, lane = null) {
  element.style.insetInlineStart = `${(100 * start) / row.slots}%`;
  element.style.inlineSize = `${(100 * size) / row.slots}%`;
  if (lane !== null) {
    element.style.insetBlockStart = `${(100 * lane) / row.lanes}%`;
    element.style.blockSize = `${100 / row.lanes}%`;
  }
  return element;
}

function holder(slice, row) {
  const title = [`${slice.profile}${slice.replicas.length ? "" : ", unused"}`, ...slice.problems].join("\n");
  return placed(h("div", { className: slice.problems.length ? "slice wrong" : "slice", title }, slice.profile), slice.start, slice.size, row, slice.lane);
}

function replica(one, slice, row, workloads) {
  const { name, colour, pattern } = workloads[one.workload];
  const share = one.share < 1 ? `${Math.round(100 * one.share)} % MPS` : "";
  const load = h("span", { className: "load" });
  load.style.inlineSize = `${Math.min(100, 100 * (one.load ?? 0))}%`;
  const title = [name, slice.profile, `SM share ${Math.round(100 * one.share)} %`, ...one.facts].join("\n");
  return placed(h("div", { className: `box c${colour} p${pattern}`, title },
    h("span", { className: "profile" }, [slice.profile, share].filter(Boolean).join(" · ")),
    h("span", { className: "name" }, name),
    h("span", { className: "facts" }, one.facts.join(" · ")), load), one.start, one.size, row, slice.lane);
}

/** Every GPU as a cell in the colours of its workloads. */
function map(plan, total) {
  const cell = 2 * (innerWidth < NARROW ? NARROW_CELL : CELL), across = Math.min(total, ACROSS, Math.floor((2 * innerWidth - 48) / cell));
  const canvas = h("canvas", { width: across * cell, height: Math.ceil(total / across) * cell, role: "img", "aria-label": `map of ${plural(total, "GPU")}, coloured by workload` });
  canvas.style.inlineSize = `${(across * cell) / 2}px`;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), size = cell - 3;
  let at = 0;
  for (const row of plan.rows) {
    for (let copy = 0; copy < row.count; copy += 1, at += 1) {
      const x = (at % across) * cell, y = Math.floor(at / across) * cell;
      pen.fillStyle = style.getPropertyValue("--stripe");
      pen.fillRect(x, y, size, size);
      for (const one of row.slices.flatMap((slice) => slice.replicas)) {
        pen.fillStyle = style.getPropertyValue(`--c${plan.workloads[one.workload].colour}`);
        pen.fillRect(x + (size * one.start) / row.slots, y, Math.max(1, (size * one.size) / row.slots - 1), size);
      }
    }
  }
  return h("div", { className: "map" }, canvas);
}

/** The workloads of a plan: what they ask for, how much of each limit they use; `explain(one)` says why one is here. */
export function workloads(plan, explain) {
  const words = { latency: "batch latency", p99: "P99", throughput: "throughput" };
  const cells = (one) => [
    h("span", {}, h("span", { className: `swatch c${one.colour} p${one.pattern}` }), one.name), one.model,
    one.slo_ms, one.planned_rps, one.replicas,
    limit(one.used.p99 ?? one.used.latency, one.used.p99 ? "P99 of its limit" : "batch latency of its limit",
      one.p99_ms ?? one.latency_ms, one.budget_ms, "ms"),
    limit(one.used.throughput, "load of the busiest replica", one.planned_rps, one.throughput_rps, "/s"),
    one.tight.length ? `tight: ${one.tight.map((name) => words[name]).join(", ")}` : "room left",
    explained(one, explain),
  ];
  const shownNow = h("div", {}), show = (ones) => shownNow.replaceChildren(table("Workloads", ["workload", "model", "SLO ms", "rate/s", "replicas", "latency of limit", "load", "limits", "why here"], ones, cells));
  show(plan.workloads);
  return h("div", {}, plan.workloads.length > SEARCHED_FROM ? search(plan.workloads, show) : null, shownNow);
}

/** A field that shows the workloads whose name or model holds a text. */
function search(ones, show) {
  const input = h("input", { type: "search" });
  input.addEventListener("input", () => {
    const text = input.value.toLowerCase();
    show(ones.filter((one) => one.name.toLowerCase().includes(text) || one.model?.toLowerCase().includes(text)));
  });
  return h("p", { className: "bar-of-fields" }, h("label", {}, `Find among ${plural(ones.length, "workload")}`, input));
}

function explained(one, explain) {
  const button = h("button", { type: "button", "aria-label": `why ${one.name} stands where it does` }, "Why?");
  button.addEventListener("click", () => explain(one));
  return button;
}

function limit(part, label, value, most, unit) {
  if (part === undefined) return "–";
  return h("span", {}, bar(part, label), h("small", {}, `${shown(value)} of ${shown(most)} ${unit}`));
}

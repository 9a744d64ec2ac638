// Curves as SVG: steps over time or over a parameter, with axes and a table for screen readers.

import { h, shown, svg, table } from "./dom.js";

const WIDTH = 720, HEIGHT = 240, LEFT = 64, RIGHT = 16, TOP = 20, BOTTOM = 30;
const MOST_NAMED = 8;  // marks that have room for their values

/**
 * Lines of points [x, y] as steps, on common axes.
 * lines: [{name, points, className}]; marks: x values at which something changes, named where they are few.
 */
export function steps(label, unit, lines, { across = "", marks = [] } = {}) {
  const points = lines.flatMap((line) => line.points);
  if (!points.length) return h("p", { className: "faint" }, "Nothing to draw yet.");
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  const x = scale(Math.min(...xs), Math.max(...xs), LEFT, WIDTH - RIGHT);
  const y = scale(Math.min(...ys), Math.max(...ys), HEIGHT - BOTTOM, TOP);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...marks.map((mark) => svg("line", { class: "mark", x1: x.at(mark), x2: x.at(mark), y1: TOP, y2: HEIGHT - BOTTOM })),
    ...(marks.length > MOST_NAMED ? [] : marks.map((mark) => text(shown(mark), x.at(mark), TOP - 4, "middle"))),
    svg("path", { class: "axis", d: `M${LEFT},${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }),
    ...ticks(y, 4).map((value) => text(shown(value), LEFT - 6, y.at(value) + 4, "end")),
    ...ticks(x, 6).map((value) => text(shown(value), x.at(value), HEIGHT - 10, "middle")),
    ...lines.map((line) => svg("path", { class: `line ${line.className}`, d: path(line.points, x, y) })));
  const key = lines.map((line) => h("li", { className: line.className }, line.name));
  return h("figure", { className: "chart" }, drawing,
    h("figcaption", {}, h("ul", { className: "key" }, key), `${unit}${across ? ` over ${across}` : ""}`),
    h("details", {}, h("summary", {}, "As a table"),
      table(label, ["line", across || "x", unit], lines.flatMap((line) => line.points.slice(-200).map(([a, b]) => [line.name, a, b])))));
}

function scale(low, high, from, to) {
  const spread = high - low || Math.abs(high) || 1;
  const least = high > low ? low : low - spread / 2;
  return { low: least, high: least + spread, at: (value) => from + ((value - least) / spread) * (to - from) };
}

/** Round numbers within a scale. */
function ticks({ low, high }, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

function path(points, x, y) {
  const [first, ...rest] = points.map(([a, b]) => [x.at(a).toFixed(1), y.at(b).toFixed(1)]);
  return first ? `M${first}` + rest.map(([a, b]) => `H${a}V${b}`).join("") + (rest.length ? "" : "h4") : "";
}

const text = (content, x, y, anchor) => svg("text", { x, y, "text-anchor": anchor }, content);

/** A latency as a part of its SLO, with a bar whose full width is the SLO, as drawings have it. */
export function bar(part) {
  const inner = h("i");
  inner.style.width = `${Math.min(100, 100 * part)}%`;
  return h("span", {}, `${(100 * part).toFixed(0)} %`, h("span", { className: part > 1 ? "p99 late" : "p99" }, inner));
}

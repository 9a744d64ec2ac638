// Making elements. Text is set as text, so that nothing that anybody named becomes markup; drawings come escaped.

const FIRST_ROWS = 25, ROWS = 100;

export const byId = (id) => document.getElementById(id);

/** An element with properties (data-, aria- and role as attributes) and children; null children are left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.includes("-") || ["role", "for", "scope", "colspan", "list"].includes(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An SVG element with attributes and children. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat());
  return element;
}

/** A table with a caption, column titles and rows, whose cells `cellsOf(row)` makes; long ones are shown bit by bit. */
export function table(caption, columns, rows, cellsOf = (cells) => cells) {
  const body = h("tbody");
  const row = (one) => h("tr", { role: "row" }, cellsOf(one).map((cell, at) => at
    ? h("td", { role: "cell", "data-title": columns[at] }, shown(cell))
    : h("th", { role: "rowheader", scope: "row" }, shown(cell))));
  return h("div", {}, h("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    h("table", { className: "cards", role: "table" },  // roles, since narrow pages lay tables out as cards
      h("caption", {}, caption),
      h("thead", {}, h("tr", { role: "row" }, columns.map((title) => h("th", { role: "columnheader", scope: "col" }, title)))), body)),
  more(body, rows, row, FIRST_ROWS, "row", ROWS));
}

/** Fill a place with so many items, then `next` at a time; what follows it: a button while there are more. */
export function more(place, items, make, size, noun, next = size, from = 0) {
  place.append(...items.slice(from, from + size).map(make));
  const left = items.length - from - size;
  if (left <= 0) return null;
  const button = h("button", { type: "button" }, `Show ${Math.min(next, left)} more of ${plural(left, noun)}`);
  button.addEventListener("click", () => {
    const another = more(place, items, make, next, noun, next, from + size);
    if (another) button.replaceWith(another);
    else button.remove();
  });
  return button;
}

/** A value as people read it. */
export function shown(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value !== "number") return value;
  return Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 });
}

export const percent = (part, digits = 1) => (part === null || part === undefined ? "–" : `${(100 * part).toFixed(digits)} %`);
export const plural = (count, noun) => `${shown(count)} ${noun}${count === 1 ? "" : "s"}`;

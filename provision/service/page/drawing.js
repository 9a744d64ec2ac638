// A plan as the service draws it, as in reports too: here its GPUs and workloads are shown so many at a time.

import { h, more, plural } from "./dom.js";

const ROWS = 60, SEARCHED_FROM = 20;

/** The element of a drawing, which comes as HTML; every workload gets a button that calls `explain(name, plan)`. */
export function drawing(html, explain = null) {
  const plan = h("div", { className: "plan", innerHTML: html });
  const gpus = [...plan.querySelectorAll(".gpu")], table = plan.querySelector("table");
  portions(plan.querySelector(".gpus"), "row");
  const found = { element: plan, gpus };
  if (table) listed(table, explain && ((name) => explain(name, found)));
  return found;
}

/** Show the items of a place so many at a time; returns them, and the function that shows others there. */
function portions(place, noun) {
  const all = [...place.children], after = h("div");
  (place.closest("table") ?? place).after(after);
  const show = (items) => {
    place.replaceChildren();
    after.replaceChildren(...[more(place, items, (one) => one, ROWS, noun)].filter(Boolean));
  };
  show(all);
  return { all, show };
}

/** Let people search the table of workloads, and ask why each stands where it does. */
function listed(table, explain) {
  const name = (row) => row.cells[0].textContent;
  const { all, show } = portions(table.tBodies[0], "workload");
  if (explain) {
    table.tHead.rows[0].append(h("th", {}, "why here"));
    for (const row of all) {
      const button = h("button", { type: "button", "aria-label": `why ${name(row)} stands where it does` }, "Why?");
      button.addEventListener("click", () => explain(name(row)));
      row.append(h("td", { "data-title": "why here" }, button));
    }
  }
  if (all.length <= SEARCHED_FROM) return;
  const input = h("input", { type: "search" });
  input.addEventListener("input", () => show(all.filter((row) => name(row).toLowerCase().includes(input.value.toLowerCase()))));
  table.before(h("p", { className: "bar-of-fields" }, h("label", {}, `Find among ${plural(all.length, "workload")}`, input)));
}

// list: the runs in the folder.

import { Chooser } from "./chooser.js";
import { fill, h, moment, short, size, span, whole } from "./dom.js";
import { briefly } from "./verdict.js";
import { STATES } from "./words.js";

export function state(run) {
  return h("span", { class: `state ${run.state}` }, STATES[run.state] ?? run.state);
}

/** How long a run took, or has been going. */
export function took(run) {
  if (!run.started) return "–";
  const end = run.ended ?? (run.state === "running" ? null : run.written);
  const seconds = ((end ? new Date(end) : new Date()) - new Date(run.started)) / 1000;
  return span(Math.max(seconds, 0));
}

export class RunList {
  constructor(page) {
    this.count = h("p", { class: "lead" });
    this.chooser = new Chooser();
    this.body = h("div", {});
    fill(page, h("section", { class: "facts" }, h("h1", {}, "Runs"), this.count), this.chooser.element, this.body);
  }

  show({ runs, waiting }) {
    fill(this.count, runs.length === 1 ? "1 run" : `${runs.length} runs`);
    this.chooser.show(runs);
    fill(this.body, runs.length ? tableOf(runs) : nothing(waiting));
  }

  /** Whether a link of the list has the focus, which it would lose if the list were made anew. */
  isRead() {
    return this.body.querySelector("a:focus") !== null;
  }
}

function tableOf(runs) {
  const heads = ["Run", "Verdict", "Last loss", "State", "Model", "Last step", "Layers", "Started", "Took", "Size"];
  return h(
    "div",
    { class: "scroll runs", tabindex: "0", role: "region", "aria-label": "Runs" },
    h("table", {}, h("thead", {}, h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...runs.map(row))),
  );
}

function nothing(waiting) {
  return h(
    "div",
    { class: "blank" },
    h("h2", {}, waiting ? "Waiting for the folder" : "No run here yet"),
    waiting ? h("p", {}, "There is no folder ", h("code", {}, waiting), " yet. Its runs appear here when it is made.") : null,
    h("p", {}, "Keep a run with this line around a training loop; it appears here when it begins:"),
    h("pre", {}, 'with hookline.watch(model, to="runs/a"):\n    train()'),
  );
}

/** A loss that is not finite comes as text. */
function lossWord(loss) {
  if (typeof loss === "number") return short(loss);
  return { nan: "NaN", inf: "Inf", "-inf": "-Inf" }[loss] ?? "–";
}

function row(run) {
  const name = h("th", { scope: "row" }, h("a", { href: `/?run=${encodeURIComponent(run.name)}` }, run.name));
  if (run.error) return h("tr", {}, name, h("td", { colspan: "9", class: "error" }, run.error));
  const processes = run.processes > 1 ? ` (${run.processes} files)` : "";
  return h(
    "tr",
    {},
    name,
    h("td", { class: "told" }, briefly(run.verdict)),
    h("td", { class: "number", "data-label": "last loss" }, lossWord(run.loss)),
    h("td", {}, state(run)),
    h("td", {}, run.model ?? "–"),
    h("td", { class: "number", "data-label": "last step" }, run.last === null ? "none yet" : whole(run.last)),
    h("td", { class: "number", "data-label": "layers" }, run.modules ? whole(run.modules) : "–"),
    h("td", { "data-label": "started" }, moment(run.started)),
    h("td", { "data-label": "took" }, took(run)),
    h("td", { class: "number" }, size(run.bytes) + processes),
  );
}

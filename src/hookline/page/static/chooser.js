// chooser: two runs of the folder, to be compared.

import { fill, h, select } from "./dom.js";

/** The address of the diff of two runs, or where the second is still to be chosen. */
export function diffAddress(a, b = null) {
  return `/?diff=${encodeURIComponent(a)}${b === null ? "" : `&with=${encodeURIComponent(b)}`}`;
}

export class Chooser {
  /** `a` and `b` are chosen at first; what is null becomes the run before the latest, and the latest. */
  constructor(a = null, b = null) {
    this.chosen = { a, b };
    this.fields = h("span", { class: "controls" });
    this.problem = h("p", { class: "error", role: "alert", hidden: true });
    const name = h("h2", { id: "chooser-title" }, "Compare two runs");
    this.element = h("div", { class: "chooser", role: "group", "aria-labelledby": "chooser-title", hidden: true }, name, this.fields, this.problem);
  }

  /** Offers the runs of a list that can be read, the latest of which comes first. */
  show(runs) {
    const names = runs.filter((run) => !run.error).map((run) => run.name);
    const known = JSON.stringify(names);
    if (known === this.known || this.fields.contains(document.activeElement)) return;
    this.known = known;
    this.element.hidden = names.length < 2;
    if (this.element.hidden) return;
    const { chosen } = this;
    const at = (name, not, wish) => (names.includes(name) ? name : ([wish, ...names].find((one) => one !== undefined && one !== not) ?? names[0]));
    chosen.a = at(chosen.a, chosen.b, names[1]);
    chosen.b = at(chosen.b, chosen.a, names[0]);
    const field = (label, side) =>
      select(label, names.map((name) => [name, name]), chosen[side], (name) => {
        chosen[side] = name;
        this.problem.hidden = true;
      });
    fill(this.fields, field("Run A, the reference", "a"), field("Run B", "b"), h("button", { onclick: () => this.#go() }, "Show where they part"));
  }

  #go() {
    const { a, b } = this.chosen;
    this.problem.hidden = a !== b;
    this.problem.textContent = "A and B are the same run: choose another one for A or for B.";
    if (a !== b) location.assign(diffAddress(a, b));
  }
}

// section: a chart with a heading, and its numbers as a table when they are asked for.

import { fill, h, whole } from "./dom.js";
import { Panel } from "./lazy.js";

/** So many sites are drawn in one chart; more would be neither seen nor quick. */
export const MOST_SITES = 500;

/** How many sites a chart shows, in words. */
export function sitesShown(count) {
  if (count > MOST_SITES) return `the first ${MOST_SITES} of ${whole(count)} sites; filter to see others`;
  return count === 1 ? "1 site" : `${count} sites`;
}

/** How many of the drawn sites a second run has, where it has not all; nothing else tells why a line is missing. */
export function inBoth(run, there, count) {
  if (there === count) return "";
  return there ? ` ${run.name} has ${there} of them.` : ` ${run.name} has none of them, so nothing of it is drawn.`;
}

/** Which mark belongs to which of two runs. */
export function runKey(runs, how) {
  return runs.map((run, n) => h("span", { class: `key ${how} ${n ? "second" : "first"}` }, h("span", { class: "mark" }), run.name));
}

export class Section {
  /** A subclass has `load()`, which fetches and calls `done`, and `table()`, which gives the table. */
  constructor(view, { id, title, hint, body }) {
    this.view = view;
    this.numbers = h("div", { class: "numbers", hidden: true });
    this.body = body;
    this.toggle = h("button", { class: "quiet", "aria-pressed": "false", onclick: () => this.#turn() }, "Table");
    this.toggle.setAttribute("aria-label", `${title} as a table`);
    this.hint = h("p", { class: "hint" }, hint);
    this.problem = h("p", { class: "error", role: "alert", hidden: true });
    this.element = h(
      "section",
      { class: "card", id, "aria-labelledby": `${id}-title` },
      h("div", { class: "head" }, h("h2", { id: `${id}-title` }, title), h("span", { class: "gap" }), this.toggle),
      this.hint,
      this.problem,
      body,
      this.numbers,
    );
    this.panel = new Panel(this.element, () => this.#work());
  }

  /** It is filled before it is seen, once the rest is. */
  soon() {
    this.panel.soon();
  }

  invalidate() {
    this.panel.invalidate();
  }

  async #work() {
    this.element.setAttribute("aria-busy", "true");
    try {
      await this.load();
      this.problem.hidden = true;
    } catch (error) {
      this.problem.textContent = `This could not be read: ${error.message}`;
      this.problem.hidden = false;
    }
    this.element.removeAttribute("aria-busy");
    if (!this.numbers.hidden) this.#tabulate();
  }

  #turn() {
    const on = this.numbers.hidden;
    this.numbers.hidden = !on;
    this.body.hidden = on;
    this.toggle.setAttribute("aria-pressed", String(on));
    if (on) this.#tabulate();
  }

  #tabulate() {
    fill(this.numbers, this.table() ?? h("p", { class: "empty" }, "There are no numbers to show."));
  }
}

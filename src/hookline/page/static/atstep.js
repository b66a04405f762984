// atstep: what a run is at one step: how large gradients are, and how values are spread.

import { Boxes, Flow } from "./bars.js";
import { fill, h, short, whole } from "./dom.js";
import { MOST_SITES, Section, inBoth, runKey, sitesShown } from "./section.js";
import { table } from "./table.js";
import { kindName } from "./words.js";

class AtStep extends Section {
  constructor(view, facts, chart) {
    const legend = h("div", { class: "legend" });
    super(view, { ...facts, body: h("div", {}, chart.element, legend) });
    Object.assign(this, { chart, legend, about: facts.hint });
  }

  async load() {
    const { choice, runs } = this.view;
    const kind = this.kind();
    const every = kind ? choice.picked(runs[0].about, kind) : [];
    const picks = every.slice(0, MOST_SITES);
    const chosen = choice.step === null ? null : this.view.step();
    let both = "";
    const answers = await Promise.all(
      runs.map(async (run, second) => {
        const mine = second ? run.same(picks, kind, choice.mode) : picks;
        const numbers = mine.map((pick) => pick?.number).filter((n) => n !== undefined);
        if (second) both = inBoth(run, numbers.length, picks.length);
        const rows = await run.at(numbers, chosen, this.finite);
        let next = 0;
        return mine.map((pick) => (pick ? (rows[next++] ?? null) : null));
      }),
    );
    this.names = picks.map((pick) => pick.name);
    this.rows = picks.map((_, n) => answers.map((rows) => rows[n]));
    this.hint.textContent = `${this.about} ${this.#when(answers[0], chosen)}${both}`;
    const cut = every.length > MOST_SITES ? sitesShown(every.length) : null;
    fill(this.legend, ...(runs.length > 1 ? runKey(runs, "fills") : []), cut);
    this.draw(kind);
  }

  /** The step of what is shown, in words: rows are the last ones at a step or before it, each its own. */
  #when(rows, chosen) {
    const steps = rows.filter(Boolean).map((row) => row.step);
    this.step = steps.length ? Math.max(...steps) : chosen;
    if (!steps.length) return chosen === null || !this.names.length ? "" : `Nothing is recorded at step ${whole(chosen)} or before.`;
    const earlier = steps.filter((step) => step < this.step).length;
    const more = earlier ? ` (${whole(earlier)} of ${whole(steps.length)} at an earlier one, the last that they have)` : "";
    const last = chosen !== null && this.step < chosen ? `, the last one recorded before ${whole(chosen)}` : "";
    return `At step ${whole(this.step)}${last}${more}.`;
  }

  /** A table with a row for each site and run, and a column for each of {heading: row -> text}. */
  listed(caption, columns) {
    const { runs } = this.view;
    const rows = this.names.flatMap((name, n) =>
      this.rows[n].map((row, second) => [
        runs.length > 1 ? `${name} (${runs[second].name})` : name,
        ...(row ? Object.values(columns).map((of) => of(row)) : Object.keys(columns).map(() => "–")),
      ]),
    );
    return rows.length ? table(caption, ["site", ...Object.keys(columns)], rows) : null;
  }
}

export class FlowSection extends AtStep {
  constructor(view) {
    const hint = "How large gradients are from the first layer to the last. Red marks: zero, NaN or Inf.";
    super(view, { id: "flow", title: "Gradient flow", hint }, new Flow("Gradient flow"));
  }

  kind() {
    return this.view.choice.flow;
  }

  draw(kind) {
    this.chart.label = `L2 norm of ${kindName(kind)} of ${this.names.length} sites at step ${this.step}. Arrow keys read values.`;
    const word = kind ? undefined : "this run has no gradients: watch with grads=True";
    this.chart.show({ names: this.names, rows: this.rows, stat: "l2", label: "L2 norm", word });
  }

  table() {
    if (!this.rows) return null;
    return this.listed(`${this.kind() ? kindName(this.kind()) : "gradients"} at step ${whole(this.step ?? 0)}`, {
      step: (row) => whole(row.step),
      "L2 norm": (row) => short(row.l2),
      "largest magnitude": (row) => short(row.absmax),
      mean: (row) => short(row.mean),
      NaN: (row) => whole(row.nan ?? 0),
      Inf: (row) => whole(row.inf ?? 0),
    });
  }
}

export class BoxesSection extends AtStep {
  finite = true;

  /** Why nothing is drawn. */
  #none() {
    const rows = this.rows.flat().filter(Boolean);
    if (!this.names.length) return "no layer matches; clear the filter";
    if (!rows.length) return "nothing is recorded at this step or before";
    return rows.every((row) => row.nan + row.inf >= row.count) ? "all values are NaN or Inf at this step" : "no histograms are recorded";
  }

  constructor(view) {
    const hint = "Boxes hold half of the values, whiskers 98 %, the bar is the median; the scale is logarithmic on both sides of zero.";
    super(view, { id: "boxes", title: "Distributions", hint }, new Boxes("Distributions"));
  }

  kind() {
    return this.view.choice.kind;
  }

  draw(kind) {
    this.chart.label = `How ${kindName(kind)} of ${this.names.length} sites are spread at step ${this.step}. Arrow keys read values.`;
    this.chart.show({ names: this.names, rows: this.rows, label: "value", word: this.#none() });
  }

  table() {
    if (!this.rows) return null;
    const quantile = (n) => (row) => (row.quantiles ? short(row.quantiles[n]) : "–");
    return this.listed(`${kindName(this.kind())} at step ${whole(this.step ?? 0)}`, {
      step: (row) => whole(row.step),
      smallest: (row) => short(row.min),
      "1 %": quantile(0),
      "25 %": quantile(1),
      median: quantile(2),
      "75 %": quantile(3),
      "99 %": quantile(4),
      largest: (row) => short(row.max),
    });
  }
}

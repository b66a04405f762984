// training: the loss, the learning rate, the gradient norm and a user's own numbers over the steps.

import { h, short, whole } from "./dom.js";
import { Section, runKey } from "./section.js";
import { Stack } from "./stack.js";
import { sampled, table } from "./table.js";
import { SCALARS, scalarName } from "./words.js";

const FIRST = ["loss", "lr", "grad_norm"];
const WITH = { grad_norm_clipped: "grad_norm" };
const CLIPPED = { grad_norm: "unclipped", grad_norm_clipped: "clipped" };
const NEVER = new Set(["batch"]); // a fingerprint: its size means nothing
const HEIGHTS = { loss: 130, lr: 74, grad_norm: 92 };
const OWN_HEIGHT = 74;
const FEW_PANELS = 9;
const SCALAR_POINTS = 900;
const SCALAR_ROWS = 1000;

/** What a number is drawn with: those of several groups, and the norms before and after clipping, are one panel. */
function panelOf(name) {
  const [first, group] = name.split("/");
  if (group !== undefined && /^\d+$/.test(group) && SCALARS[first]) return first;
  return WITH[name] ?? name;
}

export class TrainingSection extends Section {
  constructor(view) {
    const chart = new Stack((step) => view.choose({ step: String(step) }));
    const legend = h("div", { class: "legend" });
    const more = h("button", { class: "quiet", hidden: true, onclick: () => this.#turnAll() });
    super(view, { id: "training", title: "Training", hint: "", body: h("div", {}, chart.element, legend, more) });
    Object.assign(this, { chart, legend, more, all: false });
  }

  /** Whether a run has any number to show. */
  static has(about) {
    return about.series.some(([site, kind]) => kind === "scalar" && !NEVER.has(site));
  }

  #turnAll() {
    this.all = !this.all;
    this.invalidate();
  }

  /** {panel: [[name, number]]} of a run, what most people want first. */
  #panels(about) {
    const ranks = about.series.filter((one) => one[1] === "scalar").map((one) => one[4]);
    const wanted = ranks.includes(Number(this.view.choice.rank)) ? Number(this.view.choice.rank) : Math.min(...ranks);
    const found = new Map();
    about.series.forEach(([site, kind, , , rank], number) => {
      if (kind !== "scalar" || rank !== wanted || NEVER.has(site)) return;
      const panel = panelOf(site);
      found.set(panel, [...(found.get(panel) ?? []), [site, number]]);
    });
    const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : SCALARS[name] ? 2000 : 1000);
    return new Map([...found].sort(([a], [b]) => rank(a) - rank(b)));
  }

  async load() {
    const { runs, choice } = this.view;
    const panels = this.#panels(runs[0].about);
    const usual = [...panels.keys()].filter((name) => FIRST.includes(name) || !SCALARS[name]).slice(0, FEW_PANELS);
    const shown = this.all ? [...panels.keys()] : usual;
    const answers = await Promise.all(runs.map((run, second) => this.#lines(run, shown, second > 0)));
    this.panels = shown.map((name) => ({
      title: scalarName(name),
      height: HEIGHTS[name] ?? OWN_HEIGHT,
      lines: answers.flatMap((found) => found.get(name) ?? []),
    }));
    const left = panels.size - usual.length;
    this.more.hidden = !left;
    this.more.textContent = this.all ? "Show fewer numbers" : `Show ${left === 1 ? "one more number" : `${left} more numbers`}`;
    const onsets = this.view.onsets();
    const bad = this.panels.some(({ lines }) => lines.some((line) => line.bad.size)) ? " Red marks at the foot: NaN or Inf." : "";
    const told = onsets.length ? " Dashed lines: where findings begin, by their numbers above." : "";
    this.hint.textContent = `Numbers of the training on one axis of steps; a click chooses a step for the charts below.${told}${bad}`;
    this.legend.replaceChildren(...(runs.length > 1 ? runKey(runs, "lines") : []));
    this.chart.label = `${this.panels.map((panel) => panel.title).join(", ")} over the steps. Arrow keys read values, Enter chooses the step; the table has numbers.`;
    this.chart.show({ panels: this.panels, onsets, step: choice.step === null ? null : Number(choice.step) });
  }

  async #lines(run, shown, second) {
    const panels = this.#panels(run.about);
    const names = shown.flatMap((panel) => (panels.get(panel) ?? []).map(([name, number], colour) => ({ panel, name, number, colour })));
    const got = await run.curves(names.map(({ number }) => number), "mean", SCALAR_POINTS);
    const found = new Map();
    names.forEach(({ panel, name, colour }, n) => {
      const label = CLIPPED[name] ?? scalarName(name).replace(`${scalarName(panel)} of `, "");
      const two = this.view.runs.length > 1 ? ` (${run.name})` : "";
      // Each line has the points of its own: numbers that are noted at other steps have others.
      const here = [...got.x.keys()].filter((at) => Number.isFinite(got.values[n][at]) || got.bad[n].includes(at));
      const line = {
        name: scalarName(name) + two,
        label,
        colour,
        second,
        spans: got.spans,
        x: here.map((at) => got.x[at]),
        values: here.map((at) => got.values[n][at]),
        bad: new Set(here.map((at, place) => (got.bad[n].includes(at) ? place : -1)).filter((place) => place >= 0)),
      };
      found.set(panel, [...(found.get(panel) ?? []), line]);
    });
    return found;
  }

  table() {
    const lines = this.panels?.flatMap((panel) => panel.lines) ?? [];
    if (!lines.length) return null;
    const every = [...new Set(lines.flatMap(({ x }) => x))].sort((a, b) => a - b);
    const steps = sampled(every, SCALAR_ROWS);
    const cell = (line, step) => {
      const at = line.x.indexOf(step);
      if (at < 0) return "";
      return line.bad.has(at) && !Number.isFinite(line.values[at]) ? "NaN or Inf" : short(line.values[at]);
    };
    const spans = lines.some((line) => line.spans) ? "; of each stretch of steps the lowest and the highest value" : "";
    const few = steps.length < every.length ? `${whole(steps.length)} of ${whole(every.length)}` : `all ${whole(every.length)}`;
    return table(
      `Numbers of the training at ${few} steps${spans}`,
      ["step", ...lines.map((line) => line.name)],
      steps.map((step) => [whole(step), ...lines.map((line) => cell(line, step))]),
      SCALAR_ROWS,
    );
  }
}

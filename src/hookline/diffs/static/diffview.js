// diffview: a diff: verdict, error along the depth, both models in step, and one place with both values.

import { DepthChart, pointsOf } from "./depth.js";
import { fill, h, whole } from "./dom.js";
import { counted, outcome, unmatched } from "./outcome.js";
import { Pair } from "./pair.js";
import { PlaceView, part } from "./place.js";
import { Section } from "./section.js";
import { swatch } from "./cells.js";
import { bornSentence, differs, isBackward, isMeasured, nameOf, numberOf, told, wordOf } from "./says.js";
import { table } from "./table.js";

const SIDES = {
  forward: { wanted: (place) => !isBackward(place), title: "Forward, in the order in which A runs", steps: "Values and weights", colour: (ink) => ink.accent, name: "accent" },
  backward: { wanted: isBackward, title: "Backward, in the order in which gradients come", steps: "Gradients", colour: (ink) => ink.note, name: "note" },
};
const TABLE_ROWS = 1000;

export class DiffView {
  /** `data` as report.py has it; `above` and `below` are what a page has around the verdict besides. */
  constructor(main, data, { above = null, below = null } = {}) {
    Object.assign(this, { main, data, above, below });
    this.places = data.places.map((place) => ({
      ...place,
      error: numberOf(place.error),
      tolerance: numberOf(place.tolerance),
      added: numberOf(place.added),
      added_tolerance: numberOf(place.added_tolerance),
      measure: Object.fromEntries(Object.entries(place.measure).map(([name, value]) => [name, numberOf(value)])),
    }));
    data.hasPictures = Object.keys(data.pictures).length > 0;
    const standing = new Set(data.charted);
    /** Whether a place stands for its module: what goes into it came out of others, and would be told twice. */
    this.stands = (at) => standing.has(at) || !isMeasured(this.places[at]);
    const differing = this.places.flatMap((place, at) => (differs(place) ? [at] : []));
    this.differing = differing.some(this.stands) ? differing.filter(this.stands) : differing;
    this.byStep = new Set(this.places.map(({ step }) => step)).size > 1;
  }

  start() {
    const { data, places } = this;
    fill(this.main, diffTitle(data.a, data.b), this.above, outcome(this), this.below);
    if (places.length) {
      this.depth = new DepthSection(this);
      this.pair = new Pair(this, (at) => this.choose(at));
      this.place = new PlaceView(this);
      const colour = this.byStep ? "The step is the first at which it differs, the colour tells how large the error is there." : "The colour tells how far the error is above its tolerance.";
      const hint = `Each row is a module of A and the one of B that it was compared with, in the order in which A runs. ${colour} A click, or Enter, shows a module; arrow keys move and fold.`;
      const trees = h("section", { class: "card", id: "modules", "aria-labelledby": "modules-title" }, h("h2", { id: "modules-title" }, this.byStep ? "Both runs, side by side" : "Both models, side by side"), h("p", { class: "hint" }, hint), this.pair.element);
      this.main.append(this.depth.element, h("div", { class: "both" }, trees, this.place.element));
    }
    this.main.append(this.#compared());
    if (!places.length) return;
    addEventListener("hashchange", () => this.#follow());
    if (!this.#follow()) this.choose(data.first ?? this.#closest(), false);
  }

  /** Where nothing differs, what comes closest to it. */
  #closest() {
    const share = ({ error, tolerance }) => (tolerance > 0 ? error / tolerance : error);
    const { charted } = this.data;
    return charted.reduce((most, at) => (share(this.places[at]) > share(this.places[most]) ? at : most), charted.at(-1) ?? 0);
  }

  #follow() {
    const at = /^#place-(\d+)$/.exec(location.hash)?.[1];
    if (at === undefined || !(at in this.places)) return false;
    this.choose(Number(at), true);
    return true;
  }

  /** Shows a place; `seen`: where it would not be seen, the page goes there. */
  choose(at, seen = true) {
    if (at === undefined) return;
    this.chosen = at;
    if (seen) history.replaceState(null, "", `#place-${at}`);
    this.place.show(at);
    this.pair.mark(at);
    this.depth.mark();
    if (seen && this.place.element.getBoundingClientRect().top > innerHeight - 160) this.place.element.scrollIntoView({ block: "start" });
  }

  /** A link to a place; its address can be sent to somebody. */
  link(at, text, kind = "") {
    const open = (event) => {
      event.preventDefault();
      this.choose(at);
    };
    return h("a", { href: `#place-${at}`, class: kind, onclick: open }, text);
  }

  /** The number of the place of a module of A: the first that differs, or its first. */
  named(site) {
    const mine = this.places.flatMap((place, at) => (place.site === site && place.verdict !== "extra" ? [at] : []));
    return mine.find((at) => differs(this.places[at])) ?? mine[0];
  }

  /** The place that made the input of another one: the output of that module in the call before it. */
  producer(site, user) {
    const mine = this.places.flatMap((place, at) => (place.site === site && place.kind === "output" && place.step === user.step ? [at] : []));
    return mine.find((at) => this.places[at].call === user.call) ?? mine.at(-1);
  }

  #compared() {
    const { data } = this;
    const list = (title, texts) => (texts.length ? part(title, h("ul", { class: "plain" }, ...texts.map((text) => h("li", {}, text)))) : null);
    return h(
      "section",
      { class: "card", id: "compared", "aria-labelledby": "compared-title" },
      h("h2", { id: "compared-title" }, "What was compared"),
      this.places.length ? counted(this) : h("p", { class: "hint" }, "There was no place to compare."),
      unmatched(this),
      list("What was run", data.forwards),
      list("Notes", data.notes),
    );
  }
}

/** Which two are compared. */
export function diffTitle(a, b) {
  return h("h1", { class: "title" }, h("small", {}, "A: "), a, h("small", {}, " against B: "), b);
}

class DepthSection extends Section {
  constructor(view) {
    const charts = h("div", {});
    const legend = h("div", { class: "legend" });
    const steps = view.byStep;
    const single = steps && new Set(view.places.map((place) => JSON.stringify([place.site, place.kind, place.call, place.part]))).size === view.places.length;
    const each = !steps ? "Each point is a place, from first to last" : single ? "Each place stands at the step at which it first differs or, if it never does, is furthest apart; the large points are the worst of their step" : "The large points are the worst place of each step";
    const hint = `${each}. Higher is further apart. The shaded band is the tolerance, what rounding alone may do there: a point above it differs. A click, or Enter, shows the place.`;
    super(view, { id: "depth", title: steps ? "Error over the steps" : "Error along the depth", hint, body: h("div", {}, legend, charts) });
    this.charts = [];
    for (const [name, { wanted, title: depth, steps: over, colour, name: tint }] of Object.entries(SIDES)) {
      const title = steps ? over : depth;
      const mine = view.data.charted.filter((at) => wanted(view.places[at]));
      const points = pointsOf(view.places, mine, steps);
      if (!points.length) continue;
      const label = `${title}: the error of ${whole(points.length)} ${steps ? "steps" : "places"}. Arrow keys read values, Enter shows a place; the table has numbers.`;
      const chart = new DepthChart(label, (at) => view.choose(at));
      this.charts.push({ chart, points, colour, tint, name });
      charts.append(h("h3", { class: "of" }, title), chart.element);
    }
    this.legend = legend;
    this.mark();
    this.#keys();
  }

  /** All is there from the beginning. */
  async load() {}

  mark() {
    const { view } = this;
    const first = view.data.first;
    for (const { chart, points, colour } of this.charts) {
      const place = first === null ? null : view.places[first];
      chart.show({ points, colour, byStep: view.byStep, first, firstStep: place?.step, firstName: place ? nameOf(place) : null, chosen: view.chosen });
    }
  }

  #keys() {
    const places = this.view.places;
    const added = places.some((place) => place.added > 0);
    const odd = places.some((place) => !Number.isFinite(place.error));
    const dots = this.charts.map(({ tint, name }) => swatch(`var(--${tint})`, `${name}: error, and its tolerance as a band`));
    fill(
      this.legend,
      dots,
      this.view.differing.length ? swatch("var(--error)", "differs") : null,
      added ? h("span", { class: "key" }, h("span", { class: "diamond" }), "added: the part of the error that is born at the place itself; the rest is inherited from before") : null,
      odd ? h("span", { class: "key" }, "“no number”: NaN or Inf on one side only, or another shape") : null,
    );
  }

  table() {
    const { view } = this;
    const rows = view.places.map((place) => [
      nameOf(place, view.byStep),
      place.verdict === "missing" ? "–" : place.other || place.site || "(model)",
      wordOf(place.verdict).word,
      told(place.error),
      told(place.tolerance),
      told(place.added),
      bornSentence(place) ? { true: "born here", false: "inherited" }[place.born] ?? "not known" : "–",
    ]);
    return table("All places, in the order in which A runs", ["place", "in B", "verdict", "error", "tolerance", "added", "origin"], rows, TABLE_ROWS);
  }
}

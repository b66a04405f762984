// sections: what a run does over its steps: curves, and histograms as images.

import { badge } from "./badge.js";
import { Curves } from "./curves.js";
import { fill, h, short, whole } from "./dom.js";
import { Heat, rangeOf, shareOf } from "./heat.js";
import { Panel } from "./lazy.js";
import { colours, depthStyle, paletteStyle } from "./scales.js";
import { MOST_SITES, Section, inBoth, runKey, sitesShown } from "./section.js";
import { bytesOf } from "./packed.js";
import { sampled, table } from "./table.js";
import { isDark, onTheme } from "./theme.js";
import { LOGARITHMIC, kindName, reasons, severity, statName, worst } from "./words.js";

const FEW_LINES = 10;
const MOST_POINTS = 120000;
const CARDS = 240;
const IMAGES = 24;
const ROWS = 1000;

export class CurvesSection extends Section {
  constructor(view) {
    const chart = new Curves();
    const legend = h("div", { class: "legend" });
    super(view, { id: "curves", title: "Curves", hint: "", body: h("div", {}, chart.element, legend) });
    Object.assign(this, { chart, legend });
    onTheme(() => this.lines && this.#legend());
  }

  async load() {
    const { choice, runs } = this.view;
    const every = choice.picked(runs[0].about, choice.kind);
    const picks = choice.ordered(every).slice(0, MOST_SITES);
    // Colours tell the depth in the model, whatever the order of the list.
    const depth = [...picks].sort((a, b) => a.depth - b.depth);
    const colour = new Map(depth.map((pick, n) => [pick.key, n]));
    const points = Math.max(100, Math.min(1000, Math.floor(MOST_POINTS / Math.max(picks.length * runs.length, 1))));
    const answers = await Promise.all(
      runs.map(async (run, second) => {
        const mine = second ? run.same(picks, choice.kind, choice.mode) : picks;
        const there = mine.filter((pick) => pick);
        if (second) this.both = inBoth(run, there.length, picks.length);
        const got = await run.curves(there.map((pick) => pick.number), choice.stat, points);
        return there.map((pick, n) => ({
          name: runs.length > 1 ? `${pick.name} (${run.name})` : pick.name,
          site: pick.name,
          colour: colour.get(pick.key),
          second: second > 0,
          x: got.x,
          spans: got.spans,
          values: got.values[n] ?? [],
          bad: new Set(got.bad[n] ?? []),
        }));
      }),
    );
    this.lines = answers.flat();
    this.picks = depth;
    this.listed = picks;
    this.colour = colour;
    this.count = every.length;
    this.hint.textContent = this.#told();
    this.chart.label = `${statName(choice.stat)} of ${kindName(choice.kind)} over the steps, ${this.lines.length} lines. Arrow keys read values; the table has numbers.`;
    this.#draw();
    this.#legend();
  }

  #told() {
    const { choice } = this.view;
    const what = `${statName(choice.stat)} of ${kindName(choice.kind)}`;
    const bad = this.lines.some((line) => line.bad.size) ? " Red marks at the foot: steps with NaN or Inf." : "";
    const spans = this.lines.some((line) => line.spans) ? " Each point pair is the lowest and highest value of some steps." : "";
    return `${what[0].toUpperCase()}${what.slice(1)}, ${sitesShown(this.count)}.${this.both ?? ""}${spans}${bad}`;
  }

  #draw() {
    const { choice } = this.view;
    this.chart.show({
      lines: this.lines,
      count: Math.max(this.picks.length, 1),
      log: choice.scale,
      logByDefault: LOGARITHMIC.has(choice.stat),
      yLabel: statName(choice.stat),
      step: choice.step === null ? null : Number(choice.step),
      onsets: this.view.onsets(),
      word: this.picks.length ? "no finite values" : "no layer matches; clear the filter",
    });
  }

  /** The way back where one layer alone is drawn. */
  #all() {
    const { choice } = this.view;
    if (choice.only === null && choice.under === null) return [];
    return [h("button", { class: "quiet", onclick: () => this.view.choose({ only: null, under: null }) }, "Show all layers")];
  }

  #legend() {
    const colour = colours(this.picks.length, isDark());
    const two = this.view.runs.length > 1 ? runKey(this.view.runs, "lines") : [];
    if (this.picks.length > FEW_LINES) {
      const bar = h("span", { class: "ramp" });
      bar.style.background = depthStyle(isDark());
      fill(this.legend, h("span", {}, this.picks[0].name), bar, h("span", {}, this.picks.at(-1).name), ...two, ...this.#all());
      return;
    }
    fill(
      this.legend,
      ...this.listed.map((pick) => {
        const dot = h("span", { class: "dot" });
        dot.style.background = colour[this.colour.get(pick.key)];
        return h("span", { class: "key" }, dot, pick.name);
      }),
      ...two,
      ...this.#all(),
    );
  }

  table() {
    if (!this.lines?.length) return null;
    const shown = this.lines.slice(0, 20);
    const every = [...new Set(shown.flatMap((line) => [...line.x]))].sort((a, b) => a - b);
    const x = sampled(every, ROWS);
    const value = (line, step) => {
      const at = line.x.indexOf(step);
      return at < 0 ? "" : line.bad.has(at) ? `${short(line.values[at])} (NaN or Inf)` : short(line.values[at]);
    };
    const sites = this.lines.length > shown.length ? `, the first ${shown.length} of ${this.lines.length} lines` : "";
    const steps = shown.some((line) => line.spans)
      ? ", at steps between which lie others; of each such stretch the lowest and the highest value"
      : x.length < every.length
        ? `, ${whole(x.length)} of ${whole(every.length)} steps`
        : `, all ${whole(every.length)} steps`;
    const { choice } = this.view;
    return table(
      `${statName(choice.stat)} of ${kindName(choice.kind)}${sites}${steps}`,
      ["step", ...shown.map((line) => line.name)],
      [
        ["highest", ...shown.map((line) => extreme(line, (a, b) => a > b))],
        ["lowest", ...shown.map((line) => extreme(line, (a, b) => a < b))],
        ...x.map((step) => [whole(step), ...shown.map((line) => value(line, step))]),
      ],
      ROWS + 2,
    );
  }
}

/** The most extreme value of a line, with its step: a table of some steps must not hide a spike. */
function extreme({ values, x }, beats) {
  let best = -1;
  values.forEach((value, n) => {
    if (Number.isFinite(value) && (best < 0 || beats(value, values[best]))) best = n;
  });
  return best < 0 ? "–" : `${short(values[best])} (step ${whole(x[best])})`;
}

export class HeatSection extends Section {
  constructor(view) {
    const cards = h("div", { class: "cards" });
    const ramp = h("span", { class: "ramp" });
    const paint = () => (ramp.style.background = paletteStyle(isDark()));
    paint();
    onTheme(paint);
    const legend = h("div", { class: "legend" }, "share of values: 0.01 %", ramp, "100 % (logarithmic)");
    const more = h("button", { class: "quiet", hidden: true, onclick: () => this.#more() });
    const printed = h("p", { class: "on-paper" });
    super(view, {
      id: "heat",
      title: "Colourful dimension",
      hint: "The histogram of each layer over the steps: how its values are spread, from negative to positive.",
      body: h("div", {}, legend, printed, cards, more),
    });
    Object.assign(this, { cards, more, printed, limit: CARDS, shown: new Map(), waiting: [] });
  }

  async load() {
    const { choice, runs } = this.view;
    const picks = choice.ordered(choice.picked(runs[0].about, choice.kind));
    const key = JSON.stringify([choice.kind, runs.map((run) => run.name), picks.map((pick) => pick.key)]);
    if (key !== this.key) this.#build(picks);
    this.key = key;
    const early = this.view.source.live ? IMAGES : Infinity; // a report has them all at hand
    [...this.shown.values()].forEach((card, place) => {
      this.#judge(card);
      card.panel.invalidate();
      if (place < early) card.panel.soon();
    });
    this.#count();
  }

  #build(picks) {
    const { choice, runs } = this.view;
    const others = runs.length > 1 ? runs[1].same(picks, choice.kind, choice.mode) : [];
    const { about } = runs[0];
    const types = new Map(about.modules);
    this.picks = picks;
    this.shown = new Map();
    for (const [n, pick] of picks.slice(0, this.limit).entries()) {
      const label = (run) => `Histogram of ${kindName(choice.kind)} of ${pick.name} over the steps${runs.length > 1 ? `, ${run.name}` : ""}. Arrow keys read values.`;
      const charts = runs.map((run, second) => ({
        run,
        number: second ? others[n]?.number : pick.number,
        chart: new Heat(label(run)),
      }));
      const element = h(
        "article",
        { class: "heat undrawn" },
        h("h3", {}, h("span", { class: "name" }, pick.name), " ", h("span", { class: "type" }, types.get(pick.site) ?? "")),
        h("span", { class: "verdict" }),
        ...charts.map(({ run, chart }) => [runs.length > 1 ? h("p", { class: "of" }, run.name) : null, chart.element]).flat(),
      );
      const card = { element, charts, pick, verdict: element.querySelector(".verdict") };
      card.panel = new Panel(element, () => this.#draw(card));
      this.shown.set(pick.key, card);
    }
    fill(this.cards, ...[...this.shown.values()].map((card) => card.element));
    if (!picks.length) fill(this.cards, h("p", { class: "empty" }, "No layer matches; clear the filter."));
    this.more.hidden = picks.length <= this.limit;
    this.more.textContent = `Show more (${this.shown.size} of ${picks.length})`;
  }

  /** The health of a card's layer, which may become known or change while the card stays. */
  #judge({ verdict, pick }) {
    const { health } = this.view.runs[0].about;
    const found = worst(health, pick.site);
    fill(verdict, found === "unknown" ? null : badge(found, severity(health, pick.site), reasons(health, pick.site) || undefined));
  }

  /** Tells on paper how many of the images are there. */
  #count() {
    const drawn = this.cards.querySelectorAll(".heat:not(.undrawn)").length;
    const all = this.picks.length;
    this.printed.textContent = drawn < all ? `${drawn} of ${all} layers are printed: those that were on the screen. Scroll to have more.` : "";
  }

  #more() {
    this.limit += CARDS;
    this.key = null;
    this.invalidate();
  }

  async #draw(card) {
    await Promise.all(
      card.charts.map(async ({ run, number, chart }) => {
        try {
          if (number === undefined) chart.show(null, `${run.name} has no such layer`);
          else chart.show(await this.#image(run, number));
        } catch (error) {
          chart.readout.textContent = `This could not be read: ${error.message}`;
        }
      }),
    );
    card.element.classList.remove("undrawn");
    this.#count();
  }

  /** Cards that come into view together are asked for together. */
  #image(run, number) {
    return new Promise((resolve, reject) => {
      this.waiting.push({ run, number, resolve, reject });
      if (this.waiting.length === 1 && !this.asking) setTimeout(() => this.#ask(), 30);
    });
  }

  /** One request at a time, so that other charts have their turn; what came into view last goes first. */
  async #ask() {
    if (this.asking) return;
    this.asking = true;
    while (this.waiting.length) {
      const { run } = this.waiting.at(-1);
      const some = this.waiting.filter((one) => one.run === run).slice(-IMAGES);
      this.waiting = this.waiting.filter((one) => !some.includes(one));
      some.sort((a, b) => a.number - b.number);
      try {
        const images = await run.heat(some.map((one) => one.number));
        some.forEach((one, place) => one.resolve(images[place]));
      } catch (error) {
        for (const one of some) one.reject(error);
      }
    }
    this.asking = false;
  }

  table() {
    const drawn = [...this.shown.values()].filter((card) => card.charts[0].chart.image).slice(0, 12);
    if (!drawn.length) return null;
    const left = this.picks.length - drawn.length;
    const note = left ? h("p", { class: "hint" }, `${drawn.length} of ${this.picks.length} layers, the first that were on the screen; filter to see others.`) : null;
    return h("div", {}, note, ...drawn.flatMap((card) => card.charts.map((one) => this.#numbers(card, one))));
  }

  #numbers(card, { run, chart }) {
    if (!chart.image) return null;
    const { starts, rows, edges, pixels } = chart.image;
    const bytes = bytesOf(pixels);
    const columns = sampled([...starts.keys()], 10);
    const two = this.view.runs.length > 1 ? ` (${run.name})` : "";
    return table(
      `${card.pick.name}${two}: share of values${columns.length < starts.length ? `, ${columns.length} of ${whole(starts.length)} columns of the image` : ""}`,
      ["values", ...columns.map((column) => `step ${whole(starts[column])}`)],
      Array.from({ length: rows }, (_, row) => [
        rangeOf(edges, row),
        ...columns.map((column) => shareOf(bytes[row * starts.length + column])),
      ]),
    );
  }
}

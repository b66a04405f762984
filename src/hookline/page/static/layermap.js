// layermap: where something begins: any statistic of all layers over the steps, as an image.

import { ownerOf } from "./choice.js";
import { fill, h, short, whole } from "./dom.js";
import { LayerMap } from "./map.js";
import { VIRIDIS } from "./scales.js";
import { MOST_SITES, Section, sitesShown } from "./section.js";
import { sampled, table } from "./table.js";
import { LOGARITHMIC, kindName, ruleWord, severity, statName } from "./words.js";

const MAP_COLUMNS = 240;
const MAP_VALUES = 120000; // so many cells are fetched at most
const TABLE_COLUMNS = 12;

export class MapSection extends Section {
  constructor(view) {
    const charts = h("div", {});
    const legend = h("div", { class: "legend" });
    super(view, { id: "map", title: "Layers over steps", hint: "", body: h("div", {}, legend, charts) });
    const own = h("input", { type: "checkbox", onchange: () => view.choose({ own: own.checked ? "1" : null }) });
    Object.assign(this, { charts, legend, own, maps: [] });
  }

  async load() {
    const { choice, runs } = this.view;
    const every = choice.picked(runs[0].about, choice.kind, false);
    const picks = every.slice(0, MOST_SITES);
    const columns = Math.max(40, Math.min(MAP_COLUMNS, Math.floor(MAP_VALUES / Math.max(picks.length, 1))));
    const answers = await Promise.all(
      runs.map(async (run, second) => {
        const same = second ? run.same(picks, choice.kind, choice.mode) : picks;
        const names = new Set(run.about.modules.map(([name]) => name));
        const mine = same.filter((pick) => pick).map((pick) => ({ ...pick, level: severity(run.about.health, ownerOf(pick.site, names)) }));
        const got = await run.curves(mine.map((pick) => pick.number), choice.stat, 2 * columns);
        return { run, ...columnsOf(mine, got) };
      }),
    );
    const range = this.#range(answers.flatMap(({ rows }) => rows));
    const [what, of] = [statName(choice.stat), kindName(choice.kind)];
    this.hint.textContent = `${what[0].toUpperCase()}${what.slice(1)} of ${of}, ${sitesShown(every.length)}, in the order of the model. Rings: where something begins in a layer. A click, or Enter, shows that layer at that step.`;
    this.#build(answers);
    const { about } = runs[0];
    answers.forEach(({ rows, starts, ends }, n) => {
      this.maps[n].label = `${what} of ${of} of ${rows.length} layers over the steps. Arrow keys read values, Enter shows a layer at a step; the table has numbers.`;
      this.maps[n].show({
        rows,
        starts,
        ends,
        range,
        onsets: n ? [] : this.view.onsets(),
        begins: n ? [] : this.#begins(about, choice.kind),
        step: choice.step === null ? null : Number(choice.step),
        chosen: choice.only,
        word: picks.length ? "no numbers to draw" : "no layer matches; clear the filter",
      });
    });
    this.answers = answers;
    this.#legend(range);
  }

  #build(answers) {
    if (this.maps.length === answers.length) return;
    const go = (row, step) => this.view.jump({ only: row.site, step: String(step) }, "curves");
    this.maps = answers.map(() => new LayerMap("Layers over steps", go));
    fill(this.charts, ...this.maps.flatMap((map, n) => [answers.length > 1 ? h("p", { class: "of" }, answers[n].run.name) : null, map.element]));
  }

  /** Where findings begin, by the rows of this kind: a finding of a layer also on its parameters' rows. */
  #begins(about, kind) {
    const sites = new Set(about.series.filter((one) => one[1] === kind).map(([site]) => site));
    const flat = (some) => some.flatMap((one) => [one, ...flat(one.consequences)]);
    return flat(about.findings ?? []).flatMap((one) => {
      const mine = sites.has(one.site) ? [one.site] : [...sites].filter((site) => site.slice(0, site.lastIndexOf(".")) === one.site && one.site);
      const owner = one.site.includes(".") ? one.site.slice(0, one.site.lastIndexOf(".")) : null;
      const found = mine.length ? mine : sites.has(owner) ? [owner] : [];
      return found.map((site) => ({ site, step: one.step, level: one.severity, text: ruleWord(one.rule) }));
    });
  }

  #range(rows) {
    const { scale, stat, own } = this.view.choice;
    const values = rows.flatMap((row) => row.values.filter(Number.isFinite)).sort((a, b) => a - b);
    const positive = values.filter((value) => value > 0);
    const log = positive.length > 0 && (scale === "log" || (scale === "auto" && LOGARITHMIC.has(stat) && values[0] >= 0));
    const used = log ? positive : values;
    const [low, high] = spread(used, log);
    for (const row of rows) row.range = rangeOfRow(row.values, log);
    return { low, high, log, own: Boolean(own), beyond: [used[0] < low || (log && values[0] <= 0), used.at(-1) > high] };
  }

  #legend({ low, high, log, own, beyond }) {
    const ramp = h("span", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${VIRIDIS.join(", ")})`;
    this.own.checked = own;
    const [from, to] = own
      ? ["lowest of the layer", "highest of the layer"]
      : [`${beyond[0] ? "≤ " : ""}${short(low, 3)}`, `${beyond[1] ? "≥ " : ""}${short(high, 3)}`];
    const none = low === undefined;
    fill(
      this.legend,
      none ? null : h("span", { class: "key" }, from, ramp, `${to}${log ? " (logarithmic)" : ""}`),
      h("span", { class: "key" }, h("span", { class: "stripes" }), "NaN or Inf"),
      h("span", { class: "key" }, h("span", { class: "not-there" }), "not recorded"),
      h("label", { class: "check" }, this.own, " each layer on its own scale"),
    );
  }

  table() {
    const found = this.answers?.filter(({ rows, starts }) => rows.length && starts.length) ?? [];
    if (!found.length) return null;
    return h("div", {}, ...found.map((answer) => this.#numbers(answer)));
  }

  #numbers({ run, rows, starts, ends }) {
    const shown = sampled([...starts.keys()], TABLE_COLUMNS);
    const head = shown.map((at) => (starts[at] === ends[at] ? `step ${whole(starts[at])}` : `step ${whole(starts[at])} to ${whole(ends[at])}`));
    const cell = (row, at) => (Number.isFinite(row.values[at]) ? `${short(row.values[at])}${row.bad.has(at) ? " (NaN or Inf)" : ""}` : row.bad.has(at) ? "NaN or Inf" : "");
    const two = this.view.runs.length > 1 ? `, ${run.name}` : "";
    const few = shown.length < starts.length ? `, ${shown.length} of ${whole(starts.length)} columns of the image` : "";
    return table(
      `${statName(this.view.choice.stat)} of ${kindName(this.view.choice.kind)}${two}${few}`,
      ["layer", ...head],
      this.view.choice.ordered(rows).map((row) => [row.name, ...shown.map((at) => cell(row, at))]),
      MOST_SITES,
    );
  }
}

/** The points of curves as columns: of a stretch, the value that lies farther from the middle of its layer. */
function columnsOf(picks, { x, spans, values, bad }) {
  const count = spans ? x.length / 2 : x.length;
  const starts = Array.from({ length: count }, (_, n) => x[spans ? 2 * n : n]);
  const ends = Array.from({ length: count }, (_, n) => x[spans ? 2 * n + 1 : n]);
  const rows = picks.map((pick, at) => {
    const mine = values[at];
    const middle = spans ? median(mine) : 0;
    const cell = (n) => {
      if (!spans) return mine[n];
      const [a, b] = [mine[2 * n], mine[2 * n + 1]];
      if (!Number.isFinite(a) || !Number.isFinite(b)) return Number.isFinite(a) ? a : b;
      return Math.abs(a - middle) > Math.abs(b - middle) ? a : b;
    };
    return {
      name: pick.name,
      site: pick.site,
      level: pick.level,
      values: Array.from({ length: count }, (_, n) => cell(n)),
      bad: new Set(bad[at].map((point) => (spans ? point >> 1 : point))),
    };
  });
  return { starts, ends, rows };
}

function median(values) {
  const finite = [...values].filter(Number.isFinite).sort((a, b) => a - b);
  return finite.length ? finite[finite.length >> 1] : 0;
}

/** The ends of the colours; the few most extreme values are beyond them on a straight scale. */
function spread(sorted, log) {
  if (!sorted.length || log) return [sorted[0], sorted.at(-1)];
  const cutOff = Math.floor(sorted.length * 0.005);
  const [low, high] = [sorted[cutOff], sorted[sorted.length - 1 - cutOff]];
  return low < high ? [low, high] : [sorted[0], sorted.at(-1)];
}

function rangeOfRow(values, log) {
  const used = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  return { low: Math.min(...used), high: Math.max(...used) };
}

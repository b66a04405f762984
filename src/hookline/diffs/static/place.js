// place: all that is known of one place: its error, where that comes from, and both values.

import { CellMap, differenceStyle, oddColours, ramp, swatch, valueStyle } from "./cells.js";
import { fill, h, siteName, whole } from "./dom.js";
import { Overlaid } from "./overlaid.js";
import { METRICS, TOLERANCE, bornSentence, differs, errorSentence, indexText, isMeasured, kindWord, nameOf, told, unravelled, verdictBadge, wordOf } from "./says.js";
import { table } from "./table.js";
import { onTheme } from "./theme.js";

const OTHERS = 24;

export class PlaceView {
  constructor(view) {
    this.view = view;
    this.title = h("h2", { id: "place-title", tabindex: "-1" });
    this.body = h("div", {});
    this.back = h("button", { onclick: () => this.#go(-1) }, "◂ Previous that differs");
    this.next = h("button", { onclick: () => this.#go(1) }, "Next that differs ▸");
    this.element = h(
      "section",
      { class: "card", id: "place", "aria-labelledby": "place-title" },
      h("div", { class: "head" }, this.title, h("span", { class: "gap" })),
      h("div", { class: "chips" }, this.back, this.next),
      this.body,
    );
    onTheme(() => this.at !== undefined && this.show(this.at));
  }

  show(at) {
    this.at = at;
    const place = this.view.places[at];
    const picture = this.view.data.pictures[at];
    fill(this.title, nameOf(place, this.view.byStep));
    this.back.disabled = this.#other(-1) === undefined;
    this.next.disabled = this.#other(1) === undefined;
    fill(
      this.body,
      h("p", { class: "where" }, verdictBadge(place.verdict), ...this.#facts(place, picture)),
      this.#siblings(place, at),
      part("Error", h("p", {}, errorSentence(place)), ...this.#measure(place)),
      place.why ? part("Why", h("p", {}, sentence(place.why))) : null,
      bornSentence(place) ? part("Origin", h("p", {}, bornSentence(place))) : null,
      this.#sources(place),
      ...this.#values(place, picture),
    );
  }

  #other(way) {
    const numbers = this.view.differing;
    return way < 0 ? numbers.findLast((at) => at < this.at) : numbers.find((at) => at > this.at);
  }

  #go(way) {
    this.view.choose(this.#other(way));
    this.title.focus({ preventScroll: true });
  }

  #facts(place, picture) {
    const [a, b] = place.dtypes;
    const shape = picture?.shapes[0] ?? place.shape;
    const dtype = a && a === b ? a : a || b ? `${a || "–"} in A and ${b || "–"} in B` : "";
    const kind = shape.length || picture ? `: ${dtype || "numbers"}, of shape ${indexText(shape)}.` : dtype ? `: ${dtype}.` : ".";
    return [
      h("span", {}, `${upper(kindWord(place.kind))}${kind}${place.type ? ` The module is of type ${place.type}.` : ""}`),
      place.other && place.other !== place.site && place.verdict !== "extra" ? h("span", {}, "In B it is ", h("b", { class: "name" }, place.other), ".") : null,
      place.line ? h("code", { class: "line" }, place.line) : null,
    ];
  }

  /** The other places of the module: what else crosses it, and its other calls. */
  #siblings(place, at) {
    let same = this.view.places.map((one, n) => [one, n]).filter(([one]) => one.site === place.site && one.other === place.other);
    const over = same.filter(([one]) => one.kind === place.kind && one.call === place.call && one.part === place.part);
    const steps = new Set(over.map(([one]) => one.step)).size > 1;
    if (steps) same = over;
    if (same.length < 2) return null;
    const start = Math.max(0, Math.min(same.findIndex(([, n]) => n === at) - OTHERS / 2, same.length - OTHERS));
    const shown = same.slice(start, start + OTHERS);
    const word = (one) => (steps ? `step ${whole(one.step)}` : !isMeasured(one) && one.verdict !== "shape" ? wordOf(one.verdict).word : `${kindWord(one.kind)}${one.part}${one.call ? ` #${one.call}` : ""}`);
    const chip = ([one, n]) =>
      h("button", { class: "chip", "aria-pressed": String(n === at), onclick: () => this.view.choose(n) }, h("span", { class: `badge ${wordOf(one.verdict).level}`, "aria-hidden": "true" }, wordOf(one.verdict).sign), word(one));
    const more = same.length - shown.length;
    return h("div", { class: "chips", role: "group", "aria-label": "The same module" }, ...shown.map(chip), more ? h("span", { class: "hint" }, `and ${whole(more)} more`) : null);
  }

  #measure(place) {
    const { measure, metric, tolerance, verdict } = place;
    if (verdict === "equal" || !measure.count) return [];
    const both = metric in { max_rel: 1, l2_rel: 1 }; // of statistics alone the others are not known
    const facts = [
      ["largest difference", told(measure.max_abs)],
      ["relative to A's largest number", told(measure.max_rel)],
      ["norm of the difference over A's norm", told(measure.l2_rel)],
      ["cosine", told(measure.cosine, 6)],
      ["B's norm over A's", told(measure.norm_ratio, 5)],
      measure.ulp ? ["rounding steps apart", told(measure.ulp)] : null,
      measure.beyond ? ["numbers beyond the tolerance", `${told(100 * measure.beyond, 2)} %`] : null,
      measure.nan_mismatch ? ["NaN on one side only", whole(measure.nan_mismatch)] : null,
      measure.inf_mismatch ? ["Inf on one side only", whole(measure.inf_mismatch)] : null,
    ];
    const line = h("p", { class: "facts-line" }, ...facts.filter((fact, n) => fact && (both || n >= 4)).map(([name, text]) => h("span", { class: "fact" }, `${name} `, h("b", {}, text))));
    const unit = METRICS[metric] ? `The error is ${METRICS[metric]}.` : "";
    return [line, Number.isFinite(place.error) ? h("p", { class: "hint" }, `${unit} ${tolerance > 0 ? TOLERANCE : ""}`) : null];
  }

  /** Where its input came from, and whether that was the same. */
  #sources(place) {
    if (!place.sources.length) return null;
    const lines = place.sources.map((name) => {
      const at = this.view.producer(name, place);
      if (at === undefined) return h("li", {}, "Its input came from ", h("b", { class: "name" }, siteName(name)), ", which was not compared.");
      const state = wordOf(this.view.places[at].verdict);
      const was = { equal: "which was equal", within: "which was within rounding", different: "which differed already" }[this.view.places[at].verdict] ?? `which was ${state.word}`;
      return h("li", {}, "Its input came from ", this.view.link(at, siteName(name)), `, ${was}.`);
    });
    return part("Its input", h("ul", { class: "plain" }, ...lines));
  }

  #values(place, picture) {
    if (!picture) {
      const alone = place.verdict === "missing" || place.verdict === "extra";
      const why = alone ? "Only one side has this place." : differs(place) ? "The values of this place are not shown: those of the first places that differ are." : "The values of this place are not shown: those of places that differ are, and of a few before the first.";
      return [h("p", { class: "hint" }, this.view.data.hasPictures || alone ? why : "There are no values to show: what was compared has statistics only.")];
    }
    return [this.#largest(place, picture), this.#maps(place, picture), this.#spread(picture), this.#numbers(picture)];
  }

  #largest(place, { largest, difference, shapes }) {
    const lines = [];
    if (difference?.odd !== null && difference?.odd !== undefined) lines.push(`The first number that is NaN or Inf on one side only is at ${indexText(unravelled(difference.odd, shapes[0]))}.`);
    const [a, b] = (largest ?? [null, null]).map((value) => (value === null ? null : told(numeric(value), 7)));
    const one = shapes[0].every((length) => length === 1);
    if (one && a !== null) lines.push(`It is one number: ${a} in A, ${b} in B.`);
    else if (a !== null && place.measure.max_abs > 0) lines.push(`The largest difference is at ${indexText(place.measure.index)}: ${a} in A, ${b} in B.`);
    return lines.length ? part("Where", ...lines.map((line) => h("p", {}, line))) : null;
  }

  #maps(place, { difference, values, shapes }) {
    if (!difference) return h("p", { class: "hint" }, "The two have other shapes, so there is no map of their difference.");
    if (difference.rows * difference.columns < 2) return null; // a single number is told above
    const [shape] = shapes;
    const flat = place.measure.index.reduce((sum, at, n) => sum * shape[n] + at, 0);
    const ring = place.measure.max_abs > 0 && place.measure.index.length === shape.length ? flat : difference.odd;
    const odd = oddColours();
    const keys = [
      difference.high > 0 ? ramp(differenceStyle(), told(difference.high * 1e-6, 2), told(difference.high, 2), " (logarithmic)") : null,
      h("span", { class: "key" }, h("span", { class: "not-there" }), "equal"),
      difference.one_nan ? swatch(odd.nan, `NaN on one side only (${whole(difference.one_nan)})`) : null,
      difference.one_inf ? swatch(odd.inf, `Inf on one side only (${whole(difference.one_inf)})`) : null,
      difference.same_bad ? swatch("var(--soft)", `NaN or Inf on both sides (${whole(difference.same_bad)})`) : null,
      ring !== null ? h("span", { class: "key" }, h("span", { class: "ring-mark" }), "the largest difference") : null,
    ];
    const laid = `${whole(difference.rows)} rows of ${whole(difference.columns)} numbers${shape.length === 2 ? "" : `, the ${shape.length} dimensions laid out flat`}`;
    const coarse = difference.rows > difference.down || difference.columns > difference.across ? "; a cell shows the largest of its numbers" : "";
    const figures = [
      h("div", { class: "heat whole" }, h("h3", {}, "Difference, without its sign"), new CellMap("A map of the difference. Arrow keys read cells.", { map: difference, shape, ring }).element, h("div", { class: "legend" }, ...keys.filter(Boolean))),
      ...values.map((map, second) => {
        const name = second ? "B" : "A";
        const label = `A map of the value in ${name}. Arrow keys read cells.`;
        return h("div", { class: "heat" }, h("h3", {}, `The value in ${name}`), new CellMap(label, { map, shape, signed: true }).element, h("div", { class: "legend" }, ramp(valueStyle(), told(-map.high, 2), told(map.high, 2))));
      }),
    ];
    return h("div", {}, h("h3", { class: "above" }, "As pictures"), h("p", { class: "hint" }, `${laid}${coarse}.`), h("div", { class: "maps" }, ...figures));
  }

  #spread({ histograms, numbers }) {
    if (numbers.every(({ count }) => count < 2)) return null;
    if (!histograms) return h("p", { class: "hint" }, "Neither side has finite numbers, so there is no histogram.");
    const chart = new Overlaid("How the numbers of A and B are spread. Arrow keys read bins; the table below has numbers.", histograms);
    const keys = ["A", "B"].map((name, second) => h("span", { class: `key fills ${second ? "second" : ""}` }, h("span", { class: "mark" }), name));
    const open = histograms.beyond.some(Boolean) ? h("span", { class: "hint" }, "what lies beyond the ends is in the last bins") : null;
    return h("div", {}, h("h3", { class: "above" }, "How the numbers are spread"), h("div", { class: "legend" }, ...keys, open), chart.element);
  }

  #numbers({ numbers, shapes }) {
    const names = { mean: "mean", std: "standard deviation", min: "smallest", max: "largest", norm: "norm", nan: "NaN (count)", inf: "Inf (count)", count: "numbers (count)" };
    const cell = (one, name) => (["nan", "inf", "count"].includes(name) ? whole(one[name]) : told(one[name], 5));
    const rows = Object.entries(names).map(([name, word]) => [word, ...numbers.map((one) => cell(one, name))]);
    if (JSON.stringify(shapes[0]) !== JSON.stringify(shapes[1])) rows.push(["shape", ...shapes.map(indexText)]);
    return table("Numbers about both values; mean to norm are of the finite ones", ["number", "A", "B"], rows);
  }
}

export function part(title, ...content) {
  return h("div", { class: "part" }, h("h3", {}, title), h("div", {}, ...content));
}

function upper(text) {
  return text && `${text[0].toUpperCase()}${text.slice(1)}`;
}

export function sentence(text) {
  const trimmed = String(text).trim();
  return trimmed ? `${upper(trimmed)}${/[.!?]$/.test(trimmed) ? "" : "."}` : "";
}

function numeric(value) {
  return typeof value === "string" ? ({ nan: NaN, inf: Infinity, "-inf": -Infinity }[value] ?? value) : value;
}

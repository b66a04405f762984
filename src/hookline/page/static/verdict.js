// verdict: what is wrong with a run, first of all that is told of it: the cause, since when, where, how it spread.

import { badge } from "./badge.js";
import { ownerOf } from "./choice.js";
import { fill, h, short, siteName, whole } from "./dom.js";
import { KINDS, kindName, scalarName, statName } from "./words.js";

const CONSEQUENCES = 5;
const OTHERS = 8;
const NUMBERS = 8;
const SURE = 0.75;
const LAYERS = 6;
const LISTED = 5;
/** Which statistic shows what a rule went by, where its number is none itself. */
const SHOWN_BY = { rms: "l2", rms_at_first: "l2", rms_elsewhere: "l2", norm: "l2", share_near_zero: "near_zero" };
const STAT_OF_RULE = { nan: "nan", nan_origin: "nan", dead: "zeros", dead_units: "zeros", still: "ratio", constant_output: "std", overflow_near: "absmax" };

export class Verdict {
  constructor(view) {
    this.view = view;
    this.element = h("section", { class: "verdict-box", "aria-label": "Verdict", id: "verdict" });
    this.opened = new Set();
  }

  show(about) {
    const told = JSON.stringify([about.verdict, about.findings, about.no_health, about.progress < 1, about.looked < about.revision, about.state.state]);
    if (told === this.told) return; // somebody may be reading, or have the focus in it
    this.told = told;
    this.element.className = `verdict-box ${about.verdict?.state ?? "pending"}`;
    fill(this.element, ...this.#content(about));
  }

  #content(about) {
    if (!about.series.length) {
      const later = about.state.state === "running" ? "Nothing is recorded yet; the page follows the run." : "No statistics were recorded.";
      return [h("p", { class: "lead" }, about.progress < 1 ? "" : later)];
    }
    if (about.no_health) return [h("p", { class: "error" }, `The health of the layers is not known: ${about.no_health}`)];
    if (!about.verdict) {
      const text = " The layers are being looked at; whether they are healthy is not known yet.";
      return [h("p", { class: "lead", role: "status" }, badge("pending"), text)];
    }
    const [faults, notes] = [true, false].map((is) => about.findings.filter(({ severity }) => (severity !== "note") === is));
    const late = about.looked < about.revision && about.until !== null ? `Until step ${whole(about.until)}; what came later is being looked at.` : "";
    const [first, ...others] = faults;
    const number = new Map(about.findings.map((one, n) => [one, n + 1]));
    const title = h("h2", {}, first ? null : h("span", { class: "badge healthy" }, "● "), about.verdict.sentence);
    return [
      title,
      first ? this.#finding(first, 1, about, !about.verdict.sentence.includes(first.why)) : null,
      this.#others(others, number, about, others.length === 1 ? "One more finding" : `${whole(others.length)} more findings`),
      h("p", { class: first ? "hint" : "lead" }, `${lookedAt(about)} ${late}`),
      this.#others(notes, number, about, notes.length === 1 ? "One note, no fault" : `${whole(notes.length)} notes, no faults`),
    ];
  }

  #others(others, number, about, title) {
    if (!others.length) return null;
    const [shown, rest] = [others.slice(0, OTHERS), others.slice(OTHERS)].map((some) => some.map((one) => this.#folded(one, number.get(one), about)));
    const more = rest.length ? h("details", { class: "rest" }, h("summary", {}, `${whole(rest.length)} more`), ...rest) : null;
    return h("div", { class: "others" }, h("h3", {}, title), ...shown, more);
  }

  #folded(finding, number, about) {
    const key = `${finding.rule} ${finding.site}`;
    const details = h(
      "details",
      {
        class: "folded",
        open: this.opened.has(key),
        ontoggle: () => (details.open ? this.opened.add(key) : this.opened.delete(key)),
      },
      h(
        "summary",
        {},
        h("span", { class: `number ${finding.severity}` }, String(number)),
        badge(finding.rule, finding.severity),
        " ",
        h("b", {}, siteName(finding.site)),
        ` from step ${whole(finding.step)}: ${finding.why}`,
      ),
      this.#finding(finding, number, about, false, true),
    );
    return details;
  }

  /** `why`: whether it is said why; `folded`: the summary above has told most of it. */
  #finding(finding, number, about, why, folded = false) {
    const head = [
      folded ? null : h("span", { class: `number ${finding.severity}` }, String(number)),
      folded ? null : badge(finding.rule, finding.severity),
      this.#layer(finding, about),
      h("span", {}, "from step ", this.#link(finding, about, h("b", {}, whole(finding.step)))),
      finding.line ? h("code", { class: "line" }, finding.line) : null,
      finding.confidence < SURE ? h("span", { class: "sure" }, `${Math.round(100 * finding.confidence)} % sure`) : null,
    ];
    return h(
      "article",
      { class: "finding", "aria-label": `Finding ${number}` },
      h("p", { class: "where" }, ...head),
      why ? h("p", { class: "because" }, `${upper(finding.why)}.`) : null,
      finding.advice ? part("What to try", h("p", {}, finding.advice)) : null,
      this.#evidence(finding, about),
      this.#spread(finding, about),
    );
  }

  /** The layer, as a link to its charts. */
  #layer({ site, step }, about) {
    const owner = ownerOf(site, new Set(about.modules.map(([name]) => name)));
    const values = { under: owner || null, only: null };
    return this.view.link({ ...values, filter: null, health: null, step: String(step) }, "curves", siteName(site), "layer-link");
  }

  /** A link to the very curve and step that a finding went by. */
  #link(finding, about, text, [site, kind] = rowsOf(finding, about)[0] ?? []) {
    if (kind === undefined) return text;
    const step = String(finding.step);
    if (kind === "scalar") return this.view.link({ step }, "training", text);
    const values = { only: site, kind, stat: statOf(finding, kind, about), mode: modeOf(site, kind, about), step };
    return this.view.link({ ...values, under: null, filter: null, health: null }, "curves", text);
  }

  #evidence(finding, about) {
    const words = Object.entries(finding.evidence).filter(([name]) => !["rows", "stat"].includes(name)).map(([name, value]) => [name, evidenceWord(value)]);
    const shown = words.filter(([, text]) => text).slice(0, NUMBERS).map(([name, text]) => h("span", { class: "fact" }, `${name.replaceAll("_", " ")} `, h("b", {}, text)));
    const links = rowsOf(finding, about).slice(0, 4).map((row) => {
      const [site, kind] = row;
      const what = kind === "scalar" ? scalarName(site) : `${kindName(kind)} of ${siteName(site)}, ${statName(statOf(finding, kind, about))}`;
      return this.#link(finding, about, `${what} at step ${whole(finding.step)}`, row);
    });
    if (!shown.length && !links.length) return null;
    return part("Evidence", h("p", { class: "facts-line" }, ...shown), h("p", { class: "links" }, ...links));
  }

  /** What followed, in order; layers of which the same is said at the same step are one line. */
  #spread({ consequences, step }, about) {
    if (!consequences.length) return null;
    const groups = new Map();
    for (const one of consequences) {
      const key = JSON.stringify([one.rule, one.severity, one.step, one.why, one.line]);
      groups.set(key, [...(groups.get(key) ?? []), one]);
    }
    // What is judged over the whole run has an earlier step, and is told last.
    const late = ([one]) => [Number(one.step < step), one.step];
    const sorted = [...groups.values()].sort((a, b) => late(a)[0] - late(b)[0] || late(a)[1] - late(b)[1]);
    const rest = sorted.slice(CONSEQUENCES);
    const item = (some) => this.#consequence(some, about);
    return part(
      "How it spread",
      h("ol", {}, ...sorted.slice(0, CONSEQUENCES).map(item)),
      rest.length ? h("details", { class: "rest" }, h("summary", {}, `${whole(rest.length)} more`), h("ol", { start: CONSEQUENCES + 1 }, ...rest.map(item))) : null,
    );
  }

  #consequence(some, about) {
    const [one] = some;
    const layers = some.slice(0, LAYERS).flatMap((each, n) => [n ? ", " : "", this.#layer(each, about)]);
    const more = some.length > LAYERS ? ` and ${whole(some.length - LAYERS)} more` : "";
    return h(
      "li",
      {},
      h("span", { class: "when" }, "step ", this.#link(one, about, whole(one.step))),
      " ",
      badge(one.rule, one.severity),
      " ",
      ...layers,
      `${more}: ${one.why}`,
      one.line ? [" ", h("code", { class: "line" }, one.line)] : null,
    );
  }
}

function part(title, ...content) {
  return h("div", { class: "part" }, h("h3", {}, title), h("div", {}, ...content));
}

function upper(text) {
  return text ? text[0].toUpperCase() + text.slice(1).replace(/\.$/, "") : text;
}

/** [[site, kind]] of the curves that a finding went by; of a rule that does not tell, the curves of its site. */
function rowsOf({ evidence, site }, about) {
  const there = (wanted, kind) => about.series.some(([name, of]) => name === wanted && (kind === undefined || of === kind));
  const told = (Array.isArray(evidence.rows) ? evidence.rows : []).filter((row) => Array.isArray(row) && there(row[0], row[1]));
  if (told.length) return told;
  const order = Object.keys(KINDS);
  const mine = about.series.filter(([name, kind]) => name === site && kind !== "scalar").sort((a, b) => order.indexOf(a[1]) - order.indexOf(b[1]));
  return mine.length ? [[site, mine[0][1]]] : [];
}

/** The statistic that shows it: the one that the rule has a number of. */
function statOf({ evidence, rule }, kind, about) {
  const names = [evidence.stat, STAT_OF_RULE[rule], ...Object.keys(evidence).flatMap((name) => [name, SHOWN_BY[name]])];
  return names.find((name) => about.stats.includes(name)) ?? (kind === "update" && about.stats.includes("ratio") ? "ratio" : "l2");
}

function modeOf(site, kind, about) {
  const modes = about.series.filter(([name, of]) => name === site && of === kind).map((series) => series[3]);
  return modes.includes("train") ? "train" : modes[0];
}

/** A number or a name that a rule went by; lists of names are told in part. */
function evidenceWord(value) {
  if (typeof value === "number") return short(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  if (!Array.isArray(value) || !value.every((one) => ["string", "number"].includes(typeof one))) return "";
  return value.slice(0, LISTED).join(", ") + (value.length > LISTED ? `, … (${whole(value.length)})` : "");
}

/** What was looked at, in words. */
function lookedAt({ verdict, steps }) {
  const { layers, kinds = [], scalars = [], wiring, until, rules } = verdict.looked ?? {};
  if (layers === undefined) return "";
  const usual = Object.keys(KINDS);
  const sorted = [...kinds].sort((a, b) => usual.indexOf(a) - usual.indexOf(b)).map(kindName);
  const numbers = scalars.filter((name) => ["loss", "lr", "grad_norm"].includes(name)).map(scalarName);
  const what = [`${sorted.join(", ") || "no values"} of ${layers === 1 ? "one layer" : `${whole(layers)} layers`}`, ...numbers];
  if (wiring) what.push("how parameters, optimizers and the loss hang together");
  const recorded = steps.filter((step) => until === null || step <= until).length;
  const asked = rules ? ` by ${whole(rules)} rules` : "";
  const over = `over ${recorded === 1 ? "1 recorded step" : `${whole(recorded)} recorded steps`}`;
  return `Looked at: ${what.join("; ")}; ${over}${asked}.`;
}

/** A run's verdict in a list, in a word or two and a sentence. */
export function briefly(verdict) {
  if (!verdict) return badge("pending");
  const { state, sentence } = verdict;
  if (state === "healthy") return badge("healthy");
  if (state === "unknown") return h("span", { class: "lead" }, sentence);
  return h("span", { class: "briefly" }, badge(state, state, sentence), h("span", {}, ` ${sentence}`));
}

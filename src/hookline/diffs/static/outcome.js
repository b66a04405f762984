// outcome: what the diff found, first of all that is told: the verdict, the first place, why.

import { h, siteName, whole } from "./dom.js";
import { part, sentence } from "./place.js";
import { METRICS, TOLERANCE, VERDICTS, bornSentence, errorSentence, isMeasured, kindWord, nameOf, verdictBadge, wordOf } from "./says.js";

const CAUSES = 4;
const LISTED_NAMES = 8;
const UNMATCHED = 6;
const MOST_UNMATCHED = 200;

export function outcome(view) {
  const { data, places } = view;
  const bad = data.verdict !== "same";
  const first = data.first === null ? null : places[data.first];
  const sign = h("span", { class: `badge ${bad ? "error" : "healthy"}`, "aria-hidden": "true" }, bad ? "✖ " : "● ");
  return h(
    "section",
    { class: `verdict-box ${bad ? "error" : "healthy"}`, id: "verdict", "aria-label": "Verdict" },
    h("h2", {}, sign, data.sentence),
    first ? firstPlace(view, first) : null,
    causes(view),
    first ? null : sameAs(view),
  );
}

function firstPlace(view, first) {
  const { data } = view;
  const unit = METRICS[first.metric];
  const numeric = first.verdict === "different";
  const call = first.call || view.places.some((one) => one.site === first.site && one.call) ? `in call #${first.call} (the first is #0)` : "";
  return h(
    "article",
    { class: "finding", "aria-label": "The first place that differs" },
    h(
      "p",
      { class: "where" },
      h("span", {}, "First place: ", view.link(data.first, nameOf(first), "layer-link")),
      verdictBadge(first.verdict),
      h("span", {}, [`its ${kindWord(first.kind)}`, call, view.byStep ? `at step ${whole(first.step)}` : ""].filter(Boolean).join(" ")),
      first.line ? h("code", { class: "line" }, first.line) : null,
    ),
    part("Error", h("p", {}, errorSentence(first)), numeric && Number.isFinite(first.error) ? h("p", { class: "hint" }, `${unit ? `The error is ${unit}. ` : ""}${first.tolerance > 0 ? TOLERANCE : ""}`) : null, first.why ? h("p", {}, sentence(first.why)) : null),
    bornSentence(first) ? part("Origin", h("p", {}, bornSentence(first)), insideOf(view, first)) : null,
    producers(view, first),
  );
}

/** Why parts of the first place show the error before it: a module ends after its parts. */
function insideOf(view, first) {
  const inside = view.differing.filter((at) => at < view.data.first && (first.site === "" || view.places[at].site.startsWith(`${first.site}.`)));
  if (!inside.length || first.born !== true) return null;
  return h("p", {}, "Its own code hands the error to a part inside of it, ", view.link(inside[0], nameOf(view.places[inside[0]])), ", which therefore differs before the whole has ended.");
}

/** What the first place was computed from: that is where the two were still the same. */
function producers(view, first) {
  const found = first.sources.map((name) => [name, view.producer(name, first)]);
  if (!found.length) return null;
  const links = found.slice(0, LISTED_NAMES).flatMap(([name, at], n) => {
    const state = at === undefined ? "not compared" : wordOf(view.places[at].verdict).word;
    return [n ? ", " : "", at === undefined ? h("b", {}, siteName(name)) : view.link(at, siteName(name)), ` (${state})`];
  });
  const more = found.length > LISTED_NAMES ? ` and ${whole(found.length - LISTED_NAMES)} more` : "";
  return part("Its input", h("p", {}, "came from ", ...links, `${more}.`));
}

function causes(view) {
  const { causes: found, first } = view.data;
  if (!found.length) return first === null ? null : part("Cause", h("p", {}, "None of the causes that hookline knows was found; look at the code of the first place."));
  const item = (one) => {
    const at = view.named(one.site);
    return h("p", {}, one.sentence, " ", at === undefined ? null : h("span", { class: "hint" }, "At ", view.link(at, siteName(one.site)), "."));
  };
  const rest = found.slice(CAUSES);
  return part(found.length > 1 ? "Causes" : "Cause", ...found.slice(0, CAUSES).map(item), rest.length ? h("details", { class: "rest" }, h("summary", {}, `${whole(rest.length)} more`), ...rest.map(item)) : null);
}

function sameAs({ places }) {
  const words = ["equal", "within", "random"].filter((verdict) => places.some((place) => place.verdict === verdict));
  if (!words.length) return null;
  return h("dl", { class: "meanings" }, ...words.map((verdict) => h("div", {}, h("dt", {}, verdictBadge(verdict)), h("dd", {}, VERDICTS[verdict].means))));
}

/** How many places there are of each verdict, with what the verdict means: a legend of all words that are used. */
export function counted(view) {
  const counts = new Map();
  for (const { verdict } of view.places) counts.set(verdict, (counts.get(verdict) ?? 0) + 1);
  const order = Object.keys(VERDICTS);
  const shown = [...counts].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  const items = shown.map(([verdict, count]) => h("div", {}, h("dt", {}, verdictBadge(verdict), ` ${whole(count)}`), h("dd", {}, wordOf(verdict).means)));
  const more = view.data.every - view.places.length;
  return h("div", {}, h("dl", { class: "meanings" }, ...items), more > 0 ? h("p", { class: "hint" }, `Shown are ${whole(view.places.length)} of ${whole(view.data.every)} places: the worst of each step and the first that differ.`) : null);
}

/** What only one side has, or what is not alike otherwise, with the reason; many of a kind are folded. */
export function unmatched(view) {
  const groups = new Map();
  view.places.forEach((place, at) => {
    if (!isMeasured(place)) groups.set(place.verdict, [...(groups.get(place.verdict) ?? []), at]);
  });
  if (!groups.size) return null;
  const line = (at) => {
    const place = view.places[at];
    return h("li", {}, verdictBadge(place.verdict), " ", view.link(at, nameOf(place, view.byStep)), place.why ? `: ${place.why}` : "");
  };
  const list = ([verdict, numbers]) => {
    const lines = h("ul", { class: "plain" }, ...numbers.slice(0, MOST_UNMATCHED).map(line));
    const more = numbers.length - MOST_UNMATCHED;
    if (numbers.length <= UNMATCHED) return lines;
    const rest = more > 0 ? h("p", { class: "hint" }, `and ${whole(more)} more; the two trees show them all.`) : null;
    return h("details", {}, h("summary", {}, verdictBadge(verdict), ` ${whole(numbers.length)} places`), lines, rest);
  };
  return part("Not one to one", ...[...groups].map(list));
}

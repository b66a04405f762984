// says: the words of a diff, each with the sentence that explains it, and numbers as they are told.

import { h, short, siteName, whole } from "./dom.js";

// A sign as well as a colour: neither alone tells the whole.
export const VERDICTS = {
  equal: { sign: "●", level: "healthy", word: "equal", means: "Both have the same numbers, bit by bit." },
  within: {
    sign: "●",
    level: "healthy",
    word: "within rounding",
    means: "They are apart by no more than the tolerance: rounding alone explains it.",
  },
  random: {
    sign: "○",
    level: "unknown",
    word: "random",
    means: "A differs from itself here when it runs twice, so nothing can be said about B.",
  },
  different: { sign: "✖", level: "error", word: "differs", means: "They are apart by more than the tolerance." },
  shape: { sign: "✖", level: "error", word: "another shape", brief: "shape", means: "The values have another shape, so their numbers can't be compared." },
  calls: { sign: "✖", level: "error", word: "another number of calls", brief: "calls", means: "One of the two calls this module more often." },
  missing: { sign: "◧", level: "warning", word: "only in A", means: "B has nothing that corresponds to it." },
  extra: { sign: "◨", level: "warning", word: "only in B", means: "A has nothing that corresponds to it." },
  reordered: { sign: "▲", level: "warning", word: "at another time", brief: "time", means: "B runs it earlier or later than A." },
  dtype: { sign: "▲", level: "warning", word: "another dtype", brief: "dtype", means: "The values have another dtype." },
};
const TELLING = new Set(["different", "shape", "calls", "missing", "extra"]);
const MEASURED = new Set(["equal", "within", "random", "different"]);
const GRADIENTS = new Set(["grad_output", "grad_input", "param_grad"]);
const KIND_WORDS = {
  output: "output",
  input: "input",
  grad_output: "gradient of its output",
  grad_input: "gradient of its input",
  param_grad: "gradient",
  param: "value",
  update: "update",
  scalar: "number",
};

/** What an error is measured in. */
export const METRICS = {
  max_rel: "the largest difference of two numbers, relative to A's largest number",
  l2_rel: "the norm of the difference, relative to the norm of A's values",
  stat: "the largest difference of a statistic, relative to A's",
  bits: "the largest difference of a statistic, relative to A's; as the bits themselves were compared, every difference counts",
};

export const TOLERANCE = "The tolerance is how far rounding alone may move the numbers of this place.";

/** A number of JSON, which has no NaN and no Inf. */
export function numberOf(value) {
  if (typeof value !== "string") return value;
  return { inf: Infinity, "-inf": -Infinity }[value] ?? NaN;
}

export function told(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Inf" : "-Inf";
  return short(value, digits);
}

export function wordOf(verdict) {
  return VERDICTS[verdict] ?? { sign: "◆", level: "note", word: String(verdict), means: "" };
}

export function verdictBadge(verdict) {
  const { sign, level, word, means } = wordOf(verdict);
  return h("span", { class: `badge ${level}`, title: means }, h("span", { class: "sign", "aria-hidden": "true" }, sign), ` ${word}`);
}

/** Whether the two part here; another dtype, or another time, alone does not make them. */
export function differs(place) {
  return TELLING.has(place.verdict);
}

/** Whether both sides have the place, and their numbers were compared. */
export function isMeasured(place) {
  return MEASURED.has(place.verdict);
}

export function isBackward(place) {
  return GRADIENTS.has(place.kind);
}

export function kindWord(kind) {
  return KIND_WORDS[kind] ?? String(kind).replaceAll("_", " ");
}

/** A place as it is called, in A where A has it. */
export function nameOf(place, steps = false) {
  const name = siteName(place.verdict === "extra" ? place.other || place.site : place.site, place.call);
  const kind = place.kind === "output" ? "" : `:${place.kind}`;
  return `${name}${kind}${place.part}${steps ? ` at step ${whole(place.step)}` : ""}`;
}

/** A place on an axis, where there is little room and the kind is said elsewhere. */
export function axisName(place) {
  return `${siteName(place.site, place.call)}${place.part}`;
}

/** How many times the tolerance an error is; Infinity where there is none, or where it is no number. */
export function excess({ error, tolerance }) {
  if (error === 0) return 0;
  if (!Number.isFinite(error)) return Infinity;
  return tolerance > 0 ? error / tolerance : Infinity;
}

/** How bad a place is, to compare places: 0 is equal, up to 1 within its tolerance, more is different. */
export function badness(place) {
  const mild = { random: 0.5, reordered: 0.5, dtype: 0.001 }[place.verdict];
  if (!differs(place)) return mild ?? Math.min(excess(place), 1);
  return place.verdict === "different" ? 1 + Math.log10(1 + Math.max(excess(place), 1)) : 1.5;
}

/** An error beside its tolerance, in words. */
export function errorSentence(place) {
  const { error, tolerance, verdict } = place;
  if (verdict === "equal") return "The two are equal, bit by bit.";
  if (!isMeasured(place)) return wordOf(verdict).means;
  if (!Number.isFinite(error)) return "One of the two has NaN or Inf where the other has numbers.";
  if (error === 0) return "The bits differ, none of the statistics does.";
  const times = excess(place);
  const many = times >= 1000 ? whole(Number(times.toPrecision(2))) : told(times, 2);
  const ratio = times === Infinity ? "where none is tolerated" : times >= 1 ? `${many} times its tolerance of ${told(tolerance)}` : `within its tolerance of ${told(tolerance)}`;
  return `The error is ${told(error)}, ${ratio}.`;
}

/** Whether an error is made at a place or comes from before, in words; nothing where there is no error. */
export function bornSentence(place) {
  const { born, added, added_tolerance: allowed, estimated, verdict } = place;
  if (verdict !== "different" && verdict !== "shape") return "";
  const alone = Number.isFinite(added) ? ` By itself it adds ${told(added)}${Number.isFinite(allowed) ? `, where rounding adds up to ${told(allowed)}` : ""}.` : "";
  if (born === null || born === undefined) return "Whether the error is born here or only handed on from before is not known.";
  if (estimated) {
    return born
      ? `Born here, by estimate: the error that leaves this place is much larger than the one that enters it.${alone}`
      : `Inherited, by estimate: the error that leaves this place is about the one that enters it.${alone}`;
  }
  if (isBackward(place)) {
    return born ? "Born here: what comes to this place in the backward is the same, what it makes of it is not." : "Inherited: what comes to this place in the backward differs already.";
  }
  return born
    ? `Born here: given the very inputs of A, B's part still gives another result.${alone}`
    : `Inherited: what reaches this place differs already. Given the inputs of A, B's part gives the same result as A's.${alone}`;
}

/** An index into a tensor, of the number at a place when all are counted one after the other. */
export function unravelled(flat, shape) {
  const index = [];
  let rest = flat;
  for (const length of [...shape].reverse()) {
    index.unshift(rest % length);
    rest = Math.floor(rest / length);
  }
  return index;
}

export function indexText(index) {
  return `[${index.join(", ")}]`;
}

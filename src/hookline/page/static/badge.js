// badge: the sign, colour and word of what is found.

import { h } from "./dom.js";
import { SEVERITIES, ruleWord } from "./words.js";

/** `rule` is what is found, or "healthy", "unknown", "pending"; `level` is how bad it is. */
export function badge(rule, level = rule, why = undefined) {
  const { sign, title } = SEVERITIES[level] ?? SEVERITIES.note;
  return h(
    "span",
    { class: `badge ${level}`, title: why ?? title },
    h("span", { class: "sign", "aria-hidden": "true" }, sign),
    ` ${ruleWord(rule)}`,
  );
}

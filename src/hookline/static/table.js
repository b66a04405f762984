// table: what a chart shows, as numbers.

import { h } from "./dom.js";

const MOST = 400;

/** A table in a box of its own that scrolls; `rows` are lists of texts, the first of which names the row. */
export function table(caption, head, rows, most = MOST) {
  const shown = rows.slice(0, most);
  const more = rows.length - shown.length;
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, more > 0 ? `${caption} (the first ${most} of ${rows.length} rows)` : caption),
      h("thead", {}, h("tr", {}, ...head.map((text) => h("th", { scope: "col" }, text)))),
      h(
        "tbody",
        {},
        ...shown.map(([name, ...cells]) =>
          h("tr", {}, h("th", { scope: "row" }, name), ...cells.map((text) => h("td", {}, text))),
        ),
      ),
    ),
  );
}

/** At most `count` of some things, evenly spread, the first and the last among them. */
export function sampled(things, count) {
  if (things.length <= count) return things;
  return Array.from({ length: count }, (_, n) => things[Math.round((n * (things.length - 1)) / (count - 1))]);
}

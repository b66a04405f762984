// frame: what every page has around its content: the bar, a place for the content, and what is said where it fails.

import { fill, h } from "./dom.js";
import { header } from "./header.js";
import { startTheme } from "./theme.js";

/** Builds a page; `show(main)` fills it. */
export async function begin(trail, live, show) {
  startTheme();
  const main = h("main", { id: "top" }, h("p", { class: "wait", role: "status" }, "Reading …"));
  fill(document.getElementById("page"), h("a", { class: "skip", href: "#top" }, "To the content"), header(trail, live), main);
  try {
    await show(main);
  } catch (error) {
    fill(main, h("div", { class: "blank", role: "alert" }, h("h1", {}, "This can't be shown"), h("p", {}, error.message)));
  }
}

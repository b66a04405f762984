// header: the bar above a page: the name, where somebody is, and the button for light or dark.

import { fill, h } from "./dom.js";
import { isDark, onTheme, toggleTheme } from "./theme.js";

const LOGO =
  "M19 6v13a5.5 5.5 0 0 1-11 0v-2.5l3.6 3";

function logo() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 27 28");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", LOGO);
  svg.append(path);
  return svg;
}

export function header(trail, live) {
  const theme = h("button", { class: "quiet", onclick: toggleTheme });
  const name = () => fill(theme, isDark() ? "Light" : "Dark", h("span", { class: "hidden" }, " colours"));
  name();
  onTheme(name);
  return h(
    "header",
    { class: "bar" },
    h("a", { class: "brand", href: live ? "/" : "#top" }, logo(), "hookline"),
    h("nav", { "aria-label": "Where you are" }, trail),
    h("span", { class: "gap" }),
    h("span", { id: "link", class: "lost", role: "status" }),
    theme,
  );
}

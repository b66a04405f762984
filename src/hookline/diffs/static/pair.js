// pair: the modules of A and of B side by side, a row for both, coloured by their error.

import { fill, h, whole } from "./dom.js";
import { treeOf, weigh } from "./nodes.js";
import { mixed } from "./scales.js";
import { badness, differs, isBackward, told, wordOf } from "./says.js";
import { isDark, onTheme } from "./theme.js";

const FEW_ROWS = 60; // so many are shown unfolded
const UNFOLDED = 12; // of more, so many that differ are
const DECADES_OF_COLOUR = 4; // where nothing is tolerated, the error itself is the colour, from the largest down

// From just beyond the tolerance to far beyond it.
const HOT = ["#ffe08a", "#fdb863", "#f2705b", "#d43d51", "#9c1c4b"];
const CALM = { light: "#dcefe4", dark: "#1d3b2c" };

export class Pair {
  #open = new Set();
  #rows = [];

  /** `choose(number)` is told of the place that was chosen. */
  constructor({ places, data: names, byStep, stands }, choose) {
    Object.assign(this, { places, byStep, stands, choose, only: false, chosen: null, focused: null, backward: null });
    this.root = treeOf(places);
    this.sides = [false, true].filter((backward) => places.some((place) => isBackward(place) === backward));
    this.#turn(names.first === null ? this.sides[0] : isBackward(places[names.first]));
    this.largest = Math.max(0, ...places.map(({ error }) => error).filter(Number.isFinite));
    this.hottest = Math.max(2, ...places.map((place) => badness(place)).filter(Number.isFinite));
    this.body = h("div", { role: "rowgroup" });
    const head = h("div", { role: "row", class: "pair-row pair-head" }, ...[`A: ${names.a}`, byStep ? "first at" : "error", `B: ${names.b}`].map((text, n) => h("div", { role: "columnheader", class: n === 1 ? "heat-cell" : "" }, text)));
    this.grid = h("div", { role: "treegrid", class: "pair", "aria-label": "The modules of A and B, side by side", onkeydown: (event) => this.#key(event) }, h("div", { role: "rowgroup" }, head), this.body);
    this.filter = h("button", { class: "quiet", "aria-pressed": "false", onclick: () => this.#filter() }, "Only what differs");
    this.turns = [false, true].map((backward) => h("button", { class: "quiet", onclick: () => this.#turn(backward, true) }, sideWord(backward, byStep)));
    const unfold = (all) => () => {
      this.#open = new Set(all ? this.#every() : []);
      this.#draw();
    };
    this.element = h(
      "div",
      {},
      h("div", { class: "chips" }, this.sides.length > 1 ? this.turns : null, this.filter, h("button", { onclick: unfold(true) }, "Unfold all"), h("button", { onclick: unfold(false) }, "Fold all")),
      h("div", { class: "pair-box" }, this.grid),
    );
    this.#unfoldAtFirst();
    onTheme(() => this.#draw());
    this.#draw();
  }

  /** Shows which place is chosen, unfolding what it is in. */
  mark(at) {
    this.chosen = at;
    this.#turn(isBackward(this.places[at]));
    const node = this.#nodes().find((one) => one.places.includes(at));
    for (let above = node?.above; above; above = above.above) this.#open.add(above);
    this.focused = node ?? this.focused;
    this.#draw();
    this.#bringIntoView(this.body.querySelector("[aria-selected='true']"));
  }

  /** Scrolls the box of the trees to a row, and never the page: a report opens on its verdict. */
  #bringIntoView(row) {
    if (!row) return;
    const box = this.grid.parentElement;
    const above = row.getBoundingClientRect().top - box.getBoundingClientRect().top;
    if (above < 0 || above > box.clientHeight - row.offsetHeight) box.scrollTop += above - box.clientHeight / 2;
  }

  /** Colours by the errors of the forward, or of the backward. */
  #turn(backward, draw = false) {
    if (backward === this.backward) return;
    this.backward = backward;
    weigh(this.root, this.places, (at) => this.stands(at) && isBackward(this.places[at]) === backward, this.byStep);
    if (draw) this.#draw();
  }

  #nodes(node = this.root) {
    return [...node.children.values()].flatMap((child) => [child, ...this.#nodes(child)]);
  }

  #every() {
    return this.#nodes().filter((node) => node.children.size);
  }

  #unfoldAtFirst() {
    const nodes = this.#nodes();
    if (nodes.length <= FEW_ROWS) this.#open = new Set(this.#every());
    const sick = nodes.filter((node) => node.worst !== null && differs(this.places[node.worst])).sort((a, b) => a.from - b.from);
    for (const node of sick.slice(0, UNFOLDED)) for (let above = node.above; above; above = above.above) this.#open.add(above);
    // Where there is one thing only at the top, what is in it is what somebody came to see.
    const top = [...this.root.children.values()].filter((node) => node.children.size);
    if (top.length === 1) this.#open.add(top[0]);
  }

  #filter() {
    this.only = !this.only;
    this.filter.setAttribute("aria-pressed", String(this.only));
    this.#draw();
  }

  #draw() {
    this.turns.forEach((button, n) => button.setAttribute("aria-pressed", String(Boolean(n) === this.backward)));
    const had = this.body.contains(document.activeElement);
    this.#rows = [];
    const visit = (node) => {
      for (const child of node.children.values()) {
        if (this.only && !child.differing) continue;
        this.#rows.push(child);
        if (this.#open.has(child)) visit(child);
      }
    };
    visit(this.root);
    if (!this.#rows.includes(this.focused)) this.focused = this.#rows.find((node) => node.places.includes(this.chosen)) ?? this.#rows[0] ?? null;
    const none = h("div", { role: "row", class: "pair-row" }, h("div", { role: "gridcell", class: "empty" }, this.only ? "No module differs." : "There are no modules."));
    fill(this.body, this.#rows.length ? this.#rows.map((node) => this.#row(node)) : none);
    if (had) this.#elementOf(this.focused)?.focus();
  }

  #elementOf(node) {
    return this.body.children[this.#rows.indexOf(node)];
  }

  #row(node) {
    const inner = node.children.size > 0;
    const open = this.#open.has(node);
    const at = node.worst;
    const chosen = node.places.includes(this.chosen);
    const level = node.level;
    const fold = inner
      ? h("span", {
          class: `fold-mark ${open ? "open" : ""}`,
          "aria-hidden": "true",
          onclick: (event) => {
            event.stopPropagation();
            this.#fold(node, !open);
          },
        })
      : h("span", { class: "fold-mark none", "aria-hidden": "true" });
    const cells = [
      h("div", { role: "gridcell", class: "side-cell" }, fold, h("span", {}, node.a === null ? this.#absent("not in A") : h("span", { class: "name" }, node.label), node.a !== null && node.type ? h("span", { class: "type" }, ` ${node.type}`) : null)),
      this.#heat(node, at, open),
      h("div", { role: "gridcell", class: "side-cell" }, h("span", { class: "fold-mark none", "aria-hidden": "true" }), node.b === null ? this.#absent(node.places.length || !inner ? "not in B" : "") : h("span", { class: "name" }, node.labelB)),
    ];
    for (const cell of [cells[0], cells[2]]) cell.style.setProperty("--level", level - 1);
    const row = h(
      "div",
      {
        role: "row",
        class: `pair-row ${chosen ? "chosen" : ""}`,
        "aria-level": String(level),
        "aria-expanded": inner ? String(open) : null,
        "aria-selected": String(chosen),
        tabindex: node === this.focused ? "0" : "-1",
        title: [node.a, node.b].filter((name) => name !== null).join(" ⇄ ") || null,
        onclick: () => this.#chosen(node),
      },
      ...cells,
    );
    return row;
  }

  #absent(text) {
    return h("span", { class: "absent" }, text);
  }

  /** The worst error of a node, or of what is folded away in it. */
  #heat(node, own, open) {
    const hidden = node.children.size > 0 && !open;
    const at = hidden && node.below !== null && (own === null || badness(this.places[node.below]) > badness(this.places[own])) ? node.below : own;
    if (at === null) return h("div", { role: "gridcell", class: "heat-cell" }, "");
    const place = this.places[at];
    const { word, sign, brief = word } = wordOf(place.verdict);
    const inside = at !== own ? h("span", { class: "inside" }, `${whole(node.differing)} inside`) : null;
    const numeric = place.verdict === "different" || place.verdict === "within";
    const number = this.byStep && differs(place) ? `step ${whole(place.step)}` : numeric ? told(place.error, 2) : brief;
    const cell = h("div", { role: "gridcell", class: "heat-cell filled" }, h("span", { class: "sign", "aria-hidden": "true" }, sign), ` ${number}`, h("span", { class: "hidden" }, number === word ? "" : ` ${word}`), inside);
    this.#paint(cell, place);
    return cell;
  }

  #paint(cell, place) {
    if (place.verdict === "random") return;
    if (!differs(place)) {
      cell.style.background = isDark() ? CALM.dark : CALM.light;
      return;
    }
    const colour = mixed(HOT, this.#share(place));
    cell.style.background = `rgb(${colour})`;
    cell.style.color = luminance(colour) > 0.179 ? "#000000" : "#ffffff";
  }

  /** Where on the scale of colours a place that differs is. */
  #share(place) {
    if (place.verdict !== "different") return { missing: 0.1, extra: 0.1 }[place.verdict] ?? 0.7;
    const bad = badness(place);
    if (Number.isFinite(bad)) return (bad - 1.3) / Math.max(this.hottest - 1.3, 0.1);
    if (!Number.isFinite(place.error)) return 1;
    return place.error > 0 ? Math.max(0, 1 + Math.log10(place.error / this.largest) / DECADES_OF_COLOUR) : 0;
  }

  #chosen(node) {
    this.focused = node;
    if (!node.places.length) return this.#fold(node, !this.#open.has(node));
    this.choose(node.worst ?? node.places[0]);
  }

  #fold(node, open) {
    if (open) this.#open.add(node);
    else this.#open.delete(node);
    this.focused = node;
    this.#draw();
  }

  #key(event) {
    const at = this.#rows.indexOf(this.focused);
    const node = this.focused;
    if (at < 0) return;
    const open = this.#open.has(node);
    const go = {
      ArrowDown: () => this.#focus(at + 1),
      ArrowUp: () => this.#focus(at - 1),
      Home: () => this.#focus(0),
      End: () => this.#focus(this.#rows.length - 1),
      ArrowRight: () => (node.children.size && !open ? this.#fold(node, true) : this.#focus(at + 1)),
      ArrowLeft: () => (node.children.size && open ? this.#fold(node, false) : this.#focus(this.#rows.indexOf(node.above))),
      Enter: () => this.#chosen(node),
      " ": () => this.#chosen(node),
    }[event.key];
    if (!go) return;
    event.preventDefault();
    go();
  }

  #focus(at) {
    if (at < 0 || at >= this.#rows.length) return;
    this.#elementOf(this.focused)?.setAttribute("tabindex", "-1");
    this.focused = this.#rows[at];
    const row = this.#elementOf(this.focused);
    row.setAttribute("tabindex", "0");
    row.focus();
  }
}

function sideWord(backward, byStep) {
  if (byStep) return backward ? "Gradients" : "Values and weights";
  return backward ? "Backward" : "Forward";
}

/** How bright a colour is to the eye, as contrast is worked out. */
function luminance(colour) {
  const [red, green, blue] = colour.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

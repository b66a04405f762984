// tree: the modules of a model, each with its health; the part that is chosen filters the charts.

import { badge } from "./badge.js";
import { fill, h } from "./dom.js";
import { rankOf, reasons, severity, worst } from "./words.js";

const AT_ONCE = 300;
const FEW_MODULES = 40; // a tree of so many is shown unfolded

export class Tree {
  #open = new Set([""]);

  /** `choose(name)` is called with the name of a module, or null when it is chosen again. */
  constructor(choose) {
    this.choose = choose;
    this.element = h("div", { class: "tree" });
  }

  /** Shows modules [(name, type)] whose names `wanted` has, with all that lies above these. */
  show({ modules, health, wanted, chosen, filtered, sickFirst }) {
    this.health = health;
    this.sickFirst = sickFirst;
    this.chosen = chosen;
    const root = { name: null, children: new Map(), type: "" };
    for (const [name, type] of modules) {
      if (name === "") root.model = { name, type, children: new Map(), label: "(model)", wanted: wanted("") };
      else place(root, name, type, wanted(name));
    }
    const nodes = [...(root.model ? [root.model] : []), ...root.children.values()];
    const kept = this.#ordered(nodes.filter((node) => weigh(node, health)));
    this.filtered = filtered;
    this.few = modules.length <= FEW_MODULES;
    const focused = this.element.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    // Where there is one thing only at the top, what is in it is what somebody came to see.
    this.top = kept.filter((node) => node.children.size).length === 1 ? kept.find((node) => node.children.size).name : null;
    fill(this.element, kept.length ? this.#list(kept) : h("p", { class: "empty" }, "No layer matches."));
    if (focused !== null) this.element.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  }

  /** Sick layers, and those with sick ones inside, before the others; else as the model has them. */
  #ordered(nodes) {
    if (!this.sickFirst) return nodes;
    const rank = (node) => Math.min(rankOf(severity(this.health, node.name)), rankOf(node.below?.level));
    return [...nodes].sort((a, b) => rank(a) - rank(b));
  }

  #list(nodes) {
    const list = h("ul", {}, ...nodes.slice(0, AT_ONCE).map((node) => this.#node(node)));
    if (nodes.length > AT_ONCE) list.append(h("li", { class: "empty" }, `and ${nodes.length - AT_ONCE} more: filter`));
    return list;
  }

  #node(node) {
    const children = this.#ordered([...node.children.values()].filter((child) => child.kept));
    const own = worst(this.health, node.name);
    const why = reasons(this.health, node.name);
    const level = severity(this.health, node.name);
    const below = children.length && rankOf(node.below?.level) < rankOf(level) ? node.below : null;
    const chosen = this.chosen === node.name;
    const button = h(
      "button",
      {
        class: `layer ${chosen ? "chosen" : ""}`,
        "aria-pressed": String(chosen),
        "data-name": node.name,
        onclick: () => this.choose(chosen ? null : node.name),
      },
      h("span", { class: "name" }, node.label),
      h("span", { class: "type" }, node.type),
      badge(own, level, why || undefined),
      why ? h("span", { class: "why" }, why) : null,
    );
    if (!children.length) return h("li", {}, button);
    const open = this.#open.has(node.name) || this.filtered || ((below || this.few || node.name === this.top) && !this.#open.has(`-${node.name}`));
    const inner = h("div", { class: "inner" });
    const fold = h("button", {
      class: "fold",
      "aria-expanded": String(Boolean(open)),
      "aria-label": `parts of ${node.label}`,
      onclick: () => {
        const now = fold.getAttribute("aria-expanded") !== "true";
        fold.setAttribute("aria-expanded", String(now));
        this.#open.delete(now ? `-${node.name}` : node.name);
        this.#open.add(now ? node.name : `-${node.name}`);
        fill(inner, now ? this.#list(children) : []);
      },
    });
    if (open) inner.append(this.#list(children));
    const hint = below ? h("span", { class: "below" }, "inside: ", badge(below.rule, below.level)) : null;
    return h("li", {}, h("div", { class: "parent" }, fold, button, hint), inner);
  }
}

function place(root, name, type, wanted) {
  let at = root;
  const parts = name.split(".");
  parts.forEach((part, depth) => {
    const path = parts.slice(0, depth + 1).join(".");
    if (!at.children.has(part)) at.children.set(part, { name: path, type: "", children: new Map(), label: part });
    at = at.children.get(part);
  });
  at.type = type;
  at.wanted = wanted;
}

/** Whether anything of a node is wanted; notes the worst health below it. */
function weigh(node, health) {
  node.below = null;
  let kept = Boolean(node.wanted);
  for (const child of node.children.values()) {
    kept = weigh(child, health) || kept;
    for (const one of [{ rule: worst(health, child.name), level: severity(health, child.name) }, child.below]) {
      if (rankOf(one?.level) < rankOf(node.below?.level)) node.below = one;
    }
  }
  node.kept = kept;
  return kept;
}

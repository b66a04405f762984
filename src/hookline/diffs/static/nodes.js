// nodes: the modules of both sides as one tree, in which a module of A and the one of B that it is compared with are one node.

import { badness, differs } from "./says.js";

/** A node: `a` and `b` are its names on each side, null where a side has none; `places` are numbers of places. */
class Twin {
  constructor(a, b, label, above) {
    Object.assign(this, { a, b, label, above, places: [], children: new Map(), type: "", from: Infinity });
  }

  get level() {
    return this.above ? this.above.level + 1 : 0;
  }

  /** Its name in B as it is shown: the last part, or what lies below the name of the node above. */
  get labelB() {
    if (this.b === null) return null;
    const above = this.above?.b;
    if (above && this.b.startsWith(`${above}.`)) return this.b.slice(above.length + 1);
    return this.b || "(model)";
  }
}

/** The root of the tree of all places; it is no module itself. */
export function treeOf(places) {
  const root = new Twin("", "", "", null);
  const byB = new Map([["", root]]);
  const model = places.some((place) => isModel(place)) ? new Twin("", "", "(model)", root) : null;
  if (model) root.children.set("", model);
  places.forEach((place, at) => {
    if (place.verdict === "extra") return;
    const node = isModel(place) ? model : reached(root, place.site);
    note(node, place, at);
    if (place.verdict !== "missing" && node !== model) pair(node, place.other || place.site, byB);
  });
  places.forEach((place, at) => {
    if (place.verdict === "extra") note(isModel(place) ? model : onlyInB(place.other || place.site, byB), place, at);
  });
  return root;
}

function isModel(place) {
  return place.site === "" && place.other === "";
}

/** The node of A's module of that name, made with all above it where it is new. */
function reached(root, name) {
  let node = root;
  const parts = name.split(".");
  parts.forEach((part, depth) => {
    const key = `a ${part}`;
    if (!node.children.has(key)) node.children.set(key, new Twin(parts.slice(0, depth + 1).join("."), null, part, node));
    node = node.children.get(key);
  });
  return node;
}

/** Notes B's name of a node, and of those above it that have none yet: they go up in step. */
function pair(node, other, byB) {
  let [at, name] = [node, other];
  while (at.above && name !== "" && at.b === null) {
    at.b = name;
    if (!byB.has(name)) byB.set(name, at);
    [at, name] = [at.above, name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : ""];
  }
}

/** A node that only B has, below the node of the module that holds it. */
function onlyInB(name, byB) {
  if (byB.has(name) && byB.get(name).above) return byB.get(name);
  const cut = name.lastIndexOf(".");
  const [above, part] = cut < 0 ? [byB.get(""), name] : [onlyInB(name.slice(0, cut), byB), name.slice(cut + 1)];
  const node = new Twin(null, name, part, above);
  above.children.set(`b ${part}`, node);
  byB.set(name, node);
  return node;
}

function note(node, place, at) {
  node.places.push(at);
  node.type ||= place.type;
  node.from = Math.min(node.from, at);
}

/**
 * Sorts by order of execution, and notes of each node: the place that stands for it (`worst`), the worst below it, and
 * how many differ in all. Only numbers that are `wanted` count; `first`: the first that differs stands for a node.
 */
export function weigh(node, places, wanted, first = false) {
  const bad = (at) => (first && differs(places[at]) ? 1e9 - places[at].step : badness(places[at]));
  const worse = (a, b) => (a === null || (b !== null && bad(b) > bad(a)) ? b : a);
  const mine = node.places.filter(wanted);
  node.worst = mine.reduce(worse, null);
  node.below = null;
  node.differing = mine.filter((at) => differs(places[at])).length;
  for (const child of node.children.values()) {
    weigh(child, places, wanted, first);
    node.below = worse(worse(node.below, child.worst), child.below);
    node.differing += child.differing;
    node.from = Math.min(node.from, child.from);
  }
  node.children = new Map([...node.children].sort(([keyA, a], [keyB, b]) => (keyA === "" ? -1 : keyB === "" ? 1 : a.from - b.from)));
}

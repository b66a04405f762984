// choice: what somebody has chosen to see, kept in the address; and which series that means.

import { matcher } from "./glob.js";
import { siteName } from "./dom.js";
import { rankOf, severity, worst } from "./words.js";

const KEPT = ["with", "kind", "stat", "filter", "under", "only", "health", "mode", "rank", "scale", "step", "inner", "flow", "order", "own"];
const OF_PARAMETERS = new Set(["param", "param_grad", "update", "moment", "moment_sq"]);

export class Choice {
  constructor(address) {
    this.read(address);
  }

  read(address) {
    for (const name of KEPT) this[name] = address.get(name);
  }

  /** The address of this view with some of it chosen otherwise, to be linked to. */
  address(values, place = "") {
    const address = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === undefined) address.delete(name);
      else address.set(name, value);
    }
    return `?${address}${place ? `#${place}` : ""}`;
  }

  /** What is not chosen, or is not there, becomes what most people want. */
  settle(about) {
    const kinds = [...new Set(about.series.map((series) => series[1]))].filter((kind) => kind !== "scalar");
    const has = (list, value, ...wishes) => [value, ...wishes].find((wish) => list.includes(wish)) ?? list[0] ?? null;
    this.kinds = kinds;
    this.kind = has(kinds, this.kind, "output", "param");
    this.flowKinds = kinds.filter((kind) => kind.includes("grad"));
    this.flow = has(this.flowKinds, this.flow, "param_grad", "grad_output");
    this.stat = has(about.stats, this.stat, "std");
    const rows = about.series.filter((series) => series[1] !== "scalar");
    this.modes = [...new Set(rows.map((series) => series[3]))];
    this.mode = has(this.modes, this.mode, "train");
    this.ranks = [...new Set(about.series.map((series) => String(series[4])))].sort((a, b) => a - b);
    this.rank = has(this.ranks, this.rank);
    this.scale = this.scale ?? "auto";
    this.filter = this.filter ?? "";
  }

  /** `jump`: the view before it is what the browser's Back leads to. */
  keep(about, jump = false) {
    const address = new URLSearchParams(location.search);
    for (const name of KEPT) {
      const plain = { kind: "output", stat: "std", scale: "auto", mode: "train", rank: this.ranks?.[0] }[name];
      const usual = name === "flow" ? this.flowKinds?.[this.flowKinds.indexOf("param_grad")] : plain;
      if (this[name] === null || this[name] === "" || this[name] === usual) address.delete(name);
      else address.set(name, this[name]);
    }
    const text = address.toString();
    try {
      if (about) history[jump ? "pushState" : "replaceState"](null, "", `${location.pathname}${text ? `?${text}` : ""}`);
    } catch {
      // some browsers keep the address of a file as it is
    }
  }

  /** A function site -> bool, for modules and for parameters. */
  wanted(about) {
    const names = new Set(about.modules.map(([name]) => name));
    const containers = new Set();
    for (const name of names) {
      const parts = name.split(".");
      for (let n = 1; n < parts.length; n++) containers.add(parts.slice(0, n).join("."));
    }
    if (names.size > 1) containers.add("");
    const matches = matcher(this.filter);
    return (site, kind, exactly = true) => {
      const owner = ownerOf(site, names);
      if (exactly && this.only !== null) return site === this.only;
      if (this.under !== null && site !== this.under && !site.startsWith(this.under ? `${this.under}.` : "")) return false;
      if (this.health !== null && worst(about.health, owner) !== this.health) return false;
      const asked = this.filter || this.inner || this.under === site || this.health !== null;
      if (!asked && kind && !OF_PARAMETERS.has(kind) && containers.has(site)) return false;
      return matches(site) || matches(owner);
    };
  }

  /** The series of a kind that are wanted, in order of execution: [{key, name, number, level}]. */
  picked(about, kind, exactly = true) {
    const wanted = this.wanted(about);
    const names = new Set(about.modules.map(([name]) => name));
    const found = [];
    about.series.forEach(([site, of, call, mode, rank], number) => {
      if (of === kind && mode === this.mode && String(rank) === this.rank && wanted(site, kind, exactly)) {
        const level = severity(about.health, ownerOf(site, names));
        found.push({ key: `${site} ${call}`, site, name: siteName(site, call), number, level, depth: found.length });
      }
    });
    return found;
  }

  /** Whether sick layers stand before the others. */
  get sickFirst() {
    return this.order !== "model";
  }

  /** Picks as lists show them: sick layers first, unless somebody wants the order of the model. */
  ordered(picks) {
    return this.sickFirst ? [...picks].sort((a, b) => rankOf(a.level) - rankOf(b.level)) : picks;
  }
}

export function ownerOf(site, names) {
  let name = site;
  while (name && !names.has(name)) name = name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : "";
  return name;
}

// choice: what somebody has chosen to see, kept in the address; and which series that means.

import { matcher } from "./glob.js";
import { siteName } from "./dom.js";
import { worst } from "./words.js";

const KEPT = ["with", "kind", "stat", "filter", "under", "health", "mode", "rank", "scale", "step", "inner", "flow"];
const OF_PARAMETERS = new Set(["param", "param_grad", "update"]);

export class Choice {
  constructor(address) {
    for (const name of KEPT) this[name] = address.get(name);
  }

  /** What is not chosen, or is not there, becomes what most people want. */
  settle(about) {
    const kinds = [...new Set(about.series.map((series) => series[1]))];
    const has = (list, value, ...wishes) => [value, ...wishes].find((wish) => list.includes(wish)) ?? list[0] ?? null;
    this.kinds = kinds;
    this.kind = has(kinds, this.kind, "output", "param");
    this.flowKinds = kinds.filter((kind) => kind.includes("grad"));
    this.flow = has(this.flowKinds, this.flow, "param_grad", "grad_output");
    this.stat = has(about.stats, this.stat, "std");
    this.modes = [...new Set(about.series.map((series) => series[3]))];
    this.mode = has(this.modes, this.mode, "train");
    this.ranks = [...new Set(about.series.map((series) => String(series[4])))].sort((a, b) => a - b);
    this.rank = has(this.ranks, this.rank);
    this.scale = this.scale ?? "auto";
    this.filter = this.filter ?? "";
  }

  keep(about) {
    const address = new URLSearchParams(location.search);
    for (const name of KEPT) {
      const plain = { kind: "output", stat: "std", scale: "auto", mode: "train", rank: this.ranks?.[0] }[name];
      const usual = name === "flow" ? this.flowKinds?.[this.flowKinds.indexOf("param_grad")] : plain;
      if (this[name] === null || this[name] === "" || this[name] === usual) address.delete(name);
      else address.set(name, this[name]);
    }
    const text = address.toString();
    try {
      if (about) history.replaceState(null, "", `${location.pathname}${text ? `?${text}` : ""}`);
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
    return (site, kind) => {
      const owner = ownerOf(site, names);
      if (this.under !== null && site !== this.under && !site.startsWith(this.under ? `${this.under}.` : "")) return false;
      if (this.health !== null && worst(about.health, owner) !== this.health) return false;
      const asked = this.filter || this.inner || this.under === site || this.health !== null;
      if (!asked && kind && !OF_PARAMETERS.has(kind) && containers.has(site)) return false;
      return matches(site) || matches(owner);
    };
  }

  /** The series of a kind that are wanted, in order of execution: [{key, name, number}]. */
  picked(about, kind) {
    const wanted = this.wanted(about);
    const found = [];
    about.series.forEach(([site, of, call, mode, rank], number) => {
      if (of === kind && mode === this.mode && String(rank) === this.rank && wanted(site, kind)) {
        found.push({ key: `${site} ${call}`, site, name: siteName(site, call), number });
      }
    });
    return found;
  }
}

export function ownerOf(site, names) {
  let name = site;
  while (name && !names.has(name)) name = name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : "";
  return name;
}

// facts: what a run is: its model, steps, settings; and what it has in common with the one that lies over it.

import { badge } from "./badge.js";
import { fill, h, moment, short, whole } from "./dom.js";
import { state, took } from "./list.js";

const MOST_SETTINGS = 200;
const FEW_SETTINGS = 6;

/** The name of a run, or of two, how it is doing, and how far it is read. */
export function showTitle(element, runs) {
  const { about, name } = runs[0];
  const reading = about.progress < 1 ? h("p", { class: "wait", role: "status" }, `Reading the run: ${Math.round(about.progress * 100)} %`) : null;
  fill(
    element,
    h("h1", {}, ...(runs[1] ? [name, h("small", {}, " with "), runs[1].name] : [name]), " ", state(about.state)),
    about.state.why && h("p", { class: "error" }, about.state.why),
    reading,
  );
}

/** Fills `element` with the facts of one run, and what two have in common. */
export function showFacts(element, runs) {
  const { about } = runs[0];
  const { meta, steps, state: now } = about;
  const list = {
    Model: meta.model ?? "–",
    "Recorded steps": steps.length ? `${whole(steps.length)}, the last is ${whole(steps.at(-1))}` : now.state === "running" ? "none yet" : "none",
    Layers: whole(about.modules.length),
    Started: moment(now.started),
    Took: took(now),
    With: [meta.backend, `hookline ${meta.hookline}`, meta.python && `Python ${meta.python}`].filter(Boolean).join(", "),
  };
  if (about.wired?.length) list[about.wired.length > 1 ? "Optimizers" : "Optimizer"] = about.wired.join("; ");
  if (typeof meta.budget?.text === "string") list.Budget = meta.budget.text.replace(/^Budget /, "");
  if (now.dropped) list.Dropped = `${whole(now.dropped)} rows: the disk could not keep up`;
  if (now.damage?.length) list.Damaged = now.damage.join(" ");
  const open = element.querySelector("details")?.open;
  fill(
    element,
    h("dl", {}, ...Object.entries(list).map(entry)),
    settings(meta.config, open),
    runs[1] && other(runs[1]),
    runs[1] && shared(...runs),
  );
}

function entry([term, text]) {
  return h("div", {}, h("dt", {}, term), h("dd", {}, text));
}

/** What the user has noted of the run; parts of parts have names with dots. */
function settings(config, open) {
  if (config === undefined || config === null) return null;
  const flat = (value, name) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? Object.entries(value).flatMap(([key, inner]) => flat(inner, name ? `${name}.${key}` : key))
      : [[name || "config", typeof value === "number" ? short(value, 6) : typeof value === "string" ? value : JSON.stringify(value)]];
  const all = flat(config, "");
  if (!all.length) return null;
  const told = all.slice(0, FEW_SETTINGS).flatMap(([name, text], n) => [n ? " · " : "", h("span", {}, `${name} `, h("b", {}, text))]);
  if (all.length <= FEW_SETTINGS) return h("p", { class: "settings" }, "Settings: ", ...told);
  const rest = all.slice(FEW_SETTINGS, MOST_SETTINGS);
  const more = all.length > MOST_SETTINGS ? `, ${whole(rest.length)} of them are shown` : "";
  return h(
    "details",
    { class: "settings", open: Boolean(open) },
    h("summary", {}, "Settings: ", ...told, ` and ${whole(all.length - FEW_SETTINGS)} more${more}`),
    h("dl", {}, ...rest.map(entry)),
  );
}

/** What is found in the run that lies over this one, in a line. */
function other({ name, about }) {
  const text = about.verdict && about.verdict.state !== "healthy" ? ` ${about.verdict.sentence}` : "";
  const level = about.verdict?.state ?? "pending";
  return h("p", { class: "lead" }, `${name}: `, badge(level, level), text);
}

/** Which layers two runs have in common: nothing is drawn of those that only the second has. */
function shared(one, two) {
  const names = new Set(one.sites());
  const [here, there] = [one.sites(), two.sites()];
  const only = there.filter((site) => !names.has(site));
  if (!there.length || !here.length) return null;
  if (!only.length && here.length === there.length) return null;
  const some = only.slice(0, 4).map((site) => site || "(model)").join(", ");
  const rest = only.length ? `; only in ${two.name} and not drawn: ${some}${only.length > 4 ? ` and ${whole(only.length - 4)} more` : ""}` : "";
  if (only.length === there.length) {
    return h("p", { class: "error" }, `Nothing of ${two.name} is drawn: none of its layers has the name of one of ${one.name}'s. It has ${some}${only.length > 4 ? ", …" : ""}.`);
  }
  return h("p", { class: "lead" }, `${whole(there.length - only.length)} of ${whole(here.length)} layers and parameters of ${one.name} are in ${two.name}, too${rest}.`);
}

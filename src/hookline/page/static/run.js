// run: the page of a run: what it is, its layers, its charts; it follows a run that is being written.

import { BoxesSection, FlowSection } from "./atstep.js";
import { Choice } from "./choice.js";
import { fill, h, labelled, later, moment, select, whole } from "./dom.js";
import { state, took } from "./list.js";
import { CurvesSection, HeatSection } from "./sections.js";
import { Tree, badge } from "./tree.js";
import { HEALTH, kindName, statName, worst } from "./words.js";

const TOLD = 6;

/** A run and the questions that can be asked of it. */
class RunData {
  constructor(source, name, about) {
    Object.assign(this, { source, name, about });
    this.index();
  }

  index() {
    this.numbers = new Map(this.about.series.map((series, number) => [JSON.stringify(series.slice(0, 4)), number]));
  }

  async refresh() {
    this.about = await this.source.about(this.name);
    this.index();
  }

  /** For each pick of another run, the series of this one with the same site, kind and call, and mode if it can be. */
  same(picks, kind, wanted) {
    return picks.map((pick) => {
      const [site, call] = [pick.site, Number(pick.key.slice(pick.key.lastIndexOf(" ") + 1))];
      for (const mode of [wanted, "train", "eval"]) {
        const number = this.numbers.get(JSON.stringify([site, kind, call, mode]));
        if (number !== undefined) return { ...pick, number };
      }
      return undefined;
    });
  }

  curves(series, stat, points) {
    return this.source.curves(this.name, series, stat, points);
  }

  heat(series) {
    return this.source.heat(this.name, series, 200);
  }

  at(series, step, finite) {
    return this.source.at(this.name, series, step, finite);
  }

  /** The names of all that has rows. */
  sites() {
    return [...new Set(this.about.series.map(([site]) => site))];
  }
}

export class RunView {
  constructor(main, source, name, address) {
    Object.assign(this, { main, source, name });
    this.choice = new Choice(address);
    this.news = later(() => this.#follow(), 50);
  }

  async start() {
    const first = await this.source.about(this.name);
    this.runs = [new RunData(this.source, this.name ?? first.name, first)];
    const other = this.source.live ? this.choice.with : null;
    if (other && other !== this.name) {
      this.runs.push(new RunData(this.source, other, await this.source.about(other)));
    }
    this.choice.settle(first);
    this.others = [];
    this.#build();
    this.#update();
    this.#listen();
    if (this.source.live) await this.#findOthers();
  }

  /** With which runs this one may be compared: the page is there before they are. */
  async #findOthers() {
    const { runs } = await this.source.list();
    this.others = runs.filter((run) => run.name !== this.name && !run.error);
    this.#controls();
  }

  /** The step that is looked at: the chosen one, or the latest. */
  step() {
    const steps = this.#steps();
    if (!steps.length) return null;
    if (this.choice.step === null) return steps.at(-1);
    const wanted = Number(this.choice.step);
    return steps.findLast((step) => step <= wanted) ?? steps[0];
  }

  #steps() {
    return this.runs[0].about.atSteps ?? this.runs[0].about.steps;
  }

  #listen() {
    const link = document.getElementById("link");
    this.told = {};
    this.source.listen(
      this.runs.map((run) => run.name),
      (news) => {
        for (const one of news) {
          if (one.error) link.textContent = one.error;
          else this.told[one.name] = one;
        }
        this.news();
      },
      (lost) => (link.textContent = lost ? "The server does not answer." : ""),
    );
  }

  /** Whether the stream has told of more than this page has. */
  #behind({ name, about }) {
    const told = this.told[name];
    if (!told) return false;
    const more = ["revision", "looked", "progress"].some((name) => told[name] > about[name]);
    return more || told.state.state !== about.state.state;
  }

  /** Fetches what has changed; not more often than the answers take. */
  async #follow() {
    if (this.following) return;
    this.following = true;
    const began = performance.now();
    try {
      for (const run of this.runs) {
        if (this.#behind(run)) await run.refresh();
      }
      this.choice.settle(this.runs[0].about);
      this.#update();
    } catch (error) {
      document.getElementById("link").textContent = error.message;
    }
    setTimeout(() => {
      this.following = false;
      if (this.runs.some((run) => this.#behind(run))) this.news();
    }, Math.max(300, this.runs.some((run) => run.about.progress < 1) ? 0 : 3 * (performance.now() - began)));
  }

  /** Something was chosen. */
  #chose(values) {
    Object.assign(this.choice, values);
    this.choice.keep(this.runs[0].about);
    this.#update();
  }

  #build() {
    this.facts = h("section", { class: "facts", "aria-label": "The run" });
    this.tree = new Tree((under) => this.#chose({ under }));
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Layers by health" });
    const search = h("input", {
      type: "search",
      id: "filter",
      value: this.choice.filter,
      placeholder: "part of a name, or a glob",
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": "filter-help",
    });
    search.addEventListener("input", later(() => this.#chose({ filter: search.value }), 120));
    const help = "* within a part, ** across dots: blocks.*.conv1, **.weight";
    const layers = h(
      "details",
      { class: "side card", open: matchMedia("(min-width: 900px)").matches },
      h("summary", {}, h("h2", {}, "Layers")),
      labelled("Filter", search),
      h("p", { class: "hint", id: "filter-help" }, help),
      this.chips,
      this.tree.element,
    );
    this.controls = h("div", { class: "controls card", role: "group", "aria-label": "What is drawn" });
    this.sections = [new CurvesSection(this), new HeatSection(this)];
    const slider = this.#slider();
    this.atStep = [new FlowSection(this), new BoxesSection(this)];
    const parts = [...this.sections, ...this.atStep].map((section) => section.element);
    this.charts = h("div", { class: "charts" }, this.controls, ...parts.slice(0, 2), slider, ...parts.slice(2));
    fill(this.main, this.facts, h("div", { class: "layout" }, layers, this.charts));
  }

  #slider() {
    this.range = h("input", { type: "range", id: "step", min: "0" });
    this.range.addEventListener("input", () => {
      this.choice.step = String(this.#steps()[Number(this.range.value)]);
      this.#showStep();
      this.atSoon();
    });
    this.atSoon = later(() => this.#chose({}), 80);
    this.latest = h("button", { class: "quiet", onclick: () => this.#chose({ step: null }) }, "Latest");
    this.output = h("output", { for: "step" });
    this.flowKind = h("span", {});
    return h(
      "div",
      { class: "controls card", role: "group", "aria-label": "At one step" },
      labelled("Step", this.range, "field wide"),
      this.output,
      this.latest,
      this.flowKind,
    );
  }

  #showStep() {
    const steps = this.#steps();
    const step = this.step();
    this.range.max = String(Math.max(steps.length - 1, 0));
    this.range.value = String(Math.max(steps.indexOf(step), 0));
    this.range.disabled = steps.length < 2;
    const text = step === null ? "no step yet" : `${whole(step)}${this.choice.step === null ? " (latest)" : ""}`;
    this.output.textContent = text;
    this.range.setAttribute("aria-valuetext", `step ${text}`);
    this.latest.disabled = this.choice.step === null;
  }

  #update() {
    this.#facts();
    this.#chips();
    this.#controls();
    this.#showStep();
    const { about } = this.runs[0];
    const wanted = this.choice.wanted(about);
    const owned = new Set(about.series.filter(([site]) => wanted(site)).map(([site]) => site));
    this.tree.show({
      modules: about.modules,
      health: about.health,
      wanted: (name) => this.choice.under !== null || wanted(name) || owned.has(`${name}.weight`) || owned.has(`${name}.bias`),
      chosen: this.choice.under,
      filtered: Boolean(this.choice.filter || this.choice.health),
    });
    this.charts.hidden = !about.series.length; // there is nothing to draw, and nothing to choose
    if (this.charts.hidden) return;
    for (const section of [...this.sections, ...this.atStep]) {
      section.invalidate();
      section.soon();
    }
  }

  #controls() {
    const { choice } = this;
    const { about } = this.runs[0];
    const key = JSON.stringify([choice.kinds, about.stats, choice.modes, choice.ranks, choice.flowKinds, this.others.map((run) => run.name)]);
    if (key === this.controlled) return;
    this.controlled = key;
    const fields = [
      select("Values", choice.kinds.map((kind) => [kind, kindName(kind)]), choice.kind, (kind) => this.#chose({ kind })),
      select("Statistic", about.stats.map((stat) => [stat, statName(stat)]), choice.stat, (stat) => this.#chose({ stat })),
      select("Scale", ["auto", "linear", "log"].map((one) => [one, one]), choice.scale, (scale) => this.#chose({ scale })),
    ];
    if (choice.modes.length > 1) {
      fields.push(select("Mode", choice.modes.map((mode) => [mode, mode]), choice.mode, (mode) => this.#chose({ mode })));
    }
    if (choice.ranks.length > 1 && this.source.live) {
      fields.push(select("Rank", choice.ranks.map((rank) => [rank, rank]), choice.rank, (rank) => this.#chose({ rank })));
    }
    const inner = h("input", { type: "checkbox", onchange: () => this.#chose({ inner: inner.checked ? "1" : null }) });
    inner.checked = Boolean(choice.inner);
    fields.push(h("label", { class: "check" }, inner, " containers too"));
    if (this.others.length) {
      const names = [["", "no other run"], ...this.others.map((run) => [run.name, run.name])];
      fields.push(
        select("Compare with", names, choice.with ?? "", (name) => {
          choice.with = name || null;
          choice.keep(about);
          location.reload();
        }),
      );
    }
    fill(this.controls, ...fields);
    const flows = choice.flowKinds.map((kind) => [kind, kindName(kind)]);
    fill(this.flowKind, flows.length > 1 ? select("Flow of", flows, choice.flow, (flow) => this.#chose({ flow })) : "");
  }

  #chips() {
    const { about } = this.runs[0];
    const counts = {};
    for (const [name] of about.modules) {
      const health = worst(about.health, name);
      counts[health] = (counts[health] ?? 0) + 1;
    }
    const chips = Object.keys(HEALTH).filter((health) => counts[health]);
    const focused = this.chips.contains(document.activeElement) ? document.activeElement.dataset.health : null;
    fill(
      this.chips,
      ...chips.map((health) => {
        const pressed = this.choice.health === health;
        const choose = () => this.#chose({ health: pressed ? null : health });
        return h(
          "button",
          { class: "chip", "aria-pressed": String(pressed), "data-health": health, onclick: choose },
          badge(health),
          h("span", { class: "count" }, whole(counts[health])),
        );
      }),
    );
    if (focused) this.chips.querySelector(`[data-health="${focused}"]`)?.focus();
  }

  #facts() {
    const { about, name } = this.runs[0];
    const { meta, steps, state: now } = about;
    const list = {
      Model: meta.model ?? "–",
      "Recorded steps": steps.length ? `${whole(steps.length)}, the last is ${whole(steps.at(-1))}` : now.state === "running" ? "none yet" : "none",
      Layers: whole(about.modules.length),
      Started: moment(now.started),
      Took: took(now),
      With: [meta.backend, `hookline ${meta.hookline}`, meta.python && `Python ${meta.python}`].filter(Boolean).join(", "),
    };
    if (now.dropped) list.Dropped = `${whole(now.dropped)} rows: the disk could not keep up`;
    if (now.damage?.length) list.Damaged = now.damage.join(" ");
    const found = findingsOf(about);
    // The worst first; of these what was seen first, and in one step what ran first: that is where it began.
    const ran = new Map(about.series.map(([site], number) => [site, number]).reverse());
    const order = ([site, [[what, , step]]]) => [Object.keys(HEALTH).indexOf(what), what === "nan" ? step : 0, ran.get(site) ?? 1e9];
    found.sort((a, b) => order(a).map((value, n) => value - order(b)[n]).find((value) => value) ?? 0);
    const reading = about.progress < 1 ? h("p", { class: "wait", role: "status" }, `Reading the run: ${Math.round(about.progress * 100)} %`) : null;
    fill(
      this.facts,
      h("h1", {}, ...(this.runs[1] ? [name, h("small", {}, " with "), this.runs[1].name] : [name]), " ", state(now)),
      now.why && h("p", { class: "error" }, now.why),
      reading,
      h("dl", {}, ...Object.entries(list).map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text)))),
      this.#findings(found, about),
      this.runs[1] && this.#other(this.runs[1]),
      this.runs[1] && this.#shared(...this.runs),
    );
  }

  /** Which layers two runs have in common: nothing is drawn of those that only the second has. */
  #shared(one, two) {
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

  /** What is found in the run that lies over this one, in a line. */
  #other({ name, about }) {
    const found = findingsOf(about);
    const told = found.slice(0, 3).flatMap(([site, some]) => [" ", badge(some[0][0]), ` ${site || "(model)"}`]);
    const more = found.length > 3 ? ` and ${whole(found.length - 3)} more` : "";
    return h("p", { class: "lead" }, `${name}: `, ...(found.length ? told : [badge(about.health ? "healthy" : "pending")]), more);
  }

  #findings(found, about) {
    if (!about.series.length) {
      const later = about.state.state === "running" ? "Nothing is recorded yet; the page follows the run." : "No statistics were recorded.";
      return h("p", { class: "lead" }, about.progress < 1 ? "" : later);
    }
    if (about.no_health) return h("p", { class: "error" }, `The health of the layers is not known: ${about.no_health}`);
    if (!about.health) return h("p", { class: "lead", role: "status" }, badge("pending"), " The layers are being looked at; whether they are healthy is not known yet.");
    const late = about.looked < about.revision && about.until !== null ? ` Until step ${whole(about.until)}; what came later is being looked at.` : "";
    if (!found.length) return h("p", { class: "lead good" }, badge("healthy"), ` No layer has NaN, explodes, is dead, stands still or lacks a gradient.${late}`);
    const rest = found.length - TOLD;
    return h(
      "div",
      { class: "findings" },
      h("h2", {}, `${found.length === 1 ? "1 layer needs" : `${whole(found.length)} layers need`} a look`),
      h(
        "ul",
        {},
        ...found.slice(0, TOLD).map(([site, some]) =>
          h("li", {}, badge(some[0][0]), " ", h("b", {}, site || "(model)"), ` ${some[0][1]}`),
        ),
        rest > 0 ? h("li", { class: "empty" }, `and ${whole(rest)} more, in the list of layers`) : null,
      ),
      late ? h("p", { class: "hint" }, late) : null,
    );
  }
}

/** [site, findings] of each layer that has any. */
function findingsOf(about) {
  return about.modules.map(([site]) => [site, about.health?.[site] ?? []]).filter(([, some]) => some.length);
}

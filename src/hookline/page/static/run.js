// run: the page of a run: what it is, its layers, its charts; it follows a run that is being written.

import { BoxesSection, FlowSection } from "./atstep.js";
import { badge } from "./badge.js";
import { diffAddress } from "./chooser.js";
import { Choice } from "./choice.js";
import { fill, h, labelled, later, select, siteName, whole } from "./dom.js";
import { showFacts, showTitle } from "./facts.js";
import { MapSection } from "./layermap.js";
import { onsetsOf } from "./onsets.js";
import { CurvesSection, HeatSection } from "./sections.js";
import { TrainingSection } from "./training.js";
import { Tree } from "./tree.js";
import { Verdict } from "./verdict.js";
import { kindName, rankOf, severity, statName, worst } from "./words.js";

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
    return [...new Set(this.about.series.filter(([, kind]) => kind !== "scalar").map(([site]) => site))];
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
    addEventListener("popstate", () => this.#back());
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
    if (this.source.live) await this.#findOthers();
  }

  /** With which runs this one may be compared: the page is there before they are. */
  async #findOthers() {
    const { runs } = await this.source.list(true);
    this.others = runs.filter((run) => run.name !== this.name && !run.error);
    const [, other] = this.runs;
    this.parting.hidden = !this.others.length;
    fill(this.parting, h("a", { href: diffAddress(this.name, other?.name) }, other ? "Diff: where these two runs part" : "Compare with another run: where do they part?"));
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
  choose(values, jump = false) {
    Object.assign(this.choice, values);
    this.choice.settle(this.runs[0].about);
    this.choice.keep(this.runs[0].about, jump);
    this.controlled = null; // what is chosen is shown by the controls, too
    this.#update();
  }

  /** Chooses something and goes to the chart that shows it; the browser's Back leads back. */
  jump(values, place) {
    this.choose(values, true);
    const section = document.getElementById(place);
    section?.scrollIntoView({ block: "start" });
    section?.querySelector("canvas")?.focus({ preventScroll: true });
  }

  /** A link to a view, which is shown without loading the page again. */
  link(values, place, text, kind = null) {
    const go = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.jump(values, place);
    };
    return h("a", { href: this.choice.address(values, place), class: kind, onclick: go }, text);
  }

  #back() {
    const compared = this.choice.with;
    this.choice.read(new URLSearchParams(location.search));
    if (this.choice.with !== compared) return location.reload();
    this.choice.settle(this.runs[0].about);
    this.controlled = null;
    this.#update();
  }

  /** Where the findings of the run begin. */
  onsets() {
    return onsetsOf(this.runs[0].about.findings);
  }

  #build() {
    this.title = h("section", { class: "title", "aria-label": "The run" });
    this.facts = h("section", { class: "facts", "aria-label": "Facts of the run" });
    this.parting = h("p", { class: "parting", hidden: true });
    this.verdict = new Verdict(this);
    this.training = new TrainingSection(this);
    this.tree = new Tree((under) => this.choose({ under }));
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
    search.addEventListener("input", later(() => this.choose({ filter: search.value }), 120));
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
    this.sections = [new MapSection(this), new CurvesSection(this), new HeatSection(this)];
    const slider = this.#slider();
    this.atStep = [new FlowSection(this), new BoxesSection(this)];
    const parts = [...this.sections, ...this.atStep].map((section) => section.element);
    this.charts = h("div", { class: "charts" }, this.controls, ...parts.slice(0, 3), slider, ...parts.slice(3));
    fill(this.main, this.title, this.parting, this.verdict.element, this.facts, this.training.element, h("div", { class: "layout" }, layers, this.charts));
  }

  #slider() {
    this.range = h("input", { type: "range", id: "step", min: "0" });
    this.range.addEventListener("input", () => {
      this.choice.step = String(this.#steps()[Number(this.range.value)]);
      this.#showStep();
      this.atSoon();
    });
    this.atSoon = later(() => this.choose({}), 80);
    this.latest = h("button", { class: "quiet", onclick: () => this.choose({ step: null }) }, "Latest");
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
    showTitle(this.title, this.runs);
    showFacts(this.facts, this.runs);
    this.verdict.show(this.runs[0].about);
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
      sickFirst: this.choice.sickFirst,
    });
    this.training.element.hidden = !TrainingSection.has(about);
    if (!this.training.element.hidden) {
      this.training.invalidate();
      this.training.soon();
    }
    this.charts.hidden = !this.choice.kinds.length; // there is nothing to draw, and nothing to choose
    if (this.charts.hidden) return;
    for (const section of [...this.sections, ...this.atStep]) {
      section.invalidate();
      section.soon();
    }
  }

  #controls() {
    const { choice } = this;
    const { about } = this.runs[0];
    const key = JSON.stringify([choice.kinds, about.stats, choice.modes, choice.ranks, choice.flowKinds, choice.only, choice.under, this.others.map((run) => run.name)]);
    if (key === this.controlled) return;
    this.controlled = key;
    const fields = [
      select("Values", choice.kinds.map((kind) => [kind, kindName(kind)]), choice.kind, (kind) => this.choose({ kind })),
      select("Statistic", about.stats.map((stat) => [stat, statName(stat)]), choice.stat, (stat) => this.choose({ stat })),
      select("Scale", ["auto", "linear", "log"].map((one) => [one, one]), choice.scale, (scale) => this.choose({ scale })),
    ];
    if (choice.modes.length > 1) {
      fields.push(select("Mode", choice.modes.map((mode) => [mode, mode]), choice.mode, (mode) => this.choose({ mode })));
    }
    if (choice.ranks.length > 1 && this.source.live) {
      fields.push(select("Rank", choice.ranks.map((rank) => [rank, rank]), choice.rank, (rank) => this.choose({ rank })));
    }
    const inner = h("input", { type: "checkbox", onchange: () => this.choose({ inner: inner.checked ? "1" : null }) });
    inner.checked = Boolean(choice.inner);
    const sick = h("input", { type: "checkbox", onchange: () => this.choose({ order: sick.checked ? null : "model" }) });
    sick.checked = choice.sickFirst;
    fields.push(h("label", { class: "check" }, inner, " containers too"), h("label", { class: "check" }, sick, " sick layers first"));
    if (choice.only !== null || choice.under !== null) {
      const name = siteName(choice.only ?? choice.under);
      const all = h("button", { class: "quiet only", onclick: () => this.choose({ only: null, under: null }) }, `${name} only: show all layers`);
      fields.unshift(all);
    }
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
    fill(this.flowKind, flows.length > 1 ? select("Flow of", flows, choice.flow, (flow) => this.choose({ flow })) : "");
  }

  #chips() {
    const { about } = this.runs[0];
    const [counts, levels] = [{}, {}];
    for (const [name] of about.modules) {
      const health = worst(about.health, name);
      counts[health] = (counts[health] ?? 0) + 1;
      const level = severity(about.health, name);
      if (!levels[health] || rankOf(level) < rankOf(levels[health])) levels[health] = level;
    }
    const chips = Object.keys(counts).sort((a, b) => rankOf(levels[a]) - rankOf(levels[b]) || (a === "healthy") - (b === "healthy"));
    const focused = this.chips.contains(document.activeElement) ? document.activeElement.dataset.health : null;
    fill(
      this.chips,
      ...chips.map((health) => {
        const pressed = this.choice.health === health;
        const choose = () => this.choose({ health: pressed ? null : health });
        return h(
          "button",
          { class: "chip", "aria-pressed": String(pressed), "data-health": health, onclick: choose },
          badge(health, levels[health]),
          h("span", { class: "count" }, whole(counts[health])),
        );
      }),
    );
    if (focused) this.chips.querySelector(`[data-health="${CSS.escape(focused)}"]`)?.focus();
  }
}

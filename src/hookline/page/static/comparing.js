// comparing: the diff of two runs, or of a recording of each, as the report of a diff shows it.

import { Chooser, diffAddress } from "./chooser.js";
import { DiffView, diffTitle } from "./diffview.js";
import { fill, h, whole } from "./dom.js";
import { begin } from "./frame.js";
import { ServerSource } from "./source.js";
import { STATES } from "./words.js";

const ASK_AGAIN = 250;
const LOOK_AGAIN = 3000;
const NO_ANSWER = 2000;

const wait = (time) => new Promise((done) => setTimeout(done, time));

class Comparing {
  constructor(main, source, { a, b, kept }) {
    Object.assign(this, { main, source, a, b, kept });
    this.chooser = new Chooser(a, b);
    this.news = h("p", { class: "news", role: "status" });
  }

  async start() {
    document.title = `${[this.a, this.b].filter((name) => name !== null).join(" against ")} · hookline`;
    const listed = this.source.list(true).then(({ runs }) => this.#choices(runs));
    if (this.b === null) {
      await listed;
      return this.#nothing("Choose a second run");
    }
    const answer = await this.#found();
    await listed;
    if (answer.state === "failed") return this.#failed(answer);
    this.of = answer.of;
    new DiffView(this.main, answer.data, { above: this.news, below: this.#about(answer) }).start();
    this.#follow();
  }

  #choices(runs) {
    this.chooser.show(runs);
    this.alone = this.chooser.element.hidden ? h("p", {}, "A diff needs two runs that can be read, and this folder has fewer. A run appears here when it begins.") : null;
  }

  /** Asks until the diff is there; says how far it is. */
  async #found() {
    const status = h("p", { class: "wait", role: "status" });
    fill(this.main, diffTitle(this.a, this.b), status);
    for (let of = null; ; ) {
      const answer = await this.#ask({ of });
      if (answer.state !== "working") return answer;
      of = answer.of;
      const done = `${Math.round(answer.share * 100)} %`;
      status.textContent = answer.waits ? "Waiting for another diff, which is being worked out." : `Comparing the two: ${done}. To stop it, close this page.`;
      await wait(ASK_AGAIN);
    }
  }

  /** One question; a server that does not answer is asked again, a sentence of its is an answer. */
  async #ask(more) {
    for (;;) {
      try {
        const answer = await this.source.diff({ a: this.a, b: this.b, kept: this.kept, ...more });
        this.#lost(false);
        return answer;
      } catch (error) {
        if (!(error instanceof TypeError)) return { state: "failed", error: error.message, recordings: [] };
        this.#lost(true);
        await wait(NO_ANSWER);
      }
    }
  }

  #lost(is) {
    document.getElementById("link").textContent = is ? "The server does not answer." : "";
  }

  #nothing(title) {
    fill(this.main, h("h1", { class: "title" }, title), this.alone, this.chooser.element);
  }

  #failed({ error, recordings }) {
    const box = h("section", { class: "verdict-box warning", id: "verdict", role: "alert" }, h("h2", {}, "The two can't be compared"), h("p", {}, sentenceOf(error)));
    fill(this.main, diffTitle(this.a, this.b), box, this.#offered(recordings), this.alone, this.chooser.element);
  }

  /** Of which data the diff is, and what else there is to compare. */
  #about({ sides, recordings }) {
    const one = ({ name, last, state }, side) =>
      h("span", {}, `${side}: `, h("a", { href: `/?run=${encodeURIComponent(name)}` }, name), ` ${last === null ? "without steps" : `up to step ${whole(last)}`}, ${STATES[state] ?? state}`);
    return h(
      "div",
      { class: "about-diff" },
      h("p", { class: "hint" }, "This is how the runs were when this page was opened. ", one(sides[0], "A"), "; ", one(sides[1], "B"), "."),
      this.#offered(recordings),
      h("details", { class: "rest" }, h("summary", {}, "Compare other runs"), this.chooser.element),
    );
  }

  /** Recordings of both runs, whose values can be compared, or the way back to the runs. */
  #offered(recordings = []) {
    const runs = this.kept ? h("a", { href: diffAddress(this.a, this.b) }, "Compare the runs, step by step") : null;
    if (!recordings.length) return runs && h("p", {}, runs);
    const pick = h("select", { id: "choose-recordings", onchange: () => pick.value && location.assign(`${diffAddress(this.a, this.b)}&kept=${pick.value}`) });
    pick.append(h("option", { value: "" }, "choose"));
    for (const { kept, step } of recordings) {
      const value = kept.join(",");
      const name = step === null ? `recording ${kept[0]} of A, ${kept[1]} of B` : `at step ${whole(step)} (recording ${kept[0]} of A, ${kept[1]} of B)`;
      pick.append(h("option", { value, selected: value === this.kept?.join(",") }, name));
    }
    return h("p", { class: "offered" }, h("label", { for: "choose-recordings" }, "Both runs have recordings. Compare their values: "), pick, " ", runs);
  }

  /** Says when there is more than is shown; nothing is worked out again before somebody wants it. */
  async #follow() {
    for (;;) {
      await wait(LOOK_AGAIN);
      if (document.visibilityState !== "visible") continue;
      const answer = await this.#ask({ of: this.of, seen: true });
      if (answer.state === "failed") fill(this.news, sentenceOf(answer.error));
      else if (answer.is_new && !this.news.childElementCount) {
        fill(this.news, "The runs have changed since. ", h("button", { onclick: () => location.reload() }, "Compare again"));
      }
    }
  }
}

function sentenceOf(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
}

/** What the address asks for; "3,4" are the numbers of two recordings. */
function read(address) {
  const numbers = /^(\d{1,9}),(\d{1,9})$/.exec(address.get("kept") ?? "");
  return { a: address.get("diff"), b: address.get("with"), kept: numbers && [Number(numbers[1]), Number(numbers[2])] };
}

const trail = h("span", {}, h("a", { href: "/" }, "Runs"), " / Diff");
begin(trail, true, (main) => new Comparing(main, new ServerSource(), read(new URLSearchParams(location.search))).start());

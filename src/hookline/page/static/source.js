// source: where the numbers come from: the server that sent this page, or the page itself (a report).

import { bytesOf, unpacked } from "./packed.js";

function floatsOf(text) {
  const bytes = bytesOf(text);
  return new Float32Array(bytes.buffer, 0, bytes.length >> 2);
}

async function answered(response) {
  if (response.ok) return response.json();
  let text = `${response.status} ${response.statusText}`;
  try {
    text = (await response.json()).error ?? text;
  } catch {
    // not JSON: the status says what there is to say
  }
  throw new Error(text);
}

/** Asks the server; questions of one kind that come together go in one request. */
export class ServerSource {
  live = true;

  /** The runs in the folder; `brief`: without verdicts, which nobody is to look for then. */
  async list(brief = false) {
    return answered(await fetch(brief ? "/api/runs?brief" : "/api/runs"));
  }

  about(run) {
    return fetch(`/api/run?run=${encodeURIComponent(run)}`).then(answered);
  }

  async curves(run, series, stat, points) {
    if (!series.length) return { x: [], values: [], bad: [], spans: false };
    const answer = await this.#ask("curves", { run, series, stat, points });
    return { ...answer, values: answer.values.map(floatsOf) };
  }

  async heat(run, series, columns) {
    return (await this.#ask("heat", { run, series, columns })).images;
  }

  /** The rows at a step, or at the latest (null); `finite` prefers the latest that has finite values. */
  async at(run, series, step, finite) {
    if (!series.length) return [];
    return (await this.#ask("at", step === null ? { run, series, finite } : { run, series, step })).rows;
  }

  /** The diff of two runs, or how far it is: {state: "ready", "working", "failed" or "seen", ...}. */
  diff(question) {
    return this.#ask("diff", question);
  }

  #ask(what, question) {
    const headers = { "Content-Type": "application/json" };
    return fetch(`/api/${what}`, { method: "POST", headers, body: JSON.stringify(question) }).then(answered);
  }

  /** One stream for the page: news of these runs, or of the list of all. */
  listen(runs, heard, lost) {
    const query = runs.map((run) => `run=${encodeURIComponent(run)}`).join("&");
    const stream = new EventSource(`/api/events?${query}`);
    stream.onmessage = (event) => heard(JSON.parse(event.data));
    stream.onerror = () => lost(true);
    stream.onopen = () => lost(false);
    return () => stream.close();
  }
}

/** Answers from what is written into the page. */
export class ReportSource {
  live = false;

  constructor(data) {
    this.data = data;
    this.bundles = data.curves.map((bundle) => ({
      ...bundle,
      place: new Map(bundle.series.map((number, place) => [number, place])),
    }));
  }

  static async open(text) {
    return new ReportSource(await unpacked(text));
  }

  async list() {
    return { runs: [], waiting: null };
  }

  async about() {
    return this.data.about;
  }

  async curves(_, series, stat) {
    const bundle = this.bundles.find((one) => one.place.has(series[0]));
    if (!bundle) return { x: [], values: [], bad: [], spans: false };
    const places = series.map((number) => bundle.place.get(number));
    return {
      x: bundle.x,
      spans: bundle.spans,
      values: places.map((place) => floatsOf(bundle.stats[stat][place])),
      bad: places.map((place) => bundle.bad[place]),
    };
  }

  async heat(_, series) {
    return series.map((number) => this.data.heat[number] ?? null);
  }

  async at(_, series, step, finite) {
    const steps = step === null ? [...this.data.about.atSteps].reverse() : [step];
    return series.map((number) => {
      const rows = steps.map((one) => this.data.at[one]?.[number]).filter(Boolean);
      return (finite && rows.find((row) => row.quantiles)) || (rows[0] ?? null);
    });
  }

  listen() {
    return () => {};
  }
}

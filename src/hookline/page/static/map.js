// map: one statistic of all layers over the steps: a row for each layer, a column for some steps, its size as a colour.

import { short, whole } from "./dom.js";
import { drawOnsets, drawStep, levelInk } from "./onsets.js";
import { Chart, FONT, drawWord } from "./plot.js";
import { VIRIDIS, mixed } from "./scales.js";

const TALLEST = 640;
const HIGH_ROW = 18;
const LOW_ROW = 2;
const MAP_TOP = 22;
const MAP_FOOT = 38;

/** `data`: {rows: [{name, site, level, values, bad}], starts, ends, range: {low, high, log, own}, onsets, step, chosen}. */
export class LayerMap extends Chart {
  constructor(label, go) {
    super({
      height: () => (this.data.rows.length ? MAP_TOP + MAP_FOOT + this.data.rows.length * this.#rowHeight() : 120),
      label,
      paint: (frame) => this.#paint(frame),
      probe: (frame, x, y) => this.#probe(frame, x, y),
      move: (frame, right, down) => this.#move(right, down),
      pick: () => this.at && go(this.data.rows[this.at.row], this.data.starts[this.at.column]),
    });
    this.data = { rows: [] };
    this.at = null;
  }

  show(data) {
    this.data = data;
    if (this.at && (this.at.row >= data.rows.length || this.at.column >= data.starts.length)) this.at = null;
    this.redraw();
  }

  #rowHeight() {
    return Math.max(LOW_ROW, Math.min(HIGH_ROW, Math.floor(TALLEST / this.data.rows.length)));
  }

  #paint(frame) {
    const { rows, starts, word } = this.data;
    frame.box = null;
    if (!rows.length || !starts.length) return drawWord(frame, word ?? "no numbers to draw");
    const { context } = frame;
    const widest = Math.max(...rows.map((row) => context.measureText(row.name).width)) + 26;
    const left = Math.round(Math.min(widest, Math.max(frame.width * 0.3, 96), 240));
    const [right, bottom] = [frame.width - 12, frame.height - MAP_FOOT];
    frame.box = { left, top: MAP_TOP, right, bottom, width: right - left, height: bottom - MAP_TOP };
    this.#cells(frame);
    this.#names(frame);
    this.#steps(frame);
    const place = (step) => this.#xOf(frame.box, step);
    const { box } = frame;
    drawStep(frame, this.data.step === null ? NaN : place(this.data.step), box.top, box.bottom);
    drawOnsets(frame, this.data.onsets ?? [], place, box.top, box.bottom);
    this.#begins(frame);
  }

  /** The middle of the column that holds a step. */
  #xOf(box, step) {
    const { starts } = this.data;
    const column = Math.max(starts.findLastIndex((start) => start <= step), 0);
    return box.left + ((column + 0.5) / starts.length) * box.width;
  }

  #cells(frame) {
    const { rows, starts } = this.data;
    const { context, box, ink } = frame;
    const pixels = new ImageData(starts.length, rows.length);
    rows.forEach((row, n) => {
      const share = this.#shares(row);
      for (let column = 0; column < starts.length; column++) {
        const value = row.values[column];
        if (Number.isFinite(value)) pixels.data.set([...mixed(VIRIDIS, share(value)), 255], 4 * (n * starts.length + column));
      }
    });
    const small = new OffscreenCanvas(starts.length, rows.length);
    small.getContext("2d").putImageData(pixels, 0, 0);
    context.fillStyle = ink.raised;
    context.fillRect(box.left, box.top, box.width, box.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, box.left, box.top, box.width, box.height);
    context.fillStyle = stripes(context, ink);
    const [wide, high] = [box.width / starts.length, box.height / rows.length];
    rows.forEach((row, n) => {
      for (const column of row.bad) {
        const [from, to] = [column, column + 1].map((at) => Math.round(box.left + at * wide));
        context.fillRect(from, box.top + n * high, Math.max(to - from, 2), high);
      }
    });
  }

  /** A function value -> place in the colours. */
  #shares(row) {
    const { range } = this.data;
    const { low, high } = range.own ? row.range : range;
    if (!(high > low)) return () => 0.5;
    if (!range.log) return (value) => (value - low) / (high - low);
    const [a, b] = [Math.log(low), Math.log(high)];
    return (value) => (value > 0 ? (Math.log(value) - a) / (b - a) : 0);
  }

  /** Names of rows as far as there is room; those of sick layers first. */
  #names(frame) {
    const { context, box, ink } = frame;
    const { rows, chosen } = this.data;
    const high = box.height / rows.length;
    const used = [];
    const order = rows.map((row, n) => n).sort((a, b) => weight(rows[a], chosen) - weight(rows[b], chosen) || a - b);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const n of order) {
      const y = box.top + (n + 0.5) * high;
      if (used.some((other) => Math.abs(other - y) < 13)) continue;
      used.push(y);
      const { name, level, site } = rows[n];
      const sick = ["error", "warning", "note"].includes(level);
      context.fillStyle = sick ? levelInk(ink, level) : ink.soft;
      context.font = sick || site === chosen ? `600 ${FONT}` : FONT;
      context.fillText(cut(context, name, box.left - 10), box.left - 6, y);
    }
    context.font = FONT;
    const row = rows.findIndex((one) => one.site === chosen);
    if (row < 0) return;
    context.strokeStyle = ink.text;
    context.strokeRect(box.left - 0.5, box.top + row * high - 0.5, box.width + 1, high + 1);
  }

  #steps(frame) {
    const { context, box, ink } = frame;
    const { starts } = this.data;
    const every = Math.max(1, Math.ceil(starts.length / Math.max(Math.floor(box.width / 80), 1)));
    context.fillStyle = ink.soft;
    context.strokeStyle = ink.line;
    context.textAlign = "center";
    context.textBaseline = "top";
    for (let column = 0; column < starts.length; column += every) {
      const x = Math.round(box.left + ((column + 0.5) / starts.length) * box.width) + 0.5;
      context.beginPath();
      context.moveTo(x, box.bottom);
      context.lineTo(x, box.bottom + 4);
      context.stroke();
      context.fillText(short(starts[column], 6), x, box.bottom + 7);
    }
    context.fillText("step", box.left + box.width / 2, box.bottom + 22);
  }

  /** A ring where something begins in a layer: causes and what follows from them. */
  #begins(frame) {
    const { context, box, ink } = frame;
    const { rows, begins } = this.data;
    const high = box.height / rows.length;
    for (const { step, level, site } of begins ?? []) {
      const row = rows.findIndex((one) => one.site === site);
      if (row < 0) continue;
      context.beginPath();
      context.arc(this.#xOf(box, step), box.top + (row + 0.5) * high, 5, 0, 7);
      context.fillStyle = ink.panel;
      context.fill();
      context.lineWidth = 2.5;
      context.strokeStyle = levelInk(ink, level);
      context.stroke();
      context.lineWidth = 1;
    }
  }

  #probe(frame, x, y) {
    if (!frame.box) return null;
    const inside = (share, count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    const { box } = frame;
    this.at = {
      column: inside((x - box.left) / box.width, this.data.starts.length),
      row: inside((y - box.top) / box.height, this.data.rows.length),
    };
    return this.#found();
  }

  #move(right, down) {
    if (!this.frame?.box) return null;
    const kept = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const { rows, starts } = this.data;
    const now = this.at ?? { column: starts.length - (right >= 0), row: down > 0 ? -1 : 0 }; // the first key shows the last column
    this.at = { column: kept(now.column + right, starts.length), row: kept(now.row + down, rows.length) };
    return this.#found();
  }

  #found() {
    const { rows, starts, ends, begins } = this.data;
    const { column, row } = this.at;
    const { name, values, bad, site } = rows[row];
    const to = starts[column] === ends[column] ? "" : ` to ${whole(ends[column])}`;
    const value = Number.isFinite(values[column]) ? short(values[column]) : bad.has(column) ? "" : "not recorded";
    const wrong = bad.has(column) ? "NaN or Inf" : "";
    const here = (begins ?? []).filter((one) => one.site === site && one.step >= starts[column] && one.step <= ends[column]);
    const told = [value, wrong, ...here.map(({ text }) => `${text} begins`)].filter(Boolean).join(", ");
    return {
      text: `${name}, step ${whole(starts[column])}${to}: ${told}`,
      mark: ({ context, ink, box }) => {
        const [wide, high] = [box.width / starts.length, box.height / rows.length];
        const [x, y] = [box.left + column * wide, box.top + row * high];
        context.lineWidth = 3;
        context.strokeStyle = ink.panel;
        context.strokeRect(x, y, Math.max(wide, 4), Math.max(high, 4));
        context.lineWidth = 1.5;
        context.strokeStyle = ink.text;
        context.strokeRect(x, y, Math.max(wide, 4), Math.max(high, 4));
        context.lineWidth = 1;
      },
    };
  }
}

function weight({ level, site }, chosen) {
  return site === chosen ? 0 : ["error", "warning", "note"].includes(level) ? 1 : 2;
}

/** A name that fits, its end kept: that is where layers differ. */
function cut(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  let text = name;
  while (text.length > 1 && context.measureText(`…${text}`).width > width) text = text.slice(1);
  return `…${text}`;
}

/** What NaN and Inf are drawn with: seen without colours, too. */
function stripes(context, ink) {
  const tile = new OffscreenCanvas(6, 6);
  const pen = tile.getContext("2d");
  pen.fillStyle = ink.panel;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = ink.bad;
  pen.lineWidth = 2;
  for (const shift of [-6, 0, 6]) {
    pen.beginPath();
    pen.moveTo(shift, 6);
    pen.lineTo(shift + 6, 0);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

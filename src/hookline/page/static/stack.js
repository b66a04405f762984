// stack: numbers of a training over the steps, a panel for each, all on one axis.

import { short, whole } from "./dom.js";
import { drawOnsets, drawStep } from "./onsets.js";
import { Chart, drawWord, drawX, drawY, room, xAt, yAt } from "./plot.js";
import { colours, linear, logarithmic } from "./scales.js";

const TOP = 22;
const TITLE = 20;
const FOOT = 38;
const GAP = 10;
const WIDE_RANGE = 300; // a number that spans more is drawn on a logarithmic scale

/** `data`: {panels: [{title, height, lines: [{name, x, values, bad, spans, second}]}], onsets, step}. */
export class Stack extends Chart {
  constructor(chosen) {
    super({
      height: () => TOP + FOOT + this.data.panels.reduce((sum, panel) => sum + panel.height + TITLE + GAP, 0),
      label: "Numbers of the training",
      paint: (frame) => this.#paint(frame),
      probe: (frame, x) => this.#probe(frame, x),
      move: (frame, right) => this.#move(right),
      pick: () => this.at !== null && chosen(this.at),
    });
    this.data = { panels: [] };
    this.at = null;
  }

  show(data) {
    this.data = data;
    const every = new Set(data.panels.flatMap(({ lines }) => lines.flatMap(({ x }) => [...x])));
    this.steps = [...every].sort((a, b) => a - b);
    this.redraw();
  }

  #paint(frame) {
    const { panels, onsets, step } = this.data;
    this.drawn = null;
    if (!this.steps?.length) return drawWord(frame, "no numbers to draw");
    const x = linear(this.steps[0], Math.max(this.steps.at(-1), this.steps[0] + 1));
    const { context, ink } = frame;
    this.drawn = { x, panels: [] };
    let top = TOP;
    panels.forEach((panel, n) => {
      room(frame, { left: 66, top: top + TITLE, bottom: frame.height - top - TITLE - panel.height });
      const colour = colours(Math.max(panel.lines.filter((line) => !line.second).length, 1), ink.dark);
      const y = scaleOf(panel.lines);
      this.#title(frame, panel, colour, top, y);
      if (y) {
        drawY(frame, y, "");
        for (const line of panel.lines) this.#line(frame, x, y, line, colour[line.colour]);
      } else {
        context.fillStyle = ink.soft;
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillText("no finite values", frame.box.left + frame.box.width / 2, frame.box.top + panel.height / 2);
      }
      for (const line of panel.lines) this.#bad(frame, x, line);
      this.drawn.panels.push({ ...panel, y, colour, box: frame.box });
      if (n === panels.length - 1) drawX(frame, x, "step");
      top += TITLE + panel.height + GAP;
    });
    const bottom = frame.box.bottom;
    const place = (at) => xAt(frame, x, at);
    drawStep(frame, step === null ? NaN : place(step), TOP, bottom);
    drawOnsets(frame, onsets ?? [], place, TOP, bottom);
  }

  /** The name of a panel, and which line is which where there are several. */
  #title(frame, { title, lines }, colour, top, y) {
    const { context, ink, box } = frame;
    context.textAlign = "left";
    context.textBaseline = "middle";
    const middle = top + TITLE / 2;
    context.fillStyle = ink.text;
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(title, box.left, middle);
    let left = box.left + context.measureText(title).width + 14;
    context.font = "12px system-ui, sans-serif";
    const own = lines.filter((line) => !line.second);
    const words = own.length > 1 && own.length <= 6 ? own.map((line, n) => [line.label, colour[n]]) : [];
    if (y?.log) words.push(["logarithmic", null]);
    for (const [text, mark] of words) {
      const wide = context.measureText(text).width + (mark ? 18 : 0);
      if (left + wide > box.right) break;
      if (mark) {
        context.fillStyle = mark;
        context.fillRect(left, middle - 2, 12, 4);
      }
      context.fillStyle = ink.soft;
      context.fillText(text, left + (mark ? 17 : 0), middle);
      left += wide + 14;
    }
  }

  #line(frame, x, y, line, colour) {
    const { context } = frame;
    context.save();
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 1.6;
    context.lineJoin = "round";
    context.setLineDash(line.second ? [5, 4] : []);
    context.beginPath();
    let [pen, alone] = [false, null];
    line.values.forEach((value, n) => {
      if (!Number.isFinite(value)) {
        pen = pen && !line.bad.has(n);
        return;
      }
      const [px, py] = [xAt(frame, x, line.x[n]), yAt(frame, y, value)];
      if (pen) context.lineTo(px, py);
      else context.moveTo(px, py);
      alone = pen ? null : [px, py];
      pen = true;
    });
    context.stroke();
    if (alone) {
      context.beginPath();
      context.arc(...alone, 3, 0, 7);
      context.fill();
    }
    context.restore();
  }

  #bad(frame, x, line) {
    frame.context.fillStyle = frame.ink.bad;
    for (const point of line.bad) frame.context.fillRect(xAt(frame, x, line.x[point]) - 1, frame.box.bottom - 6, 2, 6);
  }

  #probe(frame, px) {
    if (!this.drawn) return null;
    const box = this.drawn.panels[0].box;
    const wanted = this.drawn.x.back((px - box.left) / box.width);
    this.at = this.steps.reduce((best, step) => (Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best));
    return this.#found();
  }

  #move(right) {
    if (!this.drawn) return null;
    const last = this.steps.length - 1;
    const now = this.at === null ? last + (right < 0) : this.steps.indexOf(this.at); // the first key shows the last step
    this.at = this.steps[Math.min(Math.max(now + right, 0), last)];
    return this.#found();
  }

  #found() {
    const { panels, x } = this.drawn;
    const told = [];
    const dots = [];
    for (const { lines, y, colour, box } of panels) {
      for (const line of lines) {
        const point = line.x.indexOf(this.at);
        if (point < 0) continue;
        const value = line.values[point];
        if (Number.isNaN(value) && !line.bad.has(point)) continue;
        told.push(`${line.name} ${line.bad.has(point) && !Number.isFinite(value) ? "NaN or Inf" : short(value)}`);
        if (y && Number.isFinite(value)) dots.push([y, value, colour[line.colour], box]);
      }
    }
    const here = (this.data.onsets ?? []).filter(({ step }) => step === this.at).map(({ number }) => `finding ${number} begins`);
    return {
      text: `step ${whole(this.at)}: ${[...told, ...here].join(", ")}`,
      mark: (frame) => {
        const { context, ink } = frame;
        const px = Math.round(xAt({ box: panels[0].box }, x, this.at)) + 0.5;
        context.strokeStyle = ink.soft;
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(px, TOP);
        context.lineTo(px, panels.at(-1).box.bottom);
        context.stroke();
        for (const [y, value, colour, box] of dots) {
          context.fillStyle = colour;
          context.beginPath();
          context.arc(px, yAt({ box }, y, value), 4, 0, 7);
          context.fill();
        }
      },
    };
  }
}

function scaleOf(lines) {
  let [low, high] = [Infinity, -Infinity];
  for (const { values } of lines) {
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return null;
  if (low > 0 && high / low > WIDE_RANGE) return logarithmic(low * 0.8, high * 1.25);
  const pad = (high - low || Math.abs(high) || 1) * 0.08;
  return linear(low - (low >= 0 && low < pad ? low : pad), high + pad);
}

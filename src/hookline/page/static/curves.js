// curves: a statistic over the steps, a line for each site; a second run is dashed.

import { short, whole } from "./dom.js";
import { drawOnsets, drawStep } from "./onsets.js";
import { Chart, drawWord, drawX, drawY, room, xAt, yAt } from "./plot.js";
import { colours, linear, logarithmic } from "./scales.js";

/** `data`: {lines: [{name, x, values, bad, spans, colour: number, second}], log, yLabel, count}. */
export class Curves extends Chart {
  constructor() {
    super({
      height: (width) => Math.max(240, Math.min(380, width * 0.42)),
      label: "Curves",
      paint: (frame) => this.#paint(frame),
      probe: (frame, x, y) => this.#probe(frame, x, y),
      move: (frame, right, down) => this.#move(frame, right, down),
    });
    this.data = { lines: [] };
    this.at = { line: 0, point: -1 };
  }

  show(data) {
    this.data = data;
    this.at.line = Math.min(this.at.line, Math.max(data.lines.length - 1, 0));
    this.redraw();
  }

  #scales(lines) {
    let [x0, x1, low, high, positive] = [Infinity, -Infinity, Infinity, -Infinity, Infinity];
    for (const { x, values } of lines) {
      x0 = Math.min(x0, x[0] ?? Infinity);
      x1 = Math.max(x1, x.at(-1) ?? -Infinity);
      for (const value of values) {
        if (value < low) low = value;
        if (value > high) high = value;
        if (value > 0 && value < positive) positive = value;
      }
    }
    if (low > high) return null;
    const steps = linear(x0, x1 > x0 ? x1 : x0 + 1);
    const log = this.data.log === "log" || (this.data.log === "auto" && this.data.logByDefault && low >= 0);
    if (log && high > 0) {
      const floor = Math.max(positive, high * 1e-12);
      return [steps, logarithmic(floor * 0.8, Math.max(high * 1.25, floor * 2))];
    }
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    return [steps, linear(low - (low >= 0 && low < pad ? low : pad), high + pad)];
  }

  #paint(frame) {
    const { lines } = this.data;
    const scales = lines.length ? this.#scales(lines) : null;
    this.drawn = null;
    if (!scales) return drawWord(frame, this.data.word ?? "no numbers to draw");
    const [x, y] = scales;
    const onsets = this.data.onsets ?? [];
    room(frame, { left: 66, top: onsets.length ? 22 : 12 });
    drawY(frame, y, this.data.yLabel);
    drawX(frame, x, "step");
    const { context } = frame;
    const colour = colours(this.data.count, frame.ink.dark);
    context.save();
    context.beginPath();
    context.rect(frame.box.left, frame.box.top - 4, frame.box.width + 2, frame.box.height + 8);
    context.clip();
    context.lineWidth = lines.length > 40 ? 1 : 1.6;
    context.lineJoin = "round";
    for (const line of lines) {
      context.strokeStyle = colour[line.colour];
      context.globalAlpha = lines.length > 40 ? 0.75 : 1;
      context.setLineDash(line.second ? [5, 4] : []);
      this.#stroke(frame, x, y, line, colour[line.colour]);
    }
    context.restore();
    for (const line of lines) this.#bad(frame, x, line);
    const place = (step) => xAt(frame, x, step);
    drawStep(frame, this.data.step === null ? NaN : place(this.data.step), frame.box.top, frame.box.bottom);
    drawOnsets(frame, onsets, place, frame.box.top, frame.box.bottom);
    this.drawn = { lines, x, y, colour };
  }

  #stroke(frame, x, y, line, colour) {
    const { context } = frame;
    let pen = false;
    let alone = null;
    context.beginPath();
    for (let n = 0; n < line.x.length; n++) {
      const value = line.values[n];
      if (!Number.isFinite(value) || (y.log && value <= 0)) {
        if (Number.isNaN(value) && !line.bad.has(n)) continue; // it was not recorded here
        pen = false;
        continue;
      }
      const [px, py] = [xAt(frame, x, line.x[n]), yAt(frame, y, value)];
      if (pen) context.lineTo(px, py);
      else context.moveTo(px, py);
      alone = pen ? null : [px, py];
      pen = true;
    }
    context.stroke();
    if (alone) {
      context.fillStyle = colour;
      context.beginPath();
      context.arc(...alone, 3, 0, 7);
      context.fill();
    }
  }

  /** Steps with NaN or Inf: marks at the foot of the chart. */
  #bad(frame, x, line) {
    frame.context.fillStyle = frame.ink.bad;
    for (const point of line.bad) frame.context.fillRect(xAt(frame, x, line.x[point]) - 1, frame.box.bottom - 6, 2, 6);
  }

  #probe(frame, px, py) {
    if (!this.drawn || px < frame.box.left - 8) return null;
    const { lines, x, y } = this.drawn;
    let best = null;
    lines.forEach((line, number) => {
      const point = nearest(line.x, x.back((px - frame.box.left) / frame.box.width));
      for (let n = Math.max(point - 2, 0); n <= Math.min(point + 2, line.x.length - 1); n++) {
        if (!Number.isFinite(line.values[n])) continue;
        const far = Math.hypot(xAt(frame, x, line.x[n]) - px, yAt(frame, y, line.values[n]) - py);
        if (!best || far < best.far) best = { far, line: number, point: n };
      }
    });
    if (!best) return null;
    this.at = best;
    return this.#found();
  }

  #move(frame, right, down) {
    if (!this.drawn) return null;
    const { lines } = this.drawn;
    const line = Math.min(Math.max(this.at.line + down, 0), lines.length - 1);
    const last = lines[line].x.length - 1;
    const point = this.at.point < 0 ? last : Math.min(Math.max(this.at.point + right, 0), last);
    this.at = { line, point };
    return this.#found();
  }

  #found() {
    const { lines, x, y, colour } = this.drawn;
    const line = lines[this.at.line];
    const { point } = this.at;
    const value = line.values[point];
    let where = `step ${whole(line.x[point])}`;
    if (line.spans) where = `steps ${whole(line.x[point - (point % 2)])} to ${whole(line.x[point - (point % 2) + 1])}`;
    const marked = line.bad.has(line.spans ? point - (point % 2) : point) ? ", NaN or Inf here" : "";
    return {
      text: `${line.name}, ${where}: ${short(value)}${marked}`,
      mark: (frame) => {
        const { context, box } = frame;
        context.strokeStyle = frame.ink.panel;
        context.lineWidth = 5;
        this.#stroke(frame, x, y, line, colour[line.colour]);
        context.strokeStyle = colour[line.colour];
        context.lineWidth = 2.5;
        this.#stroke(frame, x, y, line, colour[line.colour]);
        context.lineWidth = 1;
        context.strokeStyle = frame.ink.soft;
        const px = Math.round(xAt(frame, x, line.x[point])) + 0.5;
        context.beginPath();
        context.moveTo(px, box.top);
        context.lineTo(px, box.bottom);
        context.stroke();
        if (!Number.isFinite(value)) return;
        context.fillStyle = colour[line.colour];
        context.beginPath();
        context.arc(px, yAt(frame, y, value), 4, 0, 7);
        context.fill();
      },
    };
  }
}

function nearest(sorted, value) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
}
